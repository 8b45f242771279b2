"""Small awkward video files for the tests, made with PyAV alone, each when it is first asked for.

Every picture carries its own number as ten black or white blocks, which survive compression, and which read as
something else when the picture is turned or mirrored. ``video("normal.mp4")`` is the path of a file, ``read_number``
reads a picture.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from made_once import made_once

os.environ.setdefault("SVT_LOG", "1")  # the AV1 encoder talks on stderr: errors only

WIDTH, HEIGHT = 160, 96
_COLUMNS, _ROWS = 5, 2
_DARK, _BRIGHT = 30, 225

FPS = 25
NUM_FRAMES = 60

# name: (a, b, c, d) of the display matrix, and how the picture is to be stored for it to be shown as drawn.
# By the definition (p, q) -> (a p + c q, b p + d q), q downwards; numpy turns counterclockwise.
ORIENTATIONS: dict[str, tuple[tuple[int, int, int, int], Callable[[np.ndarray], np.ndarray]]] = {
    "turned 90 clockwise": ((0, 1, -1, 0), lambda shown: np.rot90(shown, 1)),
    "turned 180": ((-1, 0, 0, -1), lambda shown: np.rot90(shown, 2)),
    "turned 270 clockwise": ((0, -1, 1, 0), lambda shown: np.rot90(shown, -1)),
    "mirrored": ((-1, 0, 0, 1), lambda shown: shown[:, ::-1]),
    "upside down": ((1, 0, 0, -1), lambda shown: shown[::-1]),
    "transposed": ((0, 1, 1, 0), lambda shown: shown.swapaxes(0, 1)),
    "transposed and turned": ((0, -1, -1, 0), lambda shown: np.rot90(shown.swapaxes(0, 1), 2)),
}

CONSTANT_RATE = [
    "normal.mp4",
    "normal.mkv",
    "hevc10.mp4",
    "open_gop.mp4",
    "start5.mkv",
    "live.mkv",
    "odd444.mp4",
    "vp8.webm",
    "vp9.webm",
    "b_frames.avi",
    "raw.h264",
    "stream.ts",
    "cover.mp4",
]
"""Videos of ``NUM_FRAMES`` frames at ``FPS`` from time 0, each in another codec or container."""
VFR_TICKS = [0, 100, 200, 1200, 1220, 1260, 3260, 3300, 3340, 3380, 3500, 4500]
"""When the pictures of vfr.mp4 are shown, in milliseconds."""


def draw(number: int, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """(height, width, 3) uint8: the picture of a number below 256."""
    bits = [1, *(number >> k & 1 for k in range(8)), 0]  # the ends differ, so no turn or mirroring maps onto itself
    picture = np.empty((height, width, 3), np.uint8)
    rows = np.linspace(0, height, _ROWS + 1).astype(int)
    columns = np.linspace(0, width, _COLUMNS + 1).astype(int)
    for k, bit in enumerate(bits):
        row, column = divmod(k, _COLUMNS)
        block = picture[rows[row] : rows[row + 1], columns[column] : columns[column + 1]]
        block[:] = _BRIGHT if bit else _DARK
    return picture


def read_number(picture: Any) -> int:
    """The number drawn in a picture, (3, H, W) or (H, W, 3); raises AssertionError where it is not to be read."""
    picture = np.asarray(picture)
    if picture.shape[0] == 3:
        picture = picture.transpose(1, 2, 0)
    height, width = picture.shape[:2]
    bits = []
    for k in range(_COLUMNS * _ROWS):
        row, column = divmod(k, _COLUMNS)
        y, x = int((row + 0.5) * height / _ROWS), int((column + 0.5) * width / _COLUMNS)
        bits.append(int(picture[y - 3 : y + 3, x - 3 : x + 3].mean() > 128))
    assert bits[0] == 1, f"the picture is turned or damaged: {bits}"
    assert bits[-1] == 0, f"the picture is turned or damaged: {bits}"
    return sum(bit << k for k, bit in enumerate(bits[1:-1]))


def write_video(
    path: Path,
    *,
    numbers: Iterable[int] = range(NUM_FRAMES),
    codec: str = "libx264",
    pixel_format: str = "yuv420p",
    size: tuple[int, int] = (WIDTH, HEIGHT),
    container: str | None = None,
    container_options: dict[str, str] | None = None,
    options: dict[str, str] | None = None,
    ticks: list[int] | None = None,
    time_base: Fraction = Fraction(1, FPS),
    packet_shift: int = 0,
    num_b_frames: int | None = 2,
    key_interval: int = 12,
    store: Callable[[np.ndarray], np.ndarray] = lambda shown: shown,
    properties: dict[str, Any] | None = None,
    with_cover: bool = False,
    garbage_packet: int | None = None,
    title: str | None = None,
) -> None:
    """Encode one picture a number; ``ticks`` are their times in ``time_base``, one after the other when None."""
    with av.open(str(path), "w", format=container, options=container_options or {}) as output:
        if title is not None:
            output.metadata["title"] = title
        stream = output.add_stream(codec, rate=FPS, options=options or {})
        first = store(draw(0, *size))
        stream.height, stream.width = first.shape[:2]
        stream.pix_fmt = pixel_format
        stream.codec_context.time_base = time_base
        stream.codec_context.gop_size = key_interval
        if num_b_frames is not None:
            stream.codec_context.max_b_frames = num_b_frames
        for name, value in (properties or {}).items():
            setattr(stream.codec_context, name, value)
        cover = _add_cover(output) if with_cover else None
        packets = []
        for k, number in enumerate(numbers):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(store(draw(number, *size))), "rgb24")
            frame.pts, frame.time_base = ticks[k] if ticks else k, time_base
            packets += stream.encode(frame)
        packets += stream.encode(None)
        if cover is not None:
            output.mux(cover)
        if garbage_packet is not None:
            packets[garbage_packet] = _garbage_like(packets[garbage_packet])
        for packet in packets:
            if packet_shift:
                packet.pts, packet.dts = packet.pts + packet_shift, packet.dts + packet_shift
            output.mux(packet)


def _garbage_like(packet: Any) -> Any:
    garbage = av.Packet(bytes(np.random.default_rng(2).integers(1, 256, packet.size, dtype=np.uint8)))
    garbage.stream, garbage.time_base = packet.stream, packet.time_base
    garbage.pts, garbage.dts = packet.pts, packet.dts
    return garbage


def _add_cover(output: Any) -> Any:
    stream = output.add_stream("mjpeg", rate=1)
    stream.width, stream.height, stream.pix_fmt = 64, 64, "yuvj420p"
    stream.disposition = av.stream.Disposition.attached_pic.value  # PyAV 17.0 takes a plain number alone
    frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 200, np.uint8), "rgb24").reformat(format="yuvj420p")
    frame.pts, frame.time_base = 0, Fraction(1, 1)
    return [*stream.encode(frame), *stream.encode(None)]


def write_audio(path: Path, *, with_cover: bool = False) -> None:
    """A second of silence, with a cover picture if asked for."""
    with av.open(str(path), "w") as output:
        stream = output.add_stream("aac", rate=8000, layout="mono")
        cover = _add_cover(output) if with_cover else None
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 8000, 0
        packets = [*stream.encode(frame), *stream.encode(None)]
        if cover is not None:
            output.mux(cover)
        output.mux(packets)


def patch_display_matrix(path: Path, matrix: tuple[int, int, int, int]) -> None:
    """Write a display matrix into the track header of an mp4: bytes 40 to 76 of a tkhd box of version 0."""
    data = bytearray(path.read_bytes())
    payload = data.index(b"tkhd") + 4
    assert data[payload] == 0
    a, b, c, d = (value * 65536 for value in matrix)
    data[payload + 40 : payload + 76] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path.write_bytes(data)


def damage(path: Path, source: Path, *, start: float, stop: float) -> None:
    """Copy a file with the bytes between two shares of it made noise."""
    data = bytearray(source.read_bytes())
    first, last = int(len(data) * start), int(len(data) * stop)
    data[first:last] = np.random.default_rng(1).integers(0, 256, last - first, dtype=np.uint8).tobytes()
    path.write_bytes(data)


def cut(path: Path, source: Path, *, share: float) -> None:
    """Copy the first share of a file's bytes."""
    data = source.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


