"""What a person sees: the screen of a real terminal after a command, and colours that can be turned off."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import evs_cli

ROOT = Path(__file__).resolve().parents[2]
CROSSING, SLIDES = "samples/crossing.mp4", "samples/slides.mp4"
FAST = ("--num-frames", "4", "--size", "56")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs pty")

_TOKEN = re.compile(
    r"\x1b\[(\?)?([\d;]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>78]|[\r\n\b]|[^\x1b\r\n\b]"
)


class Screen:
    """As much of a terminal as Rich uses: text, carriage return, cursor up and down, erasing, wrapping, colours."""

    def __init__(self, columns):
        self.columns, self.row, self.column = columns, 0, 0
        self.rows, self.is_cursor_hidden, self.colours = [""], False, set()

    def feed(self, text):
        for match in _TOKEN.finditer(text):
            private, numbers, kind = match.groups()
            token = match[0]
            if kind is not None:
                self._control(kind, numbers, private)
            elif token == "\r":
                self.column = 0
            elif token == "\n":
                self._down(1)
            elif token == "\b":
                self.column = max(0, self.column - 1)
            elif not token.startswith("\x1b"):
                self._put(token)
        return self

    def _put(self, letter):
        if self.column >= self.columns:
            self.column = 0
            self._down(1)
        line = self.rows[self.row].ljust(self.column)
        self.rows[self.row] = line[: self.column] + letter + line[self.column + 1 :]
        self.column += 1

    def _down(self, count):
        self.row += count
        while len(self.rows) <= self.row:
            self.rows.append("")

    def _control(self, kind, numbers, private):
        first = int(numbers.split(";")[0] or 0) if numbers else 0
        if kind == "A":
            self.row = max(0, self.row - max(1, first))
        elif kind == "B":
            self._down(max(1, first))
        elif kind == "G":
            self.column = max(0, first - 1)
        elif kind == "K":
            line = self.rows[self.row]
            self.rows[self.row] = "" if first == 2 else line[: self.column]
        elif kind == "J":
            self.rows[self.row] = self.rows[self.row][: self.column]
            del self.rows[self.row + 1 :]
        elif kind == "m":
            self.colours |= {n for n in numbers.split(";") if n.isdigit() and 30 <= int(n) <= 107}
        elif kind in "hl" and private and first == 25:
            self.is_cursor_hidden = kind == "l"

    @property
    def lines(self):
        return [line.rstrip() for line in self.rows]


def on_terminal(*arguments, columns=100, stdout=True, stderr=True, env=None, program=None):
    """Run a command on a terminal of its own: exit code, the screen at the end, and what went past it."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    environment = {
        **{
            k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "EVS_DEBUG")
        },
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        **(env or {}),
    }
    child = subprocess.Popen(
        program or [sys.executable, "-m", "evs_cli", *arguments],
        stdin=slave,
        stdout=slave if stdout else subprocess.PIPE,
        stderr=slave if stderr else subprocess.PIPE,
        env=environment,
        cwd=ROOT,
        close_fds=True,
    )
    os.close(slave)
    seen = b""
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while chunk := os.read(master, 65536):
            seen += chunk
    piped = b"".join(pipe.read() for pipe in (child.stdout, child.stderr) if pipe is not None)
    os.close(master)
    code = child.wait(timeout=120)
    text = seen.decode()
    return code, Screen(columns).feed(text), text, piped.decode()


STEPS = (
    "load libraries",
    "load model",
    "encode",
    "left",
    "plan",
    "⠋",
    "⠙",
    "⠹",
    "⠸",
    "⠼",
    "⠴",
    "⠦",
    "⠧",
    "⠇",
    "⠏",
    "━",
)


def assert_no_residue(lines, allowed=()):
    """No line of the progress is left over, and no empty line where it stood."""
    for line in lines:
        if any(line.startswith(words) for words in allowed):
            continue
        for step in STEPS:
            assert not line.lstrip().startswith(step), lines
    assert lines[0], lines


def test_the_screen_itself():
    """The emulator understands what it is to judge."""
    assert Screen(10).feed("ab\r\nc\x1b[1A\x1b[2Kx").lines == [" x", "c"]
    assert Screen(3).feed("abcd").lines == ["abc", "d"]
    assert Screen(10).feed("spinner\r\x1b[2Kdone\r\n").lines == ["done", ""]
    assert Screen(10).feed("\x1b[31mred\x1b[0m").colours == {"31"}


