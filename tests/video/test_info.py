"""What ``probe_video`` says of a file: size, times of frames, and one clear sentence where there is no video."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from video_files import CONSTANT_RATE, FPS, HEIGHT, NUM_FRAMES, ORIENTATIONS, VFR_TICKS, WIDTH, video, write_video

from evs_cli.errors import UsageError, VideoError
from evs_cli.video.info import probe_video
from evs_cli.video.orientation import orientation_of
from evs_cli.video.reader import read_frames
from evs_cli.video.source import file_sha256, open_error, source_name


@pytest.mark.parametrize("name", CONSTANT_RATE)
def test_times_are_those_written(name):
    info = probe_video(video(name))
    assert info.num_frames == NUM_FRAMES
    np.testing.assert_allclose(info.pts_seconds, np.arange(NUM_FRAMES) / FPS, atol=1e-9)
    assert info.pts_seconds.dtype == np.float64
    assert info.duration_seconds == pytest.approx(NUM_FRAMES / FPS)
    assert info.average_fps == pytest.approx(FPS)


def is_identity(orientation):
    """Whether pictures are shown as they are stored."""
    return not (orientation.transpose or orientation.flip_horizontal or orientation.flip_vertical)


def test_facts_of_a_plain_file():
    path = video("normal.mp4")
    info = probe_video(path)
    assert (info.name, info.source, info.size_bytes) == ("normal.mp4", path, path.stat().st_size)
    assert (info.codec, info.pixel_format, info.header_num_frames) == ("h264", "yuv420p", NUM_FRAMES)
    assert "mp4" in info.container
    assert (info.width, info.height) == (info.coded_width, info.coded_height) == (WIDTH, HEIGHT)
    assert is_identity(info.orientation)
    assert info.sample_aspect_ratio == 1.0
    assert info.warnings == ()
    assert info.packets.access == "seek"
    assert repr(info) == "VideoInfo('normal.mp4', h264, 160x96, 60 frames, 2.400 s)"


@pytest.mark.parametrize(
    ("name", "codec", "pixel_format"),
    [
        ("hevc10.mp4", "hevc", "yuv420p10le"),
        ("odd444.mp4", "h264", "yuv444p"),
        ("av1.mp4", "av1", "yuv420p"),
        ("vp9.webm", "vp9", "yuv420p"),
    ],
)
def test_codec_and_pixel_format(name, codec, pixel_format):
    info = probe_video(video(name))
    assert (info.codec, info.pixel_format) == (codec, pixel_format)


def test_variable_frame_rate_keeps_every_time():
    info = probe_video(video("vfr.mp4"))
    np.testing.assert_allclose(info.pts_seconds, np.array(VFR_TICKS) / 1000, atol=1e-9)
    assert info.duration_seconds > VFR_TICKS[-1] / 1000


@pytest.mark.parametrize(("name", "num_frames"), [("one.mp4", 1), ("two.mp4", 2), ("anim.gif", 8)])
def test_few_frames(name, num_frames):
    info = probe_video(video(name))
    np.testing.assert_allclose(info.pts_seconds, np.arange(num_frames) / FPS)
    assert info.duration_seconds == pytest.approx(num_frames / FPS)


@pytest.mark.parametrize("name", ["normal.mkv", "live.mkv", "vp9.webm"])
def test_containers_that_state_no_number_of_frames(name):
    assert probe_video(video(name)).header_num_frames is None


def test_frames_that_an_edit_list_hides_do_not_count():
    info = probe_video(video("edit_list.mp4"))
    assert (info.num_frames, info.header_num_frames) == (NUM_FRAMES - 20, NUM_FRAMES)
    assert info.packets.num_discarded > 0
    assert info.pts_seconds[0] == 0
    assert info.duration_seconds == pytest.approx((NUM_FRAMES - 20) / FPS)
    assert info.warnings == ()  # hidden is not missing


def test_a_cut_off_file_has_the_frames_that_are_there():
    info = probe_video(video("truncated.mp4"))
    assert info.header_num_frames == NUM_FRAMES
    assert 2 < info.num_frames < NUM_FRAMES
    assert "seems cut off: its header claims 60 frames, 2.4 s" in info.warnings[0]


@pytest.mark.parametrize("name", ORIENTATIONS)
def test_size_is_as_shown(name):
    info = probe_video(video(name))
    assert (info.width, info.height) == (WIDTH, HEIGHT)
    is_turned = "90" in name or "270" in name or "transposed" in name
    assert (info.coded_width, info.coded_height) == ((HEIGHT, WIDTH) if is_turned else (WIDTH, HEIGHT))
    assert info.orientation.is_mirrored == (name in {"mirrored", "upside down", "transposed", "transposed and turned"})


def test_oblong_pixels_become_square():
    info = probe_video(video("sar.mp4"))
    assert info.sample_aspect_ratio == pytest.approx(4 / 3)
    assert (info.coded_width, info.coded_height) == (WIDTH, HEIGHT)
    assert (info.width, info.height) == (round(WIDTH * 4 / 3), HEIGHT)


@pytest.mark.parametrize("ending", ["mp4", "mkv", "avi", "nut"])
def test_titles_that_are_not_utf8_stop_no_file(tmp_path, ending):
    """PyAV decodes every tag as it opens a file; until release 19 it raised UnicodeDecodeError there."""
    path = tmp_path / f"titled.{ending}"
    write_video(path, codec="mpeg4", numbers=range(4), num_b_frames=None, title="LATIN-1")
    content = path.read_bytes().replace(b"LATIN-1", b"Caf\xe9 \xff\xfe")
    assert b"Caf\xe9" in content
    path.write_bytes(content)
    info = probe_video(path)
    assert info.num_frames == 4
    assert [len(batch.positions) for batch in read_frames(info, np.arange(4), chunk_frames=4)] == [4]


def test_hdr_is_said():
    assert "HDR (PQ) and is not tone mapped" in probe_video(video("hdr.mp4")).warnings[0]


@pytest.mark.parametrize(
    ("name", "access"),
    [("normal.mkv", "seek"), ("stream.ts", "seek"), ("b_frames.avi", "count"), ("raw.h264", "count")],
)
def test_how_frames_may_be_found(name, access):
    assert probe_video(video(name)).packets.access == access


def test_open_groups_of_pictures_are_seen():
    assert probe_video(video("open_gop.mp4")).packets.has_leading_frames
    assert not probe_video(video("normal.mp4")).packets.has_leading_frames


def test_a_cover_picture_is_not_the_video():
    info = probe_video(video("cover.mp4"))
    assert (info.codec, info.width) == ("h264", WIDTH)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("empty.mp4", r"cannot open empty\.mp4: the file is empty \(0 bytes\)"),
        ("text.mp4", r"cannot open text\.mp4: it is a text file, not a video"),
        ("notes.txt", r"cannot open notes\.txt: it is a text file, not a video"),
        ("noise.mp4", r"cannot open noise\.mp4: it is not a media file that libav knows"),
        ("lfs.mp4", r"cannot open lfs\.mp4: it is a Git LFS pointer"),
        ("no_moov.mp4", r"cannot open no_moov\.mp4: it is an mp4 without its index \(moov\)"),
        ("audio_only.mp4", r"cannot decode audio_only\.mp4: no video stream found \(found: audio\)"),
        ("audio_with_cover.mp4", r"no video stream found \(found: .*a cover picture.*\)"),
        ("no_frame_decodes.mp4", r"cannot decode no_frame_decodes\.mp4: no frame of it decodes"),
    ],
)
def test_files_without_a_video_say_why_in_one_line(name, message):
    with pytest.raises(VideoError, match=message) as caught:
        probe_video(video(name))
    assert "\n" not in caught.value.message
    assert str(video(name).parent) not in caught.value.message


def test_hints_are_given_where_they_help():
    for name, hint in [("lfs.mp4", "git lfs pull"), ("no_moov.mp4", "copy or record the file again")]:
        with pytest.raises(VideoError) as caught:
            probe_video(video(name))
        assert hint in caught.value.hint


def test_missing_paths_and_folders(tmp_path):
    with pytest.raises(VideoError, match=r"cannot open gone\.mp4: no such file"):
        probe_video(tmp_path / "gone.mp4")
    with pytest.raises(VideoError, match=f"cannot open {tmp_path.name}: it is a folder"):
        probe_video(tmp_path)
    with pytest.raises(VideoError, match="no such file"):
        probe_video(video("one.mp4") / "below.mp4")


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(VideoError, match="it is not a regular file"):
        probe_video(tmp_path / "pipe")


def test_a_file_without_read_permission(tmp_path, monkeypatch):
    path = tmp_path / "locked.mp4"
    path.write_bytes(b"x")

    def refuse(self, *args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)  # chmod does not stop root, whom tests may run as
    with pytest.raises(VideoError, match=r"^cannot open locked\.mp4: no permission to read it$"):
        probe_video(path)


def test_other_system_errors_are_put_in_words_without_the_path():
    error = open_error("a.mp4", OSError(errno.EBUSY, "Device or resource busy", "/secret/a.mp4"))
    assert str(error) == "cannot open a.mp4: device or resource busy"


@pytest.mark.parametrize("name", ["10:30 clip.mp4", "-v.mp4", "%03d.mp4", "vidéo тест 視頻.mp4", "a b.mp4"])
def test_awkward_names_are_just_names(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(video("two.mp4").read_bytes())
    info = probe_video(path)
    assert (info.name, info.num_frames) == (name, 2)


def test_a_relative_path_may_begin_like_a_protocol(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("concat:a.mp4").write_bytes(video("two.mp4").read_bytes())
    assert probe_video("concat:a.mp4").num_frames == 2


@pytest.mark.parametrize("open_it", [lambda path: path.open("rb"), lambda path: io.BytesIO(path.read_bytes())])
def test_file_objects_are_read_from_their_start_and_left_as_they_were(open_it):
    path = video("normal.mp4")
    with open_it(path) as file:
        file.seek(100)
        info = probe_video(file)
        assert not file.closed
        assert file.tell() == 100
    assert info.num_frames == NUM_FRAMES
    assert info.size_bytes == path.stat().st_size
    np.testing.assert_array_equal(info.pts_seconds, probe_video(path).pts_seconds)


def test_names_of_sources():
    with video("one.mp4").open("rb") as file:
        assert source_name(file) == "one.mp4"
    assert source_name(io.BytesIO()) == "<stream>"
    stdin = io.BytesIO()
    stdin.name = "<stdin>"
    assert source_name(stdin) == "stdin"


def test_things_that_are_no_source():
    with pytest.raises(UsageError, match=r"Invalid video source \(int\)\. Expected a path or a file object"):
        probe_video(3)
    with video("text.mp4").open() as file, pytest.raises(UsageError, match="opened in binary mode"):
        probe_video(file)

    class Pipe(io.BytesIO):
        def seekable(self):
            return False

    with pytest.raises(UsageError, match="it cannot seek"):
        probe_video(Pipe(b"x"))


def test_sha256_of_paths_and_file_objects():
    path = video("normal.mp4")
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    assert file_sha256(path) == expected
    file = io.BytesIO(path.read_bytes())
    file.seek(10)
    assert file_sha256(file) == expected
    assert file.tell() == 10
    with pytest.raises(VideoError, match="no such file"):
        file_sha256(path.with_name("gone.mp4"))


def test_a_display_matrix_of_another_angle_shows_the_nearest_quarter_turn():
    def matrix(a, b, c, d):
        return np.array([a, b, 0, c, d, 0, 0, 0, 1 << 30], np.int32).tobytes()

    one, some = 65536, 20000
    assert orientation_of(matrix(one, some, -some, one)) == orientation_of(matrix(one, 0, 0, one)).__class__(
        is_exact=False
    )
    nearly = orientation_of(matrix(3, one, -one, -3))
    assert nearly.is_exact
    assert nearly == orientation_of(matrix(0, one, -one, 0))
    assert is_identity(orientation_of(matrix(2 * one, 0, 0, 2 * one)))
    assert is_identity(orientation_of(matrix(0, 0, 0, 0)))
    assert is_identity(orientation_of(b"short"))
    assert is_identity(orientation_of(None))


def test_info_and_sampling_import_neither_torch_nor_decord():
    code = (
        "import sys, evs_cli.video.info, evs_cli.video.sampling;"
        "print(sorted({'torch', 'decord', 'av', 'transformers'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
