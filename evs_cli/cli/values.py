"""Option values that need more than a type: checked here, in the words of evs."""

from __future__ import annotations


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
