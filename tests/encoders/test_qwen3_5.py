"""Qwen3.5, dense and with experts, against its processor and its whole model; common checks in ``grid_checks``."""

import numpy as np
import pytest
import torch
from grid_checks import GridChecks, Qwen3Prompt
from tiny_grid_models import grid_family
from tiny_models import DrawnClip, make_clip

from evs_cli.encoders.base import EncodeOptions


class TestQwen35(Qwen3Prompt, GridChecks):
    model_type = "qwen3_5"
    is_recurrent = True


class TestQwen35Moe(Qwen3Prompt, GridChecks):
    model_type = "qwen3_5_moe"
    is_recurrent = True


@pytest.mark.parametrize("model_type", ["qwen3_5", "qwen3_5_moe"])
def test_positions_matter_to_the_full_attention_layers(model_type):
    """Although most layers are recurrent: that is why positions are kept."""
    family = grid_family(model_type)
    drawn = DrawnClip(make_clip(6, 96, 128), 0)
    inputs = family.own(drawn, "What moves?")
    positions = family.encoder.position_ids(family.encoder.plan(drawn.clip, EncodeOptions(prompt="What moves?")))
    counted = torch.arange(positions.shape[1]).expand(3, -1)
    with torch.inference_mode():
        plain, ours, other = (
            family.whole(**inputs, **more).logits
            for more in ({}, {"position_ids": positions[:, None]}, {"position_ids": counted[:, None]})
        )
    assert torch.equal(plain, ours)
    assert not torch.allclose(plain, other, atol=1e-2)


@pytest.mark.parametrize("model_type", ["qwen3_5", "qwen3_5_moe"])
def test_the_outer_marks_stand_around_all_frames(model_type):
    family = grid_family(model_type)
    plan = family.encoder.plan(make_clip(5, 64, 64, start=9.0), EncodeOptions())
    text = family.processor.tokenizer.decode(plan.layout.input_ids)
    frame = "<|vision_start|>" + 4 * "<|video_pad|>" + "<|vision_end|>"
    assert text == "<|vision_start|>" + "".join(f"<{t} seconds>{frame}" for t in ("9.2", "10.2", "11.0")) + (
        "<|vision_end|>"
    )
    np.testing.assert_array_equal(plan.prompt_seconds, [9.2, 10.2, 11.0])
