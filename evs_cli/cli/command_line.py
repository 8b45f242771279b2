"""Traps of a command line that parsers step into in silence: a value given twice or empty, a value behind a flag.

In: the words behind a command's name, and its options. Out: nothing, or a ``UsageError`` that says what was meant. What
is wrong in other ways is left to the parser.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from evs_cli.errors import UsageError, without_secrets

_SWITCH_WORDS = ("true", "false", "yes", "no", "on", "off")
_MAX_NUMBER_LETTERS = 8  # a longer one behind a flag is a name: of an entry of the cache, for example
_MAX_SHOWN_LETTERS = 40
_MAY_HOLD_A_KEY = ("LINE", "VARIABLE")
"""Metavars of options whose value may hold a key, or be one by mistake, so that it is not repeated."""
_MAY_BE_EMPTY = ("TEXT", "LINE", "NAMES", "RATES")
"""Metavars of options whose value may be empty, as a prompt may, or whose own words tell that it is, as a list's do."""
_NUMBERS: dict[object, tuple[type, str]] = {int: (int, "a whole number"), float: (float, "a number")}


class Option(Protocol):
    """What a parser knows of an option."""

    name: str
    opts: list[str]
    secondary_opts: list[str]
    is_flag: bool
    count: bool
    multiple: bool
    metavar: str | None


@dataclass(frozen=True)
class Given:
    """One word of a command line."""

    text: str
    """The option as it was written, without its value; or the argument."""
    option: Option | None = None
    """None of an argument."""
    value: str | None = None
    """None of a flag without a value, as a flag should be, and where the line ends before it."""


def check_command_line(words: Sequence[str], params: Sequence[Any]) -> None:
    """Refuse what a parser would take for something else.

    Args:
        words: the command line behind the command's name.
        params: the command's parameters.

    Raises:
        UsageError: an option of one value is given twice, two switches contradict each other, a flag has a value, an
            option has one dash too few, an empty value, or a word where a number is expected.
    """
    options: list[Option] = [param for param in params if param.param_type_name == "option"]
    given = list(_given(list(words), options))
    if any(each.text in ("--help", "-h", "--help-all") for each in given):
        return
    _refuse_values_of_flags(given)
    _refuse_repeats(given)
    _refuse_empty(given)
    _refuse_words_for_numbers(given)


def takes_value(option: Option) -> bool:
    """Whether a word behind the option belongs to it."""
    return not (option.is_flag or option.count)


def _given(words: list[str], options: Sequence[Option]) -> Iterator[Given]:
    """The words, each option with its value."""
    known = {flag: option for option in options for flag in (*option.opts, *option.secondary_opts)}
    while words:
        word = words.pop(0)
        if word == "--":
            yield from map(Given, [word, *words])
            return
        if not word.startswith("-") or word == "-":
            yield Given(word)
        elif word.startswith("--"):
            flag, equals, value = word.partition("=")
            option = known.get(flag)
            if option is not None and takes_value(option) and not equals:
                yield Given(flag, option, words.pop(0) if words else None)
            else:
                yield Given(flag, option, value if equals else None)
        else:
            yield from _short(word, words, known)


def _short(word: str, words: list[str], known: dict[str, Option]) -> Iterator[Given]:
    """``-fq`` is two flags, ``-oFILE`` an option and its value; of ``-q0.9`` the flag has what it does not take."""
    flag = "-" + word.partition("=")[0]
    if flag in known and len(flag) > len("--q") and flag != "--help":
        raise UsageError(f"No such option: {flag[1:]}.", hint=f"Write {flag}, with two dashes.")
    before: Given | None = None
    for place, letter in enumerate(word[1:], 1):
        option = known.get(f"-{letter}")
        if option is None:
            rest = word[place:].removeprefix("=")
            yield Given(before.text, before.option, rest) if before is not None else Given(word)
            return
        if takes_value(option):
            yield Given(f"-{letter}", option, word[place + 1 :] or (words.pop(0) if words else None))
            return
        before = Given(f"-{letter}", option)
        yield before


def _refuse_repeats(given: Sequence[Given]) -> None:
    seen: dict[str, Given] = {}
    for each in given:
        option = each.option
        if option is None or option.multiple or option.count:
            continue
        first = seen.setdefault(option.name, each)
        if first is each:
            continue
        if not takes_value(option):
            if (first.text in option.secondary_opts) != (each.text in option.secondary_opts):
                raise UsageError(f"{first.text} and {each.text} exclude each other. Give one.")
            continue
        if option.metavar in _MAY_HOLD_A_KEY:
            raise UsageError(f"{each.text} is given twice. Expected one value.")
        if first.text == each.text:
            raise UsageError(f"{each.text} is given twice: {_shown(first)} and {_shown(each)}. Expected one value.")
        raise UsageError(
            f"{first.text} {_shown(first)} and {each.text} {_shown(each)} are the same option. Expected one of them."
        )


def _shown(given: Given) -> str:
    text = without_secrets(given.value or "''")
    return text if len(text) <= _MAX_SHOWN_LETTERS else text[: _MAX_SHOWN_LETTERS - 3] + "..."


def _refuse_empty(given: Sequence[Given]) -> None:
    """Refuse ``""``, which a shell makes of a variable that is not set: a path of no letters is the working folder."""
    for each in given:
        option = each.option
        if each.value == "" and option is not None and takes_value(option) and option.metavar not in _MAY_BE_EMPTY:
            raise UsageError(
                f"Invalid {each.text}: an empty value. Expected {option.metavar or 'one'}, or no {each.text}."
            )
        if each.text == "":
            raise UsageError(
                "One of the names is empty (''). Expected a name.",
                hint="A shell variable that is not set leaves an empty one.",
            )


def _refuse_words_for_numbers(given: Sequence[Given]) -> None:
    for each in given:
        descriptor = getattr(each.option, "type_descriptor", None)  # Typer's own
        number, expected = _NUMBERS.get(getattr(descriptor, "annotation", None), (None, ""))
        if number is None or each.value is None:
            continue
        try:
            number(each.value)
        except ValueError:
            raise UsageError(f"Invalid {each.text} {_shown(each)!r}. Expected {expected}.") from None


def _refuse_values_of_flags(given: Sequence[Given]) -> None:
    """Refuse ``--json true``, where no file is called ``true``, and ``--json=true``."""
    for each, behind in pairwise([*given, None]):
        if each is None or each.option is None or takes_value(each.option):
            continue
        value = each.value
        if value is None and behind is not None and behind.option is None and _is_a_value(behind.text):
            value = behind.text
        if value is not None:
            raise UsageError(f"{each.text} takes no value, got {value!r}.", hint=_meant(each.text, each.option, value))


def _is_a_value(word: str) -> bool:
    """Whether a word behind a flag is meant for the flag, and names no file."""
    return (word.lower() in _SWITCH_WORDS or _is_number(word)) and not Path(word).exists()


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return len(word) <= _MAX_NUMBER_LETTERS


def _meant(flag: str, option: Option, value: str) -> str:
    """What to write instead."""
    if option.name == "quiet" and _is_number(value):
        return f"-q is --quiet; the pruning rate is --q, with two dashes: --q {value}"
    if option.count:
        return f"Give {flag} again to hear more: -vv is twice."
    off = next(iter(option.secondary_opts), None)
    if value.lower() in ("false", "no", "off", "0"):
        return f"Write {off}." if off is not None and flag != off else f"Leave {flag} out."
    return f"{flag} alone turns it on."
