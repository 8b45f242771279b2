"""VideoLLaMA 3 against its processor and its whole model; the common checks are in ``grid_checks``."""

import pytest
import torch
from grid_checks import GridChecks
from tiny_grid_models import grid_family
from tiny_models import DrawnClip, make_clip, own_inputs

from evs_cli.encoders.base import EncodeOptions
from evs_cli.video.sampling import SamplingDefaults


class TestVideoLlama3(GridChecks):
    model_type = "video_llama_3"
    tubelet = 1
    placeholder = "<video>"
    printed_time = r"Time (\d+\.\d)s:"
    positions = "1-d"
    pixel_limits = ("frame_min_pixels", "video_max_pixels")
    sampling = SamplingDefaults(fps=2.0, max_frames=180, min_frames=4)


class StillClip(DrawnClip):
    """Frames that are all alike, so that the processor's own pruning bites."""

    def frames(self) -> torch.Tensor:
        return super().frames()[:1].expand(self.clip.num_frames, -1, -1, -1).contiguous()


def test_the_processors_own_pruning_is_off():
    """A still clip loses all but one token a frame to it; our plan keeps them, and the whole model agrees."""
    family = grid_family("video_llama_3")
    drawn = StillClip(make_clip(4, 56, 84), 0)
    plan = family.encoder.plan(drawn.clip, EncodeOptions())
    assert plan.processing == {"use_token_compression": False}
    assert plan.token_grid_thw == (4, 2, 3)
    assert plan.total_tokens == 24
    compressed = own_inputs(family.processor, drawn, "<video>", repeat_single=False)
    assert int(compressed["video_compression_mask"].sum()) == 6 + 3 * 1
    levels = family.encoder.encode(drawn.frames(), plan).levels
    assert torch.equal(levels[0].flatten(0, 2), family.own_levels(family.own(drawn))[0])


def test_the_most_pixels_are_shared_by_all_frames_and_the_least_hold_for_each():
    encoder = grid_family("video_llama_3").encoder
    sizes = [encoder.plan(make_clip(n, 224, 224), EncodeOptions()).frame_size for n in (1, 4, 20, 80)]
    assert sizes == [(224, 224), (112, 112), (56, 56), (28, 28)]
    options = EncodeOptions(frame_min_pixels=56 * 56)
    assert encoder.plan(make_clip(5, 28, 28), options).frame_size == (56, 56)


@pytest.mark.parametrize("prompt", [None, "Who?"])
def test_frames_are_told_apart_by_their_times(prompt):
    family = grid_family("video_llama_3")
    plan = family.encoder.plan(make_clip(3, 28, 56, start=59.97), EncodeOptions(prompt=prompt))
    text = family.processor.tokenizer.decode(plan.layout.input_ids)
    video = ",".join(f"Time {t}s:<video><video>" for t in ("60.0", "60.5", "61.0"))
    assert text == (video if prompt is None else f"<|im_start|>user\n{video}Who?<|im_end|>\n<|im_start|>assistant\n")
