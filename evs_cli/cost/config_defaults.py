"""What transformers' configuration classes put in where a ``config.json`` is silent: data, no code.

Only fields the costs ask for, under the name of ``fields.ALIASES`` that stands first. The classes themselves are not
asked: importing one imports torch, which takes many times as long as a plan. Tests compare every field with the class
of the installed release; 5.16.0 to 5.24.0 agree on all of them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

TEXT_TYPES: MappingProxyType[str, str] = MappingProxyType(
    {
        "qwen2_vl": "qwen2_vl_text",
        "qwen2_5_vl": "qwen2_5_vl_text",
        "qwen3_vl": "qwen3_vl_text",
        "qwen3_vl_moe": "qwen3_vl_moe_text",
        "qwen3_5": "qwen3_5_text",
        "qwen3_5_moe": "qwen3_5_moe_text",
        "glm4v": "glm4v_text",
        "glm4v_moe": "glm4v_moe_text",
        "glm46v": "glm4v_text",
        "ernie4_5_vl_moe": "ernie4_5_vl_moe_text",
        "internvl": "qwen2",
        "llava_onevision": "qwen2",
        "video_llama_3": "qwen2",
        "smolvlm": "llama",
        "llava_next_video": "llama",
        "video_llava": "llama",
        "nemotron_h_omni": "nemotron_h",
    }
)
"""The language model of a family whose ``text_config`` names none."""

NO_LANGUAGE_MODEL = frozenset(
    {
        "dinov2",
        "dinov2_with_registers",
        "dinov3_vit",
        "siglip",
        "siglip_vision_model",
        "siglip2",
        "siglip2_vision_model",
        "clip",
        "clip_vision_model",
    }
)
"""Plain encoders. The text towers of SigLIP and CLIP read captions, no video tokens."""


_SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "max_position_embeddings"),
)


def _text(*sizes: int | None, **more: Any) -> MappingProxyType[str, Any]:
    return MappingProxyType({**dict(zip(_SIZES, sizes, strict=True)), **more})


_QWEN2_WINDOW = {"use_sliding_window": False, "sliding_window": 4096, "layer_types": None}
_DELTA_NET = {
    "head_dim": 256,
    "layer_types": None,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "mamba_ssm_dtype": "float32",
}
_QWEN3_MOE = {"decoder_sparse_step": 1, "mlp_only_layers": None}

TEXT: dict[str, MappingProxyType[str, Any]] = {
    "llama": _text(32000, 4096, 11008, 32, 32, None, 2048, head_dim=None),
    "mistral": _text(32000, 4096, 14336, 32, 32, 8, 131072, head_dim=None, sliding_window=4096),
    "qwen2": _text(151936, 4096, 22016, 32, 32, 32, 32768, **_QWEN2_WINDOW, max_window_layers=28),
    "qwen3": _text(151936, 4096, 22016, 32, 32, 32, 32768, head_dim=128, **_QWEN2_WINDOW, max_window_layers=28),
    "qwen3_moe": _text(
        *(151936, 2048, 6144, 24, 32, 4, 32768),
        use_sliding_window=False,
        sliding_window=4096,
        moe_intermediate_size=768,
        num_experts_per_tok=8,
        num_experts=128,
        **_QWEN3_MOE,
    ),
    "qwen2_vl_text": _text(152064, 8192, 29568, 80, 64, 8, 32768, **_QWEN2_WINDOW, max_window_layers=80),
    "qwen2_5_vl_text": _text(152064, 8192, 29568, 80, 64, 8, 32768, **_QWEN2_WINDOW, max_window_layers=80),
    "qwen3_vl_text": _text(151936, 4096, 22016, 32, 32, 32, 128000, head_dim=128),
    "qwen3_vl_moe_text": _text(
        *(151936, 2048, 5632, 24, 16, 16, 128000),
        head_dim=None,
        moe_intermediate_size=1408,
        num_experts_per_tok=4,
        num_experts=60,
        **_QWEN3_MOE,
    ),
    "qwen3_5_text": _text(248320, 4096, 12288, 32, 16, 4, 32768, **_DELTA_NET),
    "qwen3_5_moe_text": _text(
        *(248320, 2048, None, 40, 16, 2, 32768),  # every layer has experts: no dense size
        moe_intermediate_size=512,
        shared_expert_intermediate_size=512,
        num_experts_per_tok=8,
        num_experts=256,
        **_DELTA_NET,
    ),
    "glm4v_text": _text(151552, 4096, 13696, 40, 32, 2, 32768),
    "glm4v_moe_text": _text(
        *(151424, 4096, 10944, 46, 96, 8, 65536),
        moe_intermediate_size=1408,
        num_experts_per_tok=8,
        n_shared_experts=1,
        num_experts=128,
        first_k_dense_replace=1,
    ),
    "ernie4_5_vl_moe_text": _text(
        *(103424, 2560, 12288, 28, 20, 4, 131072),
        moe_intermediate_size=[1536, 512],
        num_experts_per_tok=6,
        num_experts=64,
        moe_num_shared_experts=2,
        mlp_layer_types=None,
    ),
    "nemotron_h": _text(
        *(131072, 4096, 21504, 4, 32, 8, 4096),
        head_dim=128,
        layer_types=["linear_attention", "moe", "full_attention", "mlp"],
        ssm_state_size=128,
        mamba_num_heads=128,
        mamba_head_dim=64,
        n_groups=8,
        conv_kernel=4,
        mamba_ssm_cache_dtype="float32",
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=7688,
        moe_shared_expert_intermediate_size=7688,
        moe_latent_size=None,
    ),
}
"""By ``model_type`` of the language model's configuration."""


