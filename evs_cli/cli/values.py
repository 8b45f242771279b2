"""Option values that need more than a type: checked here, in the words of evs."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def pruning_rate(q: float | None, keep: float | None) -> float | None:
    """The rate of ``--q`` or ``--keep``.

    Raises:
        UsageError: both, or one outside its range.
    """
    from evs_cli.core.counts import check_pruning_rate
    from evs_cli.errors import UsageError

    if q is not None and keep is not None:
        raise UsageError("--q and --keep exclude each other. Give one.")
    if keep is not None:
        if not 0 < keep <= 1:
            raise UsageError(f"Invalid share to keep {keep:g}. Expected 0 < keep <= 1.")
        return check_pruning_rate(round(1 - keep, 9))
    return None if q is None else check_pruning_rate(q)


def printed_parts(text: str | None) -> tuple[str, ...]:
    """The parts of ``--print``.

    Raises:
        UsageError: a part that is not known.
    """
    from evs_cli.errors import UsageError
    from evs_cli.report.records import PRINTABLE

    parts = tuple(part.strip() for part in text.split(",")) if text is not None else ()
    for part in parts:
        if part not in PRINTABLE:
            raise UsageError(
                f"Invalid part {part!r} to print. Expected {' or '.join(PRINTABLE)}, or both with a comma."
            )
    return parts


def plan_rates(q: str | None, keep: float | None) -> list[float] | None:
    """The rates of a plan that were asked for, 0 beside a share to keep; None where none was.

    Raises:
        UsageError: both ``--q`` and ``--keep``, or one outside its range.
    """
    from evs_cli.jobs.sweep import parse_rates

    if q is not None and keep is None:
        return parse_rates(q)
    rate = pruning_rate(None if q is None else 0.0, keep)
    return None if rate is None else [0.0, rate]


def one_of(option: str, value: T | None, alias: T | None) -> T | None:
    """The value of an option or of its alias.

    Raises:
        UsageError: both are given.
    """
    from evs_cli.errors import UsageError

    if value is not None and alias is not None:
        raise UsageError(f"{option} is given twice, once by an alias. Give it once.")
    return alias if value is None else value


def gib(size: float) -> int:
    """Bytes of a size in GiB.

    Raises:
        UsageError: a size that is not above 0.
    """
    from evs_cli.errors import UsageError

    if not 0 < size < float("inf"):
        raise UsageError(f"Invalid size {size:g} GiB. Expected more than 0.")
    return round(size * 2**30)


def frames_a_batch(text: str) -> int | None:
    """The number of ``--batch-frames``; None for auto.

    Raises:
        UsageError: another word, or a number below 1.
    """
    from evs_cli.errors import UsageError

    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"Invalid --batch-frames {text!r}. Expected auto or an integer of at least 1.")
    return int(text)
