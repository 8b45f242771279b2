"""``evs fit``: right to the token, over drawn cases, and never with weights."""

import csv
import io
import json
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evs_cli.cli.app import main
from evs_cli.core.counts import TokenGrid
from evs_cli.errors import BudgetError, UsageError
from evs_cli.jobs.fit import MAX_RATE, STEP, FitRequest, FittedVideo, TogetherChoice, order_key
from evs_cli.jobs.fit_run import fit_request, run_fit
from evs_cli.jobs.fit_search import smallest_rate
from evs_cli.jobs.plan import BudgetJob
from evs_cli.pipeline.clips import NumbersRequest
from evs_cli.pipeline.planner import Planner
from evs_cli.pipeline.request import make_request
from evs_cli.video.sampling import SamplingRequest


def plan_of(job, numbers, sampling=None, options=None):
    sampling = sampling or SamplingRequest()
    clips = Planner(job.encoder, sampling=sampling).clips_of_numbers(numbers)
    return job.encoder.plan(clips.plan(sampling, job.request.options).clip, options or job.request.options)


def fit_of(job, numbers, max_tokens):
    (outcome,) = run_fit(job, [numbers], FitRequest(max_tokens=max_tokens))
    return outcome.result


NUMBERS = st.builds(NumbersRequest, height=st.integers(16, 700), width=st.integers(16, 700), frames=st.integers(1, 40))


@settings(max_examples=150, deadline=None)
@given(numbers=NUMBERS, share=st.floats(0.03, 1.1))
def test_the_answer_fits_and_one_step_less_does_not(numbers, share):
    job = BudgetJob(make_request())
    plan = plan_of(job, numbers)
    budget = max(1, int(plan.sequence_length() * share))
    q = smallest_rate(lambda q: plan.sequence_length(q) <= budget)
    if q is None:
        assert plan.sequence_length(MAX_RATE) > budget
        return
    assert plan.sequence_length(q) <= budget
    if q > 0:
        assert plan.sequence_length(round(q - STEP, 9)) > budget


@pytest.mark.parametrize("model_type", ["qwen2_5_vl", "qwen3_vl", "nemotron_h_omni"])
@pytest.mark.parametrize("share", [0.4, 0.7, 1.0])
def test_every_choice_is_true_when_its_own_line_is_planned(tiny_model, model_type, share):
    folder = str(tiny_model(model_type))
    numbers = NumbersRequest(height=280, width=420, frames=24, duration_seconds=12.0)
    job = BudgetJob(make_request(model=folder, prompt="What moves?"))
    budget = int(plan_of(job, numbers).sequence_length() * share)
    try:
        report = fit_of(job, numbers, budget)
    except BudgetError:
        pytest.fail("nothing fits, though fewer frames must")
    choices = [choice for choice in (report.present, *report.others) if choice is not None]
    assert choices
    for choice in choices:
        assert choice.sequence_length <= budget
        line = shlex.split(choice.command)
        assert line[:3] == ["evs", "prune", "VIDEO"]
        planned = planned_line(line, numbers, folder)
        assert planned.sequence_length(choice.q) == choice.sequence_length
        assert planned.frame_size == choice.frame_size
        assert len(planned.pts_seconds) == choice.num_sampled_frames
        if choice.q > 0:
            assert planned.sequence_length(round(choice.q - STEP, 9)) > budget


def planned_line(line, numbers, folder):
    """The plan of an ``evs prune`` line, read back by hand."""
    options = dict(zip(line[3::2], line[4::2], strict=True))
    request = {
        "fps": float,
        "num_frames": int,
        "size": int,
        "frame_min_pixels": int,
        "frame_max_pixels": int,
        "video_min_pixels": int,
        "video_max_pixels": int,
        "prompt": str,
    }
    given = {
        name: cast(options["--" + name.replace("_", "-")])
        for name, cast in request.items()
        if "--" + name.replace("_", "-") in options
    }
    assert options["--model"] == folder
    job = BudgetJob(make_request(model=folder, **given))
    return plan_of(job, numbers, job.request.sampling, job.request.options)


def test_choices_come_least_pruning_first_then_most_frames_then_largest():
    job = BudgetJob(make_request())
    others = fit_of(job, NumbersRequest(448, 448, frames=64), 4000).others
    keys = [(c.q, -c.num_sampled_frames, -c.frame_size[0] * c.frame_size[1]) for c in others]
    assert keys == sorted(keys)
    assert len({(c.num_sampled_frames, c.frame_size) for c in others}) == len(others) > 4


def test_what_cannot_fit_says_what_would():
    job = BudgetJob(make_request())
    with pytest.raises(
        BudgetError, match=r"does not fit 20 tokens: at q = 0.95 it needs 947, .* frame 0 alone is 256"
    ) as e:
        fit_of(job, NumbersRequest(448, 448, frames=64), 20)
    assert e.value.exit_code == 6
    assert e.value.hint.startswith("The least of what was tried is 66 ids, for 1 frame of 112x112.")


def test_the_reserve_is_kept_for_the_answer():
    assert FitRequest(context=4096, reserve=512).budget == 3584
    assert FitRequest(context=4096, reserve=512, max_tokens=1000).budget == 1000
    for arguments, message in [
        ({}, "No budget is given"),
        ({"context": 0}, r"Invalid context \(0\)"),
        ({"context": 10, "reserve": 10}, r"Invalid reserve \(10\)"),
        ({"max_tokens": -1}, r"Invalid max_tokens \(-1\)"),
    ]:
        with pytest.raises(UsageError, match=message):
            FitRequest(**arguments)


