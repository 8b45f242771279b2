"""``--dialect`` on the command line: the row a server, the limits and their borders, the lines of ``fit``."""

import csv
import io
import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from served_models import cases
from tiny_grid_models import grid_family

from evs_cli.dialects.server_command import parse_server_command
from evs_cli.dialects.server_options import parse_server_options
from evs_cli.errors import BudgetError
from evs_cli.jobs.fit import FitRequest
from evs_cli.jobs.fit_run import run_fit
from evs_cli.jobs.plan import BudgetJob, PlanRequest, refusal_of
from evs_cli.pipeline.clips import NumbersRequest
from evs_cli.pipeline.request import make_request

SAMPLE = "samples/crossing.mp4"
TRAINING = ["qwen-vl-utils@0.0.14", "llamafactory@0.9.5", "ms-swift@4.6", "verl@0.9"]
NAMES = ["evs", "hf@5.24", *TRAINING, "vllm@0.33", "sglang@0.5.23"]


def report_of(model, numbers, rates=None, context=None, **request):
    (outcome,) = BudgetJob(make_request(model=str(model), **request)).plan([numbers], PlanRequest(rates, context))
    return outcome.result


def test_all_prints_a_row_a_server(evs, tiny_model):
    model = tiny_model("qwen2_5_vl")
    code, out, err = evs("plan", SAMPLE, "--model", model, "--dialect", "all")
    assert code == 0
    rows = [line.split() for line in out.splitlines()[2:]]
    assert [row[0] for row in rows] == NAMES
    assert [row[1] for row in rows] == ["20", "200", "20", "20", "20", "20", "20", "20"]
    assert "sglang@0.5.23: the model is told 24 fps, 12 times too fast" in err
    code, out, _ = evs("plan", SAMPLE, "--model", model, "--dialect", "all", "--json")
    documents = json.loads(out)["videos"]
    assert [document["dialect"] for document in documents] == NAMES
    assert documents[6]["server_source"] == {"num_frames": 200, "average_fps": 20.0, "height": 256, "width": 448}
    assert {wall["name"] for wall in documents[6]["rates"][0]["walls"]} == {
        *("context", "encoder cache", "decoded bytes", "frame pixels"),
    }
    code, out, _ = evs("plan", SAMPLE, "--model", model, "--dialect", "all", "--format", "csv")
    found = list(csv.DictReader(io.StringIO(out)))
    assert [row["dialect"] for row in found] == NAMES
    assert found[1]["limit_hit"] == ""


def test_all_tells_what_a_server_refuses(evs, served_checkpoint):
    code, out, err = evs("plan", SAMPLE, "--model", served_checkpoint("nemotron_12b"), "--dialect", "all")
    assert code == 0
    assert [line.split()[-1] for line in out.splitlines()[2:8]] == ["refused"] * 6
    assert "hf@5.24: transformers 5.24 has no processor of Nemotron Nano VL 12B v2" in err


def test_all_ends_with_6_where_no_server_takes_it(evs, tiny_model):
    code, _, err = evs("plan", SAMPLE, "--model", tiny_model("qwen3_vl"), "--dialect", "all", "--context", 50)
    assert code == 6
    assert "sglang@0.5.23" in err


def test_all_of_a_video_that_cannot_be_read_ends_as_every_plan_of_it(evs, tiny_model):
    line = ("--model", tiny_model("qwen3_vl"), "--dialect", "all", "--json")
    code, out, err = evs("plan", "missing.mp4", *line)
    assert code == 3
    assert {record["exit_code"] for record in json.loads(out)["videos"]} == {3}
    assert err == "Error: cannot open missing.mp4: no such file.\n"
    code, _, err = evs("plan", "missing.mp4", SAMPLE, *line)
    assert code == 1
    assert err.endswith("Error: 1 of 2 videos failed: missing.mp4.\n")


