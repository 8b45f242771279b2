"""What is printed where a terminal has ASCII alone: nothing is lost, and signs differ."""

import ast
import io
import json
import sys
from pathlib import Path

import pytest

from evs_cli.report.signs import _TEXT, ASCII, DRAWN, UNICODE, signs_of

PACKAGE = Path(__file__).resolve().parents[2] / "evs_cli"
CROSSING, SLIDES = "samples/crossing.mp4", "samples/slides.mp4"
FAST = ("--num-frames", "8", "--size", "56")


class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True


def stream(encoding, kind=io.TextIOWrapper):
    return kind(io.BytesIO(), encoding=encoding)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "koi8-r"])
def test_a_stream_without_the_signs_gets_the_others(encoding):
    assert signs_of(stream(encoding)) is ASCII


def test_a_stream_with_the_signs_gets_them():
    assert signs_of(stream("utf-8")) is UNICODE
    assert signs_of(io.StringIO()) is UNICODE


@pytest.mark.parametrize(
    ("environment", "signs"),
    [
        ({"TERM": "linux", "LANG": "C"}, ASCII),
        ({"TERM": "dumb"}, ASCII),
        ({"TERM": "dumb", "LANG": "C", "LC_CTYPE": "C.UTF-8"}, ASCII),  # Python's own word
        ({"TERM": "linux", "LANG": "de_DE.UTF-8"}, UNICODE),
        ({"TERM": "linux", "LANG": "de_DE.UTF-8", "LC_ALL": "C"}, ASCII),
        ({"TERM": "dumb", "LANG": "C.UTF-8"}, UNICODE),
        ({"TERM": "xterm-256color", "LANG": "C"}, UNICODE),
    ],
)
def test_a_plain_terminal_gets_ascii_though_python_writes_utf_8(environment, signs):
    assert signs_of(stream("utf-8", Terminal), environment) is signs
    assert signs_of(stream("utf-8"), environment) is UNICODE  # a pipe


@pytest.mark.parametrize("signs", [ASCII, UNICODE], ids=["ascii", "unicode"])
def test_signs_that_mean_different_things_differ(signs):
    assert len(set(signs.levels + signs.none)) == 9
    assert len(signs.levels) == len(UNICODE.levels) == 8
    assert len(set(signs.parts[1:] + signs.block)) == 8
    assert len({signs.long_bar(eighths / 160, 20) for eighths in range(161)}) == 161
    assert len(signs.long_bar(1, 20)) == 20
    assert (len(set(signs.halves)), len(set(signs.pooled))) == (4, 3)
    assert signs.none == signs.halves[0] == signs.pooled[0]


def test_the_signs_of_ascii_are_ascii():
    signs = (ASCII.levels, ASCII.none, ASCII.full, ASCII.block, ASCII.parts, ASCII.halves, ASCII.pooled)
    assert "".join((*signs, *_TEXT.values())).isascii()


def test_every_sign_of_the_program_has_a_stand_in():
    """Every letter beyond ASCII in a string that is printed; docstrings are not."""
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Expr)
        docs = {
            id(node.value)
            for each in ast.walk(tree)
            if isinstance(each, documented)
            for node in ([each] if isinstance(each, ast.Expr) else each.body[:1])
            if isinstance(node, ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                letters = {letter for letter in node.value if not letter.isascii() and letter.isprintable()}
                assert letters <= DRAWN | set(_TEXT), (path.name, node.lineno, letters)


@pytest.fixture
def in_ascii(monkeypatch):
    """Run a command line on streams of ASCII: exit code, stdout, stderr."""
    from evs_cli.cli.app import main

    def run(*arguments):
        with monkeypatch.context() as patch:
            streams = [stream("ascii"), stream("ascii")]
            patch.setattr(sys, "stdout", streams[0])
            patch.setattr(sys, "stderr", streams[1])
            code = main([str(argument) for argument in arguments])
            for each in streams:
                each.flush()
            return code, *(each.buffer.getvalue().decode("ascii") for each in streams)

    return run


def without_times(text):
    return [line for line in text.splitlines() if not line.startswith(("time  ", "peak memory"))]


def as_ascii(line):
    """A line of the Unicode output with each sign exchanged."""
    line = line.replace(f"{UNICODE.full} =", f"{ASCII.full} =")
    pairs = [*zip(UNICODE.levels[:-1], ASCII.levels[:-1], strict=True), (UNICODE.none, ASCII.none), *_TEXT.items()]
    is_a_curve = "%" in line
    pairs += [(UNICODE.block, ASCII.block if is_a_curve else ASCII.levels[-1])]
    pairs += zip(UNICODE.parts[1:], ASCII.parts[1:], strict=True)
    for sign, letter in pairs:
        line = line.replace(sign, letter)
    return line


@pytest.mark.parametrize(
    "arguments",
    [
        ("prune", CROSSING, "--num-frames", "20", "--size", "56", "--q", "0.5,0.9"),
        ("prune", "gone.mp4"),
        ("sweep", SLIDES, *FAST, "--q", "0:0.9:0.1", "--quality"),
        ("plan", CROSSING),
        ("plan", CROSSING, "--dialect", "all", "--model", "{qwen3_vl}"),
        ("fit", CROSSING, "--context", "4k"),
        ("encode", CROSSING, *FAST, "-o", "all.safetensors", "--dry-run"),
        ("export", CROSSING, "--to", "vllm-frames", "--model", "{qwen3_vl}", "-o", "body.json"),
        ("show", "{pruned}"),
        ("models",),
        ("cache", "ls"),
        ("help", "topics"),
        ("prune", "--help-all"),
        ("--help",),
        ("prune", CROSSING, "--server-cmd", "start it"),
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_the_output_in_ascii_says_what_it_says(evs, in_ascii, tiny_model, tmp_path, monkeypatch, arguments):
    """Sign by sign: the Unicode output with the table's letters is the ASCII output."""
    (tmp_path / "samples").symlink_to(PACKAGE.parent / "samples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVS_CACHE_SIZE", "1")
    evs("prune", CROSSING, *FAST, "-o", "pruned.pt")
    arguments = [word.format(qwen3_vl=tiny_model("qwen3_vl"), pruned="pruned.pt") for word in arguments]
    ours = evs(*arguments)
    for path in tmp_path.glob("body.json"):
        path.unlink()
    theirs = in_ascii(*arguments)
    assert theirs[0] == ours[0]
    for wide, plain in zip(ours[1:], theirs[1:], strict=True):
        assert [as_ascii(line) for line in without_times(wide)] == without_times(plain)
        assert "\\x" not in plain
        assert "\\u" not in plain


def test_names_keep_apart_and_json_whole(in_ascii, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["é.mp4", "è.mp4"]
    code, out, err = in_ascii("plan", *names, "--json")
    assert code == 1
    assert [record["video"] for record in json.loads(out)["videos"]] == names
    assert len(set(err.splitlines()[:2])) == 2
    assert "?" not in err


def test_the_bars_of_ascii_tell_frames_apart(in_ascii):
    _, out, _ = in_ascii("prune", CROSSING, "--num-frames", "20", "--size", "56", "--q", "0.9")
    lines = out.splitlines()
    (place,) = (index for index, line in enumerate(lines) if line.startswith("tokens kept of each frame"))
    assert lines[place] == "tokens kept of each frame (8 = 28, . = none)"
    bars = lines[place + 1].split()[-1]
    assert len(bars) == 20
    assert bars[0] == "8"
    assert len(set(bars)) > 2
