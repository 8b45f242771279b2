"""How many frames OpenCV counts in a file, as vLLM 0.33 asks it, and which of them it reads.

OpenCV counts what the header says, else the length times the rate. vLLM then seeks to the end and takes the position
there where it is smaller. OpenCV makes a position of the time of the key frame it lands on, and counts frames from
there; so the position is a count only where frames are evenly spaced. Sources: vLLM's ``video_decoders/opencv.py``,
OpenCV's ``cap_ffmpeg_impl.hpp``.
"""

from __future__ import annotations

import numpy as np

from evs_cli.dialects.base import Int64Array
from evs_cli.dialects.opencv_capture import OpenCvCapture, captured, claimed_num_frames
from evs_cli.video.info import VideoInfo

_EVEN_CONTAINERS = ("mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm")  # their index is exact: a seek lands on its frame
_EVEN_SHARE = 0.25  # of a frame's length; half of it would round to the next frame


def opencv_num_frames(video: VideoInfo, *, decodes: bool = False) -> int:
    """Frames of a file as vLLM's OpenCV loader counts them.

    Where frames are evenly spaced no frame is decoded for it, and a damaged end is not seen, unless ``decodes``. Of
    other files the frames behind the last key frames are decoded, as OpenCV does.
    """
    claimed = claimed_num_frames(video)
    if claimed <= 0:
        return video.packets.stored.num_filled
    if video.average_fps <= 0:
        return claimed
    if not decodes and _is_even(video):
        # Fewer by one are taken for a miscount of the header.
        return video.num_frames if video.num_frames < claimed - 1 else claimed
    return captured(video, lambda capture: _presentable(capture, claimed))


def opencv_reads(video: VideoInfo, num_frames: int) -> Int64Array:
    """Which frame of the file each of ``num_frames`` grabs in a row gives, by decoding the file.

    Returns:
        (G,) int64, G <= num_frames: indices into ``video.pts_seconds``, -1 where a packet does not decode. Every grab
        behind the last of them fails.
    """
    return captured(video, lambda capture: _grabbed(video, capture, num_frames))


def _grabbed(video: VideoInfo, capture: OpenCvCapture, num_frames: int) -> Int64Array:
    ticks, found = video.packets.pts_ticks, []
    for number in range(num_frames):
        frame = capture.grab()
        if frame is None:
            if capture.is_exhausted:
                break
            found.append(-1)
        elif frame.pts is None or video.packets.access == "count":
            found.append(min(number, video.num_frames - 1))  # as the reader counts frames without a time
        else:
            found.append(min(int(np.searchsorted(ticks, frame.pts)), video.num_frames - 1))
    return np.array(found, dtype=np.int64)


def _presentable(capture: OpenCvCapture, claimed: int) -> int:
    """``claimed``, or the position after a seek to the end where the file really ends there, and earlier."""
    capture.seek_end()
    position = capture.position
    is_at_end = capture.grab() is None
    return position if is_at_end and 0 < position < claimed - 1 else claimed


def _is_even(video: VideoInfo) -> bool:
    """Whether every packet is a frame, shown where its number and the rate say."""
    packets = video.packets
    if video.container not in _EVEN_CONTAINERS or packets.access != "seek" or packets.read_error is not None:
        return False
    if video.is_cut_off or not video.num_frames == packets.stored.num_filled == packets.stored.num_undiscarded:
        return False
    due = np.arange(video.num_frames) / video.average_fps
    return bool((np.abs(video.pts_seconds - due) * video.average_fps < _EVEN_SHARE).all())
