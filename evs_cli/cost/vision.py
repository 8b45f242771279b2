"""FLOPs of the vision part: tower, and the merger or projector behind it.

The pruning rate changes none of them: every frame is encoded whole before a token can be ranked. In: ``config.json``
and the grids of a plan. Left out, as in ``layers.py``: norms, biases, activations, positions; the pooling heads of
SigLIP and CLIP too, whose output is no token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evs_cli.cost.config_defaults import NO_LANGUAGE_MODEL, PROJECTOR, TOWER_TYPES, VISION
from evs_cli.cost.fields import Fields
from evs_cli.errors import ModelError, UsageError


@dataclass(frozen=True)
class VisionFlops:
    """FLOPs of encoding a clip, the same at every pruning rate."""

    vision_linear_flops: int
    """Patch embedding and the blocks' matrices. Does not depend on q."""
    vision_attention_flops: int
    """QK^T and AV of the blocks, all pairs (nothing is causal). Does not depend on q."""
    vision_projector_flops: int
    """Merger or projector, DeepStack's among them. Does not depend on q."""

    @property
    def vision_flops(self) -> int:
        """The sum."""
        return self.vision_linear_flops + self.vision_attention_flops + self.vision_projector_flops


@dataclass(frozen=True)
class VisionTower:
    """Sizes of a tower whose frames (of patches) do not attend to each other, as all of evs' are."""

    hidden_size: int
    num_blocks: int
    block_parameters: int
    """Parameters in matrices of one block."""
    patch_parameters: int
    """Parameters that embed one patch: ``channels * temporal_patch * patch * patch * hidden``."""
    prefix_tokens: int = 0
    """Class and register tokens before a frame's patches."""
    window_patches: int | None = None
    """Side in patches of an attention window, None where all blocks attend to the whole frame."""
    num_full_blocks: int = 0
    """Blocks that attend to the whole frame although there is a window."""
    token_parameters: int = 0
    """Parameters of merger and projector that act on each token that comes out, on all levels."""
    row_parameters: int = 0
    """Parameters of a projector that acts on each row of the tower, before tokens are pooled."""
    projects_prefix: bool = False
    """Whether ``row_parameters`` act on the prefix tokens too."""
    num_levels: int = 1
    """Embeddings a token has: the main one, and DeepStack's."""

    @property
    def block_parameters_in_all(self) -> int:
        """Parameters in matrices of all blocks."""
        return self.num_blocks * self.block_parameters

    def flops(self, patch_grid_thw: tuple[int, int, int], num_tokens: int) -> VisionFlops:
        """FLOPs of a clip; P = h w patches and R = P + prefix rows a frame, T frames of patches, N tokens.

        linear ``2 T (P patch_parameters + R blocks block_parameters)``; attention ``4 hidden T R^2`` a full block,
        ``4 hidden T (sum of squares of the windows' areas)`` a windowed one; projector
        ``2 (N token_parameters + T rows row_parameters)``.

        Args:
            patch_grid_thw: the family's own grid, in patches (``EncodePlan.model_grid_thw``).
            num_tokens: N, video tokens before pruning.

        Raises:
            UsageError: a negative size.
        """
        frames, height, width = patch_grid_thw
        if min(frames, height, width, num_tokens) < 0:
            raise UsageError(f"Invalid patch grid {patch_grid_thw} of {num_tokens} tokens. Expected no negative size.")
        patches, rows = height * width, height * width + self.prefix_tokens
        num_full = self.num_blocks if self.window_patches is None else self.num_full_blocks
        pairs = num_full * rows**2
        if self.window_patches is not None:
            windows = _squares(height, self.window_patches) * _squares(width, self.window_patches)
            pairs += (self.num_blocks - num_full) * windows
        projected = rows if self.projects_prefix else patches
        return VisionFlops(
            vision_linear_flops=2 * frames * (patches * self.patch_parameters + rows * self.block_parameters_in_all),
            vision_attention_flops=4 * self.hidden_size * frames * pairs,
            vision_projector_flops=2 * (num_tokens * self.token_parameters + frames * projected * self.row_parameters),
        )


def _squares(length: int, part: int) -> int:
    """Sum of the squares of the parts a side is cut into, the last one shorter: 10 by 4 is 16 + 16 + 4."""
    whole, rest = divmod(length, part)
    return whole * part**2 + rest**2


