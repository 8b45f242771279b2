"""One JSON form for every command: an envelope, a record a video, an error record for one that failed."""

import json
from pathlib import Path

import pytest
from counting_servers import CountingServer

import evs_cli
from evs_cli.cli.app import _COMMANDS, _GROUPS
from evs_cli.encoders.plain import PlainFrameEncoder
from evs_cli.errors import ModelError

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
CROSSING, SLIDES = str(SAMPLES / "crossing.mp4"), str(SAMPLES / "slides.mp4")
FAST = ("--num-frames", "4", "--size", "56")
ERROR_KEYS = {"video", "error", "hint", "exit_code"}

# Name of each command that takes several videos, and the options it needs beside them.
MANY = {
    "prune": FAST,
    "prune --dry-run": FAST,
    "sweep": (*FAST, "--q", "0.5,0.7"),
    "sweep --dry-run": FAST,
    "encode": (*FAST, "-o"),
    "encode --dry-run": (*FAST, "-o"),
    "plan": (),
    "fit": ("--context", "4096"),
}
ONE = ("bench", "check", "export", "show", "view")
"""Those of a single video, or file."""
BESIDE = {"plan": {"totals"}, "fit": {"fits_all"}, "sweep": {"summary"}, "sweep --dry-run": {"totals"}}
"""What stands beside the videos."""
NO_VIDEO = {"models": "families", "cache ls": "entries", "cache rm": "removed"}


@pytest.fixture
def run(evs, tmp_path, tiny_model, monkeypatch):
    """Run a command on inputs: its exit code, its document, stderr."""
    monkeypatch.setenv("EVS_CACHE", str(tmp_path / "cache"))

    def ran(line, *inputs, more=()):
        name, *flags = line.split(" ")
        options = [*flags, *MANY.get(line, ())]
        if options[-1:] == ["-o"]:
            options.append(tmp_path / ("out.safetensors" if len(inputs) == 1 else "out"))
        elif name == "bench":
            options = [*FAST, "--repeats", "1"]
        elif name == "view":
            options = [*FAST, "-o", tmp_path / "page.html"]
        elif name == "export":
            options = ["--to", "vllm-frames", "--model", tiny_model("qwen3_vl"), "-o", tmp_path / "body.json"]
        code, out, err = evs(name, *inputs, *options, *more, "--json")
        # Of several videos a line a record, written as it is made, between the document's first line and its last.
        num_records = len(json.loads(out)["videos"])
        assert out.count("\n") == (num_records + 2 if len(inputs) > 1 or "--manifest" in more else 1), err
        return code, json.loads(out), err

    def checked(line, *inputs, more=()):
        if line != "check":
            return ran(line, *inputs, more=more)
        with CountingServer(tiny_model("qwen3_vl")) as server:
            server_options = ("--url", server.url, "--model", tiny_model("qwen3_vl"))
            return ran(line, *inputs, more=(*server_options, *more))

    return checked


@pytest.fixture
def good(tmp_path):
    """``good("show")``: an input that a command takes."""

    def input_of(name):
        if name != "show":
            return CROSSING
        evs_cli.prune_video(CROSSING, num_frames=4, size=56, output=tmp_path / "in.pt")
        return str(tmp_path / "in.pt")

    return input_of


@pytest.fixture
def bad(tmp_path):
    path = tmp_path / "bad.mp4"
    path.write_text("no video")
    return str(path)


def videos_of(document, line):
    """The list of an envelope, whose other keys are checked."""
    assert list(document)[:3] == ["schema_version", "command", "videos"]
    assert (document["schema_version"], document["command"]) == (2, line.split(" ")[0])
    return document["videos"]


def is_error(record, video, code, err):
    """Check that a record is the error of ``video``, as stderr tells it."""
    assert set(record) == ERROR_KEYS
    assert (record["video"], record["exit_code"]) == (video, code)
    assert f"Error: {record['error']}" in err
    assert record["hint"] is None or f"Hint: {record['hint']}" in err


def test_every_command_is_asked():
    named = {line.split(" ")[0] for line in (*MANY, *ONE, *NO_VIDEO)}
    assert named == {*_COMMANDS, *_GROUPS} - {"help"}  # which prints a page