def test_progress_of_prune_leaves_no_residue(tmp_path):
    code, screen, raw, _ = on_terminal("prune", CROSSING, *FAST, "-o", str(tmp_path / "out.pt"), columns=160)
    assert code == 0, raw
    lines = [line for line in screen.lines if line]
    assert "encode" in raw  # it was shown
    assert lines[0] == f"{CROSSING}  (dinov2-small)", lines
    assert [line.split(maxsplit=1)[0] for line in lines[1:7]] == [
        "rate",
        "frames",
        "tokens",
        "sequence",
        "embeddings",
        "time",
    ]
    assert lines[-1] == f"Hint: evs view {tmp_path / 'out.pt'} --video {CROSSING} -o report.html"
    assert lines[-2].startswith(f"wrote {tmp_path / 'out.pt'} (")
    assert_no_residue(lines)
    assert not screen.is_cursor_hidden
    assert screen.column == 0, "the prompt would not begin a line"


def test_progress_of_several_videos_leaves_no_residue():
    code, screen, raw, _ = on_terminal("prune", CROSSING, SLIDES, "samples/gone.mp4", *FAST, columns=160)
    assert code == 1
    lines = [line for line in screen.lines if line]
    assert_no_residue(lines)
    assert "clip 1 of 3: load model" in raw
    assert "clip 2 of 3: encode" in raw
    titles = [line for line in lines if line.endswith("(dinov2-small)")]
    assert titles == [f"{CROSSING}  (dinov2-small)", f"{SLIDES}  (dinov2-small)"], lines
    assert sum(line.startswith("1 0x28 2") for line in lines) == 2
    assert "Error: cannot open gone.mp4: no such file." in lines
    assert lines[-1].startswith("Error: 1 of 3 videos failed")


def test_notes_stand_above_the_progress(tmp_path):
    code, screen, _, _ = on_terminal("prune", CROSSING, *FAST, "--max-frames", "3", columns=160)
    assert code == 0
    lines = [line for line in screen.lines if line]
    assert lines[0].startswith("Note: crossing.mp4: max_frames 3 bound"), lines
    assert lines[1] == f"{CROSSING}  (dinov2-small)"
    assert_no_residue(lines)


@pytest.mark.parametrize("columns", [60, 160])
def test_progress_of_sweep_leaves_no_residue(columns):
    code, screen, _, _ = on_terminal("sweep", CROSSING, *FAST, "--q", "0,0.5,0.9", columns=columns)
    assert code == 0
    lines = [line for line in screen.lines if line]
    assert_no_residue(lines)
    assert lines[0].startswith(f"{CROSSING}  (dinov2")
    if columns == 160:
        assert [line.split()[0] for line in lines[-3:]] == ["0", "0.5", "0.9"]


@pytest.mark.parametrize("columns", [60, 100, *(pytest.param(n, marks=pytest.mark.slow) for n in (80, 120, 200))])
@pytest.mark.parametrize("model_type", [None, "qwen3_vl"])
def test_a_sweep_cuts_no_number_and_keeps_the_columns_that_matter(tiny_model, columns, model_type):
    model = FAST if model_type is None else ("--model", str(tiny_model(model_type)))
    code, screen, _, _ = on_terminal("sweep", CROSSING, *model, "--q", "0,0.5,0.9", "--quality", columns=columns)
    assert code == 0
    lines = [line for line in screen.lines if line]
    assert not [line for line in lines if "…" in line]
    (heading,) = (index for index, line in enumerate(lines) if line.split()[0] == "q")
    assert lines[heading].split()[:3][1:] in (["tokens", "sequence"], ["tokens", "share"])
    assert "change kept" in lines[heading]
    assert "coverage" in lines[heading]
    rows = lines[heading + 2 :]
    assert [line.split()[0] for line in rows] == ["0", "0.5", "0.9"]


@pytest.mark.parametrize(("columns", "last"), [(60, "sequence"), (80, "first limit hit"), (120, "first limit hit")])
def test_all_dialects_cut_no_number_and_drop_whole_columns(columns, last):
    described = ("--height", "720", "--width", "1280", "--duration", "61")
    _, screen, _, _ = on_terminal(
        "plan", *described, "--model", "qwen3-vl-8b", "--dialect", "all", "--quiet", columns=columns
    )
    lines = [line.rstrip() for line in screen.lines if line.strip()]
    head = next(line for line in lines if "sequence" in line)
    assert head.endswith(last)
    row = next(line for line in lines if "qwen-vl-utils" in line)
    assert "43,920" in row
    assert "44,461" in row
    assert not any("…" in line for line in lines)


