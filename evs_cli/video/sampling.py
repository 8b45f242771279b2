"""Which frames of a video to take, by time.

In: the times of all frames and what the user and the model family ask for. Out: a ``FrameSelection``. Pure numpy; it
never opens a file. Sampling goes by time and never by index over rate, so variable frame rates come out right: the
frame taken at a time is the one on screen then, and one that stays on screen over several sample times is taken
again at each, as ``ffmpeg -vf fps`` does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from evs_cli.errors import UsageError
from evs_cli.video.packets import FloatArray, Int64Array

_TOLERANCE_SECONDS = 1e-6
_MAX_FPS = 1000.0
# Containers round times (mkv to 1 ms, gif to 10 ms): times this share of a frame off an even grid are a constant rate.
_MAX_GRID_DEVIATION = 0.4


@dataclass(frozen=True)
class SamplingRequest:
    """What the user asks for; None leaves a value to the model family.

    Attributes:
        fps: sampled frames a second of video, ``0 < fps <= 1000``. Excludes ``num_frames``.
        num_frames: sampled frames in all, evenly over the window, at least 1. Excludes ``fps``.
        max_frames: the most frames to sample, at least 1.
        start_seconds: where the window begins, in seconds of the video, at least 0.
        end_seconds: where it ends (exclusive), after ``start_seconds``.

    Raises:
        UsageError: a value outside its range, or values that exclude each other.
    """

    fps: float | None = None
    num_frames: int | None = None
    max_frames: int | None = None
    start_seconds: float | None = None
    end_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            kinds = int if name in ("num_frames", "max_frames") else (int, float)
            if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
                raise UsageError(f"Invalid {name} ({value!r}). Expected a number.")
        if self.fps is not None and self.num_frames is not None:
            raise UsageError(f"fps ({self.fps:g}) and num_frames ({self.num_frames}) exclude each other. Give one.")
        if self.fps is not None and not 0 < self.fps <= _MAX_FPS:  # nan fails every comparison
            raise UsageError(f"Invalid fps ({self.fps:g}). Expected 0 < fps <= {_MAX_FPS:g}.")
        for name in ("num_frames", "max_frames"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"Invalid {name} ({value}). Expected {name} >= 1.")
        for name in ("start_seconds", "end_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise UsageError(f"Invalid {name} ({value:g}). Expected 0 <= {name}.")
        start = self.start_seconds or 0.0
        if self.end_seconds is not None and self.end_seconds <= start:
            raise UsageError(f"Invalid end_seconds ({self.end_seconds:g}). Expected more than the start ({start:g} s).")


@dataclass(frozen=True)
class SamplingDefaults:
    """How a model family samples when the user does not say.

    Attributes:
        fps: frames a second; goes before ``num_frames`` where a family has both.
        num_frames: frames in all.
        max_frames: the most frames.
        min_frames: the fewest frames, where the video has as many.
        fps_up_to: (seconds, fps) pairs, ascending, for a family whose rate goes by length: the first pair whose
            seconds the window does not exceed goes before ``fps``.
    """

    fps: float | None = None
    num_frames: int | None = None
    max_frames: int | None = None
    min_frames: int | None = None
    fps_up_to: tuple[tuple[float, float], ...] = ()

    def fps_of(self, window_seconds: float) -> float | None:
        """Frames a second for a window of that length."""
        return next((fps for longest, fps in self.fps_up_to if window_seconds <= longest), self.fps)


DEFAULT_FPS, DEFAULT_MAX_FRAMES = 2.0, 128
EVS_DEFAULTS = SamplingDefaults(fps=DEFAULT_FPS, max_frames=DEFAULT_MAX_FRAMES)
"""For families that state nothing."""


@dataclass(frozen=True, eq=False)
class FrameSelection:
    """The sampled frames.

    Attributes:
        frame_indices: (S,) int64, never descending: indices into the ``pts_seconds`` selected from. An index repeats
            where a frame stays on screen over several sample times.
        pts_seconds: (S,) float64, never descending: when each sampled frame is first shown (not the sample times).
        start_seconds: where the window begins.
        window_seconds: how long the window is.
        rule: "fps" or "num_frames": what the frames were chosen by, before any limit; a server's rule in its own words.
        requested_fps: the rate of the rule "fps", else None.
        requested_num_frames: the number of the rule "num_frames", else None.
        max_frames_bound: whether ``max_frames`` cut the number of frames.
        notes: sentences for the user on what came out otherwise than asked.
    """

    frame_indices: Int64Array
    pts_seconds: FloatArray
    start_seconds: float
    window_seconds: float
    rule: str
    requested_fps: float | None
    requested_num_frames: int | None
    max_frames_bound: bool
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"FrameSelection({len(self.frame_indices)} frames of {self.window_seconds:.3f} s by {self.rule})"


@dataclass(frozen=True, eq=False)
class _Window:
    """The part of a video to sample: ``[start, end)`` in seconds, and the frames ``first ... last`` on screen in it.

    ``times`` (last - first + 1,) float64 are those frames' times; on an even grid where the rate is constant, so that
    a container's rounding neither drops nor doubles a frame. ``rate`` is that rate a second, None where it varies, and
    from ``every_frame_fps`` on a sampling rate takes every frame.
    """

    start: float
    end: float
    first: int
    last: int
    times: FloatArray
    rate: float | None
    every_frame_fps: float | None

    @property
    def num_frames(self) -> int:
        return self.last - self.first + 1

    @property
    def seconds(self) -> float:
        return self.end - self.start


def select_frames(
    pts_seconds: FloatArray,
    duration_seconds: float,
    request: SamplingRequest,
    defaults: SamplingDefaults = EVS_DEFAULTS,
) -> FrameSelection:
    """Choose the frames to show a model.

    By ``fps``: the frames on screen at ``start + k / fps`` before the end; every frame once where the source has a
    constant rate that is no higher. By ``num_frames``: evenly from the first frame of the window to the last, or
    every frame once where it has no more. What ``request`` leaves open, ``defaults`` decide; ``defaults.max_frames``
    does not limit a ``num_frames`` that was asked for.

    Args:
        pts_seconds: (F,) float64 ascending, F >= 1: when each frame is first shown.
        duration_seconds: when the last frame ends.
        request: what the user asks for.
        defaults: what the model family does otherwise.

    Raises:
        UsageError: the window begins after the video ends.
    """
    if len(pts_seconds) == 0:
        raise ValueError("pts_seconds is empty")
    notes: list[str] = []
    window = _window(pts_seconds, duration_seconds, request, notes)
    fps, num_frames, max_frames = _effective(request, defaults, window.seconds)
    if fps is not None:
        indices, bound = _by_fps(pts_seconds, window, fps, max_frames, defaults.min_frames, notes)
    else:
        indices, bound = _by_number(window, num_frames or 1, max_frames, notes)
    return FrameSelection(
        frame_indices=indices,
        pts_seconds=pts_seconds[indices],
        start_seconds=window.start,
        window_seconds=window.seconds,
        rule="num_frames" if fps is None else "fps",
        requested_fps=fps,
        requested_num_frames=num_frames,
        max_frames_bound=bound,
        notes=tuple(notes),
    )


def _effective(
    request: SamplingRequest, defaults: SamplingDefaults, window_seconds: float
) -> tuple[float | None, int | None, int | None]:
    """``(fps, num_frames, max_frames)`` to go by; exactly one of the first two is set."""
    if request.num_frames is not None:
        return None, request.num_frames, request.max_frames
    max_frames = request.max_frames if request.max_frames is not None else defaults.max_frames
    fps = request.fps if request.fps is not None else defaults.fps_of(window_seconds)
    if fps is None and defaults.num_frames is not None:
        return None, defaults.num_frames, max_frames
    return (EVS_DEFAULTS.fps if fps is None else fps), None, max_frames


def _window(pts: FloatArray, duration: float, request: SamplingRequest, notes: list[str]) -> _Window:
    start = request.start_seconds or 0.0
    if start > 0 and start >= duration:
        raise UsageError(f"Invalid start_seconds ({start:g}). Expected less than the video's {duration:.3f} s.")
    end = duration
    if request.end_seconds is not None:
        end = min(request.end_seconds, duration)
        if request.end_seconds > duration + _TOLERANCE_SECONDS:
            notes.append(f"end {request.end_seconds:g} s is past the end of the video, {duration:.3f} s")
    first = int(_on_screen(pts, np.array([start]))[0])
    last = max(first, int(np.searchsorted(pts, end - _TOLERANCE_SECONDS, side="left")) - 1)
    grid, rate = _even_grid(pts, duration)
    # At this rate the sample times lag half a frame behind by the last frame, and still meet every one.
    every_frame_fps = None if rate is None else rate * (len(pts) - 1) / (len(pts) - 0.5)
    return _Window(start, max(end, start), first, last, grid[first : last + 1], rate, every_frame_fps)


def _on_screen(pts: FloatArray, times: FloatArray) -> Int64Array:
    """(S,) index of the frame on screen at each of ``times`` (S,): the latest begun, the first before any began."""
    latest = np.searchsorted(pts, times + _TOLERANCE_SECONDS, side="right") - 1
    return np.maximum(latest, 0).astype(np.int64)


def _even_grid(pts: FloatArray, duration: float) -> tuple[FloatArray, float | None]:
    """``pts`` (F,) without a container's rounding, and the rate a second; as they are and None where it varies."""
    if len(pts) == 1:
        return pts, 1 / duration if duration > 0 else None
    grid = np.linspace(pts[0], pts[-1], len(pts))
    gap = float(pts[-1] - pts[0]) / (len(pts) - 1)
    if float(np.abs(grid - pts).max()) > _MAX_GRID_DEVIATION * gap:
        return pts, None
    return grid, 1 / gap


