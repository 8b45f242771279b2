"""Reads what the server rules need from a checkpoint's configuration and processor. No weight is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from evs_cli.dialects.base import GlmModel, InternVLModel, NemotronModel, QwenModel, ServedModel
from evs_cli.encoders.base import VideoEncoder
from evs_cli.encoders.frame_vlm import FrameVideoEncoder
from evs_cli.encoders.source import ModelSource, checkpoint_file, read_json
from evs_cli.encoders.vlm import VisionLanguageEncoder
from evs_cli.errors import UsageError

RULES: Mapping[str, str] = {
    "qwen2_vl": "qwen2_vl",
    "qwen2_5_vl": "qwen2_5_vl",
    "qwen3_vl": "qwen3_vl",
    "qwen3_vl_moe": "qwen3_vl",
    "qwen3_5": "qwen3_vl",
    "qwen3_5_moe": "qwen3_vl",
    "nemotron_h_omni": "nemotron",
    "NemotronH_Nano_VL_V2": "nemotron",
    "glm4v": "glm",
    "glm4v_moe": "glm",
    "glm46v": "glm",
    "internvl": "internvl",
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
    return rules, _READERS[rules](encoder)


def _qwen(encoder: VisionLanguageEncoder, *, tells_times: bool) -> QwenModel:
    video, images = encoder.plan_processor.video_processor, encoder.plan_processor.image_processor
    config, tokenizer = encoder.source.config, encoder.plan_processor.tokenizer
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
    video, vision = encoder.plan_processor.video_processor, config.get("vision_config") or {}
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
        start=str(encoder.plan_processor.image_start_token),
        end=str(encoder.plan_processor.image_end_token),
        placeholder=encoder.placeholder_token,
    )


def _glm(encoder: VisionLanguageEncoder) -> GlmModel:
    video, images = encoder.plan_processor.video_processor, encoder.plan_processor.image_processor
    start, end = encoder.video_markup.split(encoder.plan_processor.video_token)
    times = encoder.plan_processor.tokenizer(
        [f"{second:.1f} seconds" for second in range(300)], add_special_tokens=False
    )["input_ids"]
    return GlmModel(
        architecture=str((encoder.source.config.get("architectures") or [""])[0]),
        patch_size=int(video.patch_size),
        merge_size=int(video.merge_size),
        temporal_patch_size=int(video.temporal_patch_size),
        min_pixels=int(video.size["shortest_edge"]),
        max_pixels=int(video.size["longest_edge"]),
        image_max_pixels=int(images.size["longest_edge"]),
        fps=float(video.fps),
        max_seconds=float(video.max_duration),
        samples_by_length=encoder.video_processor_class == "Glm46VVideoProcessor",
        vllm_loader=_vllm_loader(encoder.source),
        do_sample_frames=bool(video.do_sample_frames),
        max_time_tokens=max(len(ids) for ids in times),
        start=start,
        end=end,
        frame_start="<|begin_of_image|>",  # the processors write these two out
        frame_end="<|end_of_image|>",
        placeholder=encoder.placeholder_token,
    )


def _vllm_loader(source: ModelSource) -> Literal["fps", "length", "uniform"]:
    """vLLM looks for the processor's name in these files, then goes by the model type; it does not look in transformers
    5's processor_config.json (``transformers_utils/processor.py``).
    """
    name = None
    for file in ("video_preprocessor_config.json", "preprocessor_config.json"):
        path = checkpoint_file(source, file)
        name = name or (None if path is None else read_json(path).get("video_processor_type"))
    name = name or {"glm4v": "Glm4vVideoProcessor", "glm46v": "Glm46VVideoProcessor"}.get(source.model_type)
    if name == "Glm46VVideoProcessor":
        return "length"
    return "fps" if name == "Glm4vVideoProcessor" else "uniform"


def _internvl(encoder: VisionLanguageEncoder) -> InternVLModel:
    assert isinstance(encoder, FrameVideoEncoder)
    processor = encoder.plan_processor
    video, images = processor.video_processor, processor.image_processor
    patch = encoder.config.vision_config.patch_size
    tiles = int(images.max_patches) if images.crop_to_patches else 1
    return InternVLModel(
        patch_size=(patch, patch) if isinstance(patch, int) else (int(patch[0]), int(patch[1])),
        merge_size=encoder.spatial_merge_size,
        frame_size=(int(video.size["height"]), int(video.size["width"])),
        image_size=(int(images.size["height"]), int(images.size["width"])),
        image_tiles=tiles + 1 if tiles > 1 else 1,
        tokens_per_tile=int(processor.image_seq_length),
        num_frames=None if video.num_frames is None else int(video.num_frames),
        fps=None if video.fps is None else float(video.fps),
        initial_shift=video.initial_shift,
        do_sample_frames=bool(video.do_sample_frames),
        start=str(processor.start_image_token),
        end=str(processor.end_image_token),
        placeholder=encoder.placeholder_token,
        video=str(processor.video_token),
    )


_READERS: Mapping[str, Callable[[VisionLanguageEncoder], ServedModel]] = {
    "qwen2_vl": lambda encoder: _qwen(encoder, tells_times=False),
    "qwen2_5_vl": lambda encoder: _qwen(encoder, tells_times=False),
    "qwen3_vl": lambda encoder: _qwen(encoder, tells_times=True),
    "nemotron": _nemotron,
    "glm": _glm,
    "internvl": _internvl,
}


def _one_side(size: Any) -> int:
    """One side in pixels, of configurations that give one or two."""
    return int(size[0] if isinstance(size, (list, tuple)) else size)
