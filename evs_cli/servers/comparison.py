"""A server's count of a prompt beside the plan's, kind by kind: text, frames, video tokens, separators.

In: the ids that are planned, and the ids or the number that a server answers. Out: a ``CheckReport`` of plain values.
It asks no server and plans nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Decode = Callable[[Sequence[int]], str]
"""A tokenizer's text of ids."""
_SHOWN_IDS = 12
_SHOWN_BEFORE = 4
_TOLD_IDS = 100  # the times in front of a frame are told whole


@dataclass(frozen=True)
class PlannedPrompt:
    """The prompt as a client should see it, and what tells its parts."""

    input_ids: tuple[int, ...]
    """(L,) ids at the server's rate."""
    num_before: int
    """Ids in front of the video's part."""
    num_behind: int
    """Ids behind it."""
    placeholder_id: int
    """Stands for one video token."""
    start_id: int
    """Marker in front of a video or a frame."""
    end_id: int
    """Marker behind it."""
    tokens_per_frame: int
    """``h * w``."""
    tells_frames: bool
    """Whether every frame of tokens has markers of its own."""

    @property
    def video_tokens(self) -> int:
        """K, placeholders."""
        return self.input_ids.count(self.placeholder_id)


@dataclass(frozen=True)
class PromptParts:
    """Ids cut into the text in front, the video's part and the text behind."""

    before: tuple[int, ...]
    video: tuple[int, ...]
    behind: tuple[int, ...]


@dataclass(frozen=True)
class FramePart:
    """What the video's part holds up to the end marker of one frame of tokens."""

    separator_ids: tuple[int, ...]
    """Markers and time."""
    video_tokens: int


@dataclass(frozen=True)
class Comparison:
    """One kind of ids."""

    kind: str
    """Such as ``video tokens``."""
    planned: int | None
    """How many; None where the plan has no number."""
    served: int | None
    differs: bool
    """Whether the numbers or what they count differ."""
    detail: str = ""
    """In words, what differs."""


@dataclass(frozen=True)
class FirstDivergence:
    """The first place where the ids are not the same."""

    position: int
    """Index into the ids."""
    planned: str
    """Text from a little before it on, as planned."""
    served: str


@dataclass(frozen=True)
class CheckSubject:
    """What was asked, and whom; model, dialect and rate are the plan's."""

    video: str
    model: str
    dialect: str
    q: float
    url: str
    endpoint: Literal["tokenize", "usage"]
    served_model: str
    owner: str | None
    """What the server calls itself."""
    version: str | None
    has_server_options: bool
    """Whether the user said how the server was started."""


@dataclass(frozen=True)
class CheckReport:
    """A video as planned and as a server counts it."""

    asked: CheckSubject
    comparisons: tuple[Comparison, ...]
    """The whole prompt first."""
    parting: FirstDivergence | None
    """None where the ids are equal, or the server tells a number alone."""
    suggestions: tuple[str, ...]
    """What would count as the server does; empty where nothing differs."""
    notes: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether anything does."""
        return any(comparison.differs for comparison in self.comparisons)


def split_prompts(planned: PlannedPrompt, ids: Sequence[int]) -> tuple[PromptParts, PromptParts]:
    """The planned and the served ids, each cut at its video's part: both by the planned text around it where the
    server has the same, else both by the outermost markers.
    """
    ids = tuple(ids)
    before = planned.input_ids[: planned.num_before]
    behind = planned.input_ids[len(planned.input_ids) - planned.num_behind :]
    is_long = len(ids) >= len(before) + len(behind)
    num_before = planned.num_before if is_long and ids[: len(before)] == before else None
    num_behind = planned.num_behind if is_long and ids[len(ids) - len(behind) :] == behind else None
    return (
        _split(planned.input_ids, planned, num_before, num_behind),
        _split(ids, planned, num_before, num_behind),
    )


def _split(ids: tuple[int, ...], planned: PlannedPrompt, num_before: int | None, num_behind: int | None) -> PromptParts:
    """Ids cut behind ``num_before`` and in front of the last ``num_behind`` of them; None cuts at the markers."""
    marks = (planned.placeholder_id, planned.start_id, planned.end_id)
    places = [place for place, token in enumerate(ids) if token in marks]
    start = num_before if num_before is not None else min(places, default=len(ids))
    stop = len(ids) - num_behind if num_behind is not None else max(places, default=start - 1) + 1
    return PromptParts(ids[:start], ids[start:stop], ids[max(start, stop) :])


def frame_parts(video: Sequence[int], planned: PlannedPrompt) -> list[FramePart]:
    """The video's part cut behind each end marker; a marker that follows the last frame is a part without tokens."""
    parts: list[FramePart] = []
    separators: list[int] = []
    count = 0
    for token in video:
        if token == planned.placeholder_id:
            count += 1
            continue
        separators.append(token)
        if token == planned.end_id:
            parts.append(FramePart(tuple(separators), count))
            separators, count = [], 0
    return parts if not separators and not count else [*parts, FramePart(tuple(separators), count)]


