"""What transformers' processor classes put in where a checkpoint's files are silent: data, no code.

Only the fields that plans ask for. The classes themselves are not asked: importing one imports torch and torchvision,
which takes many times as long as a plan. Tests compare every field with the class of the installed release, 5.24.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class ProcessorClasses:
    """The classes that a family's files may name; the first of each stands where they name none."""

    processor: tuple[str, ...]
    video: tuple[str, ...]
    image: tuple[str, ...]


_QWEN2 = ProcessorClasses(("Qwen2VLProcessor",), ("Qwen2VLVideoProcessor",), ("Qwen2VLImageProcessor",))
_QWEN2_5 = ProcessorClasses(("Qwen2_5_VLProcessor",), _QWEN2.video, _QWEN2.image)
_QWEN3 = ProcessorClasses(("Qwen3VLProcessor",), ("Qwen3VLVideoProcessor",), _QWEN2.image)
_GLM = ProcessorClasses(
    ("Glm4vProcessor", "Glm46VProcessor"),
    ("Glm4vVideoProcessor", "Glm46VVideoProcessor"),
    ("Glm4vImageProcessor", "Glm46VImageProcessor"),
)
_GLM46V = ProcessorClasses(*(names[::-1] for names in (_GLM.processor, _GLM.video, _GLM.image)))
_OMNI = "NemotronH_Omni_Reasoning_V3"

CLASSES: Mapping[str, ProcessorClasses] = MappingProxyType(
    {
        "qwen2_vl": _QWEN2,
        "qwen2_5_vl": _QWEN2_5,
        "qwen3_vl": _QWEN3,
        "qwen3_vl_moe": _QWEN3,
        "qwen3_5": _QWEN3,
        "qwen3_5_moe": _QWEN3,
        "glm4v": _GLM,
        "glm4v_moe": _GLM,
        "glm46v": _GLM46V,
        "internvl": ProcessorClasses(("InternVLProcessor",), ("InternVLVideoProcessor",), ("GotOcr2ImageProcessor",)),
        "nemotron_h_omni": ProcessorClasses(
            (f"{_OMNI}Processor",), (f"{_OMNI}VideoProcessor",), (f"{_OMNI}ImageProcessor",)
        ),
    }
)
"""By ``model_type``: the families whose files are read without transformers."""


def _fields(**fields: Any) -> Mapping[str, Any]:
    return MappingProxyType(fields)


def _edges(shortest: int, longest: int) -> Mapping[str, int]:
    return MappingProxyType({"shortest_edge": shortest, "longest_edge": longest})


_SQUARE = MappingProxyType({"height": 384, "width": 384})
_MERGED = {"merge_size": 2, "temporal_patch_size": 2}
_QWEN_VIDEO = {
    **_MERGED,
    "num_frames": None,
    "min_frames": 4,
    "max_frames": 768,
    "cap_pixels_per_frame": None,
    "do_resize": True,
}
_GLM_VIDEO = _fields(
    **_MERGED,
    size=_edges(12_544, 47_040_000),
    patch_size=14,
    fps=2,
    num_frames=16,
    do_sample_frames=True,
    max_duration=300,
    do_resize=True,
)
_GLM_IMAGE = _fields(**_MERGED, size=_edges(12_544, 11_760_000), patch_size=14)

FIELDS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "Qwen2VLVideoProcessor": _fields(
            **_QWEN_VIDEO,
            size=_edges(100_352, 602_112),
            patch_size=14,
            fps=None,
            do_sample_frames=False,
            max_video_tokens=128_000,
        ),
        "Qwen3VLVideoProcessor": _fields(
            **_QWEN_VIDEO,
            size=_edges(131_072, 786_432),
            patch_size=16,
            fps=2,
            do_sample_frames=True,
            max_video_tokens=768,
        ),
        "Glm4vVideoProcessor": _GLM_VIDEO,
        "Glm46VVideoProcessor": _GLM_VIDEO,
        "InternVLVideoProcessor": _fields(
            size=_SQUARE,
            fps=None,
            num_frames=None,
            do_sample_frames=False,
            initial_shift=True,
            do_resize=True,
            do_center_crop=None,
        ),
        f"{_OMNI}VideoProcessor": _fields(
            fps=None,
            num_frames=None,
            patch_size=16,
            temporal_patch_size=2,
            downsample_ratio=0.5,
            video_target_num_patches=1024,
            video_maintain_aspect_ratio=True,
        ),
        "Qwen2VLImageProcessor": _fields(**_MERGED, size=_edges(3136, 1_003_520), patch_size=14),
        "Glm4vImageProcessor": _GLM_IMAGE,
        "Glm46VImageProcessor": _GLM_IMAGE,
        "GotOcr2ImageProcessor": _fields(size=_SQUARE, crop_to_patches=False, max_patches=12),
        f"{_OMNI}ImageProcessor": _fields(),
    }
)
"""Fields of each class, by its name."""

MODEL_FIELDS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"internvl": _fields(downsample_ratio=0.5, vision_config=_fields(patch_size=(14, 14)))}
)
"""Fields of a family's configuration that plans ask for beside those of its processor, by ``model_type``."""

PIXEL_ALIASES = frozenset({"Qwen2VLVideoProcessor", "Qwen2VLImageProcessor"})
"""Classes whose ``min_pixels`` and ``max_pixels`` are the edges of their ``size``."""

SPECIAL_TEXTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("Qwen2VLProcessor", "Qwen2_5_VLProcessor", "Qwen3VLProcessor"),
            _fields(image_token="<|image_pad|>", video_token="<|video_pad|>"),
        ),
        **dict.fromkeys(
            ("Glm4vProcessor", "Glm46VProcessor"), _fields(image_token="<|image|>", video_token="<|video|>")
        ),
        "InternVLProcessor": _fields(),  # all of them are the tokenizer's
        f"{_OMNI}Processor": _fields(
            image_token="<image>", video_token="<video>", image_start_token="<img>", image_end_token="</img>"
        ),
    }
)
"""Tokens that a processor knows by itself where its tokenizer does not name them."""
