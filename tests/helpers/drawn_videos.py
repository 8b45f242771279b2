"""Video files drawn at random by a seed: containers, codecs, rates, uneven times, B-frames, cuts, several streams.

PyAV alone makes them. The same seed gives the same facts; ``DrawnVideo.words`` says them, for the message of a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from video_files import draw

_H264 = {"preset": "ultrafast"}
_HEVC = {"preset": "ultrafast", "x265-params": "log-level=none:pools=1:frame-threads=1"}
_VPX = {"cpu-used": "8", "deadline": "realtime"}
KINDS: dict[str, tuple[str, ...]] = {
    "mp4": ("libx264", "libx265", "mpeg4", "libvpx-vp9"),
    "mov": ("libx264", "mjpeg", "prores_ks"),
    "mkv": ("libx264", "libx265", "libvpx-vp9", "mpeg4"),
    "webm": ("libvpx", "libvpx-vp9"),
    "avi": ("mpeg4", "libx264", "mjpeg", "msmpeg4v3"),
    "ts": ("libx264", "mpeg2video"),
    "flv": ("libx264", "flv"),
    "wmv": ("wmv2",),
    "mpg": ("mpeg2video",),
    "3gp": ("mpeg4", "libx264"),
}
"""The codecs drawn for each ending of a file name."""
_FORMATS = {"mkv": "matroska", "ts": "mpegts", "wmv": "asf", "mpg": "mpeg"}
_FIXED_TIMES = ("avi", "mpg")  # stored by number alone, or by a muxer that wants even times
_RATES = (Fraction(25), Fraction(30), Fraction(30000, 1001), Fraction(24000, 1001), Fraction(10), Fraction(15))


@dataclass(frozen=True)
class DrawnVideo:
    """A file of the draw."""

    path: Path
    words: str


@dataclass(frozen=True)
class _Stream:
    """One video stream to be written."""

    codec: str
    size: tuple[int, int]
    ticks: tuple[int, ...]
    time_base: Fraction
    rate: Fraction
    key_interval: int
    num_b_frames: int


def draw_video(folder: Path, seed: int) -> DrawnVideo:
    """Write the file of a seed into ``folder``."""
    random = np.random.default_rng([14, seed])
    ending = str(random.choice(list(KINDS)))
    codec = str(random.choice(KINDS[ending]))
    first = _drawn_stream(random, ending, codec)
    streams = [first]
    if ending in ("mp4", "mkv", "mov", "ts") and random.random() < 0.3:
        streams.append(_drawn_stream(random, ending, codec))
    shift = int(random.choice([0, 0, 0, 7])) if ending in ("mkv", "mp4", "ts", "webm") else 0
    is_cut = ending in ("mp4", "mov") and shift == 0 and random.random() < 0.25
    path = folder / f"drawn{seed}.{ending}"
    options = {"avoid_negative_ts": "disabled"} if is_cut else {}
    _write(path, _FORMATS.get(ending, ending), streams, -10 if is_cut else shift, options, silent=random.random() < 0.3)
    words = [
        f"seed {seed}: {ending}",
        *(
            f"{s.codec} {s.size} {len(s.ticks)} frames at {s.rate}, "
            f"{s.num_b_frames} B-frames, a key every {s.key_interval}, base {s.time_base}"
            for s in streams
        ),
    ]
    words += ["cut by an edit list"] * is_cut + [f"shifted by {shift}"] * bool(shift)
    return DrawnVideo(path, "; ".join(words))


def _drawn_stream(random: np.random.Generator, ending: str, codec: str) -> _Stream:
    rate = Fraction(str(random.choice([str(rate) for rate in _RATES])))
    if codec in ("mpeg2video", "wmv2", "msmpeg4v3", "flv") and rate not in (25, 30):
        rate = Fraction(25)  # of those a codec of that age may hold
    count = int(random.integers(2, 120))
    size = [(160, 96), (96, 160), (128, 128), (176, 144)][int(random.integers(4))]
    if codec == "flv" or ending == "3gp":
        size = (176, 144)
    is_uneven = ending not in _FIXED_TIMES and codec not in ("mpeg2video", "wmv2") and random.random() < 0.4
    if is_uneven:
        gaps = random.choice([1, 2, 3, 8], size=count) * int(random.choice([10, 33, 40]))
        ticks, time_base = (0, *np.cumsum(gaps)[:-1].tolist()), Fraction(1, 1000)
    else:
        ticks, time_base = tuple(range(count)), 1 / rate
    allows_b = codec in ("libx264", "mpeg4", "mpeg2video", "libx265") and ending != "flv"
    num_b_frames = int(random.choice([0, 2])) if allows_b else 0
    return _Stream(codec, size, ticks, time_base, rate, int(random.choice([5, 12, 30, 250])), num_b_frames)


def _write(
    path: Path, container: str, streams: list[_Stream], shift: int, container_options: dict[str, str], *, silent: bool
) -> None:
    """Encode every stream, then write the packets of all in the order of their times."""
    with av.open(str(path), "w", format=container, options=container_options) as output:
        packets = []
        added = [_add(output, stream) for stream in streams]
        holds_sound = silent and container in ("mp4", "matroska", "mov")
        sound = output.add_stream("aac", rate=8000, layout="mono") if holds_sound else None
        for stream, target in zip(streams, added, strict=True):
            for number, tick in enumerate(stream.ticks):
                frame = av.VideoFrame.from_ndarray(draw(number % 256, *stream.size), "rgb24")
                frame.pts, frame.time_base = tick, stream.time_base
                packets += target.encode(frame)
            packets += target.encode(None)
        if sound is not None:
            audio = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.float32), format="fltp", layout="mono")
            audio.sample_rate, audio.pts = 8000, 0
            packets += [*sound.encode(audio), *sound.encode(None)]
        for packet in packets:
            if shift and packet.stream is not sound:
                packet.pts, packet.dts = packet.pts + shift, packet.dts + shift
        output.mux(sorted(packets, key=lambda packet: float(packet.dts * packet.time_base)))


def _add(output: Any, stream: _Stream) -> Any:
    options = {"libx264": _H264, "libx265": _HEVC}.get(stream.codec, _VPX if "vp" in stream.codec else {})
    target = output.add_stream(stream.codec, rate=stream.rate, options=options)
    target.width, target.height = stream.size
    target.pix_fmt = {"mjpeg": "yuvj420p", "prores_ks": "yuv422p10le"}.get(stream.codec, "yuv420p")
    target.codec_context.time_base = stream.time_base
    target.codec_context.gop_size = stream.key_interval
    if stream.num_b_frames:
        target.codec_context.max_b_frames = stream.num_b_frames
    return target
