"""What a terminal would obey is shown by its number, whoever prints it."""

import io
import json
import os
import re

import pytest
from rich.table import Table
from rich.text import Text

from evs_cli.report.console import OutputStyle, Sink
from evs_cli.report.escaped_text import LONGEST_LINE, escaped, escaped_json, one_line

HOSTILE = "\x1b]52;c;cm0=\x07 \x9b31m \x7f \u202e4pm\u2069 \u2028Error: forged\u2029 \r \u200f[red]x[/red] [/"
STYLE = re.compile(r"\x1b\[\d*m")  # bold and dim, which Rich writes without colour too
OBEYED = set(HOSTILE) - set(escaped(HOSTILE))


class Terminal(io.StringIO):
    def isatty(self):
        return True

    @property
    def shown(self):
        return STYLE.sub("", self.getvalue())


@pytest.fixture
def shown(monkeypatch):
    """stdout and stderr, both terminals of 200 columns, and the sink that prints to them."""
    out, err = Terminal(), Terminal()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    return out, err, Sink(OutputStyle(no_color=True, verbosity=1))


def test_what_is_escaped_and_what_is_not():
    assert {"\x1b", "\x07", "\x9b", "\x7f", "\u202e", "\u2069", "\u2028", "\u2029", "\r", "\u200f"} == OBEYED
    assert escaped("\x1b[2J\u202ea\tb\nc é 日") == "\\x1b[2J\\u202ea\tb\nc é 日"
    assert one_line("a\nb\tc\x1b") == "a\\nb\\tc\\x1b"


@pytest.mark.parametrize("tell", ["notice", "hint", "detail", "status", "error"])
def test_what_is_told_is_shown_escaped_and_markup_is_text(shown, tell):
    _, err, sink = shown
    getattr(sink, tell)(HOSTILE)
    assert not OBEYED & set(err.shown)
    assert "[red]x[/red] [/" in err.shown
    assert len(err.shown.splitlines()) == 1


def test_a_traceback_is_escaped(shown):
    _, err, sink = shown
    sink.traceback(ValueError(HOSTILE))
    assert not OBEYED & set(err.shown)


def test_tables_and_text_on_a_terminal_are_escaped_and_keep_their_own_colours(monkeypatch, shown):
    out, _, sink = shown
    table = Table()
    table.add_column("name")
    table.add_row(HOSTILE)
    sink.result(table)
    sink.text(HOSTILE)
    assert not OBEYED & set(out.shown)
    assert out.shown.count("[red]x[/red] [/") == 2
    monkeypatch.setattr("sys.stdout", colours := Terminal())
    monkeypatch.delenv("NO_COLOR", raising=False)
    Sink().result(Text("kept \x1b", style="bold"))
    assert colours.getvalue() == "\x1b[1mkept \\x1b\x1b[0m\n"


def test_off_a_terminal_tables_are_escaped_and_text_for_programs_is_not(monkeypatch):
    monkeypatch.setattr("sys.stdout", out := io.StringIO())
    sink = Sink()
    sink.result(Text(HOSTILE))
    assert not OBEYED & set(out.getvalue())
    sink.text(HOSTILE)
    assert out.getvalue().endswith(HOSTILE + "\n")


def test_json_says_the_same_in_escapes():
    name = os.fsdecode(b"\xff" + HOSTILE.encode())
    document = escaped_json(json.dumps({"video": name}, ensure_ascii=False))
    assert not OBEYED & set(document)
    assert json.loads(document) == {"video": name}


def test_a_line_of_a_megabyte_is_cut_in_the_middle(shown):
    _, err, sink = shown
    sink.error("cannot open " + "x" * 1_000_000 + ": no such file")
    assert len(err.shown) < LONGEST_LINE + 100
    assert err.shown.startswith("Error: cannot open xxx")
    assert err.shown.endswith("xxx: no such file.\n")
