"""``evs plan`` without a file system of models: factors, kinds of tokens, rates, numbers, manifests, limits."""

import dataclasses
import json
import subprocess
import sys

import pytest

from evs_cli.cli.app import main
from evs_cli.errors import BudgetError, UsageError
from evs_cli.jobs.budget import budget, model_context_limit, read_manifest
from evs_cli.jobs.plan import BudgetJob, PlanRequest, numbers_of, refusal_of, subjects_of
from evs_cli.pipeline.clips import NumbersRequest
from evs_cli.pipeline.planner import Planner
from evs_cli.pipeline.request import make_request
from evs_cli.video.sampling import SamplingRequest


def report_of(numbers, rates=(0.0, 0.7), context=None, **request):
    job = BudgetJob(make_request(**request))
    (outcome,) = job.plan([numbers], PlanRequest(list(rates), context))
    return outcome.result


def test_the_counts_of_a_plain_encoder_by_hand():
    report = report_of(NumbersRequest(height=448, width=448, frames=32, duration_seconds=60.0))
    assert report.frame_size == (224, 224)
    assert report.token_grid_thw == (32, 16, 16)
    assert (report.total_tokens, report.separator_tokens, report.text_tokens) == (8192, 64, 0)
    assert report.unpruned_sequence_length == 8256
    assert [(r.q, r.retained_tokens, r.sequence_length) for r in report.rates] == [(0.0, 8192, 8256), (0.7, 2457, 2521)]
    assert report.factors == (
        "32 frames in 60.00 s: 32 sampled (32 frames asked)",
        "resize 448x448 to 224x224",
        "32 x 16 x 16 = 8,192 video tokens",
    )


def test_the_sampled_frames_and_their_times():
    report = report_of(NumbersRequest(100, 100, duration_seconds=2.0, source_fps=10), fps=2.0)
    assert [(f.index, f.pts_seconds) for f in report.frames] == [(0, 0.0), (5, 0.5), (10, 1.0), (15, 1.5)]


def test_the_exact_count_beside_the_float_one():
    (rate,) = report_of(NumbersRequest(224, 224, frames=10), rates=[0.8]).rates
    assert (rate.retained_tokens, rate.exact_retained_tokens) == (511, 512)


def test_kinds_of_tokens_add_up_for_a_language_model(tiny_model):
    numbers = NumbersRequest(84, 112, frames=9, duration_seconds=4.5)
    bare = report_of(numbers, model=str(tiny_model("qwen3_vl")))
    asked = report_of(numbers, model=str(tiny_model("qwen3_vl")), prompt="What moves?")
    assert bare.text_tokens == 0
    assert (bare.total_tokens, bare.separator_tokens) == (asked.total_tokens, asked.separator_tokens)
    # "user\n" and "What moves?" and "assistant\n" are bytes here, with <|im_start|> twice, <|im_end|> and two newlines.
    assert asked.text_tokens > len("What moves?")
    assert asked.unpruned_sequence_length == bare.unpruned_sequence_length + asked.text_tokens
    assert "temporal patch 2: 9 frames become 5" in asked.factors


def test_the_context_limit_is_the_models_own_or_what_is_asked(tiny_model):
    numbers = NumbersRequest(84, 112, frames=8)
    assert report_of(numbers, model=str(tiny_model("qwen2_5_vl"))).context_limit == 4096
    asked = report_of(numbers, model=str(tiny_model("qwen2_5_vl")), context=1000)
    assert asked.context_limit == 1000
    assert asked.rates[0].context_share == asked.rates[0].sequence_length / 1000
    assert report_of(numbers).context_limit is None


def test_an_image_text_model_without_a_language_model_has_no_context_limit(tiny_model):
    # CLIP's configuration has a text model of 77 positions, which no video token ever enters.
    job = BudgetJob(make_request(model=str(tiny_model("clip"))))
    assert model_context_limit(job.encoder) is None


def test_what_does_not_fit_is_refused_at_the_highest_rate_asked():
    report = report_of(NumbersRequest(224, 224, frames=32), rates=[0.0, 0.5])
    assert refusal_of(report, None) is None
    assert refusal_of(report, report.rates[1].sequence_length) is None
    with pytest.raises(BudgetError, match=r"does not fit 4,000 tokens: its sequence is 4,160") as error:
        raise refusal_of(report, 4000)
    assert error.value.exit_code == 6


def test_numbers_are_checked():
    for arguments, message in [
        ({"height": 0, "width": 4, "frames": 1}, r"Invalid height \(0\)"),
        ({"height": 4, "width": 4, "frames": 0}, r"Invalid frames \(0\)"),
        ({"height": 4, "width": 4}, "Neither frames nor a duration"),
        ({"height": 4, "width": 4, "duration_seconds": 0.0}, r"Invalid duration_seconds \(0\)"),
        ({"height": 4, "width": 4, "duration_seconds": float("nan")}, "Invalid duration_seconds"),
    ]:
        with pytest.raises(UsageError, match=message):
            NumbersRequest(**arguments)
    with pytest.raises(UsageError, match="needs its size"):
        numbers_of(3, None, None, None, None)
    assert numbers_of(None, None, None, None, None) is None


