"""Several videos in one request: the sequence is the processor's own, the limits are of the whole request."""

import csv
import io
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from served_models import cases
from tiny_frame_models import frame_family
from tiny_grid_models import grid_family

from evs_cli.dialects.base import ServerOptions, ServerSource
from evs_cli.encoders.base import EncodeOptions
from evs_cli.encoders.frame_times import true_times
from evs_cli.errors import BudgetError
from evs_cli.jobs.fit import FitRequest
from evs_cli.jobs.fit_run import fit_together
from evs_cli.jobs.plan import BudgetJob, PlanRequest
from evs_cli.jobs.together import plan_together, together_refusal
from evs_cli.pipeline.clips import NumbersRequest
from evs_cli.pipeline.planner import Planner
from evs_cli.pipeline.request import make_request
from evs_cli.pipeline.together import RequestClips
from evs_cli.video.sampling import SamplingRequest

STACKED = ("nemotron_h_omni", "smolvlm", "internvl")
"""Families whose own processor stacks the videos of one call."""
PROMPT = EncodeOptions(prompt="What moves?", system="Be brief.")

FAMILIES = [
    *("qwen2_5_vl", "qwen3_vl", "nemotron_h_omni", "internvl", "llava_onevision", "smolvlm"),
    *("glm4v", "video_llama_3"),
]


@pytest.fixture
def encoder_of(tiny_model):
    def encoder(model_type):
        if model_type in ("qwen2_5_vl", "qwen3_vl", "nemotron_h_omni"):
            folder = tiny_model(model_type)
        elif model_type in ("glm4v", "video_llama_3"):
            folder = grid_family(model_type).folder
        else:
            folder = frame_family(model_type).folder
        return BudgetJob(make_request(model=str(folder))).encoder

    return encoder


def ids_of(encoder, plan, metadata, text):
    """What the checkpoint's own processor makes of zero frames of each planned video."""
    videos = [torch.zeros((clip.num_sampled_frames, 3, *size), dtype=torch.uint8) for clip, size in plan]
    outputs = encoder.processor(
        text=[text],
        videos=videos,
        video_metadata=metadata,
        do_sample_frames=False,
        input_data_format="channels_first",
        return_tensors="pt" if encoder.source.model_type in STACKED else None,
        **encoder.tokenizer_arguments(text),
        **getattr(encoder, "call_arguments", {}),
    )
    return list(outputs["input_ids"][0])


@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_length_is_the_processors_own(encoder_of, model_type):
    encoder = encoder_of(model_type)
    numbers = [NumbersRequest(84, 112, frames=6), NumbersRequest(112, 84, frames=4), NumbersRequest(84, 112, frames=2)]
    if model_type in STACKED:
        numbers = [numbers[0]] * 3
    clips = RequestClips([Planner(encoder).clips_of_numbers(each) for each in numbers], encoder)
    plan = clips.plan(SamplingRequest(), PROMPT)
    sizes = [(clip, (clip.source.height, clip.source.width)) for clip in plan.clips]
    times = [true_times(clip.clip, clip.clip.pts_seconds) for clip in plan.clips]
    ids = ids_of(encoder, sizes, times, encoder.prompt_text(PROMPT, 3))
    assert plan.sequence_length() == len(ids)
    alone = [clips.clips[index].plan(SamplingRequest(), EncodeOptions()).encode for index in range(3)]
    parts = sum(each.sequence_length(0.6) for each in alone)
    assert plan.sequence_length(0.6) == len(ids) - plan.total_tokens + plan.retained_tokens(0.6)
    # InternVL's text runs into its frames' text, so that one more id joins them here.
    assert abs(plan.sequence_length(0.6) - clips.text_tokens(PROMPT) - parts) <= (3 if model_type == "internvl" else 0)
    assert plan.retained_tokens(0.6) == sum(each.retained_tokens(0.6) for each in alone)