@pytest.mark.parametrize("checkpoint", ["qwen2_5_vl", "qwen3_vl", "nemotron_12b"])
def test_one_name_means_one_thing_in_every_part_of_the_answer(evs, served_checkpoint, checkpoint):
    """The share of the context is that of the limit asked for; every dialect counts the marks around a video."""
    size = ["--height", 360, "--width", 640, "--duration", 4, "--q", "0,0.5"]
    line = ["plan", *size, "--model", served_checkpoint(checkpoint), "--dialect", "all", "--prompt", "Why?", "--json"]
    around = {"qwen2_5_vl": 2, "qwen3_vl": 2, "nemotron_12b": 0}[checkpoint]
    for context in ([], ["--context", 50_000]):
        code, out, err = evs(*line, *context)
        assert code == 0, err
        documents = [document for document in json.loads(out)["videos"] if "error" not in document]
        assert len(documents) >= 2  # evs and transformers cannot run Nemotron 12B
        # LLaMA-Factory writes no marks around Qwen3-VL's frames, which have marks of their own.
        unmarked = {"llamafactory@0.9.5"} if checkpoint == "qwen3_vl" else set()
        for document in documents:
            assert document["outer_tokens"] == (0 if document["dialect"] in unmarked else around)
        for document in documents:
            limit = document["context_limit"]
            assert limit == (50_000 if context else 131_072 if checkpoint == "nemotron_12b" else 128_000)
            for rate in document["rates"]:
                assert rate["context_share"] == rate["sequence_length"] / limit
                if rate["cost"] is not None:
                    assert rate["cost"]["context_limit_tokens"] == limit
                    assert rate["cost"]["pruned"]["context_share"] == rate["context_share"]


def test_another_version_is_refused(evs, tiny_model):
    code, _, err = evs("plan", SAMPLE, "--model", tiny_model("qwen3_vl"), "--dialect", "vllm@0.31.1")
    assert code == 2
    assert (
        "Invalid dialect 'vllm@0.31.1': the rules of that version are not known. Expected vllm@0.32 or vllm@0.33."
        in err
    )


def test_a_server_line_alone_is_enough(evs, tiny_model):
    model = tiny_model("qwen3_vl")
    line = f"vllm serve {model} --video-pruning-rate 0.5 --max-model-len 400"
    code, out, _ = evs("plan", SAMPLE, "--server-cmd", line)
    assert code == 0
    assert "q = 0.5 (--video-pruning-rate)" in out
    assert "of 399 tokens" in out


def test_q_where_a_server_does_not_prune(evs, tiny_model):
    code, out, err = evs("plan", SAMPLE, "--model", tiny_model("qwen3_vl"), "--dialect", "sglang", "--q", 0.5)
    assert code == 0
    assert "--q has no effect: SGLang prunes Nemotron alone" in err
    assert "q = 0.5" not in out


def test_a_rate_the_server_would_not_prune_at_is_said(evs, tiny_model):
    line = ["prune", SAMPLE, "--model", tiny_model("qwen3_vl"), "--dialect", "sglang", "--q", 0.5, "--dry-run"]
    code, _, err = evs(*line)
    assert code == 0
    assert "sglang@0.5.23 would prune nothing: SGLang prunes Nemotron alone" in err


def test_the_answer_needs_room(tiny_model):
    """A server refuses a prompt that leaves no id for the answer."""
    numbers = NumbersRequest(90, 120, duration_seconds=10.0)
    model = tiny_model("qwen3_vl")
    length = report_of(model, numbers, dialect="vllm").unpruned_sequence_length
    assert refusal_of(report_of(model, numbers, context=length + 1, dialect="vllm"), None) is None
    assert refusal_of(report_of(model, numbers, context=length, dialect="vllm"), None)
    assert refusal_of(report_of(model, numbers, context=length), length) is None  # evs leaves that to --reserve


