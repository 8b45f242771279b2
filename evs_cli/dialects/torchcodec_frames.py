"""How many frames torchcodec counts in a file, and at what rate: all packets, from the first's begin to the last's end.

SGLang 0.5.23 reads with torchcodec 0.17, and vLLM 0.33 where its ``backend`` says so. Source: its ``Metadata.cpp`` and
the scan of ``SingleStreamDecoder.cpp``, seek mode "exact". The order of the float operations is torchcodec's own, so
that the rate is the same to the last bit under the same libav; another release of libav may give other durations.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from evs_cli.dialects.base import RefusedByServerError
from evs_cli.video.info import VideoInfo
from evs_cli.video.packets import NO_TICKS


@dataclass(frozen=True)
class TorchcodecFacts:
    """A video stream as torchcodec's metadata has it."""

    num_frames: int
    average_fps: float
    """Frames a second; the header's where the stream has no length."""
    duration_seconds: float
    """From the begin of the first frame to the end of the last."""


def torchcodec_facts(video: VideoInfo) -> TorchcodecFacts:
    """The facts of a probed file; hidden frames of VP8 and empty packets of AVI count.

    Raises:
        RefusedByServerError: a stream without a container, in which torchcodec cannot go back to the begin.
    """
    stored, time_base = video.packets.stored, video.packets.time_base
    if stored.begin_ticks == NO_TICKS:
        raise RefusedByServerError(
            f"torchcodec opens no file whose packets have no time ({video.container}).",
            hint="Put it into a container: ffmpeg -i … -c copy clip.mkv.",
        )
    duration = _seconds(stored.end_ticks, time_base) - _seconds(stored.begin_ticks, time_base)
    fps = stored.num_undiscarded / duration if duration != 0 else video.average_fps
    return TorchcodecFacts(stored.num_undiscarded, fps, duration)


def _seconds(ticks: int, time_base: Fraction) -> float:
    return float(ticks) * time_base.numerator / time_base.denominator
