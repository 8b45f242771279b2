"""The facts of a file as vLLM's OpenCV loader sees them, against the OpenCV that the extra ``embedded`` brings."""

import io
from fractions import Fraction

import av
import numpy as np
import pytest
from drawn_videos import draw_video
from video_files import cut, damage, draw, video, write_video

from evs_cli.dialects import parse_dialect
from evs_cli.dialects.base import RefusedByServerError, ServerOptions
from evs_cli.dialects.opencv_frames import opencv_num_frames, opencv_reads
from evs_cli.errors import VideoError
from evs_cli.pipeline.request import make_request
from evs_cli.pipeline.session import Session
from evs_cli.video.info import probe_video

cv2 = pytest.importorskip("cv2", reason="the extra `embedded` brings OpenCV, and it is not installed")

VP8 = {"codec": "libvpx", "options": {"cpu-used": "8", "deadline": "realtime"}, "num_b_frames": None}
AWKWARD = [
    *("normal.mp4", "normal.mkv", "vfr.mp4", "hevc10.mp4", "open_gop.mp4", "sar.mp4", "start5.mkv", "edit_list.mp4"),
    *("two.mp4", "odd444.mp4", "anim.gif", "vp8.webm", "vp9.webm", "b_frames.avi", "raw.h264", "stream.ts"),
    *("live.mkv", "cover.mp4", "late.ts", "corrupt.mp4", "corrupt.avi"),
]


def opened(path, parameters=()):
    return cv2.VideoCapture(io.BytesIO(path.read_bytes()), cv2.CAP_FFMPEG, list(parameters))


def believed(path):
    """(frames, rate, width, height) as vLLM 0.33 asks OpenCV for them, restated."""
    capture = opened(path)
    claimed, fps = int(capture.get(cv2.CAP_PROP_FRAME_COUNT)), capture.get(cv2.CAP_PROP_FPS)
    size = int(capture.get(cv2.CAP_PROP_FRAME_WIDTH)), int(capture.get(cv2.CAP_PROP_FRAME_HEIGHT))
    if claimed <= 0:
        packets, claimed = opened(path, (cv2.CAP_PROP_FORMAT, -1)), 0
        while packets.grab():
            claimed += 1
    elif capture.set(cv2.CAP_PROP_POS_AVI_RATIO, 1.0):
        position = int(capture.get(cv2.CAP_PROP_POS_FRAMES))
        if not capture.grab() and 0 < position < claimed - 1:
            claimed = position
    return claimed, fps, *size


def assert_seen_alike(path, words=None):
    source = parse_dialect("vllm").rules.source_of(probe_video(path, choice="first"), ServerOptions())
    frames, fps, *size = believed(path)
    assert (source.num_frames, [source.width, source.height]) == (frames, size), words
    assert source.average_fps == pytest.approx(fps, rel=1e-12), words


def grabbed(path, count):
    """Whether each of ``count`` grabs in a row gives a frame, as vLLM's loader goes through a file."""
    capture = opened(path)
    return [capture.grab() for _ in range(count)]


def assert_read_alike(path, words=None):
    info = probe_video(path, choice="first")
    total = opencv_num_frames(info, decodes=True)
    assert total == believed(path)[0], words
    reads = opencv_reads(info, total)
    found = [index >= 0 for index in reads.tolist()] + [False] * (total - len(reads))
    assert found == grabbed(path, total), words


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_files(name):
    assert_seen_alike(video(name))


@pytest.mark.parametrize("extension", ["mkv", "webm", "mp4", "avi"])
@pytest.mark.parametrize("seed", range(10))
def test_drawn_files(tmp_path, extension, seed):
    """Frames at uneven times, where a position is no count: it is made of the time of the key frame before the end."""
    random = np.random.default_rng([seed, ord(extension[-1])])
    count = int(random.integers(20, 150))
    gaps = random.choice([1, 2, 3, 7, 40], size=count) * int(random.choice([10, 33, 40]))
    gaps = np.sort(gaps)[:: int(random.choice([1, -1]))] if seed % 3 == 0 else gaps
    path = tmp_path / f"drawn.{extension}"
    timing = {"ticks": [0, *np.cumsum(gaps)[:-1].tolist()], "time_base": Fraction(1, 1000)}
    write_video(
        path,
        numbers=[number % 256 for number in range(count)],
        key_interval=int(random.choice([5, 12, 30, 500])),
        **(VP8 if extension == "webm" else {"options": {"preset": "ultrafast", "bf": "2"}}),
        **({} if extension == "avi" else timing),
    )
    assert_seen_alike(path)


