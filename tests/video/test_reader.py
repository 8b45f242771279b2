"""The right pictures come out: every test reads the number that is drawn in a picture."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import subprocess
import sys
import weakref

import av
import numpy as np
import pytest
import torch
from video_files import CONSTANT_RATE, HEIGHT, NUM_FRAMES, ORIENTATIONS, WIDTH, read_number, video

from evs_cli.errors import UsageError, VideoError
from evs_cli.video import frames, reader
from evs_cli.video.info import probe_video
from evs_cli.video.reader import read_frames


def read(name_or_info, indices, **options):
    """``{position: number}`` of what comes out, and the stream."""
    info = probe_video(video(name_or_info)) if isinstance(name_or_info, str) else name_or_info
    stream = read_frames(info, np.array(indices), **{"chunk_frames": 7, **options})
    found = {}
    for batch in stream:
        found.update(zip(batch.positions.tolist(), map(read_number, batch.frames), strict=True))
    return found, stream


def numbers(name_or_info, indices, **options):
    found, _ = read(name_or_info, indices, **options)
    assert list(found) == list(range(len(indices)))
    return list(found.values())


WHOLE = [*CONSTANT_RATE, "sar.mp4"]


@pytest.mark.parametrize("name", WHOLE)
def test_every_frame_in_order(name):
    assert numbers(name, range(NUM_FRAMES)) == list(range(NUM_FRAMES))


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("step", [5, 17, 41])
def test_chosen_frames_with_a_seek_wherever_one_is_possible(name, step, monkeypatch):
    monkeypatch.setattr(reader, "_MIN_SKIPPED_FRAMES", 0)
    chosen = range(step, NUM_FRAMES, step)
    assert numbers(name, chosen) == list(chosen)


@pytest.mark.parametrize(("name", "num_frames"), [("one.mp4", 1), ("two.mp4", 2)])
def test_very_short_videos(name, num_frames):
    assert numbers(name, range(num_frames)) == list(range(7, 7 + num_frames))


@pytest.mark.parametrize(("name", "num_frames"), [("anim.gif", 8), ("av1.mp4", 20), ("vfr.mp4", 12)])
def test_other_formats(name, num_frames):
    assert numbers(name, range(num_frames)) == list(range(num_frames))


@pytest.mark.parametrize("name", ORIENTATIONS)
def test_pictures_are_turned_upright_and_mirrored_back(name):
    assert numbers(name, range(6)) == list(range(6))


@pytest.mark.parametrize("step", [3, 11])
def test_frames_behind_an_edit_list(step, monkeypatch):
    monkeypatch.setattr(reader, "_MIN_SKIPPED_FRAMES", 0)
    assert numbers("edit_list.mp4", range(0, 40, step)) == list(range(20, 60, step))


def test_seeks_are_made_where_they_pay_and_land_right(monkeypatch):
    info = probe_video(video("long.mp4"))
    seeks = []
    seek = reader._seek
    monkeypatch.setattr(reader, "_seek", lambda *args: seeks.append(args[2]) or seek(*args))
    chosen = [3, 45, 120, 131, 399]
    assert numbers(info, chosen) == [k % 256 for k in chosen]
    # Key frames are at 0, 40, 80, ...: from 3 to 40 are 36 frames, 45 to 120 are 74, 131 to 360 are 228.
    assert [int(np.searchsorted(info.packets.pts_ticks, tick)) for tick in seeks] == [40, 120, 360]


def test_no_seek_to_save_a_few_frames(monkeypatch):
    monkeypatch.setattr(reader, "_seek", lambda *args: pytest.fail("a seek for fewer than 33 frames"))
    assert numbers("long.mp4", [10, 50, 90]) == [10, 50, 90]


def test_a_seek_that_ends_too_late_falls_back_to_reading_in_order(monkeypatch):
    info = probe_video(video("long.mp4"))
    real_seek, lost = reader._seek, []

    def late_seek(container, stream, key_tick):
        lost.append(key_tick)
        real_seek(container, stream, int(info.packets.pts_ticks[360]))

    monkeypatch.setattr(reader, "_seek", late_seek)
    assert numbers(info, [3, 130, 200, 399]) == [3, 130, 200, 399 % 256]
    assert len(lost) == 1  # not tried again


def test_a_seek_that_fails_falls_back_to_reading_in_order(monkeypatch):
    def no_seek(*args):
        raise reader._SeekLostError

    monkeypatch.setattr(reader, "_seek", no_seek)
    assert numbers("long.mp4", [3, 130, 399]) == [3, 130, 399 % 256]


def test_batches_have_the_promised_shapes():
    info = probe_video(video("normal.mp4"))
    indices = np.arange(0, NUM_FRAMES, 3)
    batches = list(read_frames(info, indices, chunk_frames=8))
    assert [len(batch.positions) for batch in batches] == [8, 8, 4]
    for batch in batches:
        assert batch.frames.shape == (len(batch.positions), 3, HEIGHT, WIDTH)
        assert batch.frames.dtype == torch.uint8
        assert batch.frames.is_contiguous()
        assert (batch.frame_indices == indices[batch.positions]).all()
        assert (batch.pts_seconds == info.pts_seconds[batch.frame_indices]).all()
    assert np.concatenate([batch.positions for batch in batches]).tolist() == list(range(20))
    assert repr(batches[2]) == "FrameBatch(frames=(4, 3, 96, 160), positions=[16, 17, 18, 19])"


def test_batches_do_not_share_memory():
    info = probe_video(video("normal.mp4"))
    first, second = list(read_frames(info, np.arange(4), chunk_frames=2))
    before = second.frames.clone()
    first.frames.zero_()
    assert torch.equal(second.frames, before)


def test_a_repeated_frame_is_delivered_as_often_and_decoded_once(monkeypatch):
    converted = []
    picture = reader._picture
    monkeypatch.setattr(reader, "_picture", lambda *args: converted.append(1) or picture(*args))
    assert numbers("normal.mp4", [2, 2, 2, 5, 9, 9], chunk_frames=2) == [2, 2, 2, 5, 9, 9]
    assert len(converted) == 3


def test_oblong_pixels_are_made_square():
    info = probe_video(video("sar.mp4"))
    batch = next(read_frames(info, np.array([9]), chunk_frames=1))
    assert batch.frames.shape == (1, 3, HEIGHT, round(WIDTH * 4 / 3))


def test_pictures_of_another_size_are_fitted_to_the_first():
    info = probe_video(video("mixed_sizes.h264"))
    batches = list(read_frames(info, np.arange(20), chunk_frames=20))
    assert batches[0].frames.shape == (20, 3, HEIGHT, WIDTH)
    assert list(map(read_number, batches[0].frames)) == list(range(20))


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_a_cut_off_file_gives_what_is_there_on_any_number_of_threads(num_threads):
    info = probe_video(video("truncated.mp4"))
    found, stream = read(info, range(info.num_frames), num_threads=num_threads)
    assert found == {k: k for k in range(info.num_frames - 1)}  # the cut goes through the last packet
    assert stream.num_corrupt_packets == 1


def test_damaged_frames_are_left_out_and_never_replaced():
    info = probe_video(video("corrupt.mp4"))
    found, stream = read(info, range(NUM_FRAMES))
    assert 0 < len(found) < NUM_FRAMES
    assert stream.num_corrupt_packets > 0
    assert stream.num_damaged_frames > 0
    assert len(found) + stream.num_corrupt_packets + stream.num_damaged_frames == NUM_FRAMES
    assert [k for k, number in found.items() if number != k] == []


def test_a_damaged_packet_does_not_shift_the_count():
    info = probe_video(video("corrupt.avi"))
    assert info.packets.access == "count"
    found, stream = read(info, range(NUM_FRAMES), num_threads=1)
    assert stream.num_corrupt_packets == 1
    assert len(found) == NUM_FRAMES - 1
    # Near the damage the count may be off by one, as the file has no times; behind it, it is right again.
    assert [k for k, number in found.items() if number != k and not 28 <= k <= 34] == []


def test_a_recording_that_begins_between_key_frames():
    info = probe_video(video("late.ts"))
    found, stream = read(info, range(info.num_frames))
    assert list(found) == list(range(info.num_frames))
    assert list(found.values()) == list(range(NUM_FRAMES - info.num_frames, NUM_FRAMES))
    assert info.pts_seconds[0] == 0
    assert stream.num_corrupt_packets == 0


def test_damaged_frames_are_left_out_behind_a_seek_too(monkeypatch):
    monkeypatch.setattr(reader, "_MIN_SKIPPED_FRAMES", 0)
    info = probe_video(video("corrupt.mp4"))
    whole, _ = read(info, range(NUM_FRAMES))
    for step in (7, 13):
        found, _ = read(info, range(0, NUM_FRAMES, step))
        assert {step * k: number for k, number in found.items()} == {
            k: number for k, number in whole.items() if k % step == 0
        }


def test_no_frame_at_all_is_an_error():
    info = probe_video(video("corrupt.mp4"))
    whole, _ = read(info, range(NUM_FRAMES))
    missing = sorted(set(range(NUM_FRAMES)) - set(whole))
    with pytest.raises(VideoError, match=r"cannot decode corrupt\.mp4: none of the 2 sampled frames decodes"):
        list(read_frames(info, np.array(missing[:2]), chunk_frames=4))


def test_a_file_that_has_gone_is_an_error(tmp_path):
    path = tmp_path / "a.mp4"
    path.write_bytes(video("two.mp4").read_bytes())
    info = probe_video(path)
    path.unlink()
    with pytest.raises(VideoError, match=r"cannot open a\.mp4: no such file"):
        next(read_frames(info, np.array([0]), chunk_frames=1))


def test_frames_before_a_read_error_come_out(monkeypatch):
    """A disk that fails in the middle: the decoder is emptied, not forgotten."""

    class FailingContainer:
        def __init__(self, container):
            self._container = container

        def demux(self, stream):
            for count, packet in enumerate(self._container.demux(stream)):
                if count == 30:
                    raise av.error.OSError(errno.EIO, "Input/output error")
                yield packet

    opened = reader._opened

    @contextlib.contextmanager
    def failing(*args):
        with opened(*args) as (container, stream):
            yield FailingContainer(container), stream

    monkeypatch.setattr(reader, "_opened", failing)
    found, _ = read("normal.mp4", range(NUM_FRAMES))
    assert len(found) == 30
    assert [k for k, number in found.items() if number != k] == []


def test_file_objects_are_read_and_stay_open():
    file = io.BytesIO(video("long.mp4").read_bytes())
    file.seek(11)
    assert numbers(probe_video(file), [0, 130, 399]) == [0, 130, 399 % 256]
    assert not file.closed
    assert file.tell() == 11


@pytest.mark.parametrize("how", ["close", "with", "forget"])
def test_a_stream_that_is_stopped_early_closes_the_file(how, monkeypatch):
    opened, closed = [], []
    real = reader._opened

    class Watched:
        def __init__(self, *args):
            self._manager = real(*args)

        def __enter__(self):
            opened.append(1)
            return self._manager.__enter__()

        def __exit__(self, *error):
            result = self._manager.__exit__(*error)
            closed.append(1)
            return result

    monkeypatch.setattr(reader, "_opened", Watched)
    stream = read_frames(probe_video(video("normal.mp4")), np.arange(NUM_FRAMES), chunk_frames=4)
    if how == "with":
        with stream:
            next(stream)
    else:
        next(stream)
        assert not closed
        if how == "close":
            stream.close()
        del stream
        gc.collect()
    assert len(opened) == len(closed) == 1


def test_memory_holds_one_chunk_and_not_the_video(monkeypatch):
    chunks = []

    class WatchedChunk(frames._Chunk):
        def __init__(self, *args):
            assert [chunk for chunk in chunks if chunk() is not None] == []
            super().__init__(*args)
            chunks.append(weakref.ref(self._frames))

    monkeypatch.setattr(frames, "_Chunk", WatchedChunk)
    info = probe_video(video("long.mp4"))
    for batch in read_frames(info, np.arange(info.num_frames), chunk_frames=10):
        del batch
    assert len(chunks) == 40


def test_libav_keeps_quiet_on_a_damaged_file():
    code = (
        "import sys, numpy as np\n"
        "from evs_cli.video.info import probe_video\n"
        "from evs_cli.video.reader import read_frames\n"
        "info = probe_video(sys.argv[1])\n"
        "print(sum(len(b.positions) for b in read_frames(info, np.arange(info.num_frames), chunk_frames=9)))\n"
    )
    command = [sys.executable, "-c", code, str(video("corrupt.mp4"))]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0 < int(result.stdout) < NUM_FRAMES
    assert result.stderr == ""


@pytest.mark.parametrize("indices", [[], [[0]], [-1], [NUM_FRAMES], [3, 2]])
def test_indices_that_make_no_sense(indices):
    with pytest.raises(ValueError, match="Invalid frame_indices"):
        read_frames(probe_video(video("normal.mp4")), np.array(indices), chunk_frames=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk_frames": 0}, r"Invalid chunk_frames \(0\)\. Expected chunk_frames >= 1"),
        ({"chunk_frames": 1, "num_threads": 0}, r"Invalid num_threads \(0\)"),
        ({"chunk_frames": 1, "decoder": "vlc"}, r"Invalid decoder \('vlc'\)\. Expected one of: pyav, decord"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(UsageError, match=message):
        read_frames(probe_video(video("one.mp4")), np.array([0]), **options)


@pytest.mark.parametrize("decoder", ["pyav", "decord"])
def test_cancelling_ends_the_iteration_within_a_packet(decoder):
    """From another thread too, where closing a generator that runs is not possible."""
    stream = read_frames(probe_video(video("normal.mp4")), np.arange(NUM_FRAMES), chunk_frames=3, decoder=decoder)
    assert next(stream).positions.tolist() == [0, 1, 2]
    stream.cancel()
    # What one packet gives beside its own picture, with as many threads as there are cores, is at most a chunk here.
    assert sum(len(batch.positions) for batch in stream) <= 3