@cases(25, daily=8)
@given(
    seconds=st.floats(1.0, 200.0),
    fps=st.sampled_from([10.0, 24000 / 1001, 30.0]),
    height=st.integers(64, 2000),
    width=st.integers(64, 2000),
    q=st.sampled_from([0.0, 0.3, 0.8]),
    checkpoint=st.sampled_from(["qwen2_5_vl", "qwen3_vl", "nemotron_12b"]),
)
def test_the_longest_clip_is_the_longest(served_checkpoint, seconds, fps, height, width, q, checkpoint):
    """It passes, and a frame more does not: the border of each limit, to the frame."""
    request = make_request(
        model=str(served_checkpoint(checkpoint)), dialect="vllm", media_io_kwargs='{"video": {"fps": 2}}'
    )
    job = BudgetJob(request)

    def limits_at(num_frames):
        numbers = NumbersRequest(height, width, duration_seconds=num_frames / fps, source_fps=fps)
        (outcome,) = job.plan([numbers], PlanRequest([q], 6000))
        return {limit.name: limit for limit in outcome.result.rates[0].server_limits}

    for name, limit in limits_at(max(2, round(seconds * fps))).items():
        if limit.longest_seconds is None:
            assert limits_at(500_000)[name].passes
        elif limit.longest_seconds > 0.2:  # below two tubelets the server refuses the clip
            num_frames = round(limit.longest_seconds * fps)
            assert limits_at(num_frames)[name].passes
            assert not limits_at(num_frames + 1)[name].passes


@pytest.mark.parametrize("dialect", ["hf", "vllm", "sglang"])
@pytest.mark.parametrize("model_type", ["qwen2_5_vl", "qwen3_vl", "nemotron_h_omni"])
def test_every_choice_of_fit_is_true_when_its_lines_are_planned(evs, tiny_model, model_type, dialect):
    model = str(tiny_model(model_type))
    own = report_of(model, NumbersRequest(280, 420, duration_seconds=12.0), dialect=dialect)
    context = max(90, int(own.unpruned_sequence_length * 0.6))
    size = ["--height", 280, "--width", 420, "--duration", 12]
    line = ["fit", *size, "--model", model, "--dialect", dialect, "--context", context, "--reserve", 8, "--json"]
    code, out, err = evs(*line)
    if code == 6:  # nothing may be changed of SGLang's Nemotron but q, which frame 0 bounds
        assert (model_type, dialect) == ("nemotron_h_omni", "sglang"), err
        return
    assert code == 0, err
    (document,) = json.loads(out)["videos"]
    for choice in [document["present"], *document["others"]]:
        if choice is None:
            continue
        assert choice["sequence_length"] <= context - 8
        words = shlex.split(choice["command"])
        given = dict(zip(words[3::2], words[4::2], strict=True))
        again = [part for pair in given.items() if pair[0] not in ("--q",) for part in pair]
        _, out, err = evs("plan", *size, *again, "--q", given["--q"], "--json")
        (plan,) = json.loads(out)["videos"]
        assert plan["rates"][-1]["sequence_length"] == choice["sequence_length"], (choice, err)
        assert len(plan["frames"]) == choice["num_sampled_frames"]
        if choice["server"]["command"] is None:
            assert dialect == "hf"
            continue
        command = parse_server_command(choice["server"]["command"])
        assert command.model == model
        options = parse_server_options(command.dialect, **command.options)
        assert options.max_model_len == context
        assert choice["server"]["request"]["max_tokens"] == 8
        if dialect == "vllm":
            assert (options.video_pruning_rate or 0) == choice["q"]


SIZE_OPTIONS = {
    "qwen2_5_vl": {"shortest_edge": "frame_min_pixels", "longest_edge": "frame_max_pixels"},
    "qwen3_vl": {"shortest_edge": "video_min_pixels", "longest_edge": "video_max_pixels"},
}
"""How ``evs`` says the edges of ``size`` that a request says."""


def planned_again(server, numbers, checkpoint):
    """The plan of a server line and a request that ``fit`` printed, given back to ``plan --server-cmd``."""
    body = server.request
    asked = dict(body.get("media_io_kwargs", {}).get("video", {}))
    size = body.get("mm_processor_kwargs", {}).get("size", {})
    asked |= {SIZE_OPTIONS[checkpoint][edge]: pixels for edge, pixels in size.items()}
    *system, message = body["messages"]
    if system:
        asked["system"] = system[0]["content"]
    request = make_request(server_cmd=server.command, prompt=message["content"][1]["text"], **asked)
    job = BudgetJob(request)
    (outcome,) = job.plan([numbers], PlanRequest(None, None, reserve=body.get("max_tokens", 0)))
    return outcome


