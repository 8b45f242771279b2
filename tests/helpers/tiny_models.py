"""Tiny random checkpoints of every family, made offline, and what a family's own processor makes of a clip.

One function a ``model_type`` builds the parts of a checkpoint, and one entry of ``BUILDERS`` names it; the fixture
``tiny_model`` (conftest.py) saves each once a run. The tokenizers are byte level: 256 bytes and the family's
special tokens. Weights are blown up: at transformers' own scale (0.02) a net of two layers is almost linear, and a
wrong order, time or position would hardly show.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Set
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import transformers as tf
from drawn_cases import tried_on
from hypothesis import Phase
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from evs_cli.encoders.base import Clip
from evs_cli.encoders.registry import FAMILIES, open_encoder

# ------------------------------------------------------------------------------------------------ shared parts

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'video' %}VIDEO{% elif c['type'] == 'image' %}IMAGE"
    "{% elif c['type'] == 'text' %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tokenizer(
    specials: list[str], *, video: str, image: str, named: dict[str, str] | None = None
) -> tf.PreTrainedTokenizerFast:
    """A byte-level tokenizer without merges, and a chat template that puts ``video`` or ``image`` for a part.

    Args:
        specials: the family's special tokens; the first also ends and pads.
        video: markup of a video in a prompt.
        image: markup of an image in a prompt.
        named: tokens the processor reads off the tokenizer, by attribute.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[], unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(specials)
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=specials[0],
        pad_token=specials[0],
        chat_template=CHAT_TEMPLATE.replace("VIDEO", video).replace("IMAGE", image),
        extra_special_tokens=named or {},
        model_max_length=100_000,
    )


def text_config(tokenizer: Any, **more: Any) -> dict[str, Any]:
    """A language model of two layers of 32."""
    return {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "vocab_size": len(tokenizer),
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        **more,
    }


def token_ids(tokenizer: Any, **tokens: str) -> dict[str, int]:
    """``{name}_token_id`` of each token, as configurations want them."""
    return {f"{name}_token_id": tokenizer.convert_tokens_to_ids(token) for name, token in tokens.items()}


