"""The families evs knows: one line a ``model_type``, and the class behind it, imported when it is asked for."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from evs_cli.encoders.base import VideoEncoder
from evs_cli.encoders.source import ModelSource, resolve_model
from evs_cli.errors import ModelError


@dataclass(frozen=True)
class Family:
    """One family, as ``evs models`` tells it."""

    model_type: str
    """``model_type`` of its ``config.json``."""
    example: str
    """A short name or hub id of it."""
    encoder: str
    """``module:class`` under ``evs_cli.encoders``."""
    layout: str
    """Where its video tokens stand in ``input_ids``."""
    positions: str
    """Kind of ``position_ids``."""
    sampling: str
    """How it samples without flags; the checkpoint's own processor may say otherwise."""
    needs: str
    """What must be at hand."""
    verified: str
    """What the tests hold it to."""


_GENERIC = "a span a frame (generic ids)"
_TWO_FPS = "2 fps, at most 128"
_REAL, _TINY, _SAME = "real weights", "tiny checkpoint", "same loader, untested"

FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        Family("dinov2", "dinov2-small", "plain:PlainFrameEncoder", _GENERIC, "1-d", _TWO_FPS, "extra embedded", _REAL),
        Family(
            "dinov2_with_registers",
            "facebook/dinov2-with-registers-small",
            "plain:PlainFrameEncoder",
            _GENERIC,
            "1-d",
            _TWO_FPS,
            "weights",
            _TINY,
        ),
        Family("dinov3_vit", "dinov3-small", "plain:PlainFrameEncoder", _GENERIC, "1-d", _TWO_FPS, "weights", _TINY),
        Family("siglip", "siglip-base", "plain:PlainFrameEncoder", _GENERIC, "1-d", _TWO_FPS, "weights", _TINY),
        Family("siglip_vision_model", "-", "plain:PlainFrameEncoder", _GENERIC, "1-d", _TWO_FPS, "weights", _TINY),
        Family(
            "siglip2",
            "google/siglip2-base-patch16-naflex",
            "plain:PlainFrameEncoder",
            _GENERIC,
            "1-d",
            _TWO_FPS,
            "weights",
            _TINY,
        ),
        Family("siglip2_vision_model", "-", "plain:PlainFrameEncoder", _GENERIC, "1-d", _TWO_FPS, "weights", _TINY),
        Family("clip", "clip-base", "plain:PlainFrameEncoder", _GENERIC, "1-d", _TWO_FPS, "weights", _TINY),
        Family("clip_vision_model", "-", "plain:PlainFrameEncoder", _GENERIC, "1-d", _TWO_FPS, "weights", _TINY),
        Family(
            "qwen2_vl",
            "Qwen/Qwen2-VL-7B-Instruct",
            "qwen2_vl:Qwen2VLEncoder",
            "one span, no times",
            "mrope",
            "2 fps, 4 to 768",
            "weights, processor",
            _TINY,
        ),
        Family(
            "qwen2_5_vl",
            "qwen2.5-vl-7b",
            "qwen2_5_vl:Qwen25VLEncoder",
            "one span",
            "mrope",
            "2 fps, 4 to 768",
            "weights, processor",
            _TINY,
        ),
        Family(
            "qwen3_vl",
            "qwen3-vl-8b",
            "qwen3_vl:Qwen3VLEncoder",
            "a span a frame, timestamps",
            "mrope",
            "2 fps, 4 to 768",
            "weights, processor",
            _TINY,
        ),
        Family(
            "internvl",
            "OpenGVLab/InternVL3-1B-hf",
            "internvl:InternVLEncoder",
            "a span a frame, numbered (image token)",
            "1-d",
            _TWO_FPS,
            "weights, processor",
            _TINY,
        ),
        Family(
            "smolvlm",
            "HuggingFaceTB/SmolVLM2-2.2B-Instruct",
            "smolvlm:SmolVLMEncoder",
            "a span a frame, times (image token)",
            "1-d",
            "1 fps, at most 64",
            "weights, processor, num2words",
            _TINY,
        ),
        Family(
            "llava_onevision",
            "llava-hf/llava-onevision-qwen2-7b-ov-hf",
            "llava_onevision:LlavaOnevisionEncoder",
            "one span, a newline behind it",
            "1-d",
            _TWO_FPS,
            "weights, processor",
            _TINY,
        ),
        Family(
            "llava_next_video",
            "llava-hf/LLaVA-NeXT-Video-7B-hf",
            "llava_next_video:LlavaNextVideoEncoder",
            "one span",
            "1-d",
            _TWO_FPS,
            "weights, processor",
            _TINY,
        ),
        Family(
            "video_llava",
            "LanguageBind/Video-LLaVA-7B-hf",
            "video_llava:VideoLlavaEncoder",
            "one span, a CLS before each frame",
            "1-d",
            _TWO_FPS,
            "weights, processor",
            _TINY,
        ),
        Family(
            "qwen3_vl_moe",
            "Qwen/Qwen3-VL-30B-A3B-Instruct",
            "qwen3_vl:Qwen3VLEncoder",
            "a span a frame, timestamps",
            "mrope",
            "2 fps, 4 to 768",
            "weights, processor",
            _TINY,
        ),
        Family(
            "qwen3_5",
            "Qwen/Qwen3.5-27B",
            "qwen3_5:Qwen35Encoder",
            "a span a frame, timestamps",
            "mrope",
            "2 fps, 4 to 768",
            "weights, processor",
            _TINY,
        ),
        Family(
            "qwen3_5_moe",
            "Qwen/Qwen3.5-35B-A3B",
            "qwen3_5:Qwen35Encoder",
            "a span a frame, timestamps",
            "mrope",
            "2 fps, 4 to 768",
            "weights, processor",
            _TINY,
        ),
        Family(
            "glm4v",
            "zai-org/GLM-4.1V-9B-Thinking",
            "glm4v:Glm4vEncoder",
            "a span a frame, times behind",
            "mrope",
            "2 fps, at most 600",
            "weights, processor",
            _TINY,
        ),
        Family(
            "glm4v_moe",
            "zai-org/GLM-4.5V",
            "glm4v:Glm4vEncoder",
            "a span a frame, times behind",
            "mrope",
            "2 fps, at most 600",
            "weights, processor",
            _TINY,
        ),
        Family(
            "glm46v",
            "zai-org/GLM-4.6V-Flash",
            "glm4v:Glm4vEncoder",
            "a span a frame, times behind",
            "mrope",
            "6, 2 or 1 fps by length, at most 640",
            "weights, processor",
            _TINY,
        ),
        Family(
            "video_llama_3",
            "lkhl/VideoLLaMA3-2B-Image-HF",
            "video_llama_3:VideoLlama3Encoder",
            "a span a frame, times",
            "1-d",
            "2 fps, 4 to 180",
            "weights, processor",
            _TINY,
        ),
        Family(
            "ernie4_5_vl_moe",
            "baidu/ERNIE-4.5-VL-28B-A3B-PT",
            "ernie4_5_vl_moe:Ernie45VLMoeEncoder",
            "one span, times drawn on frames",
            "mrope",
            "2 fps, 16 to 180",
            "weights, processor",
            _TINY,
        ),
        Family(
            "nemotron_h_omni",
            "nemotron-omni-30b",
            "nemotron_h_omni:NemotronHOmniEncoder",
            "a span a tubelet, times",
            "none",
            _TWO_FPS,
            "weights, processor",
            _TINY,
        ),
    )
}


