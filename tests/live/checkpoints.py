"""Checkpoints without weights of the families that are held against servers, with the published limits.

A render server preprocesses alone, so it reads the configuration, the processor and the tokenizer, and no weight. The
tokenizer merges letters across the borders of the pieces that a prompt is made of, as those of published models may:
a rule that joins text where the server does not, or the other way round, gives other ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import transformers as tf
from tiny_models import CHAT_TEMPLATE, QWEN_SPECIALS, token_ids
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

CONTEXT = 131_072
_TEXT = {
    **{"hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": CONTEXT, "bos_token_id": None},
}
_VISION = {"hidden_size": 64, "intermediate_size": 64, "depth": 2, "num_heads": 2, "out_hidden_size": 128}
_LONG_TOKENS = (
    "userĊ<",
    "assistantĊ",
    "systemĊ",
    "Ġseconds",
    ">Ċ",
    "0.",
    "ĠsecondsĊ",
    "Ġseconds>",
    "FrameĠ",
    ":Ġ",
    "ĠtheĠ",
)
"""Tokens of several letters, in byte-level letters: they span the pieces of a prompt (``user\\n<``)."""


def _merges() -> tuple[list[tuple[str, str]], dict[str, int]]:
    """The merges that build ``_LONG_TOKENS`` letter by letter, and the vocabulary."""
    vocabulary = {byte: index for index, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = []
    for token in _LONG_TOKENS:
        for end in range(2, len(token) + 1):
            if token[:end] not in vocabulary:
                vocabulary[token[:end]] = len(vocabulary)
                merges.append((token[: end - 1], token[end - 1]))
    return merges, vocabulary


def _tokenizer(specials: list[str], *, video: str, image: str, named: dict[str, str] | None = None) -> Any:
    merges, vocabulary = _merges()
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)  # no borders at all
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(specials)
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=specials[0],
        pad_token=specials[0],
        chat_template=CHAT_TEMPLATE.replace("VIDEO", video).replace("IMAGE", image),
        extra_special_tokens=named or {},
        model_max_length=CONTEXT,
    )


def _save(folder: Path, config: Any, architecture: str, processor: Any) -> None:
    config.architectures = [architecture]
    config.save_pretrained(folder)
    processor.save_pretrained(folder)


def _qwen(
    folder: Path, config_class: Any, architecture: str, processor_class: Any, video: Any, image_size: Any, **more: Any
) -> None:
    marks = {kind: f"<|vision_start|><|{kind}_pad|><|vision_end|>" for kind in ("video", "image")}
    tokenizer = _tokenizer(QWEN_SPECIALS, **marks)
    names = {"image": "<|image_pad|>", "video": "<|video_pad|>"}
    names |= {f"vision_{end}": f"<|vision_{end}|>" for end in ("start", "end")}
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [12, 10, 10], **more.pop("rope", {})}
    text = {**_TEXT, "vocab_size": len(tokenizer), "rope_parameters": rope, **more.pop("text", {})}
    vision = {**_VISION, "patch_size": video.patch_size, **more.pop("vision", {})}
    config = config_class(text_config=text, vision_config=vision, **token_ids(tokenizer, **names))
    images = tf.Qwen2VLImageProcessor(patch_size=video.patch_size, size=image_size)
    processor = processor_class(images, tokenizer, video, chat_template=tokenizer.chat_template)
    _save(folder, config, architecture, processor)


def save_qwen2_5_vl(folder: Path) -> None:
    """Qwen2.5-VL-7B: 3,136 to 12,845,056 pixels a frame."""
    size = {"shortest_edge": 3136, "longest_edge": 12_845_056}
    video = tf.Qwen2VLVideoProcessor(size=size)
    names = ("Qwen2_5_VLForConditionalGeneration", tf.Qwen2_5_VLProcessor)
    _qwen(folder, tf.Qwen2_5_VLConfig, *names, video, size, vision={"fullatt_block_indexes": [1]})


_QWEN3_IMAGES = {"shortest_edge": 65_536, "longest_edge": 16_777_216}


def _qwen3_video() -> Any:
    return tf.Qwen3VLVideoProcessor(size={"shortest_edge": 4096, "longest_edge": 25_165_824})


def save_qwen3_vl(folder: Path) -> None:
    """Qwen3-VL-8B: 4,096 to 25,165,824 pixels of all frames together."""
    names = ("Qwen3VLForConditionalGeneration", tf.Qwen3VLProcessor)
    vision = {"num_position_embeddings": 2304, "deepstack_visual_indexes": [0, 1]}
    more = {"vision": vision, "rope": {"mrope_interleaved": True}}
    _qwen(folder, tf.Qwen3VLConfig, *names, _qwen3_video(), _QWEN3_IMAGES, **more)


def save_qwen3_5(folder: Path) -> None:
    """Qwen3.5: the processor of Qwen3-VL, a language model of linear and full attention."""
    names = ("Qwen3_5ForConditionalGeneration", tf.Qwen3VLProcessor)
    linear = {
        "layer_types": ["linear_attention", "full_attention"],
        **{"linear_num_key_heads": 2, "linear_num_value_heads": 2},
        **{"linear_key_head_dim": 64, "linear_value_head_dim": 64},
    }
    more = {"text": linear, "rope": {"mrope_interleaved": True, "partial_rotary_factor": 1.0}}
    more["vision"] = {"num_position_embeddings": 2304}
    _qwen(folder, tf.Qwen3_5Config, *names, _qwen3_video(), _QWEN3_IMAGES, **more)


def save_internvl(folder: Path) -> None:
    """InternVL3-8B: 448 x 448, 256 tokens a frame."""
    named = {
        **{"start_image_token": "<img>", "end_image_token": "</img>"},
        **{"context_image_token": "<IMG_CONTEXT>", "video_token": "<video>"},
    }
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *named.values()]
    tokenizer = _tokenizer(specials, video="<video>\n", image="<IMG_CONTEXT>\n", named=named)
    vision = {**_VISION, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision |= {"image_size": [448, 448], "patch_size": [14, 14]}
    config = tf.InternVLConfig(
        text_config={**_TEXT, "model_type": "qwen2", "vocab_size": len(tokenizer)},
        vision_config=vision,
        image_seq_length=256,
        tie_word_embeddings=False,
        **token_ids(tokenizer, image="<IMG_CONTEXT>"),
    )
    size = {"height": 448, "width": 448}
    processor = tf.InternVLProcessor(
        tf.GotOcr2ImageProcessor(size=size),
        tokenizer,
        tf.InternVLVideoProcessor(size=size),
        image_seq_length=256,
        chat_template=tokenizer.chat_template,
    )
    _save(folder, config, "InternVLForConditionalGeneration", processor)


def _glm(folder: Path, config_class: Any, architecture: str, processor_of: Callable[[Any], Any], **more: Any) -> None:
    markers = {kind: (f"<|begin_of_{kind}|>", f"<|end_of_{kind}|>") for kind in ("image", "video")}
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|image|>", "<|video|>", *sum(markers.values(), ())]
    marked = {kind: f"{begin}<|{kind}|>{end}" for kind, (begin, end) in markers.items()}
    tokenizer = _tokenizer(specials, **marked)
    names = {"image": "<|image|>", "video": "<|video|>"}
    for kind, (begin, end) in markers.items():
        names |= {f"{kind}_start": begin, f"{kind}_end": end}
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [8, 4, 4], "partial_rotary_factor": 0.5}
    text = {**_TEXT, "vocab_size": len(tokenizer), "rope_parameters": rope, **more.pop("text", {})}
    vision = {**_VISION, "image_size": 336, "patch_size": 14, **more.pop("vision", {})}
    config = config_class(text_config=text, vision_config=vision, **token_ids(tokenizer, **names))
    _save(folder, config, architecture, processor_of(tokenizer))


_GLM_VIDEO = {"shortest_edge": 12_544, "longest_edge": 47_040_000}
_GLM_IMAGES = {"shortest_edge": 12_544, "longest_edge": 9_633_792}


def _glm4v_processor(tokenizer: Any) -> Any:
    images, video = tf.Glm4vImageProcessor(size=_GLM_IMAGES), tf.Glm4vVideoProcessor(size=_GLM_VIDEO)
    return tf.Glm4vProcessor(images, tokenizer, video, chat_template=tokenizer.chat_template)


def _glm46v_processor(tokenizer: Any) -> Any:
    images, video = tf.Glm46VImageProcessor(size=_GLM_IMAGES), tf.Glm46VVideoProcessor(size=_GLM_VIDEO)
    return tf.Glm46VProcessor(images, tokenizer, video, chat_template=tokenizer.chat_template)


def save_glm4v(folder: Path) -> None:
    """GLM-4.1V-9B: 12,544 to 47,040,000 pixels of all frames together."""
    _glm(folder, tf.Glm4vConfig, "Glm4vForConditionalGeneration", _glm4v_processor)


def save_glm46v_anew(folder: Path) -> None:
    """GLM-4.6V as transformers 5 saves it: the processors in one file, where vLLM does not look for the video's."""
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "n_shared_experts": 1}
    more = {"text": {**experts, "first_k_dense_replace": 1}}
    _glm(folder, tf.Glm4vMoeConfig, "Glm4vMoeForConditionalGeneration", _glm46v_processor, **more)


def save_glm46v(folder: Path) -> None:
    """GLM-4.6V: the mixture of experts of GLM-4.5V with the processor of 4.6V, which a file of its own names."""
    save_glm46v_anew(folder)
    whole = json.loads((folder / "processor_config.json").read_text(encoding="utf-8"))
    text = json.dumps(whole["video_processor"])
    (folder / "video_preprocessor_config.json").write_text(text, encoding="utf-8")


SAVERS: dict[str, Callable[[Path], None]] = {
    "qwen2_5_vl": save_qwen2_5_vl,
    "qwen3_vl": save_qwen3_vl,
    "qwen3_5": save_qwen3_5,
    "internvl": save_internvl,
    "glm4v": save_glm4v,
    "glm46v": save_glm46v,
    "glm46v_anew": save_glm46v_anew,
}


def save_all(folder: Path) -> dict[str, Path]:
    """Write every checkpoint below ``folder``; the folder of each, by its family."""
    for name, save in SAVERS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        save(folder / name)
    return {name: folder / name for name in SAVERS}
