"""The examples in the help of every command run as they stand there."""

import importlib
import itertools
import json
import os
import pkgutil
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from counting_servers import CountingServer, Habits
from PIL import Image

import evs_cli
import evs_cli.cli
from evs_cli.cli import app
from evs_cli.errors import EvsError
from evs_cli.files.encoding.reader import holds_encoding
from evs_cli.video.info import probe_video

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {**app._COMMANDS, **app._GROUPS}
EXAMPLES = [line for module in COMMANDS.values() for line in module.EXAMPLES]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder that looks like the repository's root."""
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    for name in ("EVS_DEBUG", "EVS_MODEL", "EVS_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def outputs(line):
    """What a line says it writes: of several rates, a file each."""
    words = shlex.split(line)
    named = [Path(value) for option, value in itertools.pairwise(words) if option == "-o"]
    rates = words[words.index("--q") + 1].split(",") if "--q" in words else []
    if len(rates) < 2:
        return named
    return [output.with_name(f"{output.stem}-q{rate}{output.suffix}") for output in named for rate in rates]


def prepare(folder, line):
    """Write the files of evs that a line reads."""
    words = shlex.split(line)
    if "crossing.pt" in words and "prune" not in words:
        evs_cli.prune_video("samples/crossing.mp4", num_frames=4, size=56, output=folder / "crossing.pt")
    if "crossing.safetensors" in words[: words.index("-o") if "-o" in words else None]:
        evs_cli.encode_video("samples/crossing.mp4", folder / "crossing.safetensors", num_frames=4, size=56).close()


def check(file):
    """Read a file that evs wrote back, by what reads it."""
    if file.suffix == ".png":
        with Image.open(file) as image:
            image.load()
    elif file.suffix == ".mp4":
        assert probe_video(file).num_frames
    elif file.suffix in MAGIC:
        assert file.read_bytes().startswith(MAGIC[file.suffix])
    elif holds_encoding(str(file)):
        evs_cli.open_encoding(file).at(0.5)
    else:
        evs_cli.load(file)


MAGIC = {".html": b"<!doctype html>", ".pdf": b"%PDF-", ".svg": b"<?xml"}
HUB_MODELS = {"qwen3-vl-8b": "qwen3_vl", "qwen2.5-vl-7b": "qwen2_5_vl"}


@pytest.fixture
def standing_in(folder, tiny_model):
    """A line with what a test cannot have exchanged: the hub's model is a folder, a server is at a port of its own."""
    for name, model_type in HUB_MODELS.items():
        (folder / name).symlink_to(tiny_model(model_type))
    with CountingServer(tiny_model("qwen3_vl"), Habits(trusts_requests=True)) as server:
        yield lambda line: line.replace("http://localhost:8000", server.url)


def test_every_command_has_examples_of_itself():
    for name, module in COMMANDS.items():
        assert len(module.EXAMPLES) >= 2, name
        for line in module.EXAMPLES:
            assert shlex.split(line)[:2] == ["evs", name]


def test_every_module_with_examples_is_a_command():
    for info in pkgutil.iter_modules(evs_cli.cli.__path__):
        module = importlib.import_module(f"evs_cli.cli.{info.name}")
        assert hasattr(module, "EXAMPLES") == (module in COMMANDS.values()), info.name


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_runs(folder, standing_in, monkeypatch, capsys, line):
    """As it stands but for smaller frames and models, which no line may depend on."""
    line = standing_in(line)
    monkeypatch.setattr("evs_cli.encoders.plain.DEFAULT_SIZE", 56)
    prepare(folder, line)
    assert app.main(shlex.split(line)[1:]) == 0, capsys.readouterr().err
    out, err = capsys.readouterr()
    assert out
    assert "Error" not in err
    for output in outputs(line):
        path = folder / output
        files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        assert files
        for file in files:
            if file.suffix == ".json":
                assert json.loads(file.read_text())
                continue
            try:
                check(file)
            except EvsError as error:
                pytest.fail(f"{file.name}: {error}")


@pytest.mark.slow
@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_runs_as_a_process(folder, standing_in, line):
    line = standing_in(line)
    prepare(folder, line)
    done = subprocess.run(
        [sys.executable, "-m", "evs_cli", *shlex.split(line)[1:]],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert all((folder / output).exists() for output in outputs(line))
