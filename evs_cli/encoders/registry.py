"""The families evs knows: one line a ``model_type``, and the class behind it, imported when it is asked for."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from evs_cli.core.releases import require_transformers
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
    min_transformers: str | None = None
    """First release of transformers that evs can encode it with; None: any that evs allows."""

    def require_release(self, name: str) -> None:
        """Raise ``ModelError`` where the installed transformers is too old for the checkpoint ``name`` of it."""
        if self.min_transformers is not None:
            reason = f"an older transformers has no processor for {self.model_type} that evs can plan with"
            require_transformers(self.min_transformers, f"use {name}", reason)


def _plain(model_type: str, example: str, needs: str = "weights", verified: str = "tiny checkpoint") -> Family:
    """A plain frame encoder."""
    layout, sampling = "a span a frame (generic ids)", "2 fps, at most 128"
    return Family(model_type, example, "plain:PlainFrameEncoder", layout, "1-d", sampling, needs, verified)


def _language(
    model_type: str,
    example: str,
    encoder: str,
    layout: str,
    positions: str,
    sampling: str,
    needs: str = "weights, processor",
    min_transformers: str | None = None,
) -> Family:
    """A vision-language family."""
    verified = "tiny checkpoint"
    return Family(model_type, example, encoder, layout, positions, sampling, needs, verified, min_transformers)


# fmt: off
# ruff: noqa: E501 - one line a family
FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        _plain("dinov2", "dinov2-small", needs="extra embedded", verified="real weights"),
        _plain("dinov2_with_registers", "facebook/dinov2-with-registers-small"),
        _plain("dinov3_vit", "dinov3-small"),
        _plain("siglip", "siglip-base"),
        _plain("siglip_vision_model", "-"),
        _plain("siglip2", "google/siglip2-base-patch16-naflex"),
        _plain("siglip2_vision_model", "-"),
        _plain("clip", "clip-base"),
        _plain("clip_vision_model", "-"),
        _language("qwen2_vl", "Qwen/Qwen2-VL-7B-Instruct", "qwen2_vl:Qwen2VLEncoder", "one span, no times", "mrope", "2 fps, 4 to 768"),
        _language("qwen2_5_vl", "qwen2.5-vl-7b", "qwen2_5_vl:Qwen25VLEncoder", "one span", "mrope", "2 fps, 4 to 768"),
        _language("qwen3_vl", "qwen3-vl-8b", "qwen3_vl:Qwen3VLEncoder", "a span a frame, timestamps", "mrope", "2 fps, 4 to 768"),
        _language("internvl", "OpenGVLab/InternVL3-1B-hf", "internvl:InternVLEncoder", "a span a frame, numbered (image token)", "1-d", "2 fps, at most 128"),
        _language("smolvlm", "HuggingFaceTB/SmolVLM2-2.2B-Instruct", "smolvlm:SmolVLMEncoder", "a span a frame, times (image token)", "1-d", "1 fps, at most 64", needs="weights, processor, num2words"),
        _language("llava_onevision", "llava-hf/llava-onevision-qwen2-7b-ov-hf", "llava_onevision:LlavaOnevisionEncoder", "one span, a newline behind it", "1-d", "2 fps, at most 128"),
        _language("llava_next_video", "llava-hf/LLaVA-NeXT-Video-7B-hf", "llava_next_video:LlavaNextVideoEncoder", "one span", "1-d", "2 fps, at most 128"),
        _language("video_llava", "LanguageBind/Video-LLaVA-7B-hf", "video_llava:VideoLlavaEncoder", "one span, a CLS before each frame", "1-d", "2 fps, at most 128"),
        _language("qwen3_vl_moe", "Qwen/Qwen3-VL-30B-A3B-Instruct", "qwen3_vl:Qwen3VLEncoder", "a span a frame, timestamps", "mrope", "2 fps, 4 to 768"),
        _language("qwen3_5", "Qwen/Qwen3.5-27B", "qwen3_5:Qwen35Encoder", "a span a frame, timestamps", "mrope", "2 fps, 4 to 768"),
        _language("qwen3_5_moe", "Qwen/Qwen3.5-35B-A3B", "qwen3_5:Qwen35Encoder", "a span a frame, timestamps", "mrope", "2 fps, 4 to 768"),
        _language("glm4v", "zai-org/GLM-4.1V-9B-Thinking", "glm4v:Glm4vEncoder", "a span a frame, times behind", "mrope", "2 fps, at most 600"),
        _language("glm4v_moe", "zai-org/GLM-4.5V", "glm4v:Glm4vEncoder", "a span a frame, times behind", "mrope", "2 fps, at most 600"),
        _language("glm46v", "zai-org/GLM-4.6V-Flash", "glm4v:Glm4vEncoder", "a span a frame, times behind", "mrope", "6, 2 or 1 fps by length, at most 640"),
        _language("video_llama_3", "lkhl/VideoLLaMA3-2B-Image-HF", "video_llama_3:VideoLlama3Encoder", "a span a frame, times", "1-d", "2 fps, 4 to 180"),
        _language("ernie4_5_vl_moe", "baidu/ERNIE-4.5-VL-28B-A3B-PT", "ernie4_5_vl_moe:Ernie45VLMoeEncoder", "one span, times drawn on frames", "mrope", "2 fps, 16 to 180"),
        _language("nemotron_h_omni", "nemotron-omni-30b", "nemotron_h_omni:NemotronHOmniEncoder", "a span a tubelet, times", "none", "2 fps, at most 128", needs="weights, processor, transformers 5.24", min_transformers="5.24"),
        Family("NemotronH_Nano_VL_V2", "nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16", "nemotron_nano_vl:NemotronNanoVLEncoder", "a span a frame, times", "none", "by the server (--dialect)", "config, tokenizer", "counts alone"),
    )
}
"""The families evs knows, by ``model_type``."""
# fmt: on

REFUSED: dict[str, str] = {
    "vjepa2": "V-JEPA 2 attends over all frames of a clip at once, so a token is not what its frame holds: frames "
    "cannot be encoded in chunks, nor compared one with the next",
    "videomae": "VideoMAE attends over a clip of one fixed length (16 frames), so a token is not what its frame holds: "
    "shorter clips do not fit it, longer ones cannot be encoded in chunks",
}
"""Families evs could load and does not, with the reason."""


def open_encoder(
    name: str, *, revision: str | None = None, trust_remote_code: bool = False, counts_alone: bool = False
) -> VideoEncoder:
    """The encoder of a checkpoint; no weights are read.

    Args:
        name: a local directory, a short name or a Hugging Face id.
        revision: branch, tag or commit on the hub.
        trust_remote_code: whether code that comes with the checkpoint may run.
        counts_alone: whether it will only plan; see ``resolve_model``.

    Raises:
        ModelError: no such model, or a family evs does not know or refuses.
    """
    encoder = encoder_of(
        resolve_model(name, revision=revision, trust_remote_code=trust_remote_code, counts_alone=counts_alone)
    )
    encoder.counts_alone = counts_alone
    return encoder


def encoder_of(source: ModelSource) -> VideoEncoder:
    """The encoder of a resolved checkpoint.

    Raises:
        ModelError: a family evs does not know or refuses, or one that needs a newer transformers.
    """
    if reason := REFUSED.get(source.model_type):
        raise ModelError(f"cannot use {source.name}: {reason}.", hint="`evs models` lists the families evs knows.")
    family = FAMILIES.get(source.model_type)
    if family is None:
        raise ModelError(
            f"cannot use {source.name}: evs does not know its family {source.model_type or '(no model_type)'!r}. "
            f"Known: {', '.join(FAMILIES)}.",
            hint="`evs models` lists them; samples/guides/adding-a-family.md tells how to add one.",
        )
    family.require_release(source.name)
    module, class_name = family.encoder.split(":")
    encoder_class: type[VideoEncoder] = getattr(importlib.import_module(f"evs_cli.encoders.{module}"), class_name)
    return encoder_class(source)