@pytest.mark.parametrize("dialect", ["hf", "vllm", "sglang"])
@pytest.mark.parametrize("model_type", ["qwen2_5_vl", "qwen3_vl", "nemotron_h_omni"])
def test_a_servers_ids_are_the_processors_own(tiny_model, model_type, dialect):
    from evs_cli.dialects import parse_dialect
    from evs_cli.dialects.served import ServedPlanner, SourceTimes

    encoder = BudgetJob(make_request(model=str(tiny_model(model_type)))).encoder
    planner = ServedPlanner(parse_dialect(dialect), encoder, ServerOptions(), SamplingRequest())
    sources = [ServerSource(57, 24000 / 1001, 90, 120), ServerSource(40, 10.0, 90, 120)]
    if model_type == "nemotron_h_omni":  # its own processor stacks the videos of one call
        sources = [sources[0]] * 2
    served = [
        planner.plan(
            source,
            SourceTimes(np.arange(source.num_frames) / source.average_fps, source.duration_seconds),
            SamplingRequest(),
            PROMPT,
        ).server
        for source in sources
    ]
    ids = planner.request_sequence(served, [[each.tokens_per_frame] * each.token_grid_thw.t for each in served], PROMPT)
    text = encoder.prompt_text(PROMPT, 2)
    videos = [
        torch.zeros((len(each.frame_indices), 3, *(each.resizes[0] if len(each.resizes) > 1 else (90, 120))))
        for each in served
    ]
    metadata = [
        {
            "fps": source.average_fps,
            "frames_indices": each.frame_indices.tolist(),
            "total_num_frames": source.num_frames,
        }
        for source, each in zip(sources, served, strict=True)
    ]
    own = encoder.processor(
        text=[text],
        videos=[video.to(torch.uint8) for video in videos],
        video_metadata=metadata,
        do_sample_frames=False,
        input_data_format="channels_first",
    )["input_ids"][0]
    pad = encoder.processor.tokenizer.convert_tokens_to_ids(served[0].placeholder)
    if (model_type, dialect) == ("nemotron_h_omni", "sglang"):  # its size is its own
        own, ids = ([id_ for id_ in each if id_ != pad] for each in (own, ids))
    assert list(ids) == list(own)
    assert planner.sequence_length(served, 0.0, PROMPT) == len(ids) or "sglang" in dialect


SIZE = ("--height", 360, "--width", 640)


def two_numbers(seconds):
    return [NumbersRequest(360, 640, duration_seconds=each) for each in seconds]


def job_of(model, dialect="vllm", **request):
    return BudgetJob(make_request(model=str(model), dialect=dialect, prompt="What moves?", **request))


def test_two_that_fit_alone_do_not_fit_together(served_checkpoint):
    """8,882 and 1,370 ids each pass a context of 9,500; the request of both does not."""
    model, limits = served_checkpoint("qwen3_vl"), PlanRequest(None, 9500)
    numbers = two_numbers([37.5, 6.0])
    job = job_of(model)
    alone = [outcome.result.rates[0] for outcome in job.plan(numbers, limits)]
    assert all(rate.limit_hit is None for rate in alone)
    account = plan_together(job, numbers, limits)
    (rate,) = account.rates
    text = account.text_tokens
    assert account.unpruned_sequence_length == rate.sequence_length
    assert rate.sequence_length == sum(each.sequence_length for each in alone) - text  # the text stands once
    assert rate.retained_tokens == sum(each.retained_tokens for each in alone)
    assert (rate.limit_hit, rate.sequence_length > 9499) == ("context", True)
    refusal = together_refusal(account, 9500)
    assert isinstance(refusal, BudgetError)
    assert "one request with 2 videos runs into the context of vllm@0.33" in refusal.message


def test_each_limit_counts_the_request_as_the_server_does(served_checkpoint):
    """Decoded bytes are summed, the encoder cache holds one item at a time, a frame is one frame."""
    numbers = [NumbersRequest(360, 640, duration_seconds=10.0), NumbersRequest(720, 1280, duration_seconds=5.0)]
    job = job_of(served_checkpoint("qwen3_vl"), video_pruning_rate=0.5)
    alone = [{w.name: w.used for w in o.result.rates[-1].server_limits} for o in job.plan(numbers, PlanRequest())]
    (_, rate) = plan_together(job, numbers, PlanRequest()).rates
    used = {limit.name: limit.used for limit in rate.limits}
    assert used["decoded bytes"] == alone[0]["decoded bytes"] + alone[1]["decoded bytes"]
    assert used["encoder cache"] == max(each["encoder cache"] for each in alone)
    assert used["frame pixels"] == 720 * 1280
    assert used["number of videos"] == 2
    assert "number of videos" not in alone[0]