REFUSED: dict[str, str] = {
    "vjepa2": "V-JEPA 2 attends over all frames of a clip at once, so a token is not what its frame holds: frames "
    "cannot be encoded in chunks, nor compared one with the next",
    "videomae": "VideoMAE attends over a clip of one fixed length (16 frames), so a token is not what its frame holds: "
    "shorter clips do not fit it, longer ones cannot be encoded in chunks",
}
"""Families evs could load and does not, with the reason."""


def open_encoder(name: str, *, revision: str | None = None, trust_remote_code: bool = False) -> VideoEncoder:
    """The encoder of a checkpoint; no weights are read.

    Args:
        name: a local directory, a short name or a Hugging Face id.
        revision: branch, tag or commit on the hub.
        trust_remote_code: whether code that comes with the checkpoint may run.

    Raises:
        ModelError: no such model, or a family evs does not know or refuses.
    """
    return encoder_of(resolve_model(name, revision=revision, trust_remote_code=trust_remote_code))


def encoder_of(source: ModelSource) -> VideoEncoder:
    """The encoder of a resolved checkpoint.

    Raises:
        ModelError: a family evs does not know or refuses.
    """
    if reason := REFUSED.get(source.model_type):
        raise ModelError(f"cannot use {source.name}: {reason}.", hint="`evs models` lists the families evs knows.")
    family = FAMILIES.get(source.model_type)
    if family is None:
        raise ModelError(
            f"cannot use {source.name}: evs does not know its family {source.model_type or '(no model_type)'!r}. "
            f"Known: {', '.join(FAMILIES)}.",
            hint="`evs models` lists them; the README tells how to add one.",
        )
    module, class_name = family.encoder.split(":")
    encoder_class: type[VideoEncoder] = getattr(importlib.import_module(f"evs_cli.encoders.{module}"), class_name)
    return encoder_class(source)
