"""The times of all frames of a video stream, read from its packets without decoding a pixel.

In: an open ``av`` container and its video stream. Out: a ``PacketIndex``: when each frame is shown, where decoding can
start, and how a decoded frame is to be recognised. It does not know how frames look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from evs_cli.video.source import libav_words

Int64Array = np.ndarray[Any, np.dtype[np.int64]]
FloatArray = np.ndarray[Any, np.dtype[np.float64]]

NO_TICKS = -(2**63)
"""What libav itself counts with where a packet has no time (``AV_NOPTS_VALUE``)."""

Access = Literal["seek", "in_order", "count"]
"""How the reader may find frames: by seeking, by time in one pass, or by counting in one pass."""


@dataclass(frozen=True)
class StoredPackets:
    """The packets of a video stream as a demuxer hands them out, which is all that some loaders count."""

    num_filled: int
    """Packets with data in them, those of hidden frames included."""
    num_undiscarded: int
    """Packets, empty ones included, less those that an edit list hides."""
    begin_ticks: int
    """Earliest time of those, by pts, or by dts where a packet has none; ``NO_TICKS`` where one has neither."""
    end_ticks: int
    """Latest time of those, each with its own duration."""
    has_all_pts: bool
    """Whether the file says a pts for every packet with data; libav makes up the rest where it is asked to."""


@dataclass(frozen=True, eq=False)
class PacketIndex:
    """What one scan of the packets tells.

    Attributes:
        pts_ticks: (F,) int64 ascending: when each frame is shown, in units of ``time_base`` and of the file's clock.
            With access "count" the values only order the frames: decoded frames do not carry them.
        pts_seconds: (F,) float64 ascending: the same in seconds after the first shown frame.
        last_frame_seconds: how long the last frame is shown; never below one tick.
        key_ticks: (k,) int64 ascending: the pts of packets that decoding can start at (also ones never shown).
        key_stored_ticks: (k,) int64: when each of these is due to be decoded, which is where an mp4 is sought by.
        time_base: seconds a tick.
        access: how the reader may find frames.
        num_discarded: packets whose frames are never shown: hidden by an edit list, or before the first key frame.
        has_leading_frames: frames stored after a key frame and shown before it (open GOP), which need the frames
            before that key frame.
        stored: counts and extent of the packets as they are stored, whether their frames are shown or not.
        read_error: why the scan ended before the end of the file; None when it did not.
    """

    pts_ticks: Int64Array
    pts_seconds: FloatArray
    last_frame_seconds: float
    key_ticks: Int64Array
    key_stored_ticks: Int64Array
    time_base: Fraction
    access: Access
    num_discarded: int
    has_leading_frames: bool
    stored: StoredPackets
    read_error: str | None

    @property
    def end_seconds(self) -> float:
        """When the last frame ends, after the first shown one."""
        return float(self.pts_seconds[-1]) + self.last_frame_seconds

    def __repr__(self) -> str:
        return f"PacketIndex(frames={len(self.pts_ticks)}, keys={len(self.key_ticks)}, access={self.access!r})"


@dataclass
class _Columns:
    """The packets of a scan in file order, one list a property."""

    pts: list[int | None] = field(default_factory=list)
    dts: list[int | None] = field(default_factory=list)
    duration: list[int] = field(default_factory=list)
    is_key: list[bool] = field(default_factory=list)
    is_hidden: list[bool] = field(default_factory=list)
    num_filled: int = 0
    has_all_pts: bool = True
    undiscarded_ticks: list[tuple[int, int]] = field(default_factory=list)  # (time, duration)
    read_error: str | None = None

    def count(self, packet: Any) -> None:
        """Count a packet as it is stored, before what it holds is looked at."""
        if packet.size == 0 and packet.dts is None:
            return  # the end marker
        if packet.size > 0:
            self.num_filled += 1
            self.has_all_pts &= packet.pts is not None
        if not packet.is_discard:
            known = [time for time in (packet.pts, packet.dts) if time is not None]
            self.undiscarded_ticks.append((known[0] if known else NO_TICKS, packet.duration or 0))

    def stored(self) -> StoredPackets:
        """The counts."""
        begin = min((time for time, _ in self.undiscarded_ticks), default=0)
        end = max((time + duration for time, duration in self.undiscarded_ticks), default=0)
        return StoredPackets(self.num_filled, len(self.undiscarded_ticks), begin, end, self.has_all_pts)

    def hide_before_first_key(self) -> None:
        """A recording cut out of a stream may begin inside a group of pictures: none of these decodes."""
        first_key = self.is_key.index(True)
        self.is_hidden[:first_key] = [True] * first_key

    def shown(self, values: Sequence[Any]) -> list[Any]:
        return [value for value, hidden in zip(values, self.is_hidden, strict=True) if not hidden]


def as_stored(container: Any) -> None:
    """Make libav tell the times of packets as the file has them, where PyAV lets it make up what is missing."""
    import av

    container.flags &= ~av.container.Flags.gen_pts.value


def scan_packets(container: Any, stream: Any, *, average_fps: float) -> PacketIndex | None:
    """Read every packet of ``stream`` once.

    Args:
        container: an open ``av`` input container at its start; ``as_stored`` may have been called of it.
        stream: its video stream.
        average_fps: frames a second by the header, 0 when unknown; times packets that carry no time at all.

    Returns:
        The index, or None when no packet holds a frame that is shown.
    """
    columns = _read_columns(container, stream)
    if not columns.shown(columns.pts):
        return None
    time_base = stream.time_base or Fraction(1, 1000)
    access = _access(columns, stream, container.format.name)
    if access == "seek":
        columns.hide_before_first_key()
    shown_pts = columns.shown(columns.pts)
    if not shown_pts:
        return None
    if access == "count":
        ticks = _counted_ticks(columns, average_fps, time_base)
    else:
        ticks = np.sort(np.array(shown_pts, dtype=np.int64))
    stored_at = _keys(columns)
    return PacketIndex(
        pts_ticks=ticks,
        pts_seconds=(ticks - ticks[0]) * time_base.numerator / time_base.denominator,
        last_frame_seconds=_last_frame_seconds(columns, ticks, average_fps, time_base),
        key_ticks=np.array(list(stored_at), dtype=np.int64),
        key_stored_ticks=np.array(list(stored_at.values()), dtype=np.int64),
        time_base=time_base,
        access=access,
        num_discarded=len(columns.pts) - len(shown_pts),
        has_leading_frames=_has_leading_frames(columns),
        stored=columns.stored(),
        read_error=columns.read_error,
    )


def _read_columns(container: Any, stream: Any) -> _Columns:
    import av

    columns = _Columns()
    hides_frames = stream.codec_context.name == "vp8"
    try:
        for packet in container.demux(stream):
            columns.count(packet)
            if packet.size == 0 or (hides_frames and not _vp8_is_shown(packet)):
                continue  # the end marker, an AVI "same again", a VP8 reference frame
            columns.pts.append(packet.pts)
            columns.dts.append(packet.dts)
            columns.duration.append(packet.duration or 0)
            columns.is_key.append(packet.is_keyframe)
            columns.is_hidden.append(packet.is_discard)
    except av.error.FFmpegError as error:
        columns.read_error = libav_words(error)
    return columns


def _vp8_is_shown(packet: Any) -> bool:
    # RFC 6386, section 9.1: bit 4 of a frame's first byte is show_frame.
    return bool(memoryview(packet)[0] & 0x10)


def _access(columns: _Columns, stream: Any, container_name: str) -> Access:
    shown_pts = columns.shown(columns.pts)
    if any(pts is None for pts in columns.pts) or len(set(shown_pts)) < len(shown_pts):
        return "count"
    # AVI stores no pts. libav makes them up, and gets them wrong where frames are stored out of order.
    if container_name == "avi" and stream.codec_context.has_b_frames:
        return "count"
    return "seek" if any(columns.is_key) else "in_order"


def _counted_ticks(columns: _Columns, average_fps: float, time_base: Fraction) -> Int64Array:
    """(F,) times for frames that carry none: those of storing, else a count over the average rate."""
    dts = columns.shown(columns.dts)
    if all(value is not None for value in dts) and len(set(dts)) == len(dts):
        # The i-th picture shown is due when the i-th packet is: the two differ by one constant delay.
        return np.sort(np.array(dts, dtype=np.int64))
    pts = columns.shown(columns.pts)
    if all(value is not None for value in pts) and average_fps <= 0:
        return np.sort(np.array(pts, dtype=np.int64))
    ticks_per_frame = _nominal_ticks(columns, average_fps, time_base)
    return (np.arange(len(pts)) * ticks_per_frame).round().astype(np.int64)


def _nominal_ticks(columns: _Columns, average_fps: float, time_base: Fraction) -> float:
    if average_fps > 0:
        return float(1 / (time_base * Fraction(average_fps)))
    known = [duration for duration in columns.duration if duration > 0]
    # 25 frames a second is what libav itself assumes of a raw stream that does not say.
    return float(np.median(known)) if known else float(1 / (time_base * 25))


def _last_frame_seconds(columns: _Columns, ticks: Int64Array, average_fps: float, time_base: Fraction) -> float:
    tick_seconds = float(time_base)
    pts, durations = columns.shown(columns.pts), columns.shown(columns.duration)
    last = max(range(len(pts)), key=lambda i: -1 if pts[i] is None else pts[i]) if pts[-1] is not None else -1
    if durations[last] > 0:
        return float(durations[last] * time_base)
    if average_fps > 0:
        return max(1 / average_fps, tick_seconds)
    return float(np.median(np.diff(ticks))) * tick_seconds if len(ticks) > 1 else tick_seconds


def _keys(columns: _Columns) -> dict[int, int]:
    """When each key frame is shown, ascending, and when its packet is due to be decoded."""
    rows = zip(columns.pts, columns.dts, columns.is_key, strict=True)
    return dict(sorted((pts, pts if dts is None else dts) for pts, dts, is_key in rows if is_key and pts is not None))


def _has_leading_frames(columns: _Columns) -> bool:
    key_pts: int | None = None
    for pts, is_key in zip(columns.pts, columns.is_key, strict=True):
        if pts is None:
            continue
        if key_pts is not None and pts < key_pts:
            return True
        if is_key:
            key_pts = pts
    return False
