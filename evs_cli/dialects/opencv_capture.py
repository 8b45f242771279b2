"""A video read as OpenCV's ``VideoCapture`` reads it: frame after frame, and by a seek that counts from key frames.

In: a probed file. Out: the count after a seek to the end, and what each ``grab`` in a row gives. OpenCV 4.13 and 5.0
are the peers (``cap_ffmpeg_impl.hpp``); PyAV brings the same libav, so that a seek lands where theirs does. No pixel
is converted.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from evs_cli.video.cores import core_count
from evs_cli.video.info import VideoInfo
from evs_cli.video.packets import NO_TICKS, as_stored
from evs_cli.video.source import open_container

MeasuredT = TypeVar("MeasuredT")

_FIRST_STEP_BACK = 16  # frames before the target that a seek aims at first


class OpenCvCapture:
    """An open file, its decoder, and the number of the next frame as OpenCV believes it.

    Args:
        container: the file, opened for this alone, its times as they are stored.
        video: its facts; the stream that they are of is read.
        num_threads: decoding threads. One keeps each fault at its place among the frames.
    """

    def __init__(self, container: Any, video: VideoInfo, num_threads: int) -> None:
        self._container, self._video = container, video
        self._stream = container.streams[video.stream_index]
        self._stream.thread_type, self._stream.codec_context.thread_count = "AUTO", num_threads
        self._tick_seconds = float(self._stream.time_base)
        self._start = NO_TICKS if self._stream.start_time is None else self._stream.start_time
        self._decoded: deque[Any] = deque()
        self._packets: Iterator[Any] | None = container.demux(self._stream)
        self._total = claimed_num_frames(video)
        self._first_number: int | None = None
        self._last_ticks = NO_TICKS
        self.position = 0
        """``CAP_PROP_POS_FRAMES``."""
        self.met_fault = False
        """Whether a packet did not decode."""

    def grab(self) -> Any | None:
        """The next decoded frame, or None where OpenCV says that there is none; it may say so once of a bad packet."""
        import av

        header, self._last_ticks = self._video.header_num_frames, NO_TICKS
        if header is not None and self.position > header:
            return None
        while not self._decoded:
            packet = self._next_packet()
            if packet is None:
                return None
            try:
                self._decoded.extend(packet.decode())
            except av.error.FFmpegError:
                self.met_fault = True
                return None
        frame = self._decoded.popleft()
        stored = frame.dts if not frame.pts else frame.pts
        self._last_ticks = NO_TICKS if stored is None else stored
        self.position += 1
        if self._first_number is None:
            self._first_number = self._frame_number(self._last_ticks)
        return frame

    @property
    def is_exhausted(self) -> bool:
        """Whether every further ``grab`` gives None."""
        return self._packets is None and not self._decoded

    def seek(self, number: int) -> None:
        """``CAP_PROP_POS_FRAMES``: go to a frame by the time of key frames before it, and count on from there."""
        number = min(number, self._total)
        if self._first_number is None and self._total > 1:
            self.grab()
        step_back = _FIRST_STEP_BACK
        while True:
            aimed = max(number - step_back, 0)
            self._seek_key(aimed)
            if number <= 0:
                self.position = 0
                return
            self.grab()
            if number == 1:
                self.position = 1
                return
            self.position = self._frame_number(self._last_ticks) - (self._first_number or 0)
            if 0 <= self.position <= number - 1:
                break
            if aimed == 0:
                return
            step_back = step_back * 3 // 2
        while self.position < number - 1 and self.grab() is not None:
            pass
        self.position += 1

    def seek_end(self) -> None:
        """``CAP_PROP_POS_AVI_RATIO`` of 1: to the frame of the length in microseconds, which is the last."""
        seconds = self._video.container_seconds
        self.seek(-1 if seconds is None else int(seconds * 1_000_000))

    def _seek_key(self, number: int) -> None:
        import av

        ticks = self._start + int(number / self._video.average_fps / self._tick_seconds + 0.5)
        self._decoded.clear()
        if self._total > 1:
            try:
                self._container.seek(ticks, stream=self._stream, backward=True)
            except av.error.FFmpegError:
                self._stream.codec_context.flush_buffers()
        self._packets = self._container.demux(self._stream)

    def _frame_number(self, ticks: int) -> int:
        # Of a frame without a time the difference leaves 64 bits, and comes round to a number far behind the end.
        since_start = (ticks - self._start + 2**63) % 2**64 - 2**63
        return math.trunc(self._video.average_fps * (since_start * self._tick_seconds) + 0.5)

    def _next_packet(self) -> Any | None:
        """The next packet, the last one empty; None behind it, and where the file cannot be read on."""
        import av

        if self._packets is None:
            return None
        try:
            packet = next(self._packets, None)
        except av.error.FFmpegError:
            # OpenCV takes the packet of a failed read for one of stream 0, and an empty one ends that stream.
            packet = av.Packet() if self._video.stream_index == 0 else None
            if packet is not None:
                packet.stream = self._stream
        if packet is None or packet.size == 0:
            self._packets = None
        return packet


def captured(video: VideoInfo, measure: Callable[[OpenCvCapture], MeasuredT]) -> MeasuredT:
    """What ``measure`` finds in a fresh capture of a probed file; it is called again where a packet does not decode.

    PyAV drops the frames that other threads hold when one of them fails. So a damaged file is read by one thread.
    """
    for num_threads in (core_count(), 1):
        with open_container(video.source) as container:
            as_stored(container)
            capture = OpenCvCapture(container, video, num_threads)
            found = measure(capture)
        if not capture.met_fault:
            break
    return found


def claimed_num_frames(video: VideoInfo) -> int:
    """The header's count of frames, else the length times the rate; 0 where there is neither."""
    if video.header_num_frames:
        return video.header_num_frames
    if not video.container_seconds:
        return 0
    return math.floor(video.container_seconds * video.average_fps + 0.5)
