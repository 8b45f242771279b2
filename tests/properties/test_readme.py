"""The README tells the truth: its commands run, their output is what it shows, its code works."""

import json
import re
import shlex
from pathlib import Path

import pytest

from evs_cli.cli.app import main
from evs_cli.core.pruned_video import PrunedVideo
from evs_cli.encoders.registry import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "samples" / "guides").glob("*.md")))
README = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
OUTPUTS = dict(re.findall(r"<!-- output: (evs [^>]*) -->\n```text\n(.*?)```", README, re.DOTALL))
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the samples in it, as a clone's root has them."""
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


HUB_MODELS = {"qwen2.5-vl-7b": "qwen2_5_vl", "qwen3-vl-8b": "qwen3_vl"}


@pytest.fixture
def run(capsys, served_checkpoint):
    """Run a command; a folder with the limits of a published checkpoint takes its place, which only a hub has."""

    def run_line(command):
        folders = {name: str(served_checkpoint(served)) for name, served in HUB_MODELS.items() if name in command}
        code = main([folders.get(word, word) for word in shlex.split(command)[1:]])
        out = capsys.readouterr().out
        for name, folder in folders.items():
            out = out.replace(folder, name)
        return code, out

    return run_line


def commands(verb):
    return [command for command in OUTPUTS if command.split()[1] == verb]


def test_there_is_output_of_every_command_that_counts():
    assert {command.split()[1] for command in OUTPUTS} == {"prune", "sweep", "plan", "fit"}


@pytest.mark.parametrize("command", [*commands("plan"), *commands("fit")])
def test_what_is_planned_is_shown_to_the_letter(command, folder, run):
    code, out = run(command)
    assert code == 0
    assert [line.rstrip() for line in out.splitlines()] == OUTPUTS[command].splitlines()


@pytest.mark.parametrize("command", commands("prune"))
def test_what_is_pruned_is_shown(command, folder, run):
    """The counts to the letter; times, norms and which tokens win depend on the machine."""
    code, out = run(command)
    assert code == 0
    shown, ran = OUTPUTS[command].splitlines(), out.splitlines()
    labels = ("rate", "frames", "tokens  ", "sequence", "samples/")
    assert [line for line in ran if line.startswith(labels)] == [line for line in shown if line.startswith(labels)]
    assert [line.split()[0] for line in ran] == [line.split()[0] for line in shown]


@pytest.mark.parametrize("command", commands("sweep"))
def test_what_is_swept_is_shown(command, folder, run):
    """Rates, tokens, shares and lengths to the letter; the rest depends on the machine in its last digit."""
    code, out = run(command)
    assert code == 0
    shown, ran = OUTPUTS[command].splitlines(), out.splitlines()
    assert ran[:2] == shown[:2]
    assert [line.split()[:4] for line in ran[2:]] == [line.split()[:4] for line in shown[2:]]


# What needs a model that only a hub has is tested on small ones: core/test_model_inputs.py, integration/test_mixin.py.
RUNNABLE = [block for block in PYTHON if "model." not in block and "enable_evs" not in block]


@pytest.mark.parametrize("code", RUNNABLE, ids=lambda code: code[:40])
def test_the_python_runs(code, folder):
    exec(compile(code, "README.md", "exec"), {})


CLIPS = {
    "10 s, 1920x1080": (1080, 1920, 10),
    "61 s, 1280x720": (720, 1280, 61),
    "451 frames, 1280x720": (720, 1280, 451 / 30),
}


@pytest.mark.parametrize("clip", CLIPS)
def test_the_table_of_three_counts_is_recomputed(clip, folder, run):
    (row,) = [line for line in README.splitlines() if line.startswith(f"| {clip} |")]
    height, width, seconds = CLIPS[clip]
    for cell, model in zip(row.split("|")[2:4], HUB_MODELS, strict=True):
        line = f"evs plan --height {height} --width {width} --duration {seconds} --model {model} --dialect all --json"
        _, out = run(line)
        found = {document["dialect"]: document["total_tokens"] for document in json.loads(out)["videos"]}
        assert cell.strip() == " / ".join(f"{found[name]:,}" for name in ("hf@5.24", "vllm@0.33", "sglang@0.5.23"))


def test_every_command_and_family_and_field_is_named():
    from evs_cli.cli.app import _COMMANDS

    for name in _COMMANDS:
        assert f"`evs {name}" in README, name
    for name in FAMILIES:
        assert f"`{name.removesuffix('_vision_model')}`" in README, name
    for name in PrunedVideo.__dataclass_fields__:
        assert f"`{name}`" in README, name


def test_what_it_points_at_is_there():
    for page in PAGES:
        for path in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / path).is_file(), path
    for path in re.findall(r"`((?:tests|evs_cli|samples)/[\w./]+\.\w+)`", README):
        assert (ROOT / path).is_file(), path