@pytest.mark.parametrize(
    ("line", "most"),
    [
        ("vllm serve m", 999),
        ("vllm serve m --limit-mm-per-prompt.video 1", 1),
        ("""python -m sglang.launch_server --model-path m --limit-mm-data-per-request '{"video": 1}'""", 1),
        ("python -m sglang.launch_server --model-path m", None),
    ],
)
def test_the_servers_limit_of_videos(served_checkpoint, line, most):
    model = str(served_checkpoint("qwen3_vl"))
    job = BudgetJob(make_request(model=model, server_cmd=line, prompt="a"))
    account = plan_together(job, two_numbers([4.0, 4.0]), PlanRequest())
    found = [limit.limit for limit in account.rates[0].limits if limit.name == "number of videos"]
    assert found == ([] if most is None else [most])
    refusal = together_refusal(account, None)
    assert (refusal is not None) == (most == 1)
    if refusal is not None:
        assert "2 videos, 1 are allowed" in refusal.message
        assert "send at most 1 in one request" in refusal.hint


def test_vllms_own_glm_takes_one_video():
    job = job_of(grid_family("glm4v").folder)
    account = plan_together(job, [NumbersRequest(84, 112, duration_seconds=4.0)] * 2, PlanRequest())
    limit = next(limit for limit in account.rates[0].limits if limit.name == "number of videos")
    assert (limit.limit, limit.option) == (1, "the model's own")
    assert together_refusal(account, None).hint == "Send at most 1 in one request."


@pytest.mark.parametrize(
    ("dialect", "fault", "takes_lengths"),
    [
        ("sglang", "counts every video of a request by the frame size of the first", True),
        ("hf", "only where they have one number of frames and one size", False),
        ("vllm", None, True),
    ],
)
def test_nemotrons_that_do_not_go_together(tiny_model, dialect, fault, takes_lengths):
    """SGLang counts every video by the first one's frames; transformers stacks them all."""
    job = job_of(tiny_model("nemotron_h_omni"), dialect)
    wide, tall = NumbersRequest(280, 420, duration_seconds=4.0), NumbersRequest(420, 280, duration_seconds=4.0)
    longer = NumbersRequest(280, 420, duration_seconds=9.0)
    for numbers, is_taken in (([wide, wide], True), ([wide, longer], takes_lengths), ([wide, tall], fault is None)):
        if is_taken:
            assert plan_together(job, numbers, PlanRequest()).rates
            continue
        with pytest.raises(BudgetError, match=fault):
            plan_together(job, numbers, PlanRequest())


@cases(40, daily=10)
@given(
    checkpoint=st.sampled_from(["qwen2_5_vl", "qwen3_vl", "nemotron_12b"]),
    dialect=st.sampled_from(["vllm", "sglang"]),
    seconds=st.lists(st.floats(2.0, 40.0), min_size=2, max_size=3),
    share=st.floats(0.2, 1.3),
    reserve=st.sampled_from([0, 40]),
)
def test_every_line_of_fit_gives_its_numbers_when_it_is_planned(
    served_checkpoint, checkpoint, dialect, seconds, share, reserve
):
    model, numbers = str(served_checkpoint(checkpoint)), two_numbers(seconds)
    job = job_of(model, dialect)
    whole = plan_together(job, numbers, PlanRequest([0.0])).unpruned_sequence_length
    context = max(300, int(whole * share))
    try:
        report = fit_together(job, numbers, FitRequest(context=context, reserve=reserve))
    except BudgetError:
        return
    assert report.best is min(report.choices, key=lambda each: (each.q, -each.num_sampled_frames))
    for choice in report.choices:
        body = choice.server.request
        *system, message = body["messages"]
        assert sum("video_url" in part for part in message["content"]) == len(numbers)
        asked = dict(body.get("media_io_kwargs", {}).get("video", {}))
        edges = {"shortest_edge": "min_pixels", "longest_edge": "max_pixels"}
        which = "frame" if checkpoint == "qwen2_5_vl" else "video"
        size = body.get("mm_processor_kwargs", {}).get("size", {})
        asked |= {f"{which}_{edges[edge]}": pixels for edge, pixels in size.items()}
        asked |= {"system": system[0]["content"]} if system else {}
        again = BudgetJob(
            make_request(server_cmd=choice.server.command, prompt=message["content"][-1]["text"], **asked)
        )
        account = plan_together(again, numbers, PlanRequest(reserve=reserve))
        rate = account.rates[-1]
        assert (rate.q, rate.sequence_length, rate.retained_tokens) == (
            choice.q,
            choice.sequence_length,
            choice.retained_tokens,
        )
        assert rate.limit_hit is None
        assert sum(video.retained_tokens for video in choice.videos) == choice.retained_tokens


