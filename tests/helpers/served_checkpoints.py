"""Checkpoints without weights at the sizes of the published ones, for plans: their limits, and times as Qwen counts."""

import json

import transformers as tf
from served_models import qwen_like_tokenizer
from tiny_models import CHAT_TEMPLATE, QWEN_SPECIALS

_MARKUP = {kind: f"<|vision_start|><|{kind}_pad|><|vision_end|>" for kind in ("image", "video")}


def _tokenizer(specials, video, image):
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=qwen_like_tokenizer(specials),
        eos_token=specials[0],
        pad_token=specials[0],
        chat_template=CHAT_TEMPLATE.replace("VIDEO", video).replace("IMAGE", image),
    )


def _save_qwen(folder, config_class, processor_class, image_size, video_processor):
    tokenizer = _tokenizer(QWEN_SPECIALS, _MARKUP["video"], _MARKUP["image"])
    names = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
    names |= {f"vision_{end}_token_id": f"<|vision_{end}|>" for end in ("start", "end")}
    ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in names.items()}
    config = config_class(text_config={"max_position_embeddings": 128_000}, **ids)
    config.save_pretrained(folder)
    patch = video_processor.patch_size
    images = tf.Qwen2VLImageProcessor(patch_size=patch, size=image_size)
    processor_class(images, tokenizer, video_processor, chat_template=tokenizer.chat_template).save_pretrained(folder)


def save_qwen2_5_vl(folder):
    """Qwen2.5-VL-7B's limits: 3,136 to 12,845,056 pixels a frame."""
    size = {"shortest_edge": 3136, "longest_edge": 12_845_056}
    video = tf.Qwen2VLVideoProcessor(size=size)
    _save_qwen(folder, tf.Qwen2_5_VLConfig, tf.Qwen2_5_VLProcessor, size, video)


def save_qwen3_vl(folder):
    """Qwen3-VL-8B's limits: 4,096 to 25,165,824 pixels of all frames together."""
    video = tf.Qwen3VLVideoProcessor(size={"shortest_edge": 4096, "longest_edge": 25_165_824})
    size = {"shortest_edge": 65_536, "longest_edge": 16_777_216}
    _save_qwen(folder, tf.Qwen3VLConfig, tf.Qwen3VLProcessor, size, video)


def save_nemotron_12b(folder):
    """Nemotron Nano VL 12B v2: 512 x 512, 256 tokens a frame, ``video_pruning_rate`` 0.7."""
    specials = ["</s>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<image>", "<video>"]
    _tokenizer(specials, "<video>\n", "<image>\n").save_pretrained(folder)
    config = {
        "model_type": "NemotronH_Nano_VL_V2",
        "architectures": ["NemotronH_Nano_VL_V2"],
        "force_image_size": 512,
        "patch_size": 16,
        "downsample_ratio": 0.5,
        "video_pruning_rate": 0.7,
        "llm_config": {"max_position_embeddings": 131_072},
        "vision_config": {"args": {"model": "vit_huge_patch16_224"}},
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


SAVERS = {"qwen2_5_vl": save_qwen2_5_vl, "qwen3_vl": save_qwen3_vl, "nemotron_12b": save_nemotron_12b}
