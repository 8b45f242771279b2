"""Encoders on a CUDA device that is not there: no mix of devices, and no wait for the device inside ``embed``.

The towers that take flat patches and a grid (Qwen, GLM, ERNIE, VideoLLaMA 3) read the grid's values themselves, and
SmolVLM looks for blank images: fake tensors, which have no values, stop in transformers' own code. They are not here.
"""

import copy

import pytest
import tiny_models
import torch
from fake_cuda import fake_cuda
from tiny_language_models import language_family
from tiny_models import make_clip
from torch._subclasses.fake_tensor import DataDependentOutputException

from evs_cli.encoders.base import EncodeOptions
from evs_cli.encoders.registry import open_encoder

READS_NO_VALUES = ["internvl", "llava_next_video", "llava_onevision", "nemotron_h_omni", "video_llava"]


def encoder_of(model_type, tiny_family, tiny_model):
    if model_type in READS_NO_VALUES:
        return language_family(model_type, tiny_family).encoder
    encoder = open_encoder(str(tiny_model(model_type)))
    encoder.load("cpu", torch.float32)
    return encoder


def embedded(encoder):
    """What the encoder gives of a clip, and what its copy on the fake device does."""
    clip = make_clip(4, 84, 112)
    plan = encoder.plan(clip, EncodeOptions())
    frames = torch.randint(0, 256, (4, 3, 84, 112), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    inputs = encoder.preprocess(frames, plan)
    moved = copy.copy(encoder)
    with fake_cuda(encoder._model) as (moved._model, mode):
        fake = moved.embed({name: mode.from_tensor(value) for name, value in inputs.items()}, plan)
    return encoder.embed(inputs, plan), fake


@pytest.mark.parametrize("model_type", [*READS_NO_VALUES, *tiny_models.PLAIN_BUILDERS])
def test_embed_stays_on_the_device(model_type, tiny_family, tiny_model):
    real, fake = embedded(encoder_of(model_type, tiny_family, tiny_model))
    assert [level.shape for level in fake.levels] == [level.shape for level in real.levels]
    assert {level.device.type for level in fake.levels} == {"cuda"}
    assert (fake.extra is None) == (real.extra is None)
    if fake.extra is not None:
        assert fake.extra.shape == real.extra.shape
        assert fake.extra.device.type == "cuda"


def test_the_stand_in_finds_a_mix_of_devices_and_a_wait():
    with fake_cuda(torch.nn.Linear(2, 2)) as (model, _):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            model(torch.ones(1, 2))
        with pytest.raises(DataDependentOutputException):
            bool(model.weight.sum() > 0)
