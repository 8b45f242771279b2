"""Every tiny vision-language checkpoint under one name, whichever table builds it."""

from __future__ import annotations

import tiny_frame_models
import tiny_grid_models
import tiny_models

_PLAIN = {"siglip2", "siglip2_vision_model"}
LANGUAGE_FAMILIES = sorted(
    {*tiny_models.VLM_BUILDERS, *tiny_grid_models.BUILDERS, *tiny_frame_models.BUILDERS} - _PLAIN
)
RECURRENT_FAMILIES = {"qwen3_5", "qwen3_5_moe", "nemotron_h_omni"}
"""A masked token still moves a recurrent state, so there is no masked forward to compare with."""


def language_family(model_type, tiny_family):
    """The checkpoint's folder, evs' encoder with weights, and the whole model; ``tiny_family`` is the fixture."""
    if model_type in tiny_models.VLM_BUILDERS:
        return tiny_family(model_type)
    if model_type in tiny_grid_models.BUILDERS:
        return tiny_grid_models.grid_family(model_type)
    return tiny_frame_models.frame_family(model_type)