def _by_fps(
    pts: FloatArray, window: _Window, fps: float, max_frames: int | None, min_frames: int | None, notes: list[str]
) -> tuple[Int64Array, bool]:
    every_frame = window.every_frame_fps is not None and fps >= window.every_frame_fps
    num_samples = window.num_frames if every_frame else _num_sample_times(window, fps)
    if max_frames is not None and num_samples > max_frames:
        notes.append(
            f"max_frames {max_frames} bound: {fps:g} fps of {window.seconds:.1f} s would be {num_samples} frames"
        )
        return _evenly(window, max_frames), True
    wanted = min(min_frames or 1, max_frames or window.num_frames, window.num_frames)
    if num_samples < wanted:
        notes.append(f"min_frames {wanted} bound: {fps:g} fps of {window.seconds:.1f} s would be {num_samples} frames")
        return _evenly(window, wanted), False
    if every_frame:
        if window.rate is not None and fps > window.rate * 1.01:
            notes.append(f"{fps:g} fps asked: the video has {window.rate:.4g}; every frame is taken once")
        return np.arange(window.first, window.last + 1, dtype=np.int64), False
    times = window.start + np.arange(num_samples) / fps
    return np.minimum(_on_screen(pts, times), window.last), False


def _num_sample_times(window: _Window, fps: float) -> int:
    return max(1, math.ceil((window.seconds - _TOLERANCE_SECONDS) * fps))


def _by_number(window: _Window, num_frames: int, max_frames: int | None, notes: list[str]) -> tuple[Int64Array, bool]:
    limit = num_frames if max_frames is None else min(num_frames, max_frames)
    bound = limit < min(num_frames, window.num_frames)
    if bound:
        notes.append(f"max_frames {limit} bound: num_frames {num_frames} asked")
    elif num_frames > window.num_frames:
        plural = "" if window.num_frames == 1 else "s"
        notes.append(f"num_frames {num_frames} asked: the video has only {window.num_frames} frame{plural} there")
    return _evenly(window, limit), bound


def _evenly(window: _Window, num_frames: int) -> Int64Array:
    """(min(num_frames, frames of the window),) indices, even in time from its first frame to its last."""
    if num_frames >= window.num_frames:
        return np.arange(window.first, window.last + 1, dtype=np.int64)
    times = np.linspace(window.times[0], window.times[-1], num_frames)
    return window.first + _on_screen(window.times, times)