_FASTSTART = {"movflags": "faststart"}
# Few B-frames in a row and no scene cuts, or a picture that flips its blocks is all key frames.
_H264 = {"preset": "veryfast", "sc_threshold": "0"}
_HEVC = "log-level=none:scenecut=0:keyint=12:min-keyint=12:bframes=3:open-gop=0:pools=1:frame-threads=1"

_SIMPLE: dict[str, dict[str, Any]] = {
    "normal.mp4": {"container_options": _FASTSTART, "options": _H264},
    "normal.mkv": {"options": _H264},
    "long.mp4": {"numbers": [k % 256 for k in range(400)], "options": _H264, "key_interval": 40},
    "vfr.mp4": {
        "numbers": range(len(VFR_TICKS)),
        "ticks": VFR_TICKS,
        "time_base": Fraction(1, 1000),
        "options": _H264,
        "num_b_frames": 0,
    },
    "hevc10.mp4": {"codec": "libx265", "pixel_format": "yuv420p10le", "options": {"x265-params": _HEVC}},
    "open_gop.mp4": {"codec": "libx265", "options": {"x265-params": f"{_HEVC}:open-gop=1"}, "key_interval": 12},
    "square.mp4": {"options": _H264, "properties": {"sample_aspect_ratio": Fraction(1, 1)}},
    "sar.mp4": {"options": _H264, "properties": {"sample_aspect_ratio": Fraction(4, 3)}},
    "hdr.mp4": {
        "codec": "libx265",
        "pixel_format": "yuv420p10le",
        "numbers": range(4),
        "options": {"x265-params": _HEVC},
        "properties": {"color_trc": 16},
    },
    "start5.mkv": {"options": _H264, "packet_shift": 5 * FPS},
    "edit_list.mp4": {
        "options": _H264,
        "packet_shift": -20,
        "container_options": {"avoid_negative_ts": "disabled"},
    },
    "one.mp4": {"options": _H264, "numbers": [7]},
    "two.mp4": {"options": _H264, "numbers": [7, 8]},
    "odd444.mp4": {"options": _H264, "pixel_format": "yuv444p", "size": (161, 97)},
    "anim.gif": {"codec": "gif", "pixel_format": "rgb8", "numbers": range(8), "num_b_frames": None},
    "vp8.webm": {"codec": "libvpx", "options": {"cpu-used": "8", "deadline": "realtime"}, "num_b_frames": None},
    "vp9.webm": {"codec": "libvpx-vp9", "options": {"cpu-used": "8", "deadline": "realtime"}, "num_b_frames": None},
    "av1.mp4": {
        "codec": "libsvtav1",
        "options": {"preset": "10", "crf": "10"},
        "numbers": range(20),
        "num_b_frames": None,
    },
    "b_frames.avi": {"options": _H264},
    "corrupt.avi": {"options": _H264, "garbage_packet": 30},
    "raw.h264": {"options": _H264, "container": "h264"},
    "stream.ts": {"options": _H264, "container": "mpegts"},
    "live.mkv": {"options": _H264, "container_options": {"live": "1"}},
    "cover.mp4": {"options": _H264, "with_cover": True},
}


