"""The facts of a file as vLLM's OpenCV loader sees them, against the OpenCV that the extra ``embedded`` brings."""

import io
from fractions import Fraction

import numpy as np
import pytest
from video_files import video, write_video

from evs_cli.dialects import parse_dialect
from evs_cli.dialects.base import RefusedByServerError, ServerOptions
from evs_cli.dialects.opencv_frames import opencv_num_frames
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


def assert_seen_alike(path):
    source = parse_dialect("vllm").rules.source_of(probe_video(path), ServerOptions())
    frames, fps, *size = believed(path)
    assert (source.num_frames, [source.width, source.height]) == (frames, size)
    assert source.average_fps == pytest.approx(fps, rel=1e-12)


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
