"""How many frames OpenCV counts in a file, as vLLM 0.33 asks it: what the header claims, and where a seek ends.

OpenCV counts what the header says, else the length times the rate. vLLM then seeks to the end and takes the position
there where it is smaller. OpenCV makes a position of the time of the key frame it lands on, and counts frames from
there; so the position is a count only where frames are evenly spaced. Sources: OpenCV's ``cap_ffmpeg_impl.hpp``.
"""

from __future__ import annotations

import numpy as np

from evs_cli.video.info import VideoInfo

_FIRST_STEP_BACK = 16  # frames before the target that a seek aims at first


def opencv_num_frames(video: VideoInfo) -> int:
    """Frames of a file as vLLM's OpenCV loader counts them."""
    claimed = video.header_num_frames
    if claimed is None and video.container_seconds is not None:
        claimed = int(video.container_seconds * video.average_fps + 0.5)
    if not claimed:
        return video.num_frames  # its packets are counted
    if video.is_cut_off or video.packets.access == "count" or video.average_fps <= 0:
        return claimed
    position = _position_at_end(video, claimed)
    # Fewer by one are taken for a miscount of the header.
    return position if position is not None and 0 < position < claimed - 1 else claimed


def _position_at_end(video: VideoInfo, claimed: int) -> int | None:
    """The position after a seek to the last of ``claimed`` frames; None where frames are left behind it."""
    fps, pts = video.average_fps, video.pts_seconds
    target = claimed
    if video.container_seconds is not None:
        target = min(claimed, int(video.container_seconds * fps + 0.5))
    first = video.packets.pts_ticks[0]
    packets, is_shown = video.packets, video.packets.key_ticks >= first
    if not is_shown.any():
        return None
    shown = ((packets.key_ticks - first) * float(packets.time_base))[is_shown]
    stored = ((packets.key_stored_ticks - first) * float(packets.time_base))[is_shown]
    sought_by = stored if "mov" in video.container else shown
    step_back = _FIRST_STEP_BACK
    while True:
        aimed = max(target - step_back, 0)
        landed = shown[max(int(np.searchsorted(sought_by, aimed / fps + 1e-9, side="right")) - 1, 0)]
        index = int(np.searchsorted(pts, landed - 1e-9))
        position = int(fps * float(pts[min(index, len(pts) - 1)]) + 0.5)
        if position <= target - 1:
            break
        if aimed == 0:
            return None
        step_back = step_back * 3 // 2
    left = len(pts) - 1 - index
    if position + left >= target:  # the target is reached before the end
        return None
    return position + left + 1
