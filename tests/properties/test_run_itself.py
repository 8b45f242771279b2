"""What every test stands on: files made once a run, drawn cases of which none is lost, children that hear Ctrl-C."""

import subprocess
import sys
import threading

import pytest
from drawn_cases import Amount, tried_on
from hypothesis import given
from hypothesis import strategies as st
from made_once import made_once


def test_a_file_is_made_once_and_never_seen_half(request):
    name, made = f"run_itself/{request.node.name}", []

    def make(path):
        made.append(path)
        path.mkdir()
        (path / "whole").touch()

    def fail(path):
        path.mkdir()
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - ours
        made_once(name, fail)
    found = []
    threads = [threading.Thread(target=lambda: found.append(made_once(name, make))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(set(found)) == 1
    assert [path.name for path in found[0].iterdir()] == ["whole"]


@pytest.mark.parametrize(
    ("count", "daily", "is_full", "tried", "is_slow"),
    [
        (1500, None, False, 150, False),
        (1500, None, True, 1500, True),
        (300, None, False, 100, False),
        (60, None, False, 60, False),
        (60, None, True, 60, False),
        (25, 8, False, 8, False),
        (25, 8, True, 25, True),
    ],
)
def test_the_slow_run_draws_what_every_other_leaves_out(monkeypatch, count, daily, is_full, tried, is_slow):
    monkeypatch.setattr(Amount, "is_full", is_full)
    seen = []

    @tried_on(count, daily=daily, database=None, deadline=None)
    @given(st.integers())
    def check(number):
        seen.append(number)

    check()
    assert len(seen) == tried
    assert [mark.name for mark in getattr(check, "pytestmark", [])] == ["slow"] * is_slow


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is inherited there")
def test_a_child_hears_ctrl_c():
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"
