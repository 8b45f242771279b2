"""Figures of published models that a count needs, so that a short name is counted without the hub.

Figures, no files: sizes, limits, ids and the frame of a chat. Sources: the limits are those of the models'
``preprocessor_config.json`` and ``video_preprocessor_config.json``, as the counts of running servers have confirmed
them (vLLM with Qwen3-VL: 456 tokens of a second of 360p, 2,280 of ten); the ids are transformers 5.24's class defaults;
the sizes of the language models are their ``config.json``'s, which give their published numbers of parameters.
A model stands here only where all of that is known; any other needs its files (``evs models fetch``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

PLAN_FILES = (
    *("config.json", "preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json"),
)
"""Files of a checkpoint that a plan reads, of which each has some; a few megabytes, nearly all of it the tokenizer."""


@dataclass(frozen=True)
class PublishedModel:
    """What is known of a model without its files."""

    config: Mapping[str, Any]
    """The part of ``config.json`` that counts and costs ask for."""
    video: Mapping[str, Any]
    """Fields of the video processor that differ from its class's."""
    image: Mapping[str, Any]
    """The same of the image processor."""
    chat_template: str


QWEN_TOKENS: Mapping[str, int] = MappingProxyType(
    {
        "<|endoftext|>": 151643,
        "<|im_start|>": 151644,
        "<|im_end|>": 151645,
        "<|vision_start|>": 151652,
        "<|vision_end|>": 151653,
        "<|image_pad|>": 151655,
        "<|video_pad|>": 151656,
    }
)
"""Ids of the special tokens of Qwen's vocabulary of 151,643 pieces."""
_QWEN_IDS = {
    "vision_start_token_id": 151652,
    "vision_end_token_id": 151653,
    "image_token_id": 151655,
    "video_token_id": 151656,
}


def _chat(system: str) -> str:
    """A chat of a system message, else ``system``, and a user's words with a video before them."""
    own = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    return (
        "{% if messages[0]['role'] == 'system' %}<|im_start|>system\n{{ messages[0]['content'] }}<|im_end|>\n"
        f"{{% else %}}{own}{{% endif %}}"
        "{% for m in messages if m['role'] != 'system' %}<|im_start|>{{ m['role'] }}\n"
        "{% for c in m['content'] %}{% if c['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
        "{% else %}{{ c['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
        "{{ '<|im_start|>assistant\n' }}"  # as a value: Jinja cuts a newline off a template's end
    )


_QWEN2_5_LIMITS = {"size": {"shortest_edge": 3136, "longest_edge": 12_845_056}}

PUBLISHED: Mapping[str, PublishedModel] = MappingProxyType(
    {
        "Qwen/Qwen2.5-VL-7B-Instruct": PublishedModel(
            config={
                "model_type": "qwen2_5_vl",
                "architectures": ["Qwen2_5_VLForConditionalGeneration"],
                **_QWEN_IDS,
                "hidden_size": 3584,
                "intermediate_size": 18_944,
                "num_hidden_layers": 28,
                "num_attention_heads": 28,
                "num_key_value_heads": 4,
                "max_position_embeddings": 128_000,
                "max_window_layers": 28,
                "use_sliding_window": False,
                "sliding_window": 32_768,
                "vocab_size": 152_064,
                "torch_dtype": "bfloat16",
                "vision_config": {
                    "depth": 32,
                    "hidden_size": 1280,
                    "intermediate_size": 3420,
                    "num_heads": 16,
                    "in_chans": 3,
                    "out_hidden_size": 3584,
                    "patch_size": 14,
                    "spatial_merge_size": 2,
                    "temporal_patch_size": 2,
                    "window_size": 112,
                    "fullatt_block_indexes": [7, 15, 23, 31],
                },
            },
            video=_QWEN2_5_LIMITS,
            image=_QWEN2_5_LIMITS,
            chat_template=_chat("You are a helpful assistant."),
        ),
        "Qwen/Qwen3-VL-8B-Instruct": PublishedModel(
            config={
                "model_type": "qwen3_vl",
                "architectures": ["Qwen3VLForConditionalGeneration"],
                **_QWEN_IDS,
                "text_config": {
                    "model_type": "qwen3_vl_text",
                    "dtype": "bfloat16",
                    "hidden_size": 4096,
                    "intermediate_size": 12_288,
                    "num_hidden_layers": 36,
                    "num_attention_heads": 32,
                    "num_key_value_heads": 8,
                    "head_dim": 128,
                    "max_position_embeddings": 262_144,
                    "vocab_size": 151_936,
                },
                "vision_config": {
                    "model_type": "qwen3_vl",
                    "depth": 27,
                    "hidden_size": 1152,
                    "intermediate_size": 4304,
                    "num_heads": 16,
                    "in_channels": 3,
                    "out_hidden_size": 4096,
                    "patch_size": 16,
                    "spatial_merge_size": 2,
                    "temporal_patch_size": 2,
                    "deepstack_visual_indexes": [8, 16, 24],
                },
            },
            video={"size": {"shortest_edge": 4096, "longest_edge": 25_165_824}},
            image={"size": {"shortest_edge": 65_536, "longest_edge": 16_777_216}, "patch_size": 16},
            chat_template=_chat(""),
        ),
    }
)
"""By the hub's id."""
