"""The text of ``--help`` and ``--help-all``, for terminals of any width.

In: a command as Typer has it, and the names of its everyday options. Out: text. The short page shows the everyday
options and fits a screen; the whole page shows all of them in panels.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Sequence
from shutil import get_terminal_size
from typing import Any

from evs_cli.cli.command_line import takes_value

_MAX_WIDTH = 100  # longer lines are hard to read
_NAME_COLUMNS = 26
_CONTINUED = 9  # columns around a part of an example: its indent, a space, the backslash behind it
_GENERAL = "Options"
Entry = tuple[str, str]
"""A name and what is said of it."""


_SHORT_EXAMPLES = 3
"""Examples on the short page, which has to fit a screen; the whole page has all."""


def page_width() -> int:
    """Columns to write a page in."""
    return max(24, min(_MAX_WIDTH, get_terminal_size((80, 24)).columns))


def command_page(
    path: str, command: Any, everyday: Sequence[str], examples: Sequence[str], *, every: bool, width: int
) -> str:
    """The help of a command.

    Args:
        path: how it is called, ``evs prune``.
        command: a ``TyperCommand``.
        everyday: options on the short page, by their first long name and in this order.
        examples: command lines, the plainest first.
        every: whether the whole page is wanted.
        width: columns.
    """
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and not param.hidden]
    usage = " ".join([path, *(_usage_of(argument) for argument in arguments), "[OPTIONS]"])
    paragraphs = (command.help or "").split("\n\n")
    parts = ["\n".join(textwrap.wrap(f"Usage: {usage}", width, subsequent_indent="    "))]
    parts += [_paragraph(text, width) for text in (paragraphs if every else paragraphs[:1])]
    if arguments:
        parts.append(_entries([(argument.metavar, argument.help or "") for argument in arguments], width))
    if every:
        parts += [f"{title}:\n{_entries(found, width)}" for title, found in _panels(options).items()]
    else:
        by_name = {_long_name(option): option for option in options}
        parts.append(_entries(_briefly([by_name[name] for name in everyday], width), width))
    shown = examples if every else examples[:_SHORT_EXAMPLES]
    parts.append("Examples:\n" + "\n".join(_example(line, width) for line in shown))
    left = sum(_long_name(option) not in everyday for option in options)
    if not every and left:
        parts.append(
            _paragraph(f"{left} more options: {path} --help-all. Words of the output: evs help topics.", width)
        )
    return "\n\n".join(parts)


def group_page(path: str, group: Any, closing: Sequence[str], width: int) -> str:
    """The help of a group of commands: each with its first sentence, the options, and what is said at the end."""
    options = [param for param in group.params if param.param_type_name == "option" and not param.hidden]
    parts = [f"Usage: {path} COMMAND [OPTIONS]", _paragraph(group.help or "", width)]
    commands = [(name, _first_sentence(each.help or "")) for name, each in group.commands.items() if not each.hidden]
    parts.append("Commands:\n" + _entries(commands, width))
    if options:
        parts.append("Options:\n" + _entries([(_name(option), _first_clause(option)) for option in options], width))
    return "\n\n".join([*parts, *(_paragraph(text, width) for text in closing)])


def _paragraph(text: str, width: int) -> str:
    return "\n".join(_wrapped(" ".join(text.split()), width))


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of whole words; an option's name stays in one piece."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _usage_of(argument: Any) -> str:
    name = f"{argument.metavar}..." if argument.nargs == -1 else argument.metavar
    return name if argument.required else f"[{name}]"


def _panels(options: Iterable[Any]) -> dict[str, list[Entry]]:
    panels: dict[str, list[Entry]] = {}
    for option in options:
        panels.setdefault(option.rich_help_panel or _GENERAL, []).append((_name(option), _whole(option)))
    return panels


def _long_name(option: Any) -> str:
    return str(next(flag for flag in option.opts if flag.startswith("--")))


def _name(option: Any) -> str:
    """``-o, --output PATH``; other spellings of the name are told in the text."""
    short = [flag for flag in option.opts if not flag.startswith("--")]
    name = ", ".join([*short, _long_name(option)]) if short else f"    {_long_name(option)}"
    if option.secondary_opts:
        name += f", {option.secondary_opts[0]}"
    return f"{name} {option.metavar}" if takes_value(option) else name


def _first_sentence(text: str) -> str:
    return text.split("\n\n")[0].split(". ")[0].rstrip(".")


def _first_clause(option: Any) -> str:
    """What an option of the program does, without what Typer adds to it."""
    return (option.help or "").partition(",")[0].rstrip(".")


def _default(option: Any) -> str:
    """The default, where the text does not tell it."""
    if not takes_value(option) or option.required or option.default in (None, ""):
        return ""
    return f"Default: {option.default:g}." if isinstance(option.default, float) else f"Default: {option.default}."


def _briefly(options: Sequence[Any], width: int) -> list[Entry]:
    """The first sentence of each, and the default where the line has room for it."""
    names = [_name(option) for option in options]
    room = width - _column(names, width)
    entries = []
    for name, option in zip(names, options, strict=True):
        first, *others = (option.help or "").split(". ")
        first = first.rstrip(".") + (". Required" if option.required else "")
        default = next((text for text in others if text.startswith("Default: ")), "") or _default(option)
        whole = f"{first}. {default.rstrip('.')}"
        entries.append((name, whole if default and len(whole) <= room else first))
    return entries


def _whole(option: Any) -> str:
    """All that is said, the default and the environment's variable."""
    variable = option.envvar if option.envvar else None
    parts = [option.help or "", _default(option), f"Environment: {variable}." if variable else ""]
    return " ".join(part for part in [*parts, "Required." if option.required else ""] if part)


def _column(names: Sequence[str], width: int) -> int:
    """Where the texts begin."""
    most = min(_NAME_COLUMNS, width // 2)
    return max((len(name) for name in names if len(name) <= most), default=most) + 4


def _entries(entries: Sequence[Entry], width: int) -> str:
    """Names in a column, texts in another; a name that is too long for its column has a line of its own."""
    column = _column([name for name, _ in entries], width)
    lines = []
    for name, text in entries:
        told = _wrapped(" ".join(text.split()), width - column) or [""]
        if len(name) + 4 > column:
            lines.append(f"  {name}")
        else:
            lines.append(f"  {name:<{column - 2}}{told.pop(0)}".rstrip())
        lines += [" " * column + line for line in told]
    return "\n".join(lines)


def _example(line: str, width: int) -> str:
    """A command line that can be copied, however narrow the terminal is."""
    words, rows = [shlex.quote(word) for word in shlex.split(line)], [""]
    for place in range(len(words) - 1, 0, -1):  # an option and its value stay on one line
        if words[place - 1].startswith("-") and not words[place].startswith("-"):
            words[place - 1 : place + 1] = [f"{words[place - 1]} {words[place]}"]
    for word in words:
        if rows[-1] and len(rows[-1]) + len(word) + _CONTINUED > width:
            rows.append("")
        rows[-1] = f"{rows[-1]} {word}".strip()
    return " \\\n      ".join([f"  {rows[0]}", *rows[1:]])
