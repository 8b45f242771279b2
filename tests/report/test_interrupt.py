"""Ctrl-C is 130 and a word, also where Python drops it or a library makes another error of it; so are other signals."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CROSSING = str(ROOT / "samples" / "crossing.mp4")
FAST = ("--size", "28", "--num-frames", "8", "--batch-frames", "2")

WAYS = {
    "raised as it is": "os.kill(os.getpid(), signal.SIGINT); time.sleep(30)",
    "dropped by a destructor": """
class Dropping:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)
Dropping()
""",
    "dropped by a destructor of a step that takes long": """
class Dropping:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)
Dropping()
time.sleep(100)
""",
    "made an ImportError": """
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(30)
except KeyboardInterrupt as interrupt:
    raise ImportError("initialization failed") from interrupt
""",
    "raised in code that is executed": "exec('os.kill(os.getpid(), signal.SIGINT); time.sleep(30)')",
}
PROGRAM = """
import os, signal, sys, time
from evs_cli.encoders.plain import PlainFrameEncoder
embed = PlainFrameEncoder.embed
way = {way!r}
def interrupted(self, *arguments):
    global way
    present, way = way, ""
    exec(present, globals())
    return embed(self, *arguments)
PlainFrameEncoder.embed = interrupted
{before}
from evs_cli.__main__ import main
sys.exit(main())
"""


def run(way, folder, before=""):
    program = PROGRAM.format(way=way, before=before)
    arguments = ("prune", CROSSING, *FAST, "-o", str(folder / "out.pt"))
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=90, check=False
    )


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_stops_whatever_becomes_of_it(tmp_path, way):
    done = run(WAYS[way], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("signal", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_signals_that_end_a_program_leave_nothing_behind(tmp_path, signal, code):
    """While the file is being written, when a temporary one lies in the user's folder."""
    before = f"""
signal.signal(signal.{signal}, signal.SIG_DFL)  # the tests may run under nohup
import evs_cli.files.artifact as artifact
write = artifact._write_pt
def ended(record, file):
    assert os.listdir({str(tmp_path)!r})
    os.kill(os.getpid(), signal.{signal})
    time.sleep(30)
artifact._write_pt = ended
"""
    done = run("", tmp_path, before)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "Interrupted.\n")
    assert not list(tmp_path.iterdir())


def test_nohup_stays_as_it_is(tmp_path):
    done = run("os.kill(os.getpid(), signal.SIGHUP)", tmp_path, "signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.pt").exists()


def test_where_the_shell_ignores_ctrl_c_it_stays_ignored(tmp_path):
    done = run("os.kill(os.getpid(), signal.SIGINT)", tmp_path, "signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.pt").exists()


def test_what_else_a_destructor_drops_is_still_told(tmp_path):
    done = run(
        "class Failing:\n    def __del__(self):\n        raise ValueError('of a destructor')\nFailing()", tmp_path
    )
    assert done.returncode == 0
    assert "ValueError: of a destructor" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="its shell closes no streams")
@pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&-", "2> >(true)", "> >(true)"])
def test_ctrl_c_is_130_where_nobody_listens(tmp_path, streams):
    """Streams that the caller closed, and pipes that nobody reads any more."""
    program = PROGRAM.format(way="time.sleep(1)\n" + WAYS["raised as it is"], before="")
    script = f'exec "$@" {streams}'
    arguments = [sys.executable, "-c", program, "prune", CROSSING, *FAST, "-o", str(tmp_path / "out.pt")]
    done = subprocess.run(["bash", "-c", script, "bash", *arguments], cwd=ROOT, timeout=90, check=False)
    assert done.returncode == 130
    assert not list(tmp_path.iterdir())
