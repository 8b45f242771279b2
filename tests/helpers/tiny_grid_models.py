"""Tiny random checkpoints of the families that encode flat patches and a grid (``evs_cli.encoders.grid_vlm``).

One function a ``model_type`` builds a whole model and its processor; ``grid_family`` writes each once a run and
loads it twice, through evs and whole. Made as those of ``tiny_models``.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import transformers as tf
from made_once import made_once
from tiny_models import TinyFamily, blow_up, make_tokenizer, text_config, token_ids

QWEN_SPECIALS = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
]
QWEN_MARKUP = "<|vision_start|><|video_pad|><|vision_end|>"


def _qwen_parts() -> tuple[Any, dict[str, int]]:
    tokenizer = make_tokenizer(QWEN_SPECIALS, video=QWEN_MARKUP, image="<|vision_start|><|image_pad|><|vision_end|>")
    names = {"image": "<|image_pad|>", "video": "<|video_pad|>"}
    return tokenizer, token_ids(tokenizer, **names, vision_start="<|vision_start|>", vision_end="<|vision_end|>")


def _qwen3_processor(tokenizer: Any) -> Any:
    size = {"shortest_edge": 32 * 32, "longest_edge": 32 * 32 * 160}  # of all frames together
    return tf.Qwen3VLProcessor(
        tf.Qwen2VLImageProcessor(patch_size=16, size=size),
        tokenizer,
        tf.Qwen3VLVideoProcessor(size=size),
        chat_template=tokenizer.chat_template,
    )


_QWEN3_ROPE = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [4, 2, 2], "mrope_interleaved": True}
_QWEN3_VISION = {
    **{"depth": 3, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "patch_size": 16},
    **{"out_hidden_size": 32, "num_position_embeddings": 64},
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def _qwen2_vl() -> tuple[Any, Any]:
    tokenizer, ids = _qwen_parts()
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
    vision = {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2, "patch_size": 14}
    config = tf.Qwen2VLConfig(text_config=text_config(tokenizer, rope_parameters=rope), vision_config=vision, **ids)
    size = {"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 24}
    processor = tf.Qwen2VLProcessor(
        tf.Qwen2VLImageProcessor(size=size),
        tokenizer,
        tf.Qwen2VLVideoProcessor(size=size),
        chat_template=tokenizer.chat_template,
    )
    return tf.Qwen2VLForConditionalGeneration(config), processor


def _qwen3_vl_moe() -> tuple[Any, Any]:
    tokenizer, ids = _qwen_parts()
    # The middle layer is dense, the others mix experts: a list of layer numbers that outlives the layers.
    text = text_config(
        tokenizer, head_dim=16, num_hidden_layers=3, rope_parameters=_QWEN3_ROPE, mlp_only_layers=[1], **_EXPERTS
    )
    config = tf.Qwen3VLMoeConfig(
        text_config=text, vision_config={**_QWEN3_VISION, "deepstack_visual_indexes": [0, 1]}, **ids
    )
    return tf.Qwen3VLMoeForConditionalGeneration(config), _qwen3_processor(tokenizer)


def _qwen3_5_text(tokenizer: Any) -> dict[str, Any]:
    return text_config(
        tokenizer,
        head_dim=16,
        layer_types=["linear_attention", "full_attention"],
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        rope_parameters={**_QWEN3_ROPE, "partial_rotary_factor": 1.0},
    )


def _qwen3_5() -> tuple[Any, Any]:
    tokenizer, ids = _qwen_parts()
    config = tf.Qwen3_5Config(text_config=_qwen3_5_text(tokenizer), vision_config=_QWEN3_VISION, **ids)
    return tf.Qwen3_5ForConditionalGeneration(config), _qwen3_processor(tokenizer)


def _qwen3_5_moe() -> tuple[Any, Any]:
    tokenizer, ids = _qwen_parts()
    text = {**_qwen3_5_text(tokenizer), **_EXPERTS, "shared_expert_intermediate_size": 32}
    config = tf.Qwen3_5MoeConfig(text_config=text, vision_config=_QWEN3_VISION, **ids)
    return tf.Qwen3_5MoeForConditionalGeneration(config), _qwen3_processor(tokenizer)


GLM_MARKUP = "<|begin_of_video|><|video|><|end_of_video|>"
_GLM_VISION = {
    **{"depth": 2, "hidden_size": 32, "num_heads": 2, "image_size": 56, "patch_size": 14},
    **{"out_hidden_size": 32, "intermediate_size": 64},
}


def _glm_parts(**more: Any) -> tuple[Any, dict[str, Any], dict[str, int]]:
    """Tokenizer, language model and token ids."""
    tokenizer = make_tokenizer(
        [
            *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_image|>", "<|end_of_image|>", "<|image|>"),
            *("<|begin_of_video|>", "<|end_of_video|>", "<|video|>"),
        ],
        video=GLM_MARKUP,
        image="<|begin_of_image|><|image|><|end_of_image|>",
    )
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}
    ids = token_ids(
        tokenizer,
        image="<|image|>",
        video="<|video|>",
        image_start="<|begin_of_image|>",
        image_end="<|end_of_image|>",
        video_start="<|begin_of_video|>",
        video_end="<|end_of_video|>",
    )
    return tokenizer, text_config(tokenizer, rope_parameters=rope, **more), ids


_GLM_SIZE = {"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 160}  # of all frames together


def _glm4v_processor(tokenizer: Any) -> Any:
    return tf.Glm4vProcessor(
        tf.Glm4vImageProcessor(size=_GLM_SIZE),
        tokenizer,
        tf.Glm4vVideoProcessor(size=_GLM_SIZE),
        chat_template=tokenizer.chat_template,
    )


def glm46v_processor(tokenizer: Any) -> Any:
    """The processor of GLM-4.6V, which also comes with ``glm4v_moe`` checkpoints."""
    return tf.Glm46VProcessor(
        tf.Glm46VImageProcessor(size=_GLM_SIZE),
        tokenizer,
        tf.Glm46VVideoProcessor(size=_GLM_SIZE),
        chat_template=tokenizer.chat_template,
    )


def _glm4v() -> tuple[Any, Any]:
    tokenizer, text, ids = _glm_parts()
    config = tf.Glm4vConfig(text_config=text, vision_config=_GLM_VISION, **ids)
    return tf.Glm4vForConditionalGeneration(config), _glm4v_processor(tokenizer)


def _glm4v_moe() -> tuple[Any, Any]:
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1}
    tokenizer, text, ids = _glm_parts(head_dim=16, first_k_dense_replace=1, **experts)
    config = tf.Glm4vMoeConfig(text_config=text, vision_config=_GLM_VISION, **ids)
    return tf.Glm4vMoeForConditionalGeneration(config), _glm4v_processor(tokenizer)


def _glm46v() -> tuple[Any, Any]:
    tokenizer, text, ids = _glm_parts()
    config = tf.Glm46VConfig(
        text_config={**text, "model_type": "glm4v_text"},
        vision_config={**_GLM_VISION, "model_type": "glm4v_vision"},
        **ids,
    )
    return tf.Glm46VForConditionalGeneration(config), glm46v_processor(tokenizer)


def _video_llama_3() -> tuple[Any, Any]:
    tokenizer = make_tokenizer(
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>"],
        video="<video>",
        image="<image>",
        named={"image_token": "<image>", "video_token": "<video>"},
    )
    vision = {
        **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2},
        "patch_size": 14,
    }
    config = tf.VideoLlama3Config(
        text_config=text_config(tokenizer, model_type="qwen2"),
        vision_config=vision,
        **token_ids(tokenizer, image="<image>", video="<video>"),
    )
    size = {"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 80}  # of each frame; of all together
    processor = tf.VideoLlama3Processor(
        tf.VideoLlama3ImageProcessor(size=size),
        tokenizer,
        tf.VideoLlama3VideoProcessor(size=size),
        chat_template=tokenizer.chat_template,
    )
    return tf.VideoLlama3ForConditionalGeneration(config), processor


ERNIE_MARKUP = "<|VIDEO_START|><|VIDEO_PLACEHOLDER|><|VIDEO_END|>"


def _ernie4_5_vl_moe() -> tuple[Any, Any]:
    marks = {
        "image": "<|IMAGE_PLACEHOLDER|>",
        "video": "<|VIDEO_PLACEHOLDER|>",
        "image_start": "<|IMAGE_START|>",
        "image_end": "<|IMAGE_END|>",
        "video_start": "<|VIDEO_START|>",
        "video_end": "<|VIDEO_END|>",
    }
    tokenizer = make_tokenizer(
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *marks.values()],
        video=ERNIE_MARKUP,
        image="<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
        named={f"{name}_token": token for name, token in marks.items()},
    )
    text = text_config(
        tokenizer,
        rms_norm_eps=1e-6,
        moe_intermediate_size=[32, 16],
        moe_num_experts=4,
        moe_k=2,
        moe_num_shared_experts=1,
        mlp_layer_types=["dense", "sparse"],
        rope_parameters={"rope_type": "default", "rope_theta": 5e5, "mrope_section": [2, 2, 4]},
    )
    vision = {
        **{"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "patch_size": 14},
        **{"spatial_merge_size": 2, "temporal_merge_size": 2},
    }
    config = tf.Ernie4_5_VLMoeConfig(text_config=text, vision_config=vision, **token_ids(tokenizer, **marks))
    size = {"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 24}
    processor = tf.Ernie4_5_VLMoeProcessor(
        tf.Ernie4_5_VLMoeImageProcessor(size=size),
        tokenizer,
        tf.Ernie4_5_VLMoeVideoProcessor(size=size, draw_on_frames=False),
        chat_template=tokenizer.chat_template,
    )
    return tf.Ernie4_5_VLMoeForConditionalGeneration(config), processor


BUILDERS = {
    "qwen2_vl": _qwen2_vl,
    "qwen3_vl_moe": _qwen3_vl_moe,
    "qwen3_5": _qwen3_5,
    "qwen3_5_moe": _qwen3_5_moe,
    "glm4v": _glm4v,
    "glm4v_moe": _glm4v_moe,
    "glm46v": _glm46v,
    "video_llama_3": _video_llama_3,
    "ernie4_5_vl_moe": _ernie4_5_vl_moe,
}
MARKUP = {
    **dict.fromkeys(("qwen2_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), QWEN_MARKUP),
    **dict.fromkeys(("glm4v", "glm4v_moe", "glm46v"), GLM_MARKUP),
    "video_llama_3": "<video>",
    "ernie4_5_vl_moe": ERNIE_MARKUP,
}
"""What stands for a video in a prompt of the family."""
TAKES_ONE_FRAME = {"qwen2_vl", "video_llama_3", "ernie4_5_vl_moe"}
"""Families whose processor takes a single frame; the others are given it twice."""
OWN_ARGUMENTS = {"video_llama_3": {"use_token_compression": False}}
"""What the processor must be told so that it leaves every token."""


def save_grid_model(model_type: str, folder: Any) -> None:
    """Write the checkpoint of ``model_type`` to ``folder``, as ``save_pretrained`` writes it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, processor = BUILDERS[model_type]()
    blow_up(model)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 3:  # experts in a stack: unit gain of each, not of all together
                parameter.mul_(parameter.shape[1] ** 0.5)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


class GridFamily(TinyFamily):
    """A checkpoint of these families twice: through evs, and whole."""

    markup = MARKUP
    takes_one_frame = TAKES_ONE_FRAME
    own_arguments = OWN_ARGUMENTS


@functools.cache
def grid_family(model_type: str) -> GridFamily:
    """That checkpoint, written once a run and loaded on first use; leave it as it is."""
    folder = made_once(f"grid_models/{model_type}", functools.partial(save_grid_model, model_type))
    return GridFamily(model_type, folder)