def _vision(hidden: int, depth: int, patch: int, **more: Any) -> MappingProxyType[str, Any]:
    return MappingProxyType(
        {"hidden_size": hidden, "depth": depth, "patch_size": patch, "num_channels": 3, "temporal_patch_size": 1} | more
    )


_QWEN_VISION = {"temporal_patch_size": 2, "spatial_merge_size": 2}
_QWEN3_VISION = _vision(1152, 27, 16, intermediate_size=4304, out_hidden_size=3584, **_QWEN_VISION)
_DEEPSTACK_VISION = MappingProxyType({**_QWEN3_VISION, "deepstack_visual_indexes": (8, 16, 24)})
_GLM_VISION = _vision(1536, 24, 14, intermediate_size=13696, out_hidden_size=4096, **_QWEN_VISION)
_FRAME = {"intermediate_size": 3072}
_SIGLIP = _vision(768, 12, 16, **_FRAME)
_CLIP = _vision(768, 12, 32, **_FRAME)
_CLIP_LARGE = _vision(1024, 24, 14, intermediate_size=4096)  # the llavas' own defaults for their CLIP
_DINO = {"mlp_ratio": 4, "use_swiglu_ffn": False}

VISION: dict[str, MappingProxyType[str, Any]] = {
    "qwen2_vl": _vision(3584, 32, 14, embed_dim=1280, mlp_ratio=4, **_QWEN_VISION),
    "qwen2_5_vl": _vision(
        *(3584, 32, 14),
        intermediate_size=3420,
        out_hidden_size=3584,
        window_size=112,
        fullatt_block_indexes=(7, 15, 23, 31),
        **_QWEN_VISION,
    ),
    "qwen3_vl": _DEEPSTACK_VISION,
    "qwen3_vl_moe": _DEEPSTACK_VISION,
    "qwen3_5": _QWEN3_VISION,
    "qwen3_5_moe": _QWEN3_VISION,
    "glm4v": _GLM_VISION,
    "glm4v_moe": _GLM_VISION,
    "glm46v": _GLM_VISION,
    "ernie4_5_vl_moe": _vision(1280, 32, 14, intermediate_size=5120, spatial_merge_size=2, temporal_merge_size=2),
    "nemotron_h_omni": _vision(
        *(1280, 32, 16), mlp_ratio=4.0, use_swiglu_ffn=False, num_cls_tokens=3, num_registers=7, temporal_patch_size=2
    ),
    "internvl": _vision(1024, 24, 14, intermediate_size=4096),
    "smolvlm": _vision(1152, 12, 32, **_FRAME),
    "video_llama_3": _vision(768, 12, 16, **_FRAME),
    "llava_onevision": _vision(1152, 26, 14, intermediate_size=4304),
    "llava_next_video": _CLIP_LARGE,
    "video_llava": _CLIP_LARGE,
    "dinov2": _vision(768, 12, 14, **_DINO),
    "dinov2_with_registers": _vision(768, 12, 16, num_register_tokens=4, **_DINO),
    "dinov3_vit": _vision(384, 12, 16, intermediate_size=1536, num_register_tokens=0, use_gated_mlp=False),
    "siglip": _SIGLIP,
    "siglip_vision_model": _SIGLIP,
    "siglip2": _SIGLIP,
    "siglip2_vision_model": _SIGLIP,
    "clip": _CLIP,
    "clip_vision_model": _CLIP,
}
"""By the family's ``model_type``: of its ``vision_config``, or of the configuration itself."""

TOWER_TYPES: MappingProxyType[str, str] = MappingProxyType(
    {
        "llava_onevision": "siglip_vision_model",
        "llava_next_video": "clip_vision_model",
        "video_llava": "clip_vision_model",
    }
)
"""Families that take any tower, and the one whose defaults hold where their ``vision_config`` is there but names none.

Their own defaults above hold only where there is no ``vision_config`` at all.
"""

PROJECTOR: dict[str, MappingProxyType[str, Any]] = {
    "nemotron_h_omni": MappingProxyType({"projector_hidden_size": 4096, "downsample_ratio": 0.5}),
    "internvl": MappingProxyType({"downsample_ratio": 0.5}),
    "smolvlm": MappingProxyType({"scale_factor": 2}),
}
"""Fields of the outer configuration that settle the projector."""
