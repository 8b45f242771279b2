"""Option values that need more than a type: checked here, in the words of evs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from evs_cli.cli.options.values import METHODS
from evs_cli.errors import UsageError

_TOKEN_UNITS = {"": 1, "k": 2**10, "m": 2**20}
_SIZE_UNITS = {
    **{"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "": 2**30, "g": 2**30, "m": 2**20, "t": 2**40},
    **{"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12},
}
"""By lower-case names; a bare number is in GiB."""


def given_rates(q: Sequence[str] | None) -> list[float] | None:
    """The rates of ``--q``, which may be given again and again, ascending; None where it is not given.

    Raises:
        UsageError: what is no rate.
    """
    from evs_cli.jobs.rates import parse_rates

    return parse_rates(",".join(q)) if q else None


def one_rate(q: str | None) -> float | None:
    """The rate of a ``--q`` that takes one; None where it is not given.

    Raises:
        UsageError: what is no rate, or several.
    """
    rates = given_rates(None if q is None else [q])
    if rates is not None and len(rates) > 1:
        raise UsageError(f"--q gives {len(rates)} rates ({q}). Expected one.")
    return rates[0] if rates else None


def pruning_rates(q: Sequence[str] | None, keep: float | None) -> list[float] | None:
    """The rates of ``--q`` or the one of ``--keep``; None where neither is given.

    Raises:
        UsageError: both, or one outside its range.
    """
    from evs_cli.core.counts import check_pruning_rate

    if q and keep is not None:
        raise UsageError("--q and --keep exclude each other. Give one.")
    if keep is not None:
        if not 0 < keep <= 1:
            raise UsageError(
                f"Invalid share to keep {keep:g}. Expected 0 < keep <= 1.",
                hint="0.3 keeps 30 percent." if 1 < keep <= 100 else None,
            )
        return [check_pruning_rate(round(1 - keep, 9))]
    return given_rates(q)


def plan_rates(q: Sequence[str] | None, keep: float | None) -> list[float] | None:
    """The rates of a plan that were asked for, 0 beside a share to keep; None where none was.

    Raises:
        UsageError: both ``--q`` and ``--keep``, or one outside its range.
    """
    rates = pruning_rates(q, keep)
    return rates if rates is None or keep is None else [0.0, *rates]


def method_names(given: Sequence[str] | None) -> tuple[str, ...]:
    """The methods of a ``--method`` that takes several, in their order; EVS where it is not given.

    Raises:
        UsageError: one that is not known, or is named twice.
    """
    names = tuple(name.strip() for name in ",".join(given).split(",")) if given else ("evs",)
    for place, name in enumerate(names):
        if name not in METHODS:
            raise UsageError(f"Invalid method {name!r}. Expected one of {', '.join(METHODS)}, or several with commas.")
        if name in names[:place]:
            raise UsageError(f"--method names {name} twice. Expected each method once.")
    return names


def printed_parts(text: str | None) -> tuple[str, ...]:
    """The parts of ``--print``.

    Raises:
        UsageError: a part that is not known.
    """
    from evs_cli.report.records import PRINTABLE

    parts = tuple(part.strip() for part in text.split(",")) if text is not None else ()
    for part in parts:
        if part not in PRINTABLE:
            raise UsageError(
                f"Invalid part {part!r} to print. Expected {' or '.join(PRINTABLE)}, or both with a comma."
            )
    return parts


def token_count(option: str, text: str | None) -> int | None:
    """Tokens of ``32768``, ``32k`` or ``1M``, where k is 1,024 as on model cards; None where none is given.

    Raises:
        UsageError: another text, or part of a token.
    """
    if text is None:
        return None
    number = _number(text, _TOKEN_UNITS)
    if number is None or number != int(number):
        raise UsageError(f"Invalid {option} {text!r}. Expected tokens such as 32768, 32k (k = 1024) or 1M.")
    return int(number)


def byte_count(option: str, text: str | None) -> int | None:
    """Bytes of ``24`` or ``24GiB``, ``80GB``, ``512MiB``; a bare number is in GiB. None where none is given.

    Raises:
        UsageError: another text, or a size that is not above 0.
    """
    if text is None:
        return None
    number = _number(text, _SIZE_UNITS)
    if number is None or number < 1:
        raise UsageError(f"Invalid {option} {text!r}. Expected more than 0: GiB, or a size such as 80GB or 512MiB.")
    return round(number)


def frames_a_batch(text: str) -> int | None:
    """The number of ``--batch-frames``; None for auto.

    Raises:
        UsageError: another word, or a number below 1.
    """
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"Invalid --batch-frames {text!r}. Expected auto or an integer of at least 1.")
    return int(text)


def _number(text: str, units: dict[str, int]) -> float | None:
    """The number in front of a unit, times the unit; None of a text that is none. It may be negative."""
    match = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?|-?\.\d+)\s*([A-Za-z]*)\s*", text)
    unit = None if match is None else units.get(match[2].lower())
    return None if match is None or unit is None else float(match[1]) * unit


def refuse_rows(sort: str | None, details: bool, why: str) -> None:
    """Raise ``UsageError`` where options on the rows of several videos were given; ``why`` they have no effect."""
    flag = "--sort" if sort is not None else "--details" if details else None
    if flag is not None:
        raise UsageError(f"{flag} has no effect {why}.")