def test_an_error_under_the_progress_leaves_no_residue():
    code, screen, _, _ = on_terminal("prune", "samples/gone.mp4")
    assert code == 3
    assert [line for line in screen.lines if line] == [
        "Error: cannot open gone.mp4: no such file.",
        "Hint: It was looked for in samples.",
    ]
    assert not screen.is_cursor_hidden


def test_ctrl_c_leaves_no_residue(tmp_path):
    program = (
        "import os, signal, sys\n"
        "from evs_cli.encoders.plain import PlainFrameEncoder\n"
        "PlainFrameEncoder.embed = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "from evs_cli.cli.app import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    arguments = [sys.executable, "-c", program, "prune", CROSSING, *FAST, "-o", str(tmp_path / "out.pt")]
    code, screen, raw, _ = on_terminal(program=arguments)
    assert code == 130, raw
    assert [line for line in screen.lines if line] in (["Interrupted."], ["^C", "Interrupted."]), raw
    assert not screen.is_cursor_hidden
    assert not list(tmp_path.iterdir())


def test_a_piped_result_keeps_the_progress_to_the_terminal():
    """stdout is a pipe and gets the table without colours; the terminal gets the progress, gone at the end."""
    code, screen, raw, piped = on_terminal("prune", CROSSING, *FAST, stdout=False)
    assert code == 0
    assert "encode" in raw
    assert "\x1b" not in piped
    assert piped.startswith(f"{CROSSING}  (dinov2-small)\n")
    assert not [line for line in screen.lines if line]


def test_piped_errors_get_no_progress():
    """stderr is a pipe: not a byte of the progress, and no colour."""
    code, screen, _, piped = on_terminal("prune", CROSSING, *FAST, stderr=False)
    assert code == 0
    assert piped == ""
    assert screen.lines[0] == f"{CROSSING}  (dinov2-small)"


def test_json_on_a_terminal_is_one_document():
    import json

    code, screen, _, _ = on_terminal("prune", CROSSING, *FAST, "--json", columns=4000)
    assert code == 0
    (line,) = [line for line in screen.lines if line]
    assert json.loads(line)["videos"][0]["retained_tokens"] == 33


def test_quiet_shows_no_progress():
    code, screen, raw, _ = on_terminal("prune", CROSSING, *FAST, "-q")
    assert code == 0
    assert "load model" not in raw.split("(dinov2-small)")[0]
    assert screen.lines[0] == f"{CROSSING}  (dinov2-small)"


def test_colours_are_there_and_can_be_turned_off():
    """An error shows them best, and each way must reach it."""
    arguments = ("show", "samples/gone.pt")
    assert on_terminal(*arguments)[1].colours
    for option, env in (((), {"NO_COLOR": "1"}), ((), {"TERM": "dumb"}), (("--no-color",), {})):
        assert not on_terminal(*arguments, *option, env=env)[1].colours, (option, env)


def test_no_color_that_is_empty_is_not_set():
    assert on_terminal("show", "samples/gone.pt", env={"NO_COLOR": ""})[1].colours


def test_a_forced_colour_brings_no_progress_into_a_pipe():
    """FORCE_COLOR is set by many build servers; it asks for colours, not for a cursor that moves."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FORCE_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "evs_cli", "sweep", CROSSING, *FAST, "--q", "0.5"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        check=True,
    )
    assert "\x1b[2K" not in done.stderr
    assert "load model" not in done.stderr
    rows = re.sub(r"\x1b\[[\d;]*m", "", done.stdout).splitlines()
    assert sum("0.5" in row and "50.0%" in row for row in rows) == 1


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_maps_of_frames_fill_a_terminal_and_no_more(tmp_path, columns):
    """A line that is too wide would wrap, and a map would fall apart."""
    path = tmp_path / "out.pt"
    evs_cli.prune_video(ROOT / CROSSING, num_frames=6, size=56, output=path)
    code, screen, raw, _ = on_terminal("show", str(path), "--frames", columns=columns)
    assert code == 0, raw
    assert screen.colours
    code, plain, raw, _ = on_terminal("show", str(path), "--frames", "--no-color", columns=columns)
    assert (code, plain.colours) == (0, set())
    assert [line.rstrip() for line in plain.lines] == [line.rstrip() for line in screen.lines]
    captions = [line for line in plain.lines if re.match(r"\d+\.\d\d s  ", line)]
    most = max(captions, key=len).count(" s  ")
    assert most == min(6, (columns + 2) // (len("0.00 s  28") + 2))
    assert sum(line.count(" s  ") for line in captions) == 6