def read_vision_tower(config: Mapping[str, Any], text_hidden_size: int | None) -> VisionTower | None:
    """The vision part of a ``config.json``; None for a family whose tower is not known here.

    Args:
        config: the mapping as it stands.
        text_hidden_size: width of the language model, None for a plain encoder.

    Raises:
        ModelError: sizes that are missing or make no sense.
    """
    family = str(config.get("model_type") or "")
    if family not in VISION:
        return None
    nested = config.get("vision_config")
    if isinstance(nested, Mapping):
        tower_type = str(nested.get("model_type") or "") if family in TOWER_TYPES else family
        tower_type = tower_type if tower_type in VISION else TOWER_TYPES.get(family, family)
        fields = Fields(tower_type, nested, VISION[tower_type])
    else:
        fields = Fields(family, config if family in NO_LANGUAGE_MODEL else {}, VISION[family])
    outer = Fields(family, config, PROJECTOR.get(family, {}))
    return _READERS[family](fields, outer, text_hidden_size or 0)


def _side(fields: Fields) -> tuple[int, int]:
    """(rows, columns) in pixels of a patch."""
    value = fields.get("patch_size")
    sides = tuple(value) if isinstance(value, (list, tuple)) else (value, value)
    if len(sides) != 2 or not all(type(n) is int and n > 0 for n in sides):
        raise ModelError(f"cannot tell the cost of {fields.model_type}: patch_size of its config.json is {value!r}.")
    return sides[0], sides[1]


def _tower(fields: Fields, mlp_parameters: int, *, hidden: int | None = None, **more: Any) -> VisionTower:
    """Blocks of full-width attention (``4 hidden^2``) and an MLP, behind one matrix that embeds patches."""
    width = fields.number("hidden_size") if hidden is None else hidden
    rows, columns = _side(fields)
    return VisionTower(
        hidden_size=width,
        num_blocks=fields.number("depth"),
        block_parameters=4 * width**2 + mlp_parameters,
        patch_parameters=fields.number("num_channels") * fields.number("temporal_patch_size") * rows * columns * width,
        **more,
    )


def _merged(width: int, out: int) -> int:
    """Qwen's merger: the square of patches side by side, to itself, then to the language model's width."""
    return width * width + width * out


def _qwen2(fields: Fields, _outer: Fields, _text: int) -> VisionTower:
    hidden, out = fields.number("embed_dim"), fields.number("hidden_size")
    merged = hidden * fields.number("spatial_merge_size") ** 2
    mlp = 2 * hidden * hidden * fields.number("mlp_ratio")
    return _tower(fields, mlp, hidden=hidden, token_parameters=_merged(merged, out))


def _qwen2_5(fields: Fields, _outer: Fields, _text: int) -> VisionTower:
    hidden, merge = fields.number("hidden_size"), fields.number("spatial_merge_size")
    full = [i for i in fields.numbers("fullatt_block_indexes") if i < fields.number("depth")]
    side = fields.number("window_size") // merge // _side(fields)[0] * merge
    return _tower(
        fields,
        3 * hidden * fields.number("intermediate_size"),
        token_parameters=_merged(hidden * merge**2, fields.number("out_hidden_size")),
        window_patches=max(side, merge),
        num_full_blocks=len(set(full)),
    )


def _qwen3(fields: Fields, _outer: Fields, _text: int) -> VisionTower:
    hidden = fields.number("hidden_size")
    merged = hidden * fields.number("spatial_merge_size") ** 2
    deepstack = "deepstack_visual_indexes" in fields.defaults
    levels = 1 + (len(fields.numbers("deepstack_visual_indexes")) if deepstack else 0)
    return _tower(
        fields,
        2 * hidden * fields.number("intermediate_size"),
        token_parameters=levels * _merged(merged, fields.number("out_hidden_size")),
        num_levels=levels,
    )


def _glm(fields: Fields, _outer: Fields, _text: int) -> VisionTower:
    hidden, out = fields.number("hidden_size"), fields.number("out_hidden_size")
    downsample = hidden * out * fields.number("spatial_merge_size") ** 2
    return _tower(
        fields,
        3 * hidden * out,  # its MLP takes out_hidden_size for the inner size; intermediate_size is the merger's
        token_parameters=downsample + out * out + 3 * out * fields.number("intermediate_size"),
    )


def _ernie(fields: Fields, _outer: Fields, text: int) -> VisionTower:
    hidden, merge = fields.number("hidden_size"), fields.number("spatial_merge_size")
    merged = hidden * merge**2
    joined = merged * fields.number("temporal_merge_size")
    return _tower(
        fields,
        2 * hidden * fields.number("intermediate_size"),
        row_parameters=2 * merged * hidden,  # two (merged, merged) matrices on every square of merge**2 patches
        token_parameters=joined * merged + merged * merged + merged * text,
    )