def test_a_position_is_no_count_where_frames_are_uneven(tmp_path):
    """A video of 40 frames: 20 in the first two seconds, then one a second."""
    path = tmp_path / "uneven.webm"
    ticks = [*range(0, 2000, 100), *range(2000, 22_000, 1000)]
    write_video(path, numbers=range(40), ticks=ticks, time_base=Fraction(1, 1000), key_interval=5, **VP8)
    info = probe_video(path)
    assert info.num_frames == 40
    assert opencv_num_frames(info) > 400
    assert_seen_alike(path)


@pytest.mark.parametrize("seed", range(40))
def test_drawn_containers(tmp_path, seed):
    """Codecs, rates, B-frames, edit lists, several streams; all of an undamaged file is read, in order."""
    drawn = draw_video(tmp_path, seed)
    assert_seen_alike(drawn.path, drawn.words)
    info = probe_video(drawn.path, choice="first")
    np.testing.assert_array_equal(opencv_reads(info, info.num_frames + 3), np.arange(info.num_frames))
    assert grabbed(drawn.path, info.num_frames + 3) == [True] * info.num_frames + [False] * 3


# Of 460 drawn files, those that a count by packets alone got wrong: each is a kind of its own.
@pytest.mark.parametrize("seed", [107, 115, 131, 201, 237, 296, 356, 383])
def test_drawn_files_that_packets_alone_do_not_tell(tmp_path, seed):
    drawn = draw_video(tmp_path, seed)
    assert_seen_alike(drawn.path, drawn.words)


def two_streams(path):
    """An mkv of a small stream of 30 frames at 10 a second, and a large one of 50 at 25."""
    with av.open(str(path), "w") as output:
        packets = []
        for size, rate, count in (((64, 48), 10, 30), ((160, 96), 25, 50)):
            stream = output.add_stream("libx264", rate=rate, options={"preset": "ultrafast"})
            stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
            for number in range(count):
                frame = av.VideoFrame.from_ndarray(draw(number, *size), "rgb24")
                frame.pts, frame.time_base = number, Fraction(1, rate)
                packets += stream.encode(frame)
            packets += stream.encode(None)
        output.mux(sorted(packets, key=lambda packet: float(packet.dts * packet.time_base)))


def test_the_first_of_several_streams(tmp_path, tiny_model):
    """OpenCV takes the first, SGLang and transformers the one that a player shows."""
    path = tmp_path / "two.mkv"
    two_streams(path)
    assert_seen_alike(path)
    shapes = {}
    for dialect in ("vllm", "sglang", "evs"):
        plan = Session(make_request(model=str(tiny_model("qwen3_vl")), dialect=dialect)).plan(path)
        shapes[dialect] = (plan.video.num_frames, plan.video.width, plan.video.height)
    assert shapes == {"vllm": (30, 64, 48), "sglang": (50, 160, 96), "evs": (50, 160, 96)}
    kwargs = '{"backend": "torchcodec"}'
    served = make_request(model=str(tiny_model("qwen3_vl")), dialect="vllm", media_io_kwargs=f'{{"video": {kwargs}}}')
    assert Session(served).plan(path).video.num_frames == 50


@pytest.mark.parametrize("seed", range(30))
def test_damaged_files_are_read_alike(tmp_path, seed):
    """A cut end, or noise over some bytes: grabs fail in the same places, and the end is the same."""
    random = np.random.default_rng([4, seed])
    whole = draw_video(tmp_path, int(random.integers(100)))
    path = tmp_path / f"damaged{whole.path.suffix}"
    if seed % 3 == 0:
        cut(path, whole.path, share=float(random.uniform(0.5, 0.97)))
    else:
        start = float(random.uniform(0.2, 0.85))
        damage(path, whole.path, start=start, stop=start + float(random.uniform(0.01, 0.1)))
    try:
        probe_video(path, choice="first")
    except VideoError:  # nothing is left of it
        assert not any(grabbed(path, 200))
        return
    assert_read_alike(path, whole.words)


def test_a_codec_that_opencv_does_not_decode_is_refused(evs, tiny_model):
    path = video("av1.mp4")
    assert not opened(path).grab()
    with pytest.raises(RefusedByServerError, match="decodes no AV1"):
        parse_dialect("vllm").rules.source_of(probe_video(path), ServerOptions())
    other = ServerOptions(media_io={"backend": "torchcodec"})
    assert parse_dialect("vllm").rules.source_of(probe_video(path), other).num_frames == 20
    code, out, err = evs("plan", path, "--model", tiny_model("qwen3_vl"), "--dialect", "all")
    assert (code, "decodes no AV1" in err) == (0, True)
    assert "refused" in out
