"""The process that decord runs in: a script, started by ``decord_reader`` and by nobody else.

decord may crash, and prints C++ text of its own; here neither reaches the user. In: one JSON line on stdin, ``path``,
``num_threads``, ``seconds`` (the times of the frames wanted). Out: records on stdout, each a one-byte kind and the
length of what follows:

    M  {"num_frames": n, "matched": m}     once, after opening
    F  position, height, width, pixels     a frame: position in ``seconds``, (height, width, 3) uint8 RGB
    S  position                            a frame that decord has but does not decode
    E  {"type": ..., "message": ...}       the end, failed
    D                                      the end

It imports nothing of evs_cli, so that it starts fast.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
from typing import Any, BinaryIO

import numpy as np

# float32 holds 24 bits: beside a fixed share of a frame this is what decord's times lose as the video gets longer.
_TIME_TOLERANCE_SECONDS = 2e-4
_FLOAT32_EPSILON = 2.0**-22
# decord puts the nearest good frame in place of a damaged one, and raises only beyond this share of the frames.
_FAULT_TOLERANCE = 1e-9

RECORD_HEAD = struct.Struct("<cQ")  # kind, length of what follows
FRAME_HEAD = struct.Struct("<qII")  # position, height, width


def send(out: BinaryIO, kind: bytes, *parts: bytes | memoryview) -> None:
    """Write one record."""
    out.write(RECORD_HEAD.pack(kind, sum(len(part) for part in parts)))
    for part in parts:
        out.write(part)
    out.flush()


def match_times(wanted: np.ndarray[Any, Any], times: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(S,) int64: for each wanted time (S,) float64 the index of that time in ``times`` (F,), -1 where it is absent."""
    if len(times) == 0:
        return np.full(len(wanted), -1, dtype=np.int64)
    order = np.argsort(times, kind="stable")
    right = np.clip(np.searchsorted(times[order], wanted), 0, len(times) - 1)
    left = np.maximum(right - 1, 0)
    is_left_nearer = np.abs(times[order[left]] - wanted) <= np.abs(times[order[right]] - wanted)
    nearest = order[np.where(is_left_nearer, left, right)]
    tolerance = _TIME_TOLERANCE_SECONDS + np.abs(wanted) * _FLOAT32_EPSILON
    return np.where(np.abs(times[nearest] - wanted) <= tolerance, nearest, -1)


def serve(request: dict[str, Any], out: BinaryIO) -> None:
    """Open the video and send what is wanted of it."""
    import decord

    decord.logging.set_level(decord.logging.QUIET)

    def opened() -> Any:
        return decord.VideoReader(
            request["path"], ctx=decord.cpu(0), num_threads=request["num_threads"], fault_tol=_FAULT_TOLERANCE
        )

    video = opened()
    times = np.asarray(video.get_frame_timestamp(range(len(video))))[:, 0].astype(np.float64)
    indices = match_times(np.array(request["seconds"], dtype=np.float64), times)
    summary = {"num_frames": len(video), "matched": int((indices >= 0).sum())}
    send(out, b"M", json.dumps(summary).encode())
    for position, index in enumerate(indices.tolist()):
        if index < 0:
            continue
        try:
            picture = np.ascontiguousarray(video.get_batch([index]).asnumpy()[0])
        except (decord.DECORDError, decord.DECORDLimitReachedError, RuntimeError, IndexError):
            send(out, b"S", struct.pack("<q", position))
            video = opened()  # after a fault decord's counters and buffers are not to be trusted
            continue
        head = FRAME_HEAD.pack(position, picture.shape[0], picture.shape[1])
        send(out, b"F", head, picture.data.cast("B"))
    send(out, b"D")


def main() -> None:
    """Keep stdout for records, give everything else that is printed to nobody, and serve."""
    # Ctrl-C goes to all processes of a terminal; the parent decides what becomes of this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the parent has done so with stderr
    try:
        serve(json.loads(sys.stdin.buffer.readline()), out)
    except BrokenPipeError:
        os._exit(0)  # the parent has gone
    except BaseException as error:
        send(out, b"E", json.dumps({"type": type(error).__name__, "message": str(error)}).encode())
    # decord's threads may hang or crash in their destructors; there is nothing left to clean up.
    out.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