PAIR = ("samples/crossing.mp4", "samples/pan.mp4")


def test_the_command_line_tells_the_account(evs, served_checkpoint):
    line = ["plan", *PAIR, "--together", "--model", served_checkpoint("qwen3_vl"), "--dialect", "vllm", "--prompt", "a"]
    code, out, err = evs(*line)
    assert code == 0, err
    assert "one request with these 2 videos" in out
    assert "number of videos 2 of 999 videos: 997 left" in out
    assert "fits" not in out  # no clip is judged alone
    _, out, _ = evs(*line, "--json")
    document = json.loads(out)
    together = document["together"]
    assert together["videos"] == [video["video"] for video in document["videos"]] == list(PAIR)
    rate = together["rates"][0]
    assert next(wall for wall in rate["walls"] if wall["name"] == "context")["used"] == rate["sequence_length"]
    _, out, _ = evs(*line, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["video"] for row in rows] == [*PAIR, "together"]
    assert int(rows[-1]["sequence_length"]) == rate["sequence_length"]

    code, _, err = evs(*line, "--context", rate["sequence_length"])
    assert code == 6
    assert "runs into the context" in err
    code, out, err = evs("plan", *PAIR, "samples/gone.mp4", "--together", "--json")
    assert code == 1
    assert json.loads(out)["together"] is None


def test_fit_together_on_the_command_line(evs):
    """Two clips of 9,000 ids each: at q = 0.48 they are 9,398, and one step less is over 9,500."""
    line = ["fit", *PAIR, "--together", "--context", 9500]
    code, out, err = evs(*line)
    assert code == 0, err
    assert "2 videos in one request" in out
    assert "q = 0.48 fits 9,500 tokens: 18,000 ids become 9,398." in out
    _, out, _ = evs(*line, "--json")
    together = json.loads(out)["together"]
    present = together["present"]
    assert present["q"] == 0.48
    for q, code in ((0.48, 0), (0.47, 6)):
        assert evs("plan", *PAIR, "--together", "--context", 9500, "--q", q)[0] == code
    assert [video["num_sampled_frames"] for video in present["videos"]] == [20, 20]
    assert together["best"] in together["others"]
    assert together["best"]["q"] == 0
    assert [video["num_sampled_frames"] for video in together["best"]["videos"]] == [20, 20]
    _, out, _ = evs(*line, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["is_best"] for row in rows].count("True") == 1
    assert rows[0]["command"].startswith(f"evs prune {PAIR[0]} {PAIR[1]} ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", PAIR[0], "--together"], "Expected two VIDEO or more"),
        (["plan", *PAIR, "--together", "--sort", "tokens"], "--sort has no effect with --together"),
        (["plan", *PAIR, "--together", "--details"], "--details has no effect with --together"),
        (["plan", *PAIR, "--together", "--dialect", "all"], "--together has no effect with several dialects"),
        (["plan", *PAIR, "--together", "--min-dissimilarity", "0.1"], "--min-dissimilarity has no effect"),
        (["fit", PAIR[0], "--together", "--context", "4k"], "Expected two VIDEO or more"),
        (["fit", *PAIR, "--together", "--context", "4k", "--details"], "--details has no effect with --together"),
    ],
)
def test_what_has_no_effect_is_refused(evs, arguments, message):
    code, _, err = evs(*arguments)
    assert code == 2
    assert message in err
