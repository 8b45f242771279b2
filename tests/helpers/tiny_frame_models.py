"""Tiny checkpoints of the families that see a video frame by frame, and what their own code makes of a clip.

As in tiny_models.py: made offline, weights blown up. Each frame is 3 x 3 tokens or more, so that no half of it looks
like the other, and every processor resizes to another size than the clips have.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
import transformers as tf
from made_once import made_once
from tiny_models import DrawnClip, blow_up, make_tokenizer, text_config, token_ids

from evs_cli.encoders.registry import open_encoder

_CHAT = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_VISION = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}


def _internvl() -> tuple[Any, Any]:
    named = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    tokenizer = make_tokenizer([*_CHAT, *named.values()], video="<video>\n", image="<IMG_CONTEXT>\n", named=named)
    config = tf.InternVLConfig(
        text_config=text_config(tokenizer, model_type="qwen2"),
        vision_config={**_VISION, "image_size": [84, 84], "patch_size": [14, 14]},
        image_seq_length=9,
        tie_word_embeddings=False,
        **token_ids(tokenizer, image="<IMG_CONTEXT>"),
    )
    size = {"height": 84, "width": 84}
    processor = tf.InternVLProcessor(
        tf.GotOcr2ImageProcessor(size=size),
        tokenizer,
        tf.InternVLVideoProcessor(size=size),
        image_seq_length=9,
        chat_template=tokenizer.chat_template,
    )
    return tf.InternVLForConditionalGeneration(config), processor


def _smolvlm() -> tuple[Any, Any]:
    specials = [*_CHAT, "<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>", "<video>"]
    tokenizer = make_tokenizer(specials, video="<video>", image="<image>")
    config = tf.SmolVLMConfig(
        text_config=text_config(tokenizer, model_type="llama"),
        vision_config={**_VISION, "image_size": 96, "patch_size": 16},
        scale_factor=2,
        **token_ids(tokenizer, image="<image>"),
    )
    # As published checkpoints have it: 1 fps up to a number of frames, sides of at most 128, then squares of 96.
    sampling = {"fps": 1, "max_frames": 64, "video_size": {"longest_edge": 128}}
    edges = {"size": {"longest_edge": 128}, "max_image_size": {"longest_edge": 96}}
    processor = tf.SmolVLMProcessor(
        tf.SmolVLMImageProcessor(**edges),
        tokenizer,
        tf.SmolVLMVideoProcessor(max_image_size={"longest_edge": 96}, video_sampling=sampling),
        image_seq_len=9,
        chat_template=tokenizer.chat_template,
    )
    return tf.SmolVLMForConditionalGeneration(config), processor


def _llava_tokenizer() -> Any:
    return make_tokenizer([*_CHAT, "<image>", "<video>"], video="<video>\n", image="<image>\n")


def _llava_ids(tokenizer: Any) -> dict[str, int]:
    ids = token_ids(tokenizer, image="<image>", video="<video>")
    return {"image_token_index": ids["image_token_id"], "video_token_index": ids["video_token_id"]}


def _llava_onevision() -> tuple[Any, Any]:
    tokenizer = _llava_tokenizer()
    size, pinpoints = {"height": 70, "width": 70}, [[70, 70], [70, 140]]
    tower = {"model_type": "siglip_vision_model", "image_size": 70, "patch_size": 14, "vision_use_head": False}
    config = tf.LlavaOnevisionConfig(  # 5 x 5 patches, which pool to 3 x 3
        text_config=text_config(tokenizer, model_type="qwen2"),
        vision_config={**_VISION, **tower},
        image_grid_pinpoints=pinpoints,
        **_llava_ids(tokenizer),
    )
    processor = tf.LlavaOnevisionProcessor(
        tf.LlavaOnevisionImageProcessor(size=size, image_grid_pinpoints=pinpoints),
        tokenizer,
        tf.LlavaOnevisionVideoProcessor(size=size),
        num_image_tokens=25,
        vision_feature_select_strategy="full",
        chat_template=tokenizer.chat_template,
    )
    return tf.LlavaOnevisionForConditionalGeneration(config), processor


def _clip_tower(image_size: int) -> dict[str, Any]:
    return {**_VISION, "model_type": "clip_vision_model", "image_size": image_size, "patch_size": 14}


def _cropped(image_size: int) -> dict[str, Any]:
    return {"size": {"shortest_edge": image_size}, "crop_size": {"height": image_size, "width": image_size}}


def _llava_next_video() -> tuple[Any, Any]:
    tokenizer = _llava_tokenizer()
    config = tf.LlavaNextVideoConfig(
        text_config=text_config(tokenizer, model_type="llama"),
        vision_config=_clip_tower(84),
        image_grid_pinpoints=[[84, 168]],
        **_llava_ids(tokenizer),
    )
    processor = tf.LlavaNextVideoProcessor(
        tf.LlavaNextVideoVideoProcessor(**_cropped(84)),
        tf.LlavaNextImageProcessor(**_cropped(84), image_grid_pinpoints=[[84, 168]]),
        tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=tokenizer.chat_template,
    )
    return tf.LlavaNextVideoForConditionalGeneration(config), processor


def _video_llava() -> tuple[Any, Any]:
    tokenizer = _llava_tokenizer()
    config = tf.VideoLlavaConfig(
        text_config=text_config(tokenizer, model_type="llama"),
        vision_config=_clip_tower(42),
        image_seq_length=9,
        video_seq_length=80,
        **_llava_ids(tokenizer),
    )
    processor = tf.VideoLlavaProcessor(
        tf.VideoLlavaImageProcessor(**_cropped(42)),
        tf.VideoLlavaVideoProcessor(**_cropped(42)),
        tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=tokenizer.chat_template,
    )
    return tf.VideoLlavaForConditionalGeneration(config), processor


def _siglip2() -> tuple[Any, Any]:
    text = {**_VISION, "vocab_size": 64, "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2}
    config = tf.Siglip2Config(text_config=text, vision_config={**_VISION, "num_patches": 16})
    return tf.Siglip2Model(config), tf.Siglip2ImageProcessor(image_mean=[0.5, 0.4, 0.6], image_std=[0.5, 0.3, 0.2])


def _siglip2_vision_model() -> tuple[Any, Any]:
    config = tf.Siglip2VisionConfig(**_VISION, num_patches=16, patch_size=14)
    processor = tf.Siglip2ImageProcessor(image_mean=[0.5, 0.4, 0.6], image_std=[0.5, 0.3, 0.2], patch_size=14)
    return tf.Siglip2VisionModel(config), processor


BUILDERS = {
    "internvl": _internvl,
    "smolvlm": _smolvlm,
    "llava_onevision": _llava_onevision,
    "llava_next_video": _llava_next_video,
    "video_llava": _video_llava,
    "siglip2": _siglip2,
    "siglip2_vision_model": _siglip2_vision_model,
}


def save_frame_model(model_type: str, folder: Any) -> None:
    """Write the checkpoint of ``model_type`` to ``folder``, as ``save_pretrained`` writes it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, processor = BUILDERS[model_type]()
    blow_up(model)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def tiny_folder(model_type: str) -> Path:
    """The folder of a family's tiny checkpoint, written once a run."""
    return made_once(f"frame_models/{model_type}", functools.partial(save_frame_model, model_type))


