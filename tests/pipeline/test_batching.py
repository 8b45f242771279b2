"""Frames a batch: the most, or what a quarter of the free memory holds."""

import pytest
import torch

from evs_cli.encoders.base import Clip, EncodeOptions
from evs_cli.encoders.registry import open_encoder
from evs_cli.encoders.runtime import Runtime
from evs_cli.pipeline import batching
from evs_cli.pipeline.batching import MOST_BATCH_FRAMES, MOST_BATCH_FRAMES_CPU, choose_batch_size
from evs_cli.pipeline.clip_plan import ClipPlan

CPU = Runtime("cpu", torch.float32, "")
CUDA = Runtime("cuda", torch.bfloat16, "")


def plan(height, width, *, num_frames=100):
    """The plan of a clip for DINOv2 at 224 pixels; the file and the sampling play no part."""
    clip = Clip(height, width, torch.arange(num_frames).numpy() / 2, num_frames / 2)
    return ClipPlan(None, None, None, None, clip, open_encoder("dinov2-small").plan(clip, EncodeOptions()))


@pytest.fixture
def free(monkeypatch):
    """``free(n)``: pretend that n bytes of memory are free."""
    return lambda size: monkeypatch.setattr(batching, "free_memory_bytes", lambda: size)


@pytest.fixture
def device_free(monkeypatch):
    """``device_free(n)``: pretend that a CUDA device has n bytes free."""
    return lambda size: monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (size, 2 * size))


def test_the_most_where_memory_is_not_short(free, device_free):
    device_free(10**12)
    for size in (10**10, 10**13, None):
        free(size)
        chosen = choose_batch_size(plan(720, 1280), CPU)
        assert chosen.frames == MOST_BATCH_FRAMES_CPU == 4
        assert chosen.reason.startswith("4 frames a batch (auto: the most, about 0.")
        assert choose_batch_size(plan(720, 1280), CUDA).frames == MOST_BATCH_FRAMES == 16


def test_halves_where_it_is(free):
    """448 patches of 64 KiB are 29.4 MB a frame, and four pictures of 1280 x 720 another 11.1 MB."""
    sizes = []
    for size in (2.8e9, 7e8, 6e8, 3e8, 1e8, 1):
        free(int(size))
        sizes.append(choose_batch_size(plan(720, 1280), CPU).frames)
    assert sizes == [4, 4, 2, 1, 1, 1]
    free(int(6e8))
    assert (
        choose_batch_size(plan(720, 1280), CPU).reason
        == "2 frames a batch (auto: 4 at most, 0.6 GB of memory are free)"
    )


def test_large_pictures_and_large_grids_count(free):
    free(int(7e8))
    assert choose_batch_size(plan(4320, 7680), CPU).frames < 2
    free(int(6e8))
    assert choose_batch_size(plan(720, 1280), Runtime("cpu", torch.bfloat16, "")).frames == 4


def test_a_device_has_memory_of_its_own(free, device_free):
    free(10**12)
    device_free(4 * 10**8)
    chosen = choose_batch_size(plan(720, 1280), CUDA)
    assert chosen.frames == 4
    assert "0.4 GB of cuda are free" in chosen.reason
