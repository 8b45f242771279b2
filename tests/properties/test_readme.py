"""README and guides tell the truth: commands run, output is as shown, code works, links lead somewhere."""

import json
import re
import shlex
from pathlib import Path

import pytest

from evs_cli.cli.app import main
from evs_cli.core.pruned_video import PrunedVideo
from evs_cli.encoders.registry import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted((ROOT / "samples" / "guides").glob("*.md"))
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *GUIDES, ROOT / "samples" / "README.md")
}
README = PAGES["README.md"]

SHOWN = re.compile(r"<!-- output: (evs .*?) -->\n```text\n(.*?)```", re.DOTALL)
OUTPUTS = {(page, command): shown for page, text in PAGES.items() for command, shown in SHOWN.findall(text)}
PYTHON = [(page, code) for page, text in PAGES.items() for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
DRAWN_WITH = set(" █▀▄·▏▎▍▌▋▊▉")
LEFT_OUT = "…"  # a line of its own in a shown output: any number of lines


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the samples in it, as a clone's root has them."""
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


HUB_MODELS = {"qwen2.5-vl-7b": "qwen2_5_vl", "qwen3-vl-8b": "qwen3_vl"}


@pytest.fixture
def run(capsys, hub_cache):
    """Run a line as a shell does, with its globs, ``&&`` and ``>``: the exit code, and what the last command prints.

    Models that only a hub has are in its cache, with the limits of the published checkpoints.
    """
    for name, served in HUB_MODELS.items():
        hub_cache(name, served)

    def run_one(words):
        path = Path(words.pop()) if words[-2:-1] == [">"] else None
        if path is not None:
            words.remove(">")
        words = [name for word in words for name in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]
        code = main(words[1:])
        out, err = capsys.readouterr()
        if path is None:
            return code, out
        path.write_text(out, encoding="utf-8")
        return code, err

    def run_line(line):
        for command in line.split(" && "):
            code, printed = run_one(shlex.split(command))
            if code:
                break
        return code, printed

    return run_line


def the_same_everywhere(line, verb):
    """The part of a printed line that does not depend on the machine."""
    if verb == "prune" and not line.startswith(("rate", "frames", "tokens  ", "sequence", "samples/", "wrote")):
        return line.split()[0]  # times, norms, and which tokens win
    if verb == "sweep" and not line.startswith(("samples/", "  q")):
        return line.split()[:4]  # noise and change in their last digit
    if verb == "show" and line and set(line) <= DRAWN_WITH:
        return "a map or a bar"  # which tokens win
    if verb == "show" and re.fullmatch(r"([\d.]+ s +\d+ *)+", line):
        return re.findall(r"[\d.]+ s", line)  # without the counts
    if verb in ("show", "export"):
        return re.sub(r"[\d.]+ [KM]B", "SIZE", line)  # versions stand in a file's front, and JPEG encoders differ
    return line.rstrip()


def holds(shown, printed):
    """Whether the printed lines are the shown ones, with any lines where ``LEFT_OUT`` stands."""
    if LEFT_OUT not in shown:
        return shown == printed
    at = shown.index(LEFT_OUT)
    if shown[:at] != printed[:at]:
        return False
    rest = shown[at + 1 :]
    return any(holds(rest, printed[start:]) for start in range(at, len(printed) + 1))


def test_left_out_lines_hide_nothing_else():
    assert holds(["a", LEFT_OUT, "d"], ["a", "b", "c", "d"])
    assert holds([LEFT_OUT, "b", LEFT_OUT], ["a", "b"])
    assert not holds(["a", LEFT_OUT, "d"], ["a", "b", "d", "e"])
    assert not holds([LEFT_OUT, "c", "b", LEFT_OUT], ["a", "b", "c", "d"])
    assert not holds(["a", "b"], ["a", "b", "c"])


@pytest.mark.parametrize(("page", "line"), [pytest.param(*case, id=": ".join(case)) for case in OUTPUTS])
def test_what_a_page_shows_is_printed(page, line, folder, run):
    """What is planned to the letter; of what is encoded, what does not depend on the machine."""
    code, out = run(line)
    assert code == 0
    verb = line.split(" && ")[-1].split()[1]
    printed = [the_same_everywhere(line, verb) for line in out.splitlines()]
    shown = [line if line == LEFT_OUT else the_same_everywhere(line, verb) for line in OUTPUTS[page, line].splitlines()]
    assert holds(shown, printed), f"{page} shows\n{OUTPUTS[page, line]}\nand this is printed:\n{out}"


def test_there_is_output_of_every_command_that_counts():
    assert {line.split()[1] for _, line in OUTPUTS} >= {"prune", "sweep", "plan", "fit"}


def test_every_recipe_shows_its_output():
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("evs ")]
    assert lines == [line for page, line in OUTPUTS if page == "README.md"]