def test_subjects_are_files_or_numbers():
    numbers = NumbersRequest(4, 4, frames=1)
    assert subjects_of(["a.mp4"], None, None) == ["a.mp4"]
    assert subjects_of([], None, numbers) == [numbers]
    with pytest.raises(UsageError, match="exclude each other"):
        subjects_of(["a.mp4"], None, numbers)
    with pytest.raises(UsageError, match="No video is given"):
        subjects_of([], None, None)


def test_a_manifest_names_a_video_a_line(tmp_path):
    path = tmp_path / "videos.txt"
    path.write_text("# clips\na.mp4\n\n  b c.mp4  \n", encoding="utf-8")
    assert read_manifest(str(path)) == ["a.mp4", "b c.mp4"]
    path.write_text("# nothing\n", encoding="utf-8")
    with pytest.raises(UsageError, match="names no video"):
        read_manifest(str(path))
    with pytest.raises(
        UsageError, match=r"none\.txt: no such file or directory\. Expected a text file of one video a line"
    ):
        read_manifest(str(tmp_path / "none.txt"))


def test_one_bad_video_of_several_does_not_stop_the_others(tmp_path):
    (tmp_path / "bad.mp4").write_text("no video")
    job = BudgetJob(make_request())
    outcomes = list(job.plan([str(tmp_path / "bad.mp4"), NumbersRequest(64, 64, frames=2)], PlanRequest([0.0])))
    assert outcomes[0].result is None
    assert "text file" in outcomes[0].error.message
    assert outcomes[1].result.total_tokens == 512


def test_a_plan_is_what_the_encoder_plans(tiny_model):
    job = BudgetJob(make_request(model=str(tiny_model("nemotron_h_omni"))))
    numbers, asked = NumbersRequest(90, 160, duration_seconds=3.7), SamplingRequest()
    clips = Planner(job.encoder, sampling=asked).clips_of_numbers(numbers)
    plan = job.encoder.plan(clips.plan(asked, job.request.options).clip, job.request.options)
    report = budget(clips, job.encoder, asked, job.request.options, [0.3])
    assert report.token_grid_thw == plan.token_grid_thw
    assert report.rates[0].sequence_length == plan.sequence_length(0.3)
    assert dataclasses.asdict(report)["total_tokens"] == plan.total_tokens


@pytest.mark.parametrize("subject", ["numbers", "file"])
def test_a_plan_for_a_plain_encoder_imports_no_torch(subject, tmp_path):
    from video_files import video

    arguments = (
        ["--frames", "8", "--height", "64", "--width", "64"] if subject == "numbers" else [str(video("normal.mp4"))]
    )
    code = (
        "import sys; from evs_cli.cli.app import main; code = main(['plan', *sys.argv[1:]]);"
        "print([m for m in ('torch', 'transformers', 'decord') if m in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip().splitlines()[-1] == "[]"
    assert "video tokens" in done.stdout


def test_with_a_floor_the_counts_are_the_most(capsys):
    line = ["plan", "samples/slides.mp4", "--q", "0.5", "--min-dissimilarity", "0.01"]
    assert main([*line, "--context", "4000"]) == 6
    out, err = capsys.readouterr()
    assert "q = 0.5  at most 4,480 video tokens, sequence 4,520, 113.0% of 4,000: may not fit" in out
    assert "slides.mp4 may not fit 4,000 tokens: its sequence is at most 4,520 at the highest rate" in err
    assert main([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["videos"][0]["is_at_most"] is True
    assert main([*line[:-2], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["videos"][0]["is_at_most"] is False
    for floor in ("-0.1", "2.1", "nan"):
        assert main([*line[:-1], floor]) == 2
        assert "Invalid min_dissimilarity" in capsys.readouterr().err


def test_the_reserve_is_taken_off_the_context(capsys):
    line = ["plan", "samples/slides.mp4", "--q", "0.5"]
    assert main([*line, "--context", "4520"]) == 0
    assert main([*line, "--context", "4520", "--reserve", "1"]) == 6
    assert main([*line, "--reserve", "1"]) == 2
    assert "reserve (1) has no effect" in capsys.readouterr().err


def test_an_unknown_decoder_is_refused_though_a_plan_decodes_nothing(capsys):
    assert main(["plan", "samples/slides.mp4", "--decoder", "ffmpeg"]) == 2
    assert "Expected one of: pyav, decord" in capsys.readouterr().err