@pytest.mark.parametrize("line", [*MANY, *ONE])
def test_one_video(run, good, line):
    video = good(line)
    code, document, err = run(line, video)
    assert code == 0, err
    (record,) = videos_of(document, line)
    assert set(document) == {"schema_version", "command", "videos", *BESIDE.get(line, ())}
    assert record["file" if line == "show" else "video"] == video
    assert not set(record) & {"error", "schema_version"}


@pytest.mark.parametrize("line", [*MANY, *ONE])
def test_one_video_that_fails(run, bad, line):
    code, document, err = run(line, bad)
    assert code == (5 if line == "show" else 3)
    (record,) = videos_of(document, line)
    is_error(record, bad, code, err)


@pytest.mark.parametrize("line", MANY)
def test_one_of_several_videos_fails(run, bad, line):
    code, document, err = run(line, CROSSING, bad, SLIDES)
    assert code == 1
    first, second, third = videos_of(document, line)
    assert set(document) == {"schema_version", "command", "videos", *BESIDE.get(line, ())}
    assert (first["video"], third["video"]) == (CROSSING, SLIDES)
    _, alone, _ = run(line, CROSSING, more=("--force",) if line == "encode" else ())
    assert set(first) == set(third) == set(alone["videos"][0])
    if line == "sweep":  # a video has a record a model
        assert second.pop("model") == "dinov2-small"
    is_error(second, bad, 3, err)


def test_a_video_that_a_server_refuses_has_a_record_a_dialect(run, served_checkpoint):
    options = ("--model", served_checkpoint("nemotron_12b"), "--dialect", "all")
    code, document, err = run("plan", CROSSING, more=options)
    assert code == 0, err
    records = videos_of(document, "plan")
    assert [record["video"] for record in records] == [CROSSING] * 8
    assert len({record["dialect"] for record in records}) == 8
    refused = [record for record in records if "error" in record]
    assert len(refused) == 6  # none of the trainers' programs has rules for the family
    assert all(set(record) == {*ERROR_KEYS, "dialect"} for record in refused)


def test_what_concerns_every_video_is_an_error_of_each(run, monkeypatch):
    def fail(*_):
        raise ModelError("cannot read the weights", hint="look")

    monkeypatch.setattr(PlainFrameEncoder, "load", fail)
    code, document, err = run("prune", CROSSING, SLIDES)
    assert code == 4
    for record, video in zip(videos_of(document, "prune"), (CROSSING, SLIDES), strict=True):
        is_error(record, video, 4, err)


def test_the_videos_of_a_manifest_have_records_too(run, tmp_path):
    (tmp_path / "list.txt").write_text(f"{CROSSING}\n{SLIDES}\n")
    code, document, _ = run("plan", more=("--manifest", tmp_path / "list.txt", "--context", "0"))
    assert code == 2
    assert [record["video"] for record in videos_of(document, "plan")] == [CROSSING, SLIDES]


def test_a_verdict_adds_no_record(run):
    """A plan that does not fit is a plan all the same; its exit code tells the verdict."""
    code, document, _ = run("plan", CROSSING, more=("--context", "100"))
    assert code == 6
    (record,) = videos_of(document, "plan")
    assert "error" not in record


def test_an_error_without_a_video_is_a_record_of_none(run):
    code, document, err = run("plan")
    assert code == 2
    (record,) = videos_of(document, "plan")
    is_error(record, None, 2, err)


def test_a_command_line_that_cannot_be_read_prints_no_document(evs):
    code, out, _ = evs("prune", CROSSING, "--json", "--no-such-option")
    assert (code, out) == (2, "")


@pytest.mark.parametrize("line", NO_VIDEO)
def test_commands_without_videos_have_a_list_of_their_own(evs, tmp_path, monkeypatch, line):
    monkeypatch.setenv("EVS_CACHE", str(tmp_path))
    code, out, _ = evs(*line.split(" "), *(("--all",) if line == "cache rm" else ()), "--json")
    document = json.loads(out)
    assert code == 0
    assert list(document)[:3] == ["schema_version", "command", NO_VIDEO[line]]
    assert (document["schema_version"], document["command"]) == (2, line)
    assert isinstance(document[NO_VIDEO[line]], list)
