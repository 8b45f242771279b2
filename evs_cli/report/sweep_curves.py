"""The curves of a sweep's picture: which lines there are, what they are called and how each is told apart.

In: sweeps of videos. Out: ``Curve`` lists, in percent or tokens, for ``plot`` to draw. Up to eight clips have a line
each; more are a median and a band between the quartiles, which stay readable however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evs_cli.jobs.sweep import knee_of

if TYPE_CHECKING:
    from evs_cli.jobs.sweep import Sweep, SweepRow

MAX_LINES = 8
"""Most clips with a line each."""
_SAME_PERCENT = 1.0
"""Curves that differ by less than a line's width are one line."""
_MAX_LETTERS = 40
Values = tuple[float, ...]
Numbers = np.ndarray[Any, np.dtype[Any]]
Value = Callable[["SweepRow"], float]
Series = tuple["SweepRow", ...]
"""The rows of one clip, model and method, by rate."""


@dataclass(frozen=True)
class Curve:
    """One line of a picture."""

    rates: Values
    values: Values
    label: str = ""
    """What the legend says; nothing where another line tells."""
    look: int | None = None
    """Curves of one look have one colour, line and marker; None is neutral."""
    knee: int | None = None
    """Place of the knee in ``values``."""
    band: tuple[Values, Values] | None = None
    """Lower and upper quartile of the clips."""
    is_thin: bool = False
    """One clip behind the median of all."""


@dataclass(frozen=True)
class SweepCurves:
    """Both panels of a picture."""

    cost: tuple[Curve, ...]
    cost_unit: str
    cost_title: str
    kept: tuple[Curve, ...]


@dataclass(frozen=True)
class _Group:
    """What is compared: one model and method on its clips."""

    model: str
    label: str
    has_knee: bool
    """A control's curve is a straight line, about: its knee would be chance."""
    clips: tuple[tuple[str, Series], ...]
    """Each with its name."""


def sweep_curves(sweeps: Sequence[tuple[str, Sweep]]) -> SweepCurves:
    """The curves of sweeps at the same rates, each with the name of its video; at least one."""
    groups = _groups(sweeps)
    is_only = len(groups) == 1
    kept = [
        curve for look, group in enumerate(groups) for curve in _curves_of(group, _kept_percent, look, is_only=is_only)
    ]
    cost, unit, title = _cost(groups)
    return SweepCurves(tuple(cost), unit, title, tuple(kept))


def clip_labels(videos: Sequence[str]) -> dict[str, str]:
    """A short name for each video: its stem, or more of its path where two would have the same."""
    distinct = list(dict.fromkeys(videos))
    stems = [Path(video).stem for video in distinct]
    return {
        video: _shortened(stem if stems.count(stem) == 1 else video)
        for video, stem in zip(distinct, stems, strict=True)
    }


def _shortened(text: str) -> str:
    """On one line, the end kept: it is what tells paths apart."""
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    return text if len(text) <= _MAX_LETTERS else f"...{text[3 - _MAX_LETTERS :]}"


def _groups(sweeps: Sequence[tuple[str, Sweep]]) -> list[_Group]:
    """A group a model and method, in the order they come."""
    names = clip_labels([video for video, _ in sweeps])
    found: dict[tuple[str, str], list[tuple[str, Series]]] = {}
    for video, sweep in sweeps:
        for method in sweep.methods:
            found.setdefault((sweep.model, method), []).append((names[video], sweep.of_method(method)))
    has_models, has_methods = (len({key[part] for key in found}) > 1 for part in (0, 1))
    groups = []
    for (model, method), clips in found.items():
        parts = ([_shortened(model)] if has_models else []) + ([method] if has_methods else [])
        groups.append(_Group(model, ", ".join(parts), method == "evs" or not has_methods, tuple(clips)))
    return groups


def _curves_of(group: _Group, value: Value, look: int | None, *, is_only: bool) -> list[Curve]:
    """A line a clip, where clips are all there is to compare; else the group's median, before it its clips or a band.

    Args:
        group: of at least one clip.
        value: what is drawn of a row.
        look: of the group.
        is_only: whether no other group is drawn.
    """
    rates = tuple(row.q for row in group.clips[0][1])
    table = np.array([[value(row) for row in series] for _, series in group.clips])
    if is_only and len(table) <= MAX_LINES:
        return [
            _curve(rates, row, name, place)
            for place, (row, (name, _)) in enumerate(zip(table, group.clips, strict=True))
        ]
    if len(table) == 1:
        return [_without_chance(group, _curve(rates, table[0], group.label, look))]
    name = f"median of {len(table)} clips"
    label = f"{group.label}: {name}" if group.label else name
    median = _without_chance(group, _curve(rates, np.median(table, axis=0), label, look))
    if len(table) > MAX_LINES:
        low, high = np.percentile(table, [25, 75], axis=0)
        return [replace(median, band=(_values(low), _values(high)))]
    return [*(Curve(rates, _values(row), look=look, is_thin=True) for row in table), median]


def _curve(rates: Values, values: Numbers, label: str, look: int | None) -> Curve:
    found = _values(values)
    return Curve(rates, found, label, look, knee_of(list(zip(rates, found, strict=True))))


def _without_chance(group: _Group, curve: Curve) -> Curve:
    return curve if group.has_knee else replace(curve, knee=None)


def _values(numbers: Numbers) -> Values:
    return tuple(numbers.tolist())


def _kept_percent(row: SweepRow) -> float:
    return 100 * row.dissimilarity_kept


def _length_percent(row: SweepRow) -> float:
    return 100 * row.sequence_share


def _cost(groups: Sequence[_Group]) -> tuple[list[Curve], str, str]:
    """Prompt length: its curves, their unit and the title.

    Lines that are the same are drawn once: in tokens where they are the same to the token, else as shares of the prompt
    without pruning, so that clips of any length compare.
    """
    # All methods of a model keep the same number of tokens: the first one stands for all.
    first = {group.model: place for place, group in reversed(list(enumerate(groups)))}
    shown = [place for place in range(len(groups)) if place in first.values()]
    every = [series for place in shown for _, series in groups[place].clips]
    rates, title = tuple(row.q for row in every[0]), "Cost: how long the prompt is"
    lengths = np.array([[row.sequence_length for row in series] for series in every])
    if not np.ptp(lengths, axis=0).any():
        same = "" if len(every) == 1 else ", the same for all"
        return [Curve(rates, _values(lengths[0]))], "tokens in the prompt", title + same
    unit = "% of the full prompt"
    table = np.array([[_length_percent(row) for row in series] for series in every])
    if np.ptp(table, axis=0).max() <= _SAME_PERCENT:
        return [Curve(rates, _values(np.median(table, axis=0)))], unit, title + ", the same for all"
    curves: list[Curve] = []
    for place in shown:
        look = None if len(shown) == 1 and len(groups) > 1 else place
        curves += _curves_of(groups[place], _length_percent, look, is_only=len(groups) == 1)
    return [replace(curve, label="", knee=None) for curve in curves], unit, title
