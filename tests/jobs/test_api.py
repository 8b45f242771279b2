"""The Python calls that plan, fit, check and export: the numbers that the command line prints with ``--json``."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from counting_servers import CountingServer, Habits

import evs_cli
from evs_cli.errors import ArtifactError, BudgetError, UsageError, VideoError
from evs_cli.report.budget import plan_record
from evs_cli.report.check import check_record
from evs_cli.report.export import export_record

SLIDES = str(Path(__file__).resolve().parents[2] / "samples" / "slides.mp4")


@pytest.fixture
def record(evs):
    """The only record that a command prints with ``--json``, and its exit code."""

    def of(*arguments):
        code, out, _ = evs(*arguments, "--json")
        (only,) = json.loads(out)["videos"]
        return code, only

    return of


def as_json(value):
    return json.loads(json.dumps(value))


def test_a_plan(record, tiny_model):
    model = str(tiny_model("qwen3_vl"))
    report = evs_cli.plan_video(SLIDES, q=[0.5, 0.0], context=2048, model=model, fps=1, kv_budget_bytes=2**30)
    line = ("plan", SLIDES, "--q", "0,0.5", "--context", "2k", "--model", model, "--fps", "1", "--kv-budget", "1")
    assert record(*line) == (0, as_json(plan_record(report)))
    assert [rate.q for rate in report.rates] == [0.0, 0.5]
    assert evs_cli.plan_video(Path(SLIDES), q=0.5).rates == evs_cli.plan_video(SLIDES, q=[0.5]).rates


def test_a_plan_that_does_not_fit_is_a_plan(record):
    report = evs_cli.plan_video(SLIDES, context=1024, reserve=24)
    assert report.context_limit == 1000
    assert all(rate.context_share > 1 for rate in report.rates)
    assert record("plan", SLIDES, "--context", "1024", "--reserve", "24") == (6, as_json(plan_record(report)))


def test_a_plan_as_a_server_keeps_its_reserve(record, served_checkpoint):
    model = str(served_checkpoint("qwen3_vl"))
    report = evs_cli.plan_video(SLIDES, context=8192, reserve=512, model=model, dialect="vllm")
    line = ("plan", SLIDES, "--context", "8k", "--reserve", "512", "--model", model, "--dialect", "vllm")
    assert record(*line) == (0, as_json(plan_record(report)))


def test_a_fit(record):
    report = evs_cli.fit_video(Path(SLIDES), context=4096, reserve=512)
    code, found = record("fit", SLIDES, "--context", "4k", "--reserve", "512")
    assert (code, found) == (0, as_json({"video": SLIDES, **asdict(report), "best": asdict(report.best)}))
    assert report.present.q == 0.61
    with pytest.raises(BudgetError, match="does not fit 20 tokens"):
        evs_cli.fit_video(SLIDES, max_tokens=20)
    with pytest.raises(UsageError, match="No budget is given"):
        evs_cli.fit_video(SLIDES)


def test_a_check(record, tiny_model):
    model = str(tiny_model("qwen3_vl"))
    # The number of frames goes with the request, which vLLM takes of clients it trusts.
    with CountingServer(tiny_model("qwen3_vl"), Habits(trusts_requests=True)) as server:
        report = evs_cli.check_video(SLIDES, server.url, model=model, num_frames=4)
        found = record("check", SLIDES, "--url", server.url, "--model", model, "--num-frames", "4")
    assert found == (0, as_json(check_record(SLIDES, report)))
    assert not report.differs


def test_a_check_that_differs_is_a_report(record, tiny_model):
    model = str(tiny_model("qwen3_vl"))
    with CountingServer(tiny_model("qwen3_vl")) as server:
        report = evs_cli.check_video(Path(SLIDES), server.url, model=model, context=64)
        code, found = record("check", SLIDES, "--url", server.url, "--model", model, "--context", "64")
    assert report.differs
    assert (code, found) == (6, as_json(check_record(SLIDES, report)))


def test_an_export(record, tiny_model, tmp_path):
    model, body = str(tiny_model("qwen3_vl")), tmp_path / "body.json"
    exported = evs_cli.export_video(SLIDES, body, model=model, num_frames=4, quality=80, reserve=9, curl=True)
    written = body.read_bytes()
    line = ("export", SLIDES, "--to", "vllm-frames", "--model", model, "--num-frames", "4", "--quality", "80")
    code, found = record(*line, "--reserve", "9", "-o", body, "--force", "--curl")
    assert (code, found) == (0, as_json(export_record(exported)))
    assert body.read_bytes() == written
    assert json.loads(written)["max_tokens"] == 9
    assert exported.curl.endswith(f"@{body}")
    with pytest.raises(ArtifactError, match="exists already"):
        evs_cli.export_video(SLIDES, body, model=model)
    with pytest.raises(UsageError, match="Neither a file nor a server is given"):
        evs_cli.export_video(SLIDES, model=model)
    with pytest.raises(UsageError, match="Invalid --to 'sglang'"):
        evs_cli.export_video(SLIDES, body, to="sglang")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("plan_video", {}),
        ("fit_video", {"context": 4096}),
        ("check_video", {"url": "http://127.0.0.1:1"}),
        ("export_video", {"output": "x.json"}),
    ],
)
def test_errors_are_the_commands_own(name, arguments, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    call = getattr(evs_cli, name)
    with pytest.raises(TypeError, match="unexpected keyword 'num_frame'"):
        call("gone.mp4", **arguments, num_frame=4)
    if name in ("plan_video", "fit_video"):
        with pytest.raises(VideoError, match=r"cannot open gone\.mp4: no such file"):
            call("gone.mp4", **arguments)
