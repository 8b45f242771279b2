"""Rates as they are written on a command line: ``0.5,0.75`` or ``0:0.9:0.1``."""

from __future__ import annotations

from evs_cli.core.counts import check_pruning_rate
from evs_cli.errors import UsageError

_MAX_RATES = 1000


def parse_rates(text: str) -> list[float]:
    """Rates of ``0.5,0.75`` or ``0:0.9:0.1`` (start, end included, step) or a mix, rounded to 1e-9, ascending.

    Raises:
        UsageError: anything that is no rate in [0, 1), a step of 0, or more than 1,000 rates.
    """
    rates: set[float] = set()
    for part in text.split(","):
        rates.update(_parse_part(part.strip(), text))
        if len(rates) > _MAX_RATES:
            raise UsageError(f"Invalid rates {text!r}: more than {_MAX_RATES}. Expected fewer, or a longer step.")
    return sorted(rates)


def _parse_part(part: str, text: str) -> list[float]:
    try:
        numbers = [float(number) for number in part.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) == 1:
        return [check_pruning_rate(round(numbers[0], 9))]
    if len(numbers) != 3:
        raise UsageError(
            f"Invalid rates {text!r}. Expected rates like 0.5,0.75 or start:end:step like 0:0.9:0.1.",
            hint="A rate is a share: 0.7 drops 70 percent." if "%" in text else None,
        )
    start, end, step = numbers
    check_pruning_rate(start)
    check_pruning_rate(end)
    if not 0 < step <= 1 or end < start:
        raise UsageError(f"Invalid rates {part!r}. Expected start:end:step with start <= end and 0 < step <= 1.")
    if (end - start) / step >= _MAX_RATES:
        raise UsageError(f"Invalid rates {text!r}: more than {_MAX_RATES}. Expected fewer, or a longer step.")
    count = int(round((end - start) / step, 6)) + 1
    return [check_pruning_rate(round(start + i * step, 9)) for i in range(count)]


SWEPT_RATES = tuple(parse_rates("0:0.9:0.1"))
"""The rates of a sweep that was asked for none; the report page finds its knee among them too."""