def _make_bigger_half(path: Path) -> None:
    """Raw H.264 that changes its size in the middle, from 160x96 to 320x192."""
    parts = []
    for k, size in enumerate([(WIDTH, HEIGHT), (2 * WIDTH, 2 * HEIGHT)]):
        part = path.with_name(f"part{k}.h264")
        write_video(part, numbers=range(10 * k, 10 * k + 10), size=size, container="h264", options=_H264)
        parts.append(part.read_bytes())
    path.write_bytes(b"".join(parts))


def _make_no_frame_decodes(path: Path) -> None:
    damage(path, video("normal.mp4"), start=0.0, stop=0.0)
    data = path.read_bytes()
    mdat = data.index(b"mdat") + 4
    path.write_bytes(data[:mdat] + b"\xff" * (len(data) - mdat))


def _make_late(path: Path) -> None:
    """A transport stream without its first packets of 188 bytes, so that it begins inside a group of pictures."""
    data = video("stream.ts").read_bytes()
    path.write_bytes(data[len(data) * 3 // 10 // 188 * 188 :])


_DERIVED: dict[str, Callable[[Path], None]] = {
    "truncated.mp4": lambda path: cut(path, video("normal.mp4"), share=0.6),
    "no_moov.mp4": lambda path: cut(path, video("long.mp4"), share=0.6),
    "corrupt.mp4": lambda path: damage(path, video("normal.mp4"), start=0.6, stop=0.7),
    "no_frame_decodes.mp4": _make_no_frame_decodes,
    "late.ts": _make_late,
    "mixed_sizes.h264": _make_bigger_half,
    "audio_only.mp4": write_audio,
    "audio_with_cover.mp4": lambda path: write_audio(path, with_cover=True),
    "empty.mp4": lambda path: path.write_bytes(b"") and None,
    "text.mp4": lambda path: path.write_text("this is not a video\n" * 200) and None,
    "notes.txt": lambda path: path.write_text("this is not a video\n" * 200) and None,
    "noise.mp4": lambda path: path.write_bytes(np.random.default_rng(0).bytes(5000)) and None,
    "lfs.mp4": lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n") and None,
}


def _make(name: str, path: Path) -> None:
    if name in _DERIVED:
        _DERIVED[name](path)
    elif name in ORIENTATIONS:
        matrix, store = ORIENTATIONS[name]
        write_video(path, numbers=range(6), options=_H264, store=store)
        patch_display_matrix(path, matrix)
    else:
        write_video(path, **_SIMPLE[name])


@functools.cache
def video(name: str) -> Path:
    """The path of one of the files, made on the first call; nobody may change it."""
    file = f"{name}.mp4" if name in ORIENTATIONS else name
    return made_once(f"videos/{file}", functools.partial(_make, name))


@functools.cache
def damaged_clip(folder: Path) -> Path:
    """Noise for half a second in the middle of 2 s; every picture is a key frame, so the rest decodes."""
    path = Path(folder) / "damaged.mp4"
    rng = np.random.default_rng(0)
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=10, options={"preset": "ultrafast", "qp": "20"})
        stream.width, stream.height, stream.pix_fmt = 160, 96, "yuv420p"
        stream.codec_context.gop_size, stream.codec_context.max_b_frames = 1, 0
        for k in range(20):
            picture = np.kron(rng.integers(0, 255, (12, 20, 3), dtype=np.uint8), np.ones((8, 8, 1), np.uint8))
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            frame.pts = k
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    with av.open(str(path)) as container:
        places = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    data = bytearray(path.read_bytes())
    for start, size in places[8:13]:
        data[start : start + size] = b"\xff" * size
    path.write_bytes(data)
    return path
