"""A row a clip: the table of ``plan`` and ``fit`` over several videos, in as many columns as there is room for.

Columns that matter least are left out first, and long names are cut in the middle; no row is ever wrapped. ``--json``
and ``--format csv`` have everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from evs_cli.report.escaped_text import one_line
from evs_cli.report.tables import plain_table

if TYPE_CHECKING:
    from evs_cli.report.console import Sink
    from evs_cli.report.signs import Signs

_ROOM_FOR_NAMES = 24
_LEAST_NAME = 8
NONE = "-"
"""The cell of a clip that has no such value, as it failed."""


@dataclass(frozen=True)
class Column:
    """One column beside the names."""

    heading: str
    cells: Sequence[str]
    """One a row."""
    rank: int = 0
    """Columns of the highest rank are left out first where there is no room; 0 never."""
    is_text: bool = False
    """Whether cells stand at the left."""


def clip_table(names: Sequence[str], columns: Sequence[Column], sink: Sink) -> Table:
    """The table that fits stdout, with the names as long as there is room.

    Args:
        names: of each row, as the video was named.
        columns: beside the names; one without a cell that says something is left out.
        sink: where it is shown.
    """
    names = [sink.as_shown(one_line(name)) for name in names]
    columns = [column for column in columns if any(column.cells)]
    longest = max((cell_len(name) for name in names), default=0)
    for shown in _fewer_and_fewer(columns):
        roomy = min(longest, _ROOM_FOR_NAMES)
        if sink.fits(_table(names, shown, roomy, sink)):
            break
    else:
        roomy = min(longest, _LEAST_NAME)
    width = _widest(names, shown, range(roomy, longest + 1), sink)
    return _table(names, shown, width, sink)


def _fewer_and_fewer(columns: Sequence[Column]) -> Iterator[Sequence[Column]]:
    """All columns, then without those of the highest rank, and so on."""
    yield columns
    for rank in sorted({column.rank for column in columns if column.rank}, reverse=True):
        columns = [column for column in columns if column.rank < rank]
        yield columns


def _widest(names: Sequence[str], columns: Sequence[Column], widths: range, sink: Sink) -> int:
    """The greatest width of names with which the table fits; the least where none does."""
    low, high = widths.start, widths.stop - 1
    while low < high:
        middle = (low + high + 1) // 2
        if sink.fits(_table(names, columns, middle, sink)):
            low = middle
        else:
            high = middle - 1
    return low


def _table(names: Sequence[str], columns: Sequence[Column], width: int, sink: Sink) -> Table:
    table = plain_table((), is_terminal=sink.is_terminal)
    table.add_column("clip", no_wrap=True)
    for column in columns:
        table.add_column(column.heading, justify="left" if column.is_text else "right", no_wrap=True)
    for row, name in enumerate(names):
        # A Text, as a name may hold what would be markup in a string.
        cells = [Text(cut_in_the_middle(name, width, sink.signs)), *(Text(column.cells[row]) for column in columns)]
        table.add_row(*cells)
    return table


def cut_in_the_middle(text: str, width: int, signs: Signs) -> str:
    """``text`` in at most ``width`` columns: its begin and, as files differ there, more of its end."""
    if cell_len(text) <= width:
        return text
    room = width - cell_len(signs.ellipsis)
    if room < 2:
        return _begin(text, width)
    begin = _begin(text, room // 3)
    end = _begin(text[::-1], room - cell_len(begin))[::-1]
    return begin + signs.ellipsis + end


def _begin(text: str, width: int) -> str:
    """As much of ``text`` as ``width`` columns hold; a letter may take two."""
    used = 0
    for index, letter in enumerate(text):
        used += cell_len(letter)
        if used > width:
            return text[:index]
    return text
