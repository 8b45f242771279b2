"""The facts of a file as torchcodec counts them: by hand, and against torchcodec where it is installed."""

from fractions import Fraction

import numpy as np
import pytest
from drawn_videos import draw_video
from video_files import VFR_TICKS, video, write_video

from evs_cli.dialects import parse_dialect
from evs_cli.dialects.base import RefusedByServerError, ServerOptions
from evs_cli.dialects.torchcodec_frames import torchcodec_facts
from evs_cli.video.info import probe_video

AWKWARD = ["b_frames.avi", "stream.ts", "live.mkv", "start5.mkv", "edit_list.mp4", "anim.gif", "vp8.webm"]


def test_the_rate_is_frames_over_the_time_from_first_to_last_end():
    """12 frames from 0 to 4.5 s, the last one a 25th of a second long, as the stream's rate has it."""
    info = probe_video(video("vfr.mp4"))
    facts = torchcodec_facts(info)
    assert facts.num_frames == len(VFR_TICKS) == 12
    assert facts.duration_seconds == 4.54
    assert facts.average_fps == 12 / 4.54
    source = parse_dialect("sglang").rules.source_of(info, ServerOptions())
    assert (source.num_frames, source.average_fps) == (12, 12 / 4.54)


def test_a_time_that_the_file_does_not_have_is_that_of_decoding(tmp_path):
    """An AVI stores no pts. PyAV makes them up, a frame late where there are B-frames; torchcodec goes by dts."""
    path = tmp_path / "b.avi"
    write_video(path, numbers=range(22), codec="mpeg4", num_b_frames=2)
    stored = probe_video(path).packets.stored
    assert not stored.has_all_pts
    assert (stored.begin_ticks, stored.end_ticks) == (0, 22)
    assert torchcodec_facts(probe_video(path)).average_fps == 25.0


def test_the_order_of_the_operations_settles_the_last_bit(tmp_path):
    """29.97 a second from 5 s on: each end is made seconds before they are subtracted."""
    path = tmp_path / "late.mkv"
    rate = Fraction(30000, 1001)
    write_video(path, numbers=range(31), time_base=1 / rate, packet_shift=7, options={"preset": "ultrafast"})
    stored = probe_video(path).packets.stored
    assert probe_video(path).packets.time_base == Fraction(1, 1000)
    expected = 31 / (stored.end_ticks * 1 / 1000 - stored.begin_ticks * 1 / 1000)
    assert torchcodec_facts(probe_video(path)).average_fps == expected


def test_a_file_without_times_is_refused_by_the_plan():
    for dialect, options in (("sglang", {}), ("vllm", {"backend": "torchcodec"})):
        rules = parse_dialect(dialect).rules
        with pytest.raises(RefusedByServerError, match="torchcodec opens no file whose packets have no time"):
            rules.source_of(probe_video(video("raw.h264")), ServerOptions(media_io=options))


@pytest.fixture(scope="module")
def decoder_class():
    """``VideoDecoder``, under the libav that PyAV brings: another release of it may give packets other durations."""
    import av

    try:
        import torchcodec
        from torchcodec.decoders import VideoDecoder
    except (ImportError, OSError, RuntimeError) as error:
        pytest.skip(f"torchcodec is not installed, or finds no FFmpeg: {str(error).splitlines()[0]}")
    # libavcodec 58 to 62 are FFmpeg 4 to 8
    ours = av.library_versions["libavcodec"][0] - 54
    if torchcodec.ffmpeg_major_version != ours:
        pytest.skip(f"torchcodec runs on FFmpeg {torchcodec.ffmpeg_major_version}, PyAV on {ours}")
    return VideoDecoder


def test_torchcodec_opens_no_file_without_times(decoder_class):
    with pytest.raises(RuntimeError, match="does not support seeking"):
        decoder_class(str(video("raw.h264")))


def assert_counted_alike(path, decoder_class, words=None):
    info = probe_video(path)
    facts, theirs = torchcodec_facts(info), decoder_class(str(path)).metadata
    assert (facts.num_frames, facts.average_fps) == (theirs.num_frames, theirs.average_fps), words
    assert facts.duration_seconds == theirs.duration_seconds, words


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_files_against_torchcodec(decoder_class, name):
    assert_counted_alike(video(name), decoder_class)


@pytest.mark.parametrize("seed", range(40))
def test_drawn_files_against_torchcodec(decoder_class, tmp_path, seed):
    drawn = draw_video(tmp_path, seed)
    assert_counted_alike(drawn.path, decoder_class, drawn.words)


def test_drawn_rates_are_of_many_kinds(tmp_path):
    """The draw is worth its name: even and uneven files, and times that do not begin at 0."""
    facts = [torchcodec_facts(probe_video(draw_video(tmp_path, seed).path)) for seed in range(12)]
    assert len({round(fact.average_fps, 3) for fact in facts}) > 5
    assert np.all([fact.num_frames >= 1 for fact in facts])