@cases(60, daily=24)
@given(
    checkpoint=st.sampled_from(["qwen2_5_vl", "qwen3_vl", "nemotron_12b"]),
    dialect=st.sampled_from(["vllm", "sglang"]),
    seconds=st.floats(2.0, 90.0),
    height=st.integers(120, 1200),
    width=st.integers(120, 1200),
    share=st.floats(0.2, 1.3),
    reserve=st.sampled_from([0, 40]),
    own=st.sampled_from([{}, {"fps": 1.0}]),
    edge=st.sampled_from([None, 5_000_000]),
)
def test_every_line_of_fit_gives_its_numbers_when_it_is_planned(
    served_checkpoint, checkpoint, dialect, seconds, height, width, share, reserve, own, edge
):
    """Of SGLang's Nemotron too, whose config.json prunes where the line does not say q = 0."""
    options = {}
    if dialect == "vllm" and own:
        options["media_io_kwargs"] = json.dumps({"video": own})
    if edge and checkpoint == "qwen3_vl":
        size = {"size": {"shortest_edge": 4096, "longest_edge": edge}}
        name = "mm_processor_kwargs" if dialect == "vllm" else "mm_process_config"
        options[name] = json.dumps(size if dialect == "vllm" else {"video": size})
    numbers = NumbersRequest(height, width, duration_seconds=seconds)
    model = str(served_checkpoint(checkpoint))
    job = BudgetJob(make_request(model=model, dialect=dialect, **options))
    context = max(300, int(report_of(model, numbers, dialect=dialect, **options).unpruned_sequence_length * share))
    try:
        (outcome,) = run_fit(job, [numbers], FitRequest(context=context, reserve=reserve))
        report = outcome.result
    except BudgetError:
        return
    for choice in (report.present, *report.others):
        if choice is None:
            continue
        (video,) = [part for part in choice.server.request["messages"][-1]["content"] if "video_url" in part]
        assert video["video_url"]["url"] == "file:///path/to/VIDEO"
        outcome = planned_again(choice.server, numbers, checkpoint)
        plan = outcome.result
        rate = plan.rates[-1]
        assert (rate.q, rate.sequence_length, rate.retained_tokens) == (
            choice.q,
            choice.sequence_length,
            choice.retained_tokens,
        )
        assert (len(plan.frames), plan.frame_size) == (choice.num_sampled_frames, choice.frame_size)
        assert rate.limit_hit is None
        if choice.q == 0 and (checkpoint, dialect) == ("nemotron_12b", "sglang"):
            assert """--json-model-override-args '{"video_pruning_rate": 0""" in choice.server.command


def test_fit_goes_by_the_servers_own_length_and_the_chat_it_prints(evs, served_checkpoint):
    model = served_checkpoint("qwen3_vl")
    size = ["--height", 360, "--width", 640, "--duration", 10]
    line = f"vllm serve {model} --max-model-len 1000"
    code, out, err = evs("fit", *size, "--server-cmd", line, "--json")
    assert code == 0, err
    (document,) = json.loads(out)["videos"]
    assert document["budget"] == 999
    server = document["present"]["server"]
    system, message = server["request"]["messages"]
    assert "goes in front" not in err
    assert "fails when it prunes" in document["notes"][0]  # without the system message, which counts
    texts = ["--prompt", message["content"][1]["text"], "--system", system["content"]]
    code, out, _ = evs("plan", *size, "--server-cmd", server["command"], *texts, "--json")
    assert code == 0
    assert json.loads(out)["videos"][0]["rates"][-1]["sequence_length"] == document["present"]["sequence_length"] <= 999


def test_every_length_up_to_the_longest_passes_where_the_rate_falls(evs):
    """GLM-4.6V takes fewer frames a second beyond 30 s, so that a longer clip may use less."""
    found = []
    for seconds in (10, 20, 35, 50):
        size = ["--height", 1080, "--width", 1920, "--duration", seconds]
        _, out, _ = evs("plan", *size, "--model", grid_family("glm46v").folder, "--dialect", "vllm", "--json")
        (document,) = json.loads(out)["videos"]
        found += [w["longest_seconds"] for w in document["rates"][0]["walls"] if w["name"] == "decoded bytes"]
    assert len(set(found)) == 1
    assert 19 < found[0] < 20