def test_without_a_budget_the_models_own_context_is_taken(tiny_model):
    language = BudgetJob(make_request(model=str(tiny_model("qwen3_vl"))))
    assert fit_request(language.encoder, None, None, 96).budget == 4000
    with pytest.raises(UsageError, match="No budget is given"):
        fit_request(BudgetJob(make_request()).encoder, None, None, 0)


def test_it_loads_no_weights_and_reads_no_frame(tiny_model, monkeypatch, capsys):
    from evs_cli.encoders.qwen3_vl import Qwen3VLEncoder

    monkeypatch.setattr(Qwen3VLEncoder, "load", lambda *a: pytest.fail("fit loaded weights"))
    code = main(
        ["fit", "--frames", "16", "--height", "84", "--width", "112", "--model", str(tiny_model("qwen3_vl")), "--json"]
    )
    assert code == 0
    (record,) = json.loads(capsys.readouterr().out)["videos"]
    assert record["present"]["q"] == 0.0


def test_several_videos_each_get_their_own_answer(tmp_path, capsys):
    manifest = tmp_path / "videos.txt"
    manifest.write_text("samples/crossing.mp4\n# a note\nsamples/gone.mp4\n", encoding="utf-8")
    arguments = ["fit", "samples/slides.mp4", "--manifest", str(manifest), "--size", "112", "--context", "700"]
    assert main([*arguments, "--json"]) == 1
    out, err = capsys.readouterr()
    slides, crossing, gone = json.loads(out)["videos"]
    for name, found in (("slides", slides), ("crossing", crossing)):
        report = fit_of(BudgetJob(make_request(size=112)), f"samples/{name}.mp4", 700)
        assert found["video"] == f"samples/{name}.mp4"
        assert found["present"]["q"] == report.present.q
        assert found["present"]["command"] == report.present.command
    assert (gone["video"], gone["error"]) == ("samples/gone.mp4", "cannot open gone.mp4: no such file")
    assert (gone["hint"], gone["exit_code"]) == ("It was looked for in samples.", 3)
    assert "1 of 3 videos failed: samples/gone.mp4" in err

    assert main([*arguments, "--format", "csv"]) == 1
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["name"] for row in rows if not row["error"]} == {"slides.mp4", "crossing.mp4"}
    assert all(int(row["sequence_length"]) <= 700 for row in rows if not row["error"])
    assert [(row["video"], row["error"]) for row in rows if row["error"]] == [(gone["video"], gone["error"])]


def test_all_frames_at_the_largest_size_that_needs_no_pruning(served_checkpoint):
    """768 frames of 1080p in 24,576 tokens: 384 x 10 x 6 tokens at 280x168; a pixel more of the short side is over."""
    line = "VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES=99999999999 vllm serve m"
    job = BudgetJob(make_request(model=str(served_checkpoint("qwen2_5_vl")), server_cmd=line))
    report = fit_of(job, NumbersRequest(1080, 1920, duration_seconds=400.0), 24_576)
    assert report.present is None
    best = report.best
    assert (best.num_sampled_frames, best.frame_size, best.q, best.total_tokens) == (768, (168, 280), 0.0, 23_040)
    assert best is report.others[0]
    assert all((other.q, -other.num_sampled_frames) >= (best.q, -best.num_sampled_frames) for other in report.choices)


@pytest.mark.parametrize("budget", [3584, 9000])
def test_the_best_goes_by_the_order_that_is_told(budget):
    """Whole where it fits unpruned; else every frame at the largest size: one pixel more does not fit."""
    job, numbers = BudgetJob(make_request()), NumbersRequest(256, 448, frames=20)
    report = fit_of(job, numbers, budget)
    best = report.best
    assert best == min(report.choices, key=lambda c: (c.q, -c.num_sampled_frames, -c.frame_size[0] * c.frame_size[1]))
    assert (best.q, best.num_sampled_frames) == (0.0, 20)
    if budget == 9000:
        assert best is report.present
        return
    side = int(shlex.split(best.command)[-1])
    for size, fits in ((side, True), (side + 1, False)):
        request = make_request(size=size)
        plan = plan_of(BudgetJob(request), numbers, options=request.options)
        assert (plan.sequence_length() <= budget) == fits


def test_llamafactorys_frames_are_made_smaller_by_its_own_limit(served_checkpoint):
    """It has a limit of a frame's pixels alone, whatever the family's processor bounds."""
    job = BudgetJob(make_request(model=str(served_checkpoint("qwen3_vl")), dialect="llamafactory"))
    report = fit_of(job, NumbersRequest(720, 1280, duration_seconds=61.0), 1500)
    assert report.present is None
    assert {choice.q for choice in report.choices} == {0.0}
    assert all(choice.sequence_length <= 1500 for choice in report.choices)
    assert "video_max_pixels" in report.best.server.request


def test_the_best_of_several_videos_has_the_most_pixels_in_all():
    """The largest video alone does not tell: the others may be smaller at one way and not at another."""

    def way(*sizes):
        videos = tuple(FittedVideo("a", 10, size, TokenGrid(1, 1, 1), 1) for size in sizes)
        return TogetherChoice(0.0, 1, 1, 1, "", None, videos=videos)

    small, large = way((256, 448), (160, 288)), way((256, 448), (192, 320))
    assert small.frame_size == large.frame_size
    assert min((small, large), key=order_key) is large
