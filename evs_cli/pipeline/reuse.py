"""Which frames need encoding: those that differ from the one before. Slides and screen recordings repeat theirs.

In: decoded frames in batches. Out: ``FrameGroup`` after ``FrameGroup``: full batches of frames to encode, and which of
them stands for each frame that came. A repeat is equal to the bit, so that its tokens are equal too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False)
class FrameGroup:
    """Frames to encode at once, and the frames of the video they stand for."""

    frames: torch.Tensor
    """(u, 3, H, W) uint8, whole tubelets but at the video's end; u may be 0."""
    tubelet_of: torch.Tensor
    """(n,) int64, never descending: for each tubelet of the video, which of ``frames`` it is; -1 is the last tubelet of
    the group before."""
    num_frames: int
    """Frames of the video in this group."""


def group_frames(
    batches: Iterable[torch.Tensor], *, group_frames: int, temporal_patch_size: int, reuses: bool
) -> Iterator[FrameGroup]:
    """Cut a video into groups of ``group_frames`` frames to encode; where nothing repeats, they are the batches.

    Args:
        batches: frames ``(t, 3, H, W)`` uint8, t a multiple of ``temporal_patch_size`` but at the end.
        group_frames: frames to encode at once, a multiple of ``temporal_patch_size``.
        temporal_patch_size: frames a tubelet.
        reuses: whether a tubelet that is equal to the one before is left out.
    """
    group = _Group(group_frames)
    previous: torch.Tensor | None = None
    for batch in batches:
        tubelets = batch.split(temporal_patch_size)  # type: ignore[no-untyped-call]
        is_repeat = _repeats(tubelets, previous) if reuses else [False] * len(tubelets)
        if len(batch) == group_frames and group.is_empty and not any(is_repeat):
            yield FrameGroup(batch, torch.arange(len(tubelets)), len(batch))  # as it is, without a copy
        else:
            for tubelet, repeats in zip(tubelets, is_repeat, strict=True):
                group.add(tubelet, repeats)
                if group.is_full:
                    yield group.finish()
                    group = _Group(group_frames)
        previous = tubelets[-1].clone() if reuses else None  # a view would keep the whole batch
        del batch, tubelets
    if not group.is_empty:
        yield group.finish()


def _repeats(tubelets: tuple[torch.Tensor, ...], previous: torch.Tensor | None) -> list[bool]:
    """Whether each tubelet equals the one before it, bit for bit and in length."""
    before = (previous, *tubelets)
    return [
        earlier is not None and torch.equal(earlier, tubelet)
        for earlier, tubelet in zip(before, tubelets, strict=False)
    ]


class _Group:
    """A group being filled."""

    def __init__(self, group_frames: int) -> None:
        self._group_frames = group_frames
        self._fresh: list[torch.Tensor] = []
        self._tubelet_of: list[int] = []
        self._num_fresh = self._num_frames = 0

    @property
    def is_empty(self) -> bool:
        return not self._tubelet_of

    @property
    def is_full(self) -> bool:
        return self._num_fresh >= self._group_frames

    def add(self, tubelet: torch.Tensor, is_repeat: bool) -> None:
        if not is_repeat:
            self._fresh.append(tubelet.clone())  # a view would keep the whole batch
            self._num_fresh += len(tubelet)
        self._tubelet_of.append(len(self._fresh) - 1)
        self._num_frames += len(tubelet)
        self._shape = tubelet.shape[1:]

    def finish(self) -> FrameGroup:
        frames = torch.cat(self._fresh) if self._fresh else torch.empty((0, *self._shape), dtype=torch.uint8)
        return FrameGroup(frames, torch.tensor(self._tubelet_of), self._num_frames)