def compare_ids(planned: PlannedPrompt, ids: Sequence[int], decode: Decode) -> tuple[Comparison, ...]:
    """Every kind of ids of two prompts.

    Args:
        planned: the plan's.
        ids: (L',) the server's.
        decode: the tokenizer's text of ids.
    """
    ids = tuple(ids)
    mine, theirs = split_prompts(planned, ids)
    return (
        _numbers("prompt tokens", len(planned.input_ids), len(ids)),
        _texts("text before", mine.before, theirs.before, decode),
        *_videos(planned, mine.video, theirs.video, decode),
        _texts("text behind", mine.behind, theirs.behind, decode),
    )


def compare_count(planned: PlannedPrompt, prompt_tokens: int) -> tuple[Comparison, ...]:
    """The whole prompt's length, where a server tells no ids."""
    return (_numbers("prompt tokens", len(planned.input_ids), prompt_tokens),)


def compare_context(planned: int | None, served: int | None, *, is_asked: bool) -> tuple[Comparison, ...]:
    """The longest sequence; another one differs only where the plan was asked to hold it, ``is_asked``."""
    if served is None:
        return ()
    differs = is_asked and planned is not None and planned != served
    model_own = "" if is_asked or planned in (None, served) else "the plan's is the model's own"
    return (Comparison("longest sequence", planned, served, differs, model_own),)


def first_divergence(planned: PlannedPrompt, ids: Sequence[int], decode: Decode) -> FirstDivergence | None:
    """The first index at which two prompts are not the same; None where they are equal."""
    mine, theirs = planned.input_ids, tuple(ids)
    if mine == theirs:
        return None
    place = common_length(mine, theirs)
    shown = [_shown_runs(_around(ids, place, planned.placeholder_id), planned, decode) for ids in (mine, theirs)]
    return FirstDivergence(place, *shown)


def _videos(planned: PlannedPrompt, mine: Sequence[int], theirs: Sequence[int], decode: Decode) -> Iterator[Comparison]:
    """Frames, tokens and separators of the video's part."""
    my_parts, their_parts = frame_parts(mine, planned), frame_parts(theirs, planned)
    counts = _frame_counts(my_parts, planned), _frame_counts(their_parts, planned)
    if planned.tells_frames:
        yield _numbers("frames of tokens", len(counts[0]), len(counts[1]))
    yield Comparison("video tokens", sum(counts[0]), sum(counts[1]), counts[0] != counts[1], _tokens(planned, *counts))
    told = [part.separator_ids for part in my_parts], [part.separator_ids for part in their_parts]
    lengths = [sum(len(ids) for ids in parts) for parts in told]
    yield Comparison("separators", lengths[0], lengths[1], told[0] != told[1], _first_separator(*told, decode))


