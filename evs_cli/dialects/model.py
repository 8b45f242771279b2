"""What the rules need of a checkpoint, read off its configuration and its processor; no weight is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evs_cli.dialects.base import NemotronModel, QwenModel, ServedModel
from evs_cli.encoders.base import VideoEncoder
from evs_cli.encoders.vlm import VisionLanguageEncoder
from evs_cli.errors import UsageError

RULES: Mapping[str, str] = {
    "qwen2_5_vl": "qwen2_5_vl",
    "qwen3_vl": "qwen3_vl",
    "qwen3_vl_moe": "qwen3_vl",
    "qwen3_5": "qwen3_vl",
    "qwen3_5_moe": "qwen3_vl",
    "nemotron_h_omni": "nemotron",
    "NemotronH_Nano_VL_V2": "nemotron",
}
"""Whose rules hold for a ``model_type``."""


def served_model(encoder: VideoEncoder) -> tuple[str, ServedModel]:
    """The rules of a checkpoint's family by name, and what they need of it.

    Raises:
        UsageError: a family whose serving is not written down here.
        ModelError: a processor that cannot be loaded.
    """
    rules = RULES.get(encoder.source.model_type)
    if rules is None or not isinstance(encoder, VisionLanguageEncoder):
        raise UsageError(
            f"--dialect has no rules for {encoder.source.name} ({encoder.source.model_type}): how servers take its "
            f"videos is not written down. Expected --dialect evs, or one of {', '.join(RULES)}."
        )
    return rules, _nemotron(encoder) if rules == "nemotron" else _qwen(encoder, tells_times=rules == "qwen3_vl")


def _qwen(encoder: VisionLanguageEncoder, *, tells_times: bool) -> QwenModel:
    video, images = encoder.processor.video_processor, encoder.processor.image_processor
    config, tokenizer = encoder.source.config, encoder.processor.tokenizer
    start, end = tokenizer.convert_ids_to_tokens([config["vision_start_token_id"], config["vision_end_token_id"]])
    return QwenModel(
        patch_size=int(video.patch_size),
        merge_size=int(video.merge_size),
        temporal_patch_size=int(video.temporal_patch_size),
        min_pixels=int(video.size["shortest_edge"]),
        max_pixels=int(video.size["longest_edge"]),
        image_max_pixels=int(images.size["longest_edge"]),
        fps=None if video.fps is None else float(video.fps),
        min_frames=int(video.min_frames),
        max_frames=int(video.max_frames),
        do_sample_frames=bool(video.do_sample_frames),
        cap_pixels_per_frame=bool(video.cap_pixels_per_frame),
        max_video_tokens=int(video.max_video_tokens),
        tells_times=tells_times,
        start=str(start),
        end=str(end),
        placeholder=encoder.placeholder_token,
    )


def _nemotron(encoder: VisionLanguageEncoder) -> NemotronModel:
    config = encoder.source.config
    video, vision = encoder.processor.video_processor, config.get("vision_config") or {}
    target = vision.get("video_target_num_patches") or getattr(video, "video_target_num_patches", None)
    return NemotronModel(
        patch_size=_one_side(config.get("patch_size") or vision.get("patch_size") or video.patch_size),
        merge_size=round(1 / float(config.get("downsample_ratio") or video.downsample_ratio)),
        image_size=_one_side(config.get("force_image_size") or vision.get("image_size") or 512),
        temporal_patch_size=int(vision.get("video_temporal_patch_size") or encoder.temporal_patch_size),
        target_num_patches=None if target is None else int(target),
        keeps_aspect=bool(
            vision.get("video_maintain_aspect_ratio", getattr(video, "video_maintain_aspect_ratio", False))
        ),
        config_pruning_rate=encoder.default_pruning_rate or 0.0,
        start=str(encoder.processor.image_start_token),
        end=str(encoder.processor.image_end_token),
        placeholder=encoder.placeholder_token,
    )


def _one_side(size: Any) -> int:
    """One side in pixels, of configurations that give one or two."""
    return int(size[0] if isinstance(size, (list, tuple)) else size)
