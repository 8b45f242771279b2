"""``--cache`` and ``evs cache``: the same bytes as without, nothing read twice, and what the commands tell."""

import csv
import io
import json
import os
from pathlib import Path

import pytest
from fresh_python import run_evs
from tiny_frame_models import BUILDERS as FRAME_BUILDERS
from tiny_frame_models import tiny_folder
from tiny_grid_models import BUILDERS as GRID_BUILDERS
from tiny_grid_models import save_grid_model
from video_files import damaged_clip

import evs_cli
from evs_cli.jobs.cache import open_cache

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
CROSSING, PAN = (str(SAMPLES / f"{name}.mp4") for name in ("crossing", "pan"))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache of its own."""
    monkeypatch.setenv("EVS_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def small(tiny_model):
    """Options of a small run."""
    return ("--model", str(tiny_model("dinov2")), "--num-frames", "4", "--size", "42")


@pytest.fixture
def forbid(monkeypatch):
    """``forbid()``: from now on nothing may read a frame or load a weight; ``forbid(probe=True)``: nor open a video."""

    def fail(*_, **__):
        pytest.fail("a video was read or a model loaded")

    def forbid(*, probe=False):
        monkeypatch.setattr("evs_cli.video.reader.read_frames", fail)
        monkeypatch.setattr("evs_cli.encoders.plain.PlainFrameEncoder.load", fail)
        monkeypatch.setattr("evs_cli.encoders.vlm.VisionLanguageEncoder.load", fail)
        if probe:
            monkeypatch.setattr("evs_cli.pipeline.planner.probe_video", fail)

    return forbid


def ran(evs, *arguments):
    code, out, err = evs(*arguments)
    assert code == 0, err
    return out, err


FAMILIES = [
    ("dinov2", ("--num-frames", "6", "--size", "42", "--score-dtype", "bfloat16")),
    ("qwen2_5_vl", ("--prompt", "Who?", "--fps", "4")),
    ("qwen3_vl", ("--prompt", "Who?", "--num-frames", "6", "--dtype", "bfloat16", "--batch-frames", "2")),
    ("nemotron_h_omni", ("--num-frames", "6", "--prompt", "Who?")),
]


@pytest.mark.parametrize(("family", "options"), FAMILIES)
def test_prune_is_the_same_bytes_without_a_miss_and_at_a_hit(evs, folder, tiny_model, forbid, family, options):
    run = ("prune", CROSSING, "--model", tiny_model(family), *options, "--q", "0.6", "-f", "-q", "-o")
    ran(evs, *run, folder / "without.pt")
    ran(evs, *run, folder / "miss.pt", "--cache")
    forbid(probe=True)
    ran(evs, *run, folder / "hit.pt", "--cache")
    without = (folder / "without.pt").read_bytes()
    assert (folder / "miss.pt").read_bytes() == without
    assert (folder / "hit.pt").read_bytes() == without


@pytest.mark.parametrize(("family", "options"), FAMILIES)
def test_another_prompt_and_rate_come_from_the_same_entry(evs, folder, tiny_model, forbid, family, options):
    """No frame is encoded and no weight loaded; the sequence and its positions are those of the new prompt."""
    run = ("prune", CROSSING, "--model", tiny_model(family), "--method", "random", "-q", "-o")
    asked = [options]
    if "--prompt" in options:
        asked.append(tuple("What happens in the end, and why?" if word == "Who?" else word for word in options))
    for index, other in enumerate(asked):
        ran(evs, *run, folder / f"fresh{index}.pt", *other, "--q", "0.2")
    ran(evs, *run, folder / "first.pt", *options, "--cache")
    forbid()
    for index, other in enumerate(asked):
        ran(evs, *run, folder / f"cached{index}.pt", *other, "--q", "0.2", "--cache")
        assert (folder / f"cached{index}.pt").read_bytes() == (folder / f"fresh{index}.pt").read_bytes(), other
    assert len(open_cache().entries()) == 1


VLMS = [name for name in (*GRID_BUILDERS, *FRAME_BUILDERS) if not name.startswith("siglip2")]  # that takes no prompt


@pytest.mark.parametrize("family", VLMS)
def test_another_prompt_in_every_other_family(evs, folder, forbid, family):
    model = folder / family
    if family in GRID_BUILDERS:
        save_grid_model(family, model)
    else:
        model = tiny_folder(family)
    run = ("prune", CROSSING, "--model", model, "--num-frames", "3", "--q", "0.4", "-q", "-o")
    prompt = ("--prompt", "What happens in the end?")
    ran(evs, *run, folder / "fresh.pt", *prompt)
    ran(evs, *run, folder / "first.pt", "--cache")
    forbid()
    ran(evs, *run, folder / "cached.pt", *prompt, "--cache")
    assert (folder / "cached.pt").read_bytes() == (folder / "fresh.pt").read_bytes()


def test_a_damaged_video_with_another_prompt(evs, folder, tiny_model, forbid, tmp_path_factory):
    video = damaged_clip(tmp_path_factory.getbasetemp())
    run = ("prune", video, "--model", tiny_model("qwen2_5_vl"), "--num-frames", "20", "-q", "-o")
    ran(evs, *run, folder / "fresh.pt", "--prompt", "Who?")
    ran(evs, *run, folder / "first.pt", "--cache")
    forbid()
    ran(evs, *run, folder / "cached.pt", "--prompt", "Who?", "--cache")
    assert (folder / "cached.pt").read_bytes() == (folder / "fresh.pt").read_bytes()
    pruned = evs_cli.load(folder / "cached.pt")
    assert pruned.planned["num_sampled_frames"] > pruned.actual["num_sampled_frames"]


@pytest.mark.parametrize("options", [(), ("--store-dtype", "int8"), ("--levels", "main")], ids=" ".join)
def test_encode_is_the_same_bytes(evs, folder, tiny_model, forbid, options):
    run = ("encode", CROSSING, "--model", tiny_model("qwen3_vl"), "--num-frames", "6", *options, "-q", "-o")
    ran(evs, *run, folder / "without.safetensors")
    ran(evs, *run, folder / "miss.safetensors", "--cache")
    forbid(probe=True)
    ran(evs, *run, folder / "hit.safetensors", "--cache")
    without = (folder / "without.safetensors").read_bytes()
    assert (folder / "miss.safetensors").read_bytes() == without
    assert (folder / "hit.safetensors").read_bytes() == without


def test_sweep_encode_and_prune_share_an_entry(evs, folder, small, forbid):
    sweep = ("sweep", CROSSING, *small, "--q", "0:0.9:0.3", "--quality", "--json")
    (without,) = json.loads(ran(evs, *sweep)[0])["videos"]
    ran(evs, "encode", CROSSING, *small, "-o", folder / "full.safetensors", "--cache")
    forbid(probe=True)
    assert json.loads(ran(evs, *sweep, "--cache")[0])["videos"][0]["rows"] == without["rows"]
    ran(evs, "sweep", CROSSING, *small, "--cache")
    ran(evs, "prune", CROSSING, *small, "--cache")
    assert evs_cli.prune_video(CROSSING, model=small[1], num_frames=4, size=42, q=0.5, cache=True).retained_tokens > 0
    assert len(open_cache().entries()) == 1


def test_several_videos_and_one_that_fails(evs, folder, small, forbid):
    (folder / "bad.mp4").write_bytes(b"no video")
    run = ("prune", CROSSING, folder / "bad.mp4", PAN, *small, "--cache", "--json")
    first = json.loads(evs(*run)[1])["videos"]
    assert [record.get("exit_code") for record in first] == [None, 3, None]
    assert "cache" in first[0]["timings_seconds"]
    again = json.loads(evs(*run)[1])["videos"]
    assert [record.get("exit_code") for record in again] == [None, 3, None]
    assert set(again[0]["timings_seconds"]) == {"hash", "read", "rank"}
    assert len(open_cache().entries()) == 2


def test_verbose_says_hit_or_miss_and_why(evs, small):
    run = ("prune", CROSSING, *small, "--cache", "-v")
    assert "cache: miss for crossing.mp4: no encoding of this video is there" in ran(evs, *run)[1]
    (entry,) = open_cache().entries()
    hit = f"cache: hit for crossing.mp4: entry {entry.name}; no frame is encoded and no weights are loaded"
    assert hit in ran(evs, *run)[1]
    assert f"entry {entry.name} of this video differs in batch_frames" in ran(evs, *run, "--batch-frames", "2")[1]
    assert ran(evs, "prune", CROSSING, *small, "--cache")[1] == ""


def test_what_is_too_large_is_told_and_the_rest_goes_in_order(evs, small, monkeypatch):
    ran(evs, "prune", CROSSING, *small, "--cache")
    (first,) = open_cache().entries()
    os.utime(first.path, (0, 0))
    monkeypatch.setenv("EVS_CACHE_SIZE", str(1.5 * first.size_bytes / 1e9))
    err = ran(evs, "prune", PAN, *small, "--cache", "-v")[1]
    assert f"cache: removed {first.name} to make room" in err
    assert [entry.name for entry in open_cache().entries()] != [first.name]
    monkeypatch.setenv("EVS_CACHE_SIZE", "0.000001")
    err = ran(evs, "prune", CROSSING, *small, "--cache")[1]
    assert "Note: crossing.mp4: its encoding is not kept: it takes" in err


def test_what_is_refused(evs, folder, small, monkeypatch):
    ran(evs, "encode", CROSSING, *small, "-o", folder / "full.safetensors")
    for command in ("prune", "sweep"):
        code, out, err = evs(command, folder / "full.safetensors", "--cache")
        assert (code, out) == (2, "")
        assert err.startswith("Error: --cache has no effect on an encoding")
    monkeypatch.setenv("EVS_CACHE_SIZE", "much")
    for arguments in (("prune", CROSSING, "--cache"), ("cache", "ls")):
        code, _, err = evs(*arguments)
        assert code == 2
        assert "Invalid EVS_CACHE_SIZE ('much'). Expected a size in GB above 0." in err


def test_ls(evs, folder, small):
    out, err = ran(evs, "cache", "ls")
    assert (out, err) == (f"0 entries, 0 bytes of 10.0 GB in {folder}/cache/encodings\n", "")
    ran(evs, "prune", CROSSING, PAN, *small, "--cache")
    pan, crossing = open_cache().entries()
    os.utime(crossing.path, (0, 0))
    pan.path.write_bytes(pan.path.read_bytes()[:-1])
    lines = ran(evs, "cache", "ls")[0].splitlines()
    assert lines[0].split() == ["entry", "video", "model", "frames", "grid", "dtype", "size", "last", "used"]
    assert lines[1].split()[:3] == [pan.name, "?", "(damaged)"]
    assert lines[2].split()[:4] == [crossing.name, "crossing.mp4", Path(small[1]).name, "4"]
    assert " 4 x 3 x 5 " in lines[2]
    assert lines[3].startswith("2 entries, ")
    document = json.loads(ran(evs, "cache", "ls", "--json")[0])
    assert (document["schema_version"], document["command"]) == (2, "cache ls")
    assert document["limit_bytes"] == 10**10
    assert document["size_bytes"] == sum(entry["size_bytes"] for entry in document["entries"])
    assert document["entries"][1] == {
        "entry": crossing.name,
        "video": "crossing.mp4",
        "model": Path(small[1]).name,
        "num_sampled_frames": 4,
        "token_grid_thw": [4, 3, 5],
        "dtype": "float32",
        "size_bytes": crossing.path.stat().st_size,
        "last_used": "1970-01-01T00:00:00+00:00",
    }
    assert document["entries"][0]["video"] is None
    rows = list(csv.DictReader(io.StringIO(ran(evs, "cache", "ls", "--format", "csv")[0])))
    assert [row["entry"] for row in rows] == [pan.name, crossing.name]
    assert rows[1]["token_grid_thw"] == "4 x 3 x 5"


def test_rm(evs, small):
    ran(evs, "prune", CROSSING, PAN, *small, "--cache")
    first, second = open_cache().entries()
    for arguments, code, words in (
        (("none",), 5, "the cache has no such entry"),
        ((first.name, "none"), 5, "the cache has no such entry"),
        (("--json",), 2, "or --all"),
        ((first.name, "--all"), 2, "not both"),
    ):
        assert evs("cache", "rm", *arguments)[0] == code
        assert words in evs("cache", "rm", *arguments)[2]
    assert len(open_cache().entries()) == 2
    document = json.loads(ran(evs, "cache", "rm", first.name, "--json")[0])
    assert document == {
        "schema_version": 2,
        "command": "cache rm",
        "removed": [{"entry": first.name, "size_bytes": first.size_bytes}],
        "freed_bytes": first.size_bytes,
    }
    assert ran(evs, "cache", "rm", "--all")[0] == f"removed 1 entry, {second.size_bytes / 1e3:.1f} KB\n"
    assert ran(evs, "cache", "rm", "--all")[0] == "removed 0 entries, 0 bytes\n"


def test_ls_and_rm_of_entries_load_nothing_heavy(evs, folder, small):
    ran(evs, "prune", CROSSING, *small, "--cache")
    cache = {"EVS_CACHE": str(folder / "cache")}
    for words in (("ls",), ("rm", "--all")):
        done, loaded = run_evs(folder, "cache", *words, env=cache)
        assert done.returncode == 0, done.stderr
        assert "1 entry" in done.stdout
        assert not loaded & {"torch", "transformers", "av"}
