"""Decode chosen frames of a video, by default with PyAV.

In: a probed ``VideoInfo`` and indices of frames. Out: a ``FrameStream``. Frames are recognised by their own time, never
by counting (unless the file holds no times); one that does not decode does not come out, and nothing takes its place.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from evs_cli.errors import UsageError
from evs_cli.video.cores import core_count
from evs_cli.video.decoder import Decoder, check_decoder
from evs_cli.video.frames import DecodedFrame, DecodeFaults, FrameStream, Picture
from evs_cli.video.info import VideoInfo
from evs_cli.video.packets import Int64Array, PacketIndex
from evs_cli.video.pyav import one_thread
from evs_cli.video.source import open_container

_MIN_SKIPPED_FRAMES = 32  # decoding that many costs less than a seek, which empties the decoder's pipeline


def read_frames(
    info: VideoInfo,
    frame_indices: Int64Array,
    *,
    chunk_frames: int,
    decoder: Decoder = "pyav",
    num_threads: int | None = None,
    keeps_damaged: bool = False,
) -> FrameStream:
    """Decode frames in chunks of exactly ``chunk_frames`` (the last one may be shorter).

    A frame that ``frame_indices`` repeats is delivered as often and decoded once. The work is done while the stream
    is iterated; close it to stop early. Memory: one chunk, ``chunk_frames * 3 * height * width`` bytes, and what the
    decoder itself keeps.

    Args:
        info: the probed video; a file object in it must still be open, and not be read by others meanwhile.
        frame_indices: (S,) int64, never descending, S >= 1: indices into ``info.pts_seconds``.
        chunk_frames: frames a batch, at least 1.
        decoder: "pyav", or "decord" where that module is installed.
        num_threads: decoding threads; None is one a core.
        keeps_damaged: whether frames that decode only in part are delivered, as servers take them (PyAV alone).

    Raises:
        UsageError: an unknown decoder, or one that is not installed.
        ValueError: indices out of order or range.
        VideoError: while iterating: the file is gone, the decoder fails, or no frame of the selection decodes.
    """
    indices = _checked_indices(info, frame_indices)
    if chunk_frames < 1:
        raise UsageError(f"Invalid chunk_frames ({chunk_frames}). Expected chunk_frames >= 1.")
    if num_threads is not None and num_threads < 1:
        raise UsageError(f"Invalid num_threads ({num_threads}). Expected num_threads >= 1.")
    threads, wanted = num_threads or core_count(), np.unique(indices)
    faults = DecodeFaults(keeps_damaged=keeps_damaged)
    check_decoder(decoder)
    if decoder == "pyav":
        decoded = _decode(info, wanted, threads, faults)
    else:
        from evs_cli.video import decord_reader

        decoded = decord_reader.decode(info, wanted, threads, faults)
    return FrameStream(info, indices, chunk_frames, decoded, faults)


def _checked_indices(info: VideoInfo, frame_indices: Int64Array) -> Int64Array:
    indices = np.array(frame_indices, dtype=np.int64)
    if indices.ndim != 1 or len(indices) == 0:
        raise ValueError(f"Invalid frame_indices of shape {indices.shape}. Expected (S,) with S >= 1.")
    if (np.diff(indices) < 0).any() or indices[0] < 0 or indices[-1] >= info.num_frames:
        raise ValueError(f"Invalid frame_indices. Expected ascending values of 0 <= index < {info.num_frames}.")
    return indices


@dataclass(frozen=True, eq=False)
class _Segment:
    """A stretch to decode in one go: from the key frame at ``key_tick`` (None: from where the file is) to the last of
    ``wanted`` (n,) int64 ascending frame indices."""

    key_tick: int | None
    wanted: Int64Array


class _SeekLostError(Exception):
    """The key frame that a seek was for did not come out: it ended behind it, as in MPEG-TS, or it is damaged."""


def _decode(
    info: VideoInfo, wanted: Int64Array, threads: int, faults: DecodeFaults
) -> Generator[DecodedFrame, None, None]:
    """The pictures of ``wanted`` (n,) int64 ascending, distinct, less those that do not decode."""
    last = -1
    for frame in _decode_legs(info, wanted, threads, faults):
        last = frame.index
        yield frame
    tail = wanted[wanted > last]
    if len(tail) and threads > 1 and not faults.is_cancelled.is_set():
        # A fault as the decoder is emptied makes PyAV drop the frames that its other threads hold. One thread holds
        # none, so that a cut-off file gives the same frames on every machine.
        retry_faults = DecodeFaults(keeps_damaged=faults.keeps_damaged, is_cancelled=faults.is_cancelled)
        yield from _decode_legs(info, tail, 1, retry_faults)
        faults.num_corrupt_packets = max(faults.num_corrupt_packets, retry_faults.num_corrupt_packets)
        faults.num_damaged_frames = max(faults.num_damaged_frames, retry_faults.num_damaged_frames)


def _decode_legs(
    info: VideoInfo, wanted: Int64Array, threads: int, faults: DecodeFaults
) -> Generator[DecodedFrame, None, None]:
    num_done = 0
    try:
        with _opened(info, threads) as (container, stream):
            for segment in _plan_segments(info.packets, wanted):
                yield from _decode_segment(info, container, stream, segment, faults)
                num_done += len(segment.wanted)
        return
    except _SeekLostError:  # nothing of that segment has been delivered
        if faults.is_cancelled.is_set():
            return
    with _opened(info, threads) as (container, stream):
        yield from _decode_segment(info, container, stream, _Segment(None, wanted[num_done:]), faults)


def _plan_segments(packets: PacketIndex, wanted: Int64Array) -> list[_Segment]:
    """Cut ``wanted`` where going on at a key frame skips enough frames to be worth a seek."""
    if packets.access != "seek":
        return [_Segment(None, wanted)]
    ticks = packets.pts_ticks
    # A frame needs the last key frame shown no later than itself: one stored earlier but shown later (open GOP) does
    # not help, as what is shown before a key frame may depend on what is stored before it.
    key_of = np.searchsorted(packets.key_ticks, ticks[wanted], side="right") - 1
    segments: list[_Segment] = []
    start, key_tick, previous = 0, None, -1
    for i, index in enumerate(wanted):
        if key_of[i] >= 0:
            key = int(packets.key_ticks[key_of[i]])
            if int(np.searchsorted(ticks, key)) - (previous + 1) > _MIN_SKIPPED_FRAMES:
                segments.append(_Segment(key_tick, wanted[start:i]))
                start, key_tick = i, key
        previous = int(index)
    segments.append(_Segment(key_tick, wanted[start:]))
    return [segment for segment in segments if len(segment.wanted)]


@contextmanager
def _opened(info: VideoInfo, threads: int) -> Iterator[tuple[Any, Any]]:
    with open_container(info.source) as container:
        stream = container.streams[info.stream_index]
        stream.thread_type = "AUTO"
        stream.codec_context.thread_count = threads
        yield container, stream


def _decode_segment(
    info: VideoInfo, container: Any, stream: Any, segment: _Segment, faults: DecodeFaults
) -> Generator[DecodedFrame, None, None]:
    if info.packets.access == "count":
        frames = _counted_frames(container, stream, faults)
    else:
        frames = _timed_frames(info.packets, container, stream, segment, faults)
    wanted: Iterator[int] = iter(segment.wanted.tolist())
    awaited = next(wanted, None)
    for index, frame in frames:
        while awaited is not None and awaited < index:  # it did not decode
            awaited = next(wanted, None)
        if awaited == index:
            # libav fills the gaps of a damaged picture from another one.
            if frame.is_corrupt and not faults.keeps_damaged:
                faults.num_damaged_frames += 1
            else:
                yield DecodedFrame(index, _picture(info, frame))
            awaited = next(wanted, None)
        if awaited is None:
            return


def _timed_frames(
    packets: PacketIndex, container: Any, stream: Any, segment: _Segment, faults: DecodeFaults
) -> Generator[tuple[int, Any], None, None]:
    """``(index, frame)`` of the shown frames of a segment, known by their time."""
    ticks, key_tick = packets.pts_ticks, segment.key_tick
    awaited_tick: int | None = None
    if key_tick is not None:
        _seek(container, stream, key_tick)
        awaited_tick = int(ticks[np.searchsorted(ticks, key_tick)])  # the key frame, or after it if that is hidden
    for frame in _decoded_frames(container, stream, faults):
        if frame.pts is None or (key_tick is not None and frame.pts < key_tick):
            continue
        if awaited_tick is not None and frame.pts != awaited_tick:
            raise _SeekLostError
        awaited_tick = None
        index = int(np.searchsorted(ticks, frame.pts))
        if index < len(ticks) and ticks[index] == frame.pts:
            yield index, frame
    if awaited_tick is not None:
        raise _SeekLostError


def _seek(container: Any, stream: Any, key_tick: int) -> None:
    import av

    try:
        container.seek(key_tick, stream=stream, backward=True)
    except av.error.FFmpegError as error:
        raise _SeekLostError from error


def _counted_frames(container: Any, stream: Any, faults: DecodeFaults) -> Generator[tuple[int, Any], None, None]:
    """``(index, frame)`` of all frames in order, for files whose frames carry no usable time."""
    for count, frame in enumerate(_decoded_frames(container, stream, faults)):
        yield count + faults.num_corrupt_packets, frame  # a damaged packet is a frame that is missing from the count


def _decoded_frames(container: Any, stream: Any, faults: DecodeFaults) -> Generator[Any, None, None]:
    """The frames that decode, from where the file is to its end; damaged packets are skipped and counted."""
    import av

    for packet in _packets_and_flush(container, stream):
        if faults.is_cancelled.is_set():
            return
        try:
            frames = packet.decode()
        except av.error.EOFError:
            return
        except av.error.FFmpegError:
            faults.num_corrupt_packets += 1
            continue
        yield from frames


def _packets_and_flush(container: Any, stream: Any) -> Iterator[Any]:
    """The packets from where the file is; the last one is empty, and makes the decoder give what it holds."""
    import av

    try:
        yield from container.demux(stream)
    except av.error.FFmpegError:  # the file cannot be read further; the scan has said so
        flush = av.Packet()
        flush.stream = stream
        yield flush


def _picture(info: VideoInfo, frame: Any) -> Picture:
    """(H, W, 3) uint8: a decoded frame as shown, at the size of the video's first frame."""
    width, height = info.square_size
    resize: dict[str, Any] = {}
    if (frame.width, frame.height) != (width, height):
        resize = {"width": width, "height": height, "interpolation": "BICUBIC"}
    # One thread: libswscale's others cost more than they bring beside the decoder's.
    picture: Picture = frame.to_ndarray(format="rgb24", **one_thread(), **resize)
    return info.orientation.apply(picture)