def blow_up(model: Any, *, seed: int = 0) -> None:
    """Matrices of unit gain and biases of 0.1, so that every layer bends what it is given."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim >= 2:
                parameter.copy_(noise * parameter[0].numel() ** -0.5)
            elif "norm" not in name and "ln" not in name:
                parameter.add_(noise * 0.1)


# ---------------------------------------------------------------------------------------- vision-language models

QWEN_SPECIALS = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
]


def _qwen_tokenizer() -> Any:
    return make_tokenizer(
        QWEN_SPECIALS,
        video="<|vision_start|><|video_pad|><|vision_end|>",
        image="<|vision_start|><|image_pad|><|vision_end|>",
    )


def _qwen_ids(tokenizer: Any) -> dict[str, int]:
    return token_ids(
        tokenizer,
        image="<|image_pad|>",
        video="<|video_pad|>",
        vision_start="<|vision_start|>",
        vision_end="<|vision_end|>",
    )


def _qwen2_5_vl() -> tuple[Any, Any]:
    tokenizer = _qwen_tokenizer()
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
    vision = {
        **{"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "patch_size": 14},
        # Windows of 2 x 2 tokens, one layer in windows and one over the whole frame.
        **{"window_size": 56, "fullatt_block_indexes": [1], "out_hidden_size": 32, "tokens_per_second": 2},
    }
    config = tf.Qwen2_5_VLConfig(
        text_config=text_config(tokenizer, rope_parameters=rope), vision_config=vision, **_qwen_ids(tokenizer)
    )
    size = {"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 24}
    processor = tf.Qwen2_5_VLProcessor(
        tf.Qwen2VLImageProcessor(size=size),
        tokenizer,
        tf.Qwen2VLVideoProcessor(size=size),
        chat_template=tokenizer.chat_template,
    )
    return tf.Qwen2_5_VLForConditionalGeneration(config), processor


def _qwen3_vl() -> tuple[Any, Any]:
    tokenizer = _qwen_tokenizer()
    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [4, 2, 2], "mrope_interleaved": True}
    vision = {
        **{"depth": 3, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "patch_size": 16},
        **{"out_hidden_size": 32, "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]},
    }
    config = tf.Qwen3VLConfig(
        text_config=text_config(tokenizer, head_dim=16, num_hidden_layers=3, rope_parameters=rope),
        vision_config=vision,
        **_qwen_ids(tokenizer),
    )
    size = {"shortest_edge": 32 * 32, "longest_edge": 32 * 32 * 160}  # of all frames together
    processor = tf.Qwen3VLProcessor(
        tf.Qwen2VLImageProcessor(patch_size=16, size=size),
        tokenizer,
        tf.Qwen3VLVideoProcessor(size=size),
        chat_template=tokenizer.chat_template,
    )
    return tf.Qwen3VLForConditionalGeneration(config), processor


def _nemotron_h_omni() -> tuple[Any, Any]:
    tokenizer = make_tokenizer(
        [
            *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<image>", "<video>"),
            *("<so_embedding>", "<so_start>", "<so_end>"),
        ],
        video="<video>\n",
        image="<image>\n",
    )
    text = {
        **{"model_type": "nemotron_h", "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64},
        **{"layers_block_type": ["attention", "mamba", "mlp"], "num_attention_heads": 2, "num_key_value_heads": 2},
        **{"head_dim": 16, "ssm_state_size": 8, "mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 2},
        "chunk_size": 8,
    }
    vision = {
        **{"model_type": "radio", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2},
        **{"patch_size": 16, "image_size": 64, "max_img_size": 1024, "num_cls_tokens": 3, "num_registers": 5},
        "video_temporal_patch_size": 2,
    }
    config = tf.NemotronH_Omni_Reasoning_V3_Config(
        text_config=text,
        vision_config=vision,
        audio_config=None,
        projector_hidden_size=64,
        vision_hidden_size=32,
        video_temporal_patch_size=2,
        **token_ids(tokenizer, image="<image>", video="<video>", audio="<so_embedding>"),
    )
    norm = {"norm_mean": [0.48, 0.45, 0.40], "norm_std": [0.26, 0.26, 0.27]}
    processor = tf.NemotronH_Omni_Reasoning_V3Processor(
        tf.NemotronH_Omni_Reasoning_V3ImageProcessor(**norm),
        tf.NemotronH_Omni_Reasoning_V3VideoProcessor(video_target_num_patches=48, **norm),
        tokenizer,
        tf.ParakeetFeatureExtractor(),
        chat_template=tokenizer.chat_template,
    )
    return tf.NemotronH_Omni_Reasoning_V3(config), processor


# --------------------------------------------------------------------------------------------- plain encoders

_VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
_TEXT = {**_VISION, "vocab_size": 64, "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2}


def _image_processor(mean: list[float], std: list[float]) -> Any:
    return tf.ViTImageProcessor(image_mean=mean, image_std=std)


def _dinov2() -> tuple[Any, Any]:
    config = tf.Dinov2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, patch_size=14, image_size=70)
    return tf.Dinov2Model(config), _image_processor([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


def _dinov2_with_registers() -> tuple[Any, Any]:
    config = tf.Dinov2WithRegistersConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, patch_size=14, image_size=70, num_register_tokens=4
    )
    return tf.Dinov2WithRegistersModel(config), _image_processor([0.4, 0.5, 0.6], [0.2, 0.25, 0.3])


def _dinov3_vit() -> tuple[Any, Any]:
    config = tf.DINOv3ViTConfig(**_VISION, patch_size=16, image_size=64, num_register_tokens=4)
    return tf.DINOv3ViTModel(config), _image_processor([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


def _siglip_vision() -> dict[str, Any]:
    return {**_VISION, "patch_size": 16, "image_size": 64}


def _siglip() -> tuple[Any, Any]:
    config = tf.SiglipConfig(text_config=dict(_TEXT), vision_config=_siglip_vision())
    return tf.SiglipModel(config), _image_processor([0.5, 0.5, 0.5], [0.5, 0.5, 0.5])


def _siglip_vision_model() -> tuple[Any, Any]:
    return tf.SiglipVisionModel(tf.SiglipVisionConfig(**_siglip_vision())), _image_processor([0.5] * 3, [0.5] * 3)


def _clip() -> tuple[Any, Any]:
    # 32 is the class's own patch size, so save_pretrained leaves it out of the nested vision_config.
    vision = {**_VISION, "patch_size": 32, "image_size": 96}
    config = tf.CLIPConfig(text_config={**_TEXT, "projection_dim": 16}, vision_config={**vision, "projection_dim": 16})
    return tf.CLIPModel(config), _image_processor([0.48, 0.46, 0.41], [0.27, 0.26, 0.28])


def _clip_vision_model() -> tuple[Any, Any]:
    config = tf.CLIPVisionConfig(**_VISION, patch_size=14, image_size=56)
    return tf.CLIPVisionModel(config), _image_processor([0.48, 0.46, 0.41], [0.27, 0.26, 0.28])


VLM_BUILDERS = {"qwen2_5_vl": _qwen2_5_vl, "qwen3_vl": _qwen3_vl, "nemotron_h_omni": _nemotron_h_omni}
PLAIN_BUILDERS = {
    "dinov2": _dinov2,
    "dinov2_with_registers": _dinov2_with_registers,
    "dinov3_vit": _dinov3_vit,
    "siglip": _siglip,
    "siglip_vision_model": _siglip_vision_model,
    "clip": _clip,
    "clip_vision_model": _clip_vision_model,
}
BUILDERS = {**VLM_BUILDERS, **PLAIN_BUILDERS}
"""Builder of each ``model_type``: its whole model, and its processor or image processor."""


def save_tiny_model(model_type: str, folder: Any) -> None:
    """Write the checkpoint of ``model_type`` to ``folder``, as ``save_pretrained`` writes it."""
    FAMILIES[model_type].require_release(model_type)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, processor = BUILDERS[model_type]()
    blow_up(model)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


# ------------------------------------------------------------------------------- clips, and the model's own words


def profile(count: int) -> Callable[[Any], Any]:
    """Drawn cases that run a model or a processor: no shrinking, which could take minutes of a failing test."""
    return tried_on(count, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))


class DrawnClip(NamedTuple):
    """A clip drawn for a test, with the seed of its pixels."""

    clip: Clip
    seed: int

    def frames(self) -> torch.Tensor:
        """(S, 3, H, W) uint8: noise, so that no two places or frames are alike."""
        generator = torch.Generator().manual_seed(self.seed)
        shape = (self.clip.num_frames, 3, self.clip.height, self.clip.width)
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)


def make_clip(num_frames: int, height: int, width: int, *, fps: float = 2.0, start: float = 0.0) -> Clip:
    """A clip of evenly spaced frames."""
    return Clip(height, width, start + np.arange(num_frames) / fps, num_frames / fps)


SIZES = st.one_of(
    st.tuples(st.integers(29, 220), st.integers(29, 220)),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),  # smaller than a patch, or than a merged one
    st.tuples(st.integers(8, 20), st.integers(180, 420)),  # a strip
    st.tuples(st.integers(180, 420), st.integers(8, 20)),  # a strip on its end
)
"""(height, width): odd, portrait, tiny, and of large aspect, none past the 1:200 that Qwen takes."""


@st.composite
def clips(draw: Any, frame_counts: Any = (1, 2, 3, 5, 8, 9), sizes: Any = SIZES) -> DrawnClip:
    """Odd counts and sizes, NTSC and variable frame rates, and windows that begin anywhere in a long video."""
    num_frames = draw(st.sampled_from(frame_counts))
    height, width = draw(sizes)
    start = draw(st.sampled_from([0.0, 0.041708, 7.3, 3599.97]))
    interval = draw(st.sampled_from([1001 / 24000, 12 * 1001 / 24000, 0.5, 1 / 3, None]))
    if interval is None:  # variable: any whole number of 90 kHz ticks
        ticks = draw(st.lists(st.integers(90, 400_000), min_size=num_frames, max_size=num_frames))
        times = start + np.cumsum([0, *ticks]) / 90_000
    else:
        times = start + np.arange(num_frames + 1) * interval
    tail = draw(st.sampled_from([0.0, 0.25]))  # the window goes on behind the last frame
    clip = Clip(height, width, times[:-1].astype(np.float64), float(times[-1] - times[0]) + tail)
    return DrawnClip(clip, draw(st.integers(0, 99)))


def own_inputs(
    processor: Any, drawn: DrawnClip, text: str, *, frames: torch.Tensor | None = None, repeat_single: bool, **more: Any
) -> Any:
    """What the family's processor makes of a clip when it is told the true times: evs must make the same.

    Args:
        processor: of the whole checkpoint.
        drawn: the clip.
        text: the prompt, or the video's markup alone.
        frames: other pixels than the clip's.
        repeat_single: whether the family refuses a single frame, which is then given twice.
        more: keyword arguments of the processor.
    """
    frames = drawn.frames() if frames is None else frames
    indices = [round(1000 * t) for t in drawn.clip.pts_seconds.tolist()]
    if len(frames) == 1 and repeat_single:
        frames, indices = frames.repeat(2, 1, 1, 1), indices * 2
    metadata = {
        "fps": 1000.0,
        "frames_indices": indices,
        "total_num_frames": round(1000 * drawn.clip.window_seconds),
    }
    return processor(
        text=[text],
        videos=[frames],
        video_metadata=[metadata],
        do_sample_frames=False,
        input_data_format="channels_first",
        return_tensors="pt",
        **more,
    )


_QWEN_MARKUP = "<|vision_start|><|video_pad|><|vision_end|>"
VIDEO_MARKUP = {"qwen2_5_vl": _QWEN_MARKUP, "qwen3_vl": _QWEN_MARKUP, "nemotron_h_omni": "<video>"}
TAKES_ONE_FRAME = {"nemotron_h_omni"}


class TinyFamily:
    """A vision-language checkpoint twice: through evs, and whole, as transformers loads it."""

    markup: ClassVar[Mapping[str, str]] = VIDEO_MARKUP
    """What stands for a video in a prompt, by ``model_type``."""
    takes_one_frame: ClassVar[Set[str]] = TAKES_ONE_FRAME
    """Families whose processor takes a single frame; the others are given it twice."""
    own_arguments: ClassVar[Mapping[str, Any]] = {}
    """What the processor must be told beside, by ``model_type``."""

    def __init__(self, model_type: str, folder: Any) -> None:
        self.model_type, self.folder = model_type, folder
        self.encoder = open_encoder(str(folder))
        self.encoder.load("cpu", torch.float32)
        self.whole = tf.AutoModelForImageTextToText.from_pretrained(folder).eval()
        self.processor = tf.AutoProcessor.from_pretrained(folder)

    def text(self, prompt: str | None) -> str:
        """The chat prompt, or the video's markup alone."""
        if prompt is None:
            return self.markup[self.model_type]
        message = {"role": "user", "content": [{"type": "video"}, {"type": "text", "text": prompt}]}
        return self.processor.apply_chat_template([message], tokenize=False, add_generation_prompt=True)

    def own(self, drawn: DrawnClip, prompt: str | None = None, **more: Any) -> dict[str, Any]:
        """The processor's outputs for a clip, as the whole model takes them."""
        repeats = self.model_type not in self.takes_one_frame
        more = {**self.own_arguments.get(self.model_type, {}), **more}
        inputs = own_inputs(self.processor, drawn, self.text(prompt), repeat_single=repeats, **more)
        return {name: value for name, value in inputs.items() if name != "video_metadata"}

    def own_features(self, inputs: dict[str, Any], *, model: Any = None) -> Any:
        """The whole model's features of the processor's pixels, as its own output object."""
        names = ("pixel_values_videos", "video_grid_thw", "video_merge_sizes")
        with torch.inference_mode():
            return (model or self.whole).get_video_features(**{name: inputs[name] for name in names if name in inputs})

    def own_levels(self, inputs: dict[str, Any], *, model: Any = None) -> list[torch.Tensor]:
        """One (N, D) tensor a level, the main one first."""
        features = self.own_features(inputs, model=model)
        return [features.pooler_output[0], *(level[0] for level in getattr(features, "deepstack_features", None) or [])]

    def with_our_rows(self, inputs: dict[str, Any], levels: Any, mask: torch.Tensor) -> Any:
        """The whole model's output object with our rows ``levels (T, h, w, D)`` in it, kept where ``mask`` says."""
        features = copy.copy(self.own_features(inputs))
        main, *further = (level[mask] for level in levels)
        features.pooler_output = (main,)
        if further:
            features.deepstack_features = [(level,) for level in further]
        return features
