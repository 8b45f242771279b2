"""The clip that is drawn where none is given."""

import numpy as np
import torch

from evs_cli.video.drawn import FPS, HEIGHT, WIDTH, draw_clip
from evs_cli.video.info import probe_video
from evs_cli.video.reader import read_frames
from evs_cli.video.source import source_name


def test_it_is_a_video_of_the_length_asked_for():
    clip = draw_clip(2)
    info = probe_video(clip)
    assert (info.width, info.height, info.num_frames, info.codec) == (WIDTH, HEIGHT, 2 * FPS, "h264")
    assert info.duration_seconds == 2
    assert source_name(clip) == "drawn clip"


def test_no_frame_repeats_the_one_before():
    info = probe_video(draw_clip(1))
    (batch,) = read_frames(info, np.arange(FPS), chunk_frames=FPS)
    assert not any(torch.equal(*pair) for pair in zip(batch.frames[1:], batch.frames[:-1], strict=True))


def test_it_is_the_same_each_time():
    assert draw_clip(1).getvalue() == draw_clip(1).getvalue()