def test_a_plan_warns_of_too_little_text_before_a_pruned_video(evs, served_checkpoint):
    """3 ids of the chat template before it, 6 of its first time: vLLM would fail."""
    line = ["plan", "--height", 360, "--width", 640, "--duration", 10, "--model", served_checkpoint("qwen3_vl")]
    warning = "fails when it prunes a video with"
    for more, is_warned in (
        (["--dialect", "vllm", "--q", 0.5], True),
        (["--dialect", "vllm", "--q", 0.5, "--prompt", "Why?"], True),
        (["--dialect", "vllm", "--q", 0.5, "--prompt", "Why?", "--system", "Answer in one word."], False),
        (["--dialect", "vllm", "--q", 0], False),
        (["--dialect", "sglang", "--q", 0.5], False),
    ):
        code, _, err = evs(*line, *more)
        assert (code, warning in err) == (0, is_warned), err
    _, out, err = evs("fit", *line[1:], "--dialect", "vllm", "--context", 1500)
    assert warning in err
    assert out.count("--system 'You are a helpful assistant.'") >= 1
    code, out, err = evs("fit", *line[1:], "--dialect", "vllm", "--context", 1500, "--prompt", "a", "--system", "")
    assert warning in err
    assert '"role": "system"' not in out


def test_fit_holds_the_encoder_cache_of_the_server_line_it_prints(evs, served_checkpoint):
    """That cache grows with the longest sequence, so what ``--context`` says counts as ``--max-model-len`` does."""
    size = ["--height", 360, "--width", 640, "--duration", 80]
    line = [
        "fit",
        *size,
        "--model",
        served_checkpoint("qwen2_5_vl"),
        "--dialect",
        "vllm",
        "--context",
        30_000,
        "--json",
    ]
    code, out, err = evs(*line)
    assert code == 0, err
    present = json.loads(out)["videos"][0]["present"]
    assert 0 < present["q"] < 0.9
    assert present["sequence_length"] < 29_000  # so it is not the length that binds
    for q, code_then in ((present["q"], 0), (round(present["q"] - 0.01, 2), 6)):
        command = shlex.split(present["server"]["command"])
        if "--video-pruning-rate" in command:
            command[command.index("--video-pruning-rate") + 1] = f"{q:g}"
        prompt = present["server"]["request"]["messages"][-1]["content"][1]["text"]
        code, out, err = evs("plan", *size, "--server-cmd", shlex.join(command), "--q", q, "--prompt", prompt, "--json")
        assert code == code_then, err
    assert "encoder cache" in err


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_a_printed_line_names_the_model_as_a_server_finds_it(evs, hub_cache, served_checkpoint, monkeypatch, dialect):
    """By the hub's id where evs has a short name for it, by the whole path of a folder."""
    hub_cache("qwen2.5-vl-7b", "qwen2_5_vl")
    line = ["fit", "--height", 360, "--width", 640, "--duration", 10, "--context", 8000, "--dialect", dialect, "--json"]
    folder = served_checkpoint("qwen2_5_vl")
    monkeypatch.chdir(folder.parent)
    for model, served in (("qwen2.5-vl-7b", "Qwen/Qwen2.5-VL-7B-Instruct"), (folder.name, str(folder))):
        code, out, err = evs(*line, "--model", model)
        assert code == 0, err
        (document,) = json.loads(out)["videos"]
        for choice in (document["present"], *document["others"]):
            assert parse_server_command(choice["server"]["command"]).model == served
            assert choice["server"]["request"]["model"] == served


def test_fit_prints_the_server_line_and_the_request(evs, tiny_model):
    model = tiny_model("qwen3_vl")
    line = ["fit", SAMPLE, "--model", model, "--dialect", "vllm", "--context", 190]
    code, out, _ = evs(*line)
    assert code == 0
    assert f"vllm serve {model} --video-pruning-rate" in out
    assert 'request: {"media_io_kwargs": {"video": {"fps": 1.0}}' in out
    whole = json.loads(out.splitlines()[-1])
    assert whole["messages"][-1]["content"][0]["video_url"]["url"].startswith("file:///")
    code, out, _ = evs(*line, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert rows[0]["server"].startswith("vllm serve")
    assert json.loads(rows[0]["request"])["model"] == str(model)