def _frame_counts(parts: Sequence[FramePart], planned: PlannedPrompt) -> list[int]:
    """Video tokens of every frame, also of one that keeps none; a marker behind the last frame is no frame."""
    return [part.video_tokens for part in parts if part.video_tokens or planned.start_id in part.separator_ids]


def _tokens(planned: PlannedPrompt, mine: Sequence[int], theirs: Sequence[int]) -> str:
    """What a difference of video tokens is made of."""
    difference = sum(theirs) - sum(mine)
    if difference == 0:
        place = next((index for index, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), None)
        if place is None:
            return ""
        return f"the same in all, but frame {place + 1} holds {theirs[place]:,} instead of {mine[place]:,}"
    if planned.tells_frames:
        if len(set(mine)) == len(set(theirs)) == 1 and mine[0] != theirs[0]:
            return f"{difference:+,}: {theirs[0]:,} a frame instead of {mine[0]:,}"
        return f"{difference:+,}"
    frames, rest = divmod(abs(difference), planned.tokens_per_frame)
    of_frames = f": {frames:,} {'frame' if frames == 1 else 'frames'} of {planned.tokens_per_frame:,}"
    return f"{difference:+,}" + ("" if rest else of_frames)


def _first_separator(mine: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]], decode: Decode) -> str:
    """The first frame in front of which another text stands."""
    for number, (planned, served) in enumerate(zip(mine, theirs, strict=False), 1):
        if planned != served:
            return (
                f"frame {number}: {_shown(served, decode, _TOLD_IDS)} instead of {_shown(planned, decode, _TOLD_IDS)}"
            )
    return ""


def _texts(kind: str, mine: Sequence[int], theirs: Sequence[int], decode: Decode) -> Comparison:
    """A text; of two that are not the same, what lies between their common beginning and end is told."""
    if tuple(mine) == tuple(theirs):
        return Comparison(kind, len(mine), len(theirs), differs=False)
    head = common_length(mine, theirs)
    tail = common_length(mine[head:][::-1], theirs[head:][::-1])
    changed = [_shown(ids[head : len(ids) - tail], decode) for ids in (theirs, mine)]
    return Comparison(kind, len(mine), len(theirs), differs=True, detail=f"{changed[0]} instead of {changed[1]}")


def common_length(mine: Sequence[int], theirs: Sequence[int]) -> int:
    """How many ids are the same from the first on."""
    both = zip(mine, theirs, strict=False)
    return next((index for index, (a, b) in enumerate(both) if a != b), min(len(mine), len(theirs)))


def _numbers(kind: str, planned: int, served: int) -> Comparison:
    difference = served - planned
    return Comparison(kind, planned, served, difference != 0, f"{difference:+,}" if difference else "")


def _around(ids: tuple[int, ...], place: int, placeholder_id: int) -> tuple[int, ...]:
    """Ids from a little in front of a place on; runs of placeholders at its ends are whole."""
    start, stop = max(0, place - _SHOWN_BEFORE), min(len(ids), place + _SHOWN_IDS)
    while 0 < start < len(ids) and ids[start - 1] == ids[start] == placeholder_id:
        start -= 1
    while 0 < stop < len(ids) and ids[stop - 1] == ids[stop] == placeholder_id:
        stop += 1
    return ids[start:stop]


def _shown_runs(ids: Sequence[int], planned: PlannedPrompt, decode: Decode) -> str:
    """The text of ids, quoted, each run of placeholders as ``token x length``."""
    parts = []
    for is_video, run in itertools.groupby(ids, lambda token: token == planned.placeholder_id):
        part = list(run)
        parts.append(f"{decode(part[:1])} x {len(part):,}" if is_video else repr(decode(part)))
    return " ".join(parts) or "the end"


def _shown(ids: Sequence[int], decode: Decode, most: int = 2 * _SHOWN_IDS) -> str:
    """The text of ids, quoted, cut behind ``most`` of them: line breaks and the like are written out."""
    if not ids:
        return "nothing"
    return repr(decode(ids[:most])) + ("…" if len(ids) > most else "")
