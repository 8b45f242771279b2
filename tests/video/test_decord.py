"""decord in its own process: the same pictures as PyAV where it can, an error in our words where it cannot."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from video_files import HEIGHT, NUM_FRAMES, WIDTH, read_number, video

from evs_cli.errors import UsageError, VideoError
from evs_cli.video import decoder, decord_child, decord_reader
from evs_cli.video.decord_reader import decord_warnings, decord_words
from evs_cli.video.info import probe_video
from evs_cli.video.reader import read_frames

needs_decord = pytest.mark.skipif(importlib.util.find_spec("decord") is None, reason="decord is not installed")


def read(info, indices, decoder="decord", **options):
    """``{position: picture}``, (3, H, W) uint8, and the stream."""
    stream = read_frames(info, np.array(indices), chunk_frames=7, decoder=decoder, **options)
    found = {}
    for batch in stream:
        found.update(zip(batch.positions.tolist(), batch.frames.numpy(), strict=True))
    return found, stream


@pytest.fixture
def started(monkeypatch):
    """The processes that a test starts."""
    children = []
    popen = subprocess.Popen

    def recorded(*args, **kwargs):
        children.append(popen(*args, **kwargs))
        return children[-1]

    monkeypatch.setattr(decord_reader.subprocess, "Popen", recorded)
    return children


@needs_decord
@pytest.mark.parametrize(
    "name", ["normal.mp4", "normal.mkv", "vfr.mp4", "start5.mkv", "vp9.webm", "odd444.mp4", "hevc10.mp4", "sar.mp4"]
)
def test_the_same_frames_as_pyav(name):
    info = probe_video(video(name))
    indices = range(0, info.num_frames, 5)
    ours, _ = read(info, indices, "pyav")
    theirs, stream = read(info, indices)
    assert list(theirs) == list(ours) == list(range(len(indices)))
    assert [read_number(picture) for picture in theirs.values()] == list(indices)
    for position, picture in ours.items():
        assert picture.shape == theirs[position].shape == (3, info.height, info.width)
        # Two versions of libswscale differ in the last bits, and more at the edges of the blocks.
        assert np.abs(picture.astype(int) - theirs[position]).mean() < 4
    assert stream.warnings == ()
    assert stream.num_corrupt_packets == 0


@needs_decord
@pytest.mark.parametrize("name", ["turned 90 clockwise", "turned 180", "turned 270 clockwise"])
def test_turned_videos_are_upright(name):
    found, _ = read(probe_video(video(name)), range(6))
    assert [read_number(picture) for picture in found.values()] == list(range(6))


@needs_decord
@pytest.mark.parametrize("name", ["mirrored", "upside down", "transposed"])
def test_mirrored_videos_are_refused(name):
    with pytest.raises(VideoError, match="does not mirror") as caught:
        read(probe_video(video(name)), [0])
    assert caught.value.hint == "use --decoder pyav"


@needs_decord
def test_repeated_frames_and_file_objects():
    file = io.BytesIO(video("normal.mp4").read_bytes())
    found, _ = read(probe_video(file), [4, 4, 30, 59, 59])
    assert [read_number(picture) for picture in found.values()] == [4, 4, 30, 59, 59]


@needs_decord
def test_damaged_frames_are_left_out_and_never_replaced():
    info = probe_video(video("corrupt.mp4"))
    ours, _ = read(info, range(NUM_FRAMES), "pyav")
    found, stream = read(info, range(NUM_FRAMES))
    assert 0 < len(found) <= len(ours)
    assert stream.num_corrupt_packets == NUM_FRAMES - len(found)
    assert [k for k, picture in found.items() if read_number(picture) != k] == []


@needs_decord
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("av1.mp4", r"decord cannot decode av1\.mp4: cannot find video stream"),
        ("anim.gif", r"decord cannot decode anim\.gif: Failed to measure duration"),
        ("raw.h264", r"decord cannot decode raw\.h264: "),
        ("b_frames.avi", r"decord cannot decode b_frames\.avi: decord's frames have no times"),
    ],
)
def test_what_decord_cannot_decode_is_said_in_one_line(name, message, capfd):
    with pytest.raises(VideoError, match=message) as caught:
        read(probe_video(video(name)), [0, 1])
    assert caught.value.hint == "use --decoder pyav"
    assert "\n" not in caught.value.message
    assert ".cc:" not in caught.value.message
    assert capfd.readouterr() == ("", "")  # nor does its own text reach the terminal


@needs_decord
def test_risky_containers_come_with_a_warning():
    info = probe_video(video("stream.ts"))
    _, stream = read(info, [0])
    assert stream.warnings == decord_warnings(info)
    assert stream.warnings[0].startswith("stream.ts has the container mpegts: decord may return wrong frames")


@pytest.mark.parametrize(
    ("name", "risk"),
    [
        ("edit_list.mp4", "stored frames that are never shown"),
        ("open_gop.mp4", "open groups of pictures"),
        ("b_frames.avi", "frames without usable times"),
    ],
)
def test_the_warning_names_the_risk(name, risk):
    assert risk in decord_warnings(probe_video(video(name)))[0]


def test_no_warning_for_what_it_gets_right():
    for name in ("normal.mp4", "normal.mkv", "vfr.mp4", "vp9.webm"):
        assert decord_warnings(probe_video(video(name))) == ()


@needs_decord
@pytest.mark.parametrize("how", ["end", "close", "interrupt"])
def test_the_process_ends_with_the_stream(how, started):
    info = probe_video(video("long.mp4"))
    stream = read_frames(info, np.arange(info.num_frames), chunk_frames=4, decoder="decord")
    next(stream)
    assert started[0].poll() is None
    if how == "close":
        stream.close()
    elif how == "interrupt":
        with pytest.raises(KeyboardInterrupt), stream:
            raise KeyboardInterrupt
    else:
        assert sum(1 for _ in stream) == 99
    assert len(started) == 1
    assert started[0].returncode is not None


@needs_decord
def test_ctrl_c_is_left_to_the_parent(started):
    info = probe_video(video("long.mp4"))
    with read_frames(info, np.arange(info.num_frames), chunk_frames=4, decoder="decord") as stream:
        next(stream)
        os.kill(started[0].pid, signal.SIGINT)  # as a terminal does to every process of the group
        assert sum(1 for _ in stream) == 99


@needs_decord
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_crash_is_an_error_and_no_crash_of_ours(started):
    info = probe_video(video("long.mp4"))
    stream = read_frames(info, np.arange(info.num_frames), chunk_frames=4, decoder="decord")
    next(stream)
    os.kill(started[0].pid, signal.SIGKILL)
    with pytest.raises(VideoError, match=r"decord cannot decode long\.mp4: decord crashed \(signal SIGKILL\)"):
        list(stream)


def test_a_process_that_dies_at_once_is_a_crash(monkeypatch):
    monkeypatch.setattr(decoder.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(decord_reader, "_CHILD", decord_reader._CHILD.with_name("no_such_script.py"))
    with pytest.raises(VideoError, match=r"decord crashed \(exit code 2\)"):
        read(probe_video(video("one.mp4")), [0])


def test_without_the_module_the_hint_installs_it(monkeypatch):
    monkeypatch.setattr(decoder.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="decord is not installed") as caught:
        read_frames(probe_video(video("one.mp4")), np.array([0]), chunk_frames=1, decoder="decord")
    assert "pip install decord" in caught.value.hint


@needs_decord
def test_this_process_never_loads_decord():
    code = (
        "import sys, numpy as np\n"
        "from evs_cli.video.info import probe_video\n"
        "from evs_cli.video.reader import read_frames\n"
        "list(read_frames(probe_video(sys.argv[1]), np.array([0]), chunk_frames=1, decoder='decord'))\n"
        "print('decord' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(video("one.mp4"))]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (result.stdout.strip(), result.stderr) == ("False", "")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Error reading /secret/a.mp4...", "it does not open it"),
        (
            "[19:38:47] /github/src/video_reader.cc:151: Check failed: st_nb >= 0 (-11 vs. 0) ERROR cannot find it\n",
            "cannot find it",
        ),
        ("[19:38:48] /src/video_reader.cc:270: [/secret/a.gif] Failed to measure.", "Failed to measure"),
        ("[19:38:48] /src/a.cc:1: [19:38:48] /src/b.cc:2: Check failed: a >= 0 (1 vs. 0) Bad.\nStack trace: 0", "Bad"),
        ("", "it gives no reason"),
    ],
)
def test_error_texts_lose_what_is_of_no_use(message, words):
    assert decord_words(message) == words


class FakeDecord:
    """decord as ``decord_child`` uses it: eight frames of 10 fps, of which number 3 does not decode."""

    class DECORDError(Exception):
        pass

    class DECORDLimitReachedError(Exception):
        pass

    class logging:
        QUIET = -8

        @staticmethod
        def set_level(level):
            assert level == -8

    def __init__(self):
        self.opened = []

    @staticmethod
    def cpu(number):
        return number

    def VideoReader(self, path, ctx, num_threads, fault_tol):
        self.opened.append((path, num_threads, fault_tol))
        return self

    def __len__(self):
        return 8

    def get_frame_timestamp(self, indices):
        return np.array([(k / 10, (k + 1) / 10) for k in indices], np.float32)

    def get_batch(self, indices):
        if indices == [3]:
            raise self.DECORDLimitReachedError("recovered from nearest frames")
        self.index = indices[0]
        return self

    def asnumpy(self):
        return np.full((1, 2, 4, 3), self.index, np.uint8)


def test_the_process_never_lets_decord_put_another_frame_in_place(monkeypatch):
    fake = FakeDecord()
    monkeypatch.setitem(sys.modules, "decord", fake)
    out = io.BytesIO()
    decord_child.serve({"path": "a.mp4", "num_threads": 2, "seconds": [0.1, 0.25, 0.3, 0.4]}, out)
    records, data = [], out.getvalue()
    while data:
        kind, length = decord_reader.RECORD_HEAD.unpack_from(data)
        data = data[decord_reader.RECORD_HEAD.size :]
        records.append((kind, data[:length]))
        data = data[length:]
    assert [kind for kind, _ in records] == [b"M", b"F", b"S", b"F", b"D"]
    assert json.loads(records[0][1]) == {"num_frames": 8, "matched": 3}
    pictures = [(decord_reader.FRAME_HEAD.unpack_from(records[k][1]), records[k][1][16:]) for k in (1, 3)]
    assert pictures == [((0, 2, 4), b"\1" * 24), ((3, 2, 4), b"\4" * 24)]
    # Less than one frame of the fault tolerance, and a new reader after a fault.
    assert len(fake.opened) == 2
    path, num_threads, fault_tolerance = fake.opened[0]
    assert (path, num_threads) == ("a.mp4", 2)
    assert 0 < fault_tolerance * 10_000_000 < 1


def test_times_are_matched_within_what_float32_loses():
    times = np.arange(100_000, dtype=np.float64) / 30
    as_decord = times.astype(np.float32).astype(np.float64)
    wanted = times[[0, 1, 500, 99_999]]
    assert decord_child.match_times(wanted, as_decord).tolist() == [0, 1, 500, 99_999]
    assert decord_child.match_times(wanted + 1 / 60, as_decord).tolist() == [-1] * 4
    shuffled = as_decord[::-1]
    assert decord_child.match_times(wanted, shuffled).tolist() == [99_999, 99_998, 99_499, 0]
    assert decord_child.match_times(wanted, np.empty(0)).tolist() == [-1] * 4


def test_pictures_are_fitted_to_the_size_as_shown():
    info = probe_video(video("sar.mp4"))
    picture = np.full((HEIGHT, WIDTH, 3), 90, np.uint8)
    assert decord_reader._fitted(info, picture).shape == (HEIGHT, info.width, 3)
