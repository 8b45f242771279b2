"""Results of several videos as a person and a script get them: paths alone, folders that are kept, files left alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evs_cli.encoders.plain import PlainFrameEncoder

ROOT = Path(__file__).resolve().parents[2]
FAST = ("--num-frames", "2", "--size", "56")
NAMES = ("a/clip.mp4", "b/clip.mp4", "b/ü [bold] clip.mp4")


@pytest.fixture
def clips(tmp_path, monkeypatch):
    """Three clips in two folders, two of one name."""
    monkeypatch.chdir(tmp_path)
    for name, sample in zip(NAMES, ("cuts", "pan", "still"), strict=True):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes((ROOT / "samples" / f"{sample}.mp4").read_bytes())
    return NAMES


@pytest.mark.parametrize(("command", "suffix"), [("prune", ".pt"), ("encode", ".safetensors")])
def test_quiet_prints_the_written_paths_alone(evs, clips, command, suffix):
    keeping = ("-o", "out", "--name", "{parent}/{stem}")
    code, out, err = evs(command, *clips, "gone.mp4", *FAST, *keeping, "-q")
    written = [f"out/{name.removesuffix('.mp4')}{suffix}" for name in clips]
    assert (code, out.splitlines()) == (1, written)
    assert err.splitlines() == ["Error: cannot open gone.mp4: no such file.", "Error: 1 of 4 videos failed: gone.mp4."]
    assert all(Path(path).is_file() for path in written)
    code, out, err = evs(command, clips[0], *FAST, "-o", f"one{suffix}", "-q")
    assert (code, out, err) == (0, f"one{suffix}\n", "")


def test_quiet_without_an_output_prints_the_result(evs, clips):
    for arguments in ((), ("-o", "out.pt", "--dry-run")):
        _, out, err = evs("prune", clips[0], *FAST, "-q", *arguments)
        assert out.startswith(f"{clips[0]}  (dinov2-small)\n")
        assert err == ""


def test_paths_are_the_bytes_of_the_file_whatever_the_terminal_shows(clips):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "evs_cli", "prune", clips[2], *FAST, "-o", "ü….pt", "-q"]
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert done.stdout == os.fsencode("ü….pt\n")
    assert Path("ü….pt").is_file()


def test_what_is_there_is_left_and_told(evs, clips, monkeypatch):
    keeping = ("-o", "out", "--name", "{parent}/{stem}", "--skip-existing")
    assert evs("prune", *clips[:2], *FAST, *keeping)[0] == 0
    before = Path("out/a/clip.pt").stat().st_mtime_ns
    code, out, err = evs("prune", *clips, *FAST, *keeping, "--json")
    assert code == 0
    records = json.loads(out)["videos"]
    assert [record.get("skipped", False) for record in records] == [True, True, False]
    assert records[0] == {
        **{"video": clips[0], "output": "out/a/clip.pt", "model": "dinov2-small", "q": 0.7},
        "skipped": True,
    }
    assert f"skipped {clips[0]}: out/a/clip.pt is there already" in err
    assert Path("out/a/clip.pt").stat().st_mtime_ns == before
    monkeypatch.setattr(PlainFrameEncoder, "load", lambda *_: pytest.fail("weights were loaded"))
    code, out, err = evs("prune", *clips, *FAST, *keeping)
    assert (code, out, len(err.splitlines())) == (0, "", 3)
    assert evs("prune", *clips, *FAST, *keeping, "-q") == (0, "", "")


def test_skipping_is_a_file_a_rate(evs, clips):
    assert evs("prune", clips[0], *FAST, "--q", "0.5", "-o", "out-q0.5.pt")[0] == 0
    line = ("prune", clips[0], *FAST, "--q", "0.5,0.7", "-o", "out.pt", "--skip-existing", "-q")
    assert evs(*line) == (0, "out-q0.7.pt\n", "")


def test_encodings_are_left_too(evs, clips):
    line = ("encode", clips[0], *FAST, "-o", "x.safetensors", "--skip-existing")
    assert evs(*line)[0] == 0
    code, out, err = evs(*line)
    assert (code, out) == (0, "")
    assert err == f"skipped {clips[0]}: x.safetensors is there already\n"
    assert evs(*line, "--format", "csv")[:2] == (0, "")


def test_a_clash_gives_the_option_that_ends_it(evs, clips):
    for command in ("prune", "encode"):
        code, out, err = evs(command, *clips, *FAST, "-o", "out")
        assert (code, out) == (5, "")
        assert err.splitlines()[0].startswith(f"Error: cannot write {clips[0]} and {clips[1]}: both would become out/")
        assert err.splitlines()[1] == "Hint: --name '{parent}/{stem}' tells them apart."
        assert not Path("out").exists()
