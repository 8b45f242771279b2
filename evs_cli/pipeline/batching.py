"""How many frames to encode at once, from the memory that is free."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evs_cli.encoders.runtime import Runtime
from evs_cli.pipeline.memory import free_memory_bytes

if TYPE_CHECKING:
    from evs_cli.pipeline.clip_plan import ClipPlan

MOST_BATCH_FRAMES = 16
"""Frames a batch where the user names none and memory is not short: enough to fill an accelerator."""
MOST_BATCH_FRAMES_CPU = 4
"""As above on the CPU, whose cores few frames fill: what a layer gives then stays nearer in its caches and in blocks
that malloc hands out again, where those of 16 frames come from the system page by page, each time anew."""

# Estimates, on the safe side: they settle powers of two, and a device that has less says so and gets half.
_BATCHES_IN_FLIGHT = 4  # being decoded, waiting, being preprocessed, being encoded
_PIXEL_BYTES = 3 * (1 + 4 + 4)  # a resized pixel: as it is, as floats, and as what the processor makes of them
_PATCH_VALUES = 1 << 14  # of the widest layer of a tower with 1,280 dimensions
_FREE_SHARE = 4  # a batch takes at most this part of what is free


@dataclass(frozen=True)
class BatchSize:
    """Frames a batch, and why so many."""

    frames: int
    """Sampled frames, at least 1."""
    reason: str
    """For ``-v``."""


def choose_batch_size(plan: ClipPlan, runtime: Runtime) -> BatchSize:
    """Frames a batch where the user names none: the most for the device, or a half, a quarter, … where memory is short.

    So the number is the same from run to run unless memory is short; it is in the provenance, as it may move embeddings
    within rounding.
    """
    on_host = (
        3 * plan.clip.height * plan.clip.width * _BATCHES_IN_FLIGHT + math.prod(plan.encode.frame_size) * _PIXEL_BYTES
    )
    patches = math.ceil(math.prod(plan.encode.model_grid_thw) / plan.clip.num_frames)
    on_device = patches * _PATCH_VALUES * runtime.dtype.itemsize
    needs = {"memory": (on_host, free_memory_bytes()), runtime.device: (on_device, _free_device_bytes(runtime))}
    most = MOST_BATCH_FRAMES
    if runtime.device == "cpu":
        needs = {"memory": (on_host + on_device, free_memory_bytes())}
        most = MOST_BATCH_FRAMES_CPU
    frames = most
    short = None
    for name, (need_bytes, free_bytes) in needs.items():
        while free_bytes is not None and frames > 1 and frames * need_bytes * _FREE_SHARE > free_bytes:
            frames //= 2
            short = f"{free_bytes / 1e9:.1f} GB of {name} are free"
    why = (
        f"the most, about {frames * (on_host + on_device) / 1e9:.1f} GB"
        if short is None
        else f"{most} at most, {short}"
    )
    return BatchSize(frames, f"{frames} frames a batch (auto: {why})")


def _free_device_bytes(runtime: Runtime) -> int | None:
    """Free memory of an accelerator, in bytes; None where it does not tell."""
    import torch

    device = torch.device(runtime.device)
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None