def _radio(fields: Fields, outer: Fields, text: int) -> VisionTower:
    hidden = fields.number("hidden_size")
    inner = outer.number("projector_hidden_size")
    return _tower(
        fields,
        _ratio_mlp(fields, hidden),
        prefix_tokens=fields.number("num_cls_tokens", at_least=0) + fields.number("num_registers", at_least=0),
        token_parameters=_unshuffled(outer, hidden) * inner + inner * text,
    )


def _ratio_mlp(fields: Fields, hidden: int) -> int:
    """An MLP of ``mlp_ratio``; SwiGLU keeps two thirds of it, rounded up to a multiple of 8, in three matrices."""
    ratio = fields.get("mlp_ratio")
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or ratio <= 0:
        raise ModelError(f"cannot tell the cost of {fields.model_type}: mlp_ratio of its config.json is {ratio!r}.")
    inner = int(hidden * ratio)
    if fields.get("use_swiglu_ffn"):
        return 3 * hidden * ((int(inner * 2 / 3) + 7) // 8 * 8)
    return 2 * hidden * inner


def _unshuffled(outer: Fields, hidden: int) -> int:
    """Width after ``1 / downsample_ratio`` squared patches are laid side by side."""
    ratio = outer.get("downsample_ratio")
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio <= 1:
        raise ModelError(
            f"cannot tell the cost of {outer.model_type}: downsample_ratio of its config.json is {ratio!r}."
        )
    return hidden * int(1 / ratio) ** 2


_CLASS_TOKEN = frozenset({"clip", "clip_vision_model", "internvl", "llava_next_video", "video_llava"})


def _frames(project: Callable[[Fields, int, int], dict[str, Any]]) -> Callable[[Fields, Fields, int], VisionTower]:
    """A reader of a ViT with an MLP of ``intermediate_size`` and a projector of its family's kind."""

    def read(fields: Fields, outer: Fields, text: int) -> VisionTower:
        hidden = fields.number("hidden_size")
        mlp = 2 * hidden * fields.number("intermediate_size")
        prefix = 1 if fields.model_type in _CLASS_TOKEN else 0
        return _tower(fields, mlp, prefix_tokens=prefix, **project(outer, hidden, text))

    return read


def _two_layers(width: int, text: int) -> int:
    return width * text + text * text


def _selected(outer: Fields, hidden: int) -> int:
    """Width of the tower's rows that a llava takes: of one layer, or of several side by side."""
    layers = outer.values.get("vision_feature_layer")
    return hidden * (len(layers) if isinstance(layers, (list, tuple)) else 1)


def _dino(fields: Fields, _outer: Fields, _text: int) -> VisionTower:
    registers = fields.number("num_register_tokens", at_least=0) if "num_register_tokens" in fields.defaults else 0
    hidden = fields.number("hidden_size")
    if "mlp_ratio" in fields.defaults:
        mlp = _ratio_mlp(fields, hidden)
    else:
        mlp = (3 if fields.get("use_gated_mlp") else 2) * hidden * fields.number("intermediate_size")
    return _tower(fields, mlp, prefix_tokens=1 + registers)


_READERS: dict[str, Callable[[Fields, Fields, int], VisionTower]] = {
    "qwen2_vl": _qwen2,
    "qwen2_5_vl": _qwen2_5,
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), _qwen3),
    **dict.fromkeys(("glm4v", "glm4v_moe", "glm46v"), _glm),
    "ernie4_5_vl_moe": _ernie,
    "nemotron_h_omni": _radio,
    "internvl": _frames(lambda o, h, t: {"token_parameters": _two_layers(_unshuffled(o, h), t)}),
    "smolvlm": _frames(lambda o, h, t: {"token_parameters": h * o.number("scale_factor") ** 2 * t}),
    "video_llama_3": _frames(lambda o, h, t: {"token_parameters": _two_layers(h, t)}),
    "llava_onevision": _frames(lambda o, h, t: {"row_parameters": _two_layers(_selected(o, h), t)}),
    "llava_next_video": _frames(lambda o, h, t: {"token_parameters": _two_layers(_selected(o, h), t)}),
    "video_llava": _frames(
        lambda o, h, t: {"row_parameters": _two_layers(_selected(o, h), t), "projects_prefix": True}
    ),
    **dict.fromkeys(("dinov2", "dinov2_with_registers", "dinov3_vit"), _dino),
    **dict.fromkeys(("siglip", "siglip_vision_model", "siglip2", "siglip2_vision_model"), _frames(lambda o, h, t: {})),
    **dict.fromkeys(("clip", "clip_vision_model"), _frames(lambda o, h, t: {})),
}