@pytest.mark.parametrize("page", PAGES)
def test_output_that_is_not_checked_says_why(page):
    for before, block in re.findall(r"([^\n]*)\n```text\n(.*?)```", PAGES[page], re.DOTALL):
        assert re.fullmatch(r"<!-- (output|not run): .+ -->", before), block


# These need a model and its inputs; integration/test_mixin.py holds what they do.
PARTS = [code for _, code in PYTHON if "enable_evs" in code or "retentions_of" in code]
HUB_NAMES = {"Qwen/Qwen3-VL-2B-Instruct": "qwen3_vl", "Qwen/Qwen3-VL-8B-Instruct": "qwen3_vl"}


def test_few_blocks_of_python_are_parts():
    assert len(PARTS) == 2


@pytest.mark.parametrize(
    ("page", "code"),
    [pytest.param(page, code, id=f"{page}: {code[:60]}") for page, code in PYTHON if code not in PARTS],
)
def test_the_python_runs(page, code, folder, run, tiny_model):
    """After the commands of its page that write the files it reads; a small checkpoint stands in for a hub's."""
    for shown_on, line in OUTPUTS:
        words = shlex.split(line)
        if shown_on == page and "-o" in words and f'"{words[words.index("-o") + 1]}"' in code:
            assert run(line)[0] == 0
    for name, family in HUB_NAMES.items():
        if name in code:
            code = code.replace(name, str(tiny_model(family)))
    exec(compile(code, page, "exec"), {})


CLIPS = {
    "10 s, 1920x1080": (1080, 1920, 10),
    "61 s, 1280x720": (720, 1280, 61),
    "451 frames, 1280x720": (720, 1280, 451 / 30),
}


@pytest.mark.parametrize("clip", CLIPS)
def test_the_table_of_three_counts_is_recomputed(clip, folder, run):
    (row,) = [line for line in PAGES["samples/guides/servers.md"].splitlines() if line.startswith(f"| {clip} |")]
    height, width, seconds = CLIPS[clip]
    for cell, model in zip(row.split("|")[2:4], HUB_MODELS, strict=True):
        line = f"evs plan --height {height} --width {width} --duration {seconds} --model {model} --dialect all --json"
        _, out = run(line)
        found = {document["dialect"]: document["total_tokens"] for document in json.loads(out)["videos"]}
        assert cell.strip() == " / ".join(f"{found[name]:,}" for name in ("hf@5.24", "vllm@0.33", "sglang@0.5.23"))


def test_every_command_and_family_and_field_is_named():
    from evs_cli.cli.app import _COMMANDS, _GROUPS

    for name in (*_COMMANDS, *_GROUPS):
        assert f"`evs {name}" in README, name
    for name in FAMILIES:
        assert f"`{name.removesuffix('_vision_model')}`" in PAGES["samples/guides/models.md"], name
    for name in PrunedVideo.__dataclass_fields__:
        assert f"`{name}`" in PAGES["samples/guides/artifact.md"], name


def test_the_readme_is_a_first_page():
    assert len(README.splitlines()) <= 200


@pytest.mark.parametrize("guide", [path.name for path in GUIDES])
def test_a_guide_is_listed_and_says_for_whom_it_is(guide):
    assert f"](samples/guides/{guide})" in README[README.index("\n## Guides\n") :]
    title, empty, first = PAGES[f"samples/guides/{guide}"].splitlines()[:3]
    assert title.startswith("# ")
    assert not empty
    assert first.startswith("For ")


def anchors_of(text):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


LINKS = [(page, link) for page, text in PAGES.items() for link in re.findall(r"\]\((?!http)([^)]+)\)", text)]


@pytest.mark.parametrize(("page", "link"), [pytest.param(*case, id=" to ".join(case)) for case in LINKS])
def test_a_link_leads_somewhere(page, link):
    path, _, anchor = link.partition("#")
    target = (ROOT / page).parent / path if path else ROOT / page
    assert target.exists()
    if anchor:
        assert anchor in anchors_of(target.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES)
def test_a_file_that_is_named_is_there(page):
    for path in re.findall(r"`((?:tests|evs_cli|samples)/[\w./]+\.\w+)`", PAGES[page]):
        assert (ROOT / path).is_file(), path
    for path in re.findall(r"`((?:tests|evs_cli|samples)/[\w/]*/)`", PAGES[page]):
        assert (ROOT / path).is_dir(), path
