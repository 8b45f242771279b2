"""Decode chosen frames with decord, in a process of its own.

In: a probed ``VideoInfo`` and indices of frames. Out: pictures, matched by time to decord's own timestamps. The other
process (``decord_child``) is there because decord can crash and writes to the console; it ends with the stream.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from evs_cli.errors import VideoError
from evs_cli.video.decord_child import FRAME_HEAD, RECORD_HEAD
from evs_cli.video.frames import DecodedFrame, DecodeFaults, Picture
from evs_cli.video.info import VideoInfo
from evs_cli.video.packets import Int64Array
from evs_cli.video.pyav import one_thread
from evs_cli.video.source import VideoSource, open_binary
from evs_cli.video.temporary_copy import temporary_copy

_CHILD = Path(__file__).with_name("decord_child.py")
_HINT = "use --decoder pyav"

_INEXACT_CONTAINERS = frozenset({"mpegts", "mpeg", "flv"})  # decord's seeks in these end at other frames


def decord_warnings(info: VideoInfo) -> tuple[str, ...]:
    """Sentences on what decord is known to get wrong in a video like this; empty for most."""
    packets = info.packets
    risks = []
    if packets.num_discarded:
        risks.append("stored frames that are never shown")
    if packets.has_leading_frames:
        risks.append("open groups of pictures")
    if packets.access != "seek":
        risks.append("frames without usable times")
    if info.container in _INEXACT_CONTAINERS:
        risks.append(f"the container {info.container}")
    if not risks:
        return ()
    return (f"{info.name} has {' and '.join(risks)}: decord may return wrong frames of it, PyAV does not",)


def decode(
    info: VideoInfo, wanted: Int64Array, threads: int, faults: DecodeFaults
) -> Generator[DecodedFrame, None, None]:
    """The pictures of ``wanted`` (n,) int64 ascending, distinct, less those that decord does not decode.

    Raises:
        VideoError: decord does not open the video, gives its frames no or other times, or crashes.
    """
    faults.warnings.extend(decord_warnings(info))
    if info.orientation.is_mirrored:
        raise _failure(info, "decord does not mirror what the file says is mirrored")  # it reads only an angle
    request = {
        "num_threads": 1 if info.codec == "vp9" else threads,  # its frame threads give wrong pictures with VP9
        "seconds": info.pts_seconds[wanted].tolist(),
    }
    with _local_path(info.source) as path, _running_child({**request, "path": path}) as child:
        for kind, payload in _records(child, info):
            if faults.is_cancelled.is_set():
                return
            if kind == b"M":
                _check_summary(info, json.loads(payload), len(wanted), faults)
            elif kind == b"S":
                faults.num_corrupt_packets += 1
            elif kind == b"F":
                position, height, width = FRAME_HEAD.unpack_from(payload)
                picture = np.frombuffer(payload, np.uint8, offset=FRAME_HEAD.size).reshape(height, width, 3)
                yield DecodedFrame(int(wanted[position]), _fitted(info, picture))


@contextmanager
def _local_path(source: VideoSource) -> Iterator[str]:
    """A path for a source; a file object is copied to a temporary file, as the other process cannot read it."""
    if isinstance(source, (str, os.PathLike)):
        yield os.fspath(source)
        return
    with open_binary(source) as file, temporary_copy(file, "video") as path:
        yield str(path)


@contextmanager
def _running_child(request: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """The process, killed at the end however that comes (Ctrl-C, a stream closed early)."""
    # -P: the folder of the script must not come before the standard library.
    command = [sys.executable, "-P", str(_CHILD)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        with suppress(BrokenPipeError):  # it died at once; reading from it tells why
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
        yield child
    finally:
        child.kill()
        child.wait()
        with suppress(BrokenPipeError):
            child.stdin.close()
        child.stdout.close()


def _records(child: subprocess.Popen[bytes], info: VideoInfo) -> Iterator[tuple[bytes, bytearray]]:
    """``(kind, payload)`` of the process's records up to its end.

    Raises:
        VideoError: it reports a failure or ends without a word.
    """
    assert child.stdout is not None
    while True:
        head = _read_exactly(child.stdout, RECORD_HEAD.size)
        if head is None:
            break
        kind, length = RECORD_HEAD.unpack(head)
        payload = _read_exactly(child.stdout, length)
        if payload is None:
            break
        if kind == b"D":
            return
        if kind == b"E":
            raise _failure(info, decord_words(json.loads(payload)["message"]))
        yield kind, payload
    status = child.wait()
    crash = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
    raise _failure(info, f"decord crashed ({crash})")


def _read_exactly(pipe: IO[bytes], length: int) -> bytearray | None:
    buffer = bytearray(length)
    view = memoryview(buffer)
    while len(view):
        count = pipe.readinto(view)  # type: ignore[attr-defined]
        if not count:
            return None
        view = view[count:]
    return buffer


def _check_summary(info: VideoInfo, summary: dict[str, int], num_wanted: int, faults: DecodeFaults) -> None:
    if summary["matched"] == 0:
        raise _failure(info, "decord's frames have no times, or others than the file gives them")
    num_missing = num_wanted - summary["matched"]
    if num_missing:
        faults.warnings.append(f"decord has no frame at the time of {num_missing} of {num_wanted} sampled frames")


def _fitted(info: VideoInfo, picture: Picture) -> Picture:
    """(height, width, 3) uint8 at the size as shown: decord turns a picture upright, but leaves its pixels oblong."""
    if picture.shape[:2] == (info.height, info.width):
        return picture
    import av

    frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
    fitted: Picture = frame.to_ndarray(
        format="rgb24", width=info.width, height=info.height, interpolation="BICUBIC", **one_thread()
    )
    return fitted


def decord_words(message: str) -> str:
    """decord's error text without its times, C++ file names, checked expressions and paths."""
    if message.startswith("Error reading"):
        return "it does not open it"
    text = re.sub(r"\[\d\d:\d\d:\d\d\] \S+?:\d+: ", "", message.split("Stack trace")[0])
    text = re.sub(r"Check failed: .*? \(.*? vs\. .*?\) ?", "", text)
    text = re.sub(r"^(\[[^\]]*\]|ERROR|Error:) *", "", text.strip())
    return text.splitlines()[0].strip().rstrip(".") if text.strip() else "it gives no reason"


def _failure(info: VideoInfo, reason: str) -> VideoError:
    return VideoError(f"decord cannot decode {info.name}: {reason}", hint=_HINT)