class FrameFamily:
    """A checkpoint twice: through evs, and whole, as transformers loads it. Leave it as it is."""

    def __init__(self, model_type: str) -> None:
        self.model_type, self.folder = model_type, tiny_folder(model_type)
        self.encoder = open_encoder(str(self.folder))
        self.encoder.load("cpu", torch.float32)
        self.whole = tf.AutoModelForImageTextToText.from_pretrained(self.folder).eval()
        self.processor = tf.AutoProcessor.from_pretrained(self.folder)

    def text(self, prompt: str | None) -> str:
        """The chat prompt, or the video's markup alone."""
        if prompt is None:
            return "<video>"
        message = {"role": "user", "content": [{"type": "video"}, {"type": "text", "text": prompt}]}
        return self.processor.apply_chat_template([message], tokenize=False, add_generation_prompt=True)

    def own(self, drawn: DrawnClip, prompt: str | None = None, *, frames: torch.Tensor | None = None) -> dict[str, Any]:
        """What the family's processor makes of a clip when it is told the true times."""
        clip = drawn.clip
        metadata = {
            "fps": 1000.0,
            "frames_indices": [round(1000 * t) for t in clip.pts_seconds.tolist()],
            "total_num_frames": round(1000 * clip.window_seconds),
            "duration": clip.window_seconds,
        }
        inputs = self.processor(
            text=[self.text(prompt)],
            videos=[drawn.frames() if frames is None else frames],
            video_metadata=[metadata],
            do_sample_frames=False,
            input_data_format="channels_first",
            return_tensors="pt",
        )
        return {name: value for name, value in inputs.items() if name != "video_metadata"}

    def own_rows(self, inputs: dict[str, Any]) -> torch.Tensor:
        """(rows, D) the whole model's own features of the processor's pixels, in the order of their placeholders."""
        with torch.inference_mode():
            if "pixel_values" in inputs:
                pixels = {name: value for name, value in inputs.items() if name.startswith("pixel")}
                features = self.whole.get_image_features(**pixels).pooler_output
            else:
                features = self.whole.model.get_video_features(inputs["pixel_values_videos"]).pooler_output
        rows = features[0] if isinstance(features, list) else features
        return rows.reshape(-1, rows.shape[-1])


@functools.cache
def frame_family(model_type: str) -> FrameFamily:
    """``frame_family("internvl")``, made once."""
    return FrameFamily(model_type)
