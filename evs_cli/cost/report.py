"""What a prompt costs, before and after pruning: cache, prefill, vision, disk.

In: a ``config.json``, sequence lengths, video tokens kept. Out: a ``CostReport``, plain numbers with their units in
their names, ready for ``dataclasses.asdict`` and JSON. A model of the arithmetic, not of time: it knows no device,
no batch, no kernel and no parallelism.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from evs_cli.cost.fields import dtype_bytes, dtype_name
from evs_cli.cost.language_model import LanguageModel, read_language_model
from evs_cli.cost.vision import VisionFlops, VisionTower, read_vision_tower
from evs_cli.errors import UsageError


def kv_cache_bytes(model: LanguageModel, num_tokens: int, kv_dtype: str | None = None) -> int:
    """Bytes of keys and values of a prompt: sum over attention layers of ``min(L, window) * 2 kv_heads head_dim * b``.

    Layers without attention keep none. A sliding window is counted as its window, which is what is needed; a server
    without a cache manager for it keeps all L. Rounding up to a server's blocks (of 16 tokens, say) is left out.

    Args:
        model: the language model.
        num_tokens: L, length of the prompt.
        kv_dtype: dtype of the cache; None is the model's own. ``fp8`` is 1 byte a value, its scales left out.

    Raises:
        UsageError: a negative length or unknown dtype.
    """
    _check_tokens(num_tokens)
    return cached_bytes(kv_bytes_by_window(model, kv_dtype), num_tokens)


def kv_bytes_by_window(model: LanguageModel, kv_dtype: str | None = None) -> dict[int | None, int]:
    """Bytes a token of keys and values, summed over the layers of each sliding window; None is full attention.

    ``cached_bytes`` makes of them what a prompt takes.
    """
    width = dtype_bytes(kv_dtype or model.dtype)
    by_window: dict[int | None, int] = {}
    for layer in model.attention_layers:
        by_window[layer.window_tokens] = by_window.get(layer.window_tokens, 0) + layer.kv_values_per_token * width
    return by_window


def cached_bytes(by_window: Mapping[int | None, int], num_tokens: int) -> int:
    """Bytes of keys and values of L tokens: the sum over the windows of ``min(L, window) * bytes``."""
    return sum(each * (num_tokens if window is None else min(num_tokens, window)) for window, each in by_window.items())


def recurrent_state_bytes(model: LanguageModel) -> int:
    """Bytes of the states of Mamba-2 and DeltaNet layers: constant, whatever the prompt's length.

    ``state_values`` in the state's own dtype (float32 as a rule) and ``conv_channels * (conv_kernel - 1)`` of the
    convolution in the model's, as vLLM keeps them; transformers keeps ``conv_kernel`` columns, one more.
    """
    convolution = dtype_bytes(model.dtype)
    return sum(
        layer.state_values * layer.state_dtype_bytes + layer.conv_channels * (layer.conv_kernel - 1) * convolution
        for layer in model.recurrent_layers
    )


def embedding_bytes(num_rows: int, embedding_size: int, num_levels: int, dtype: str) -> int:
    """Bytes of the kept rows on disk: ``K * D * levels * bytes``; masks, ids and scores of the artifact come on top.

    Raises:
        UsageError: a negative count or unknown dtype.
    """
    if min(num_rows, embedding_size, num_levels) < 0:
        raise UsageError(f"Invalid embeddings ({num_rows} x {embedding_size} x {num_levels}). Expected no negative.")
    return num_rows * embedding_size * num_levels * dtype_bytes(dtype)


@dataclass(frozen=True)
class PrefillFlops:
    """FLOPs of a prompt's prefill, one multiplication or addition each."""

    prefill_linear_flops: int
    """Products with weight matrices, and the output head at the last position."""
    prefill_attention_flops: int
    """QK^T and AV over causal pairs."""
    prefill_scan_flops: int
    """Recurrences and convolutions of Mamba-2 and DeltaNet layers."""

    @property
    def prefill_flops(self) -> int:
        """The sum."""
        return self.prefill_linear_flops + self.prefill_attention_flops + self.prefill_scan_flops


def prefill_flops(model: LanguageModel, num_tokens: int, num_video_tokens: int = 0) -> PrefillFlops:
    """FLOPs of prefilling L tokens in one go.

    linear ``2 * active_parameters * L + 2 * vocab * hidden`` (a token multiplies its experts only; the head runs at
    the last position alone, as servers do; the embedding is a look-up); attention ``4 * heads * head_dim`` a causal
    pair, ``L (L + 1) / 2`` pairs a full layer: the least that is needed, about half of the square that a kernel
    without causal skipping computes; scan as in ``layers.py``.

    Args:
        model: the language model.
        num_tokens: L, length of the prompt.
        num_video_tokens: how many of them are video, for a family with experts of their own for these.

    Raises:
        UsageError: a negative length, or more video tokens than tokens.
    """
    _check_tokens(num_tokens)
    if not 0 <= num_video_tokens <= num_tokens:
        raise UsageError(f"Invalid video tokens ({num_video_tokens}). Expected 0 to {num_tokens}, the prompt's length.")
    text = (num_tokens - num_video_tokens) * model.active_layer_parameters()
    video = num_video_tokens * model.active_layer_parameters(is_video=True)
    head = model.head_parameters if num_tokens else 0
    return PrefillFlops(
        prefill_linear_flops=2 * (text + video + head),
        prefill_attention_flops=sum(a.attention_flops(num_tokens) for a in model.attention_layers),
        prefill_scan_flops=num_tokens * sum(layer.scan_flops_per_token for layer in model.recurrent_layers),
    )


@dataclass(frozen=True)
class PromptCost:
    """What one prompt costs the language model."""

    sequence_tokens: int
    """L, text and separators included."""
    video_tokens: int
    """Video tokens among them."""
    kv_cache_bytes: int
    """Keys and values of all attention layers."""
    recurrent_state_bytes: int
    """States of recurrent layers; the same at every length."""
    prefill_linear_flops: int
    """See ``PrefillFlops``."""
    prefill_attention_flops: int
    """See ``PrefillFlops``."""
    prefill_scan_flops: int
    """See ``PrefillFlops``."""
    prefill_flops: int
    """The sum of the three."""
    context_share: float
    """``sequence_tokens / context_limit_tokens``; above 1 it does not fit."""
    prompts_in_kv_budget: int | None
    """Prompts whose caches and states fit the budget together, nothing shared; None without a budget or cache."""


@dataclass(frozen=True)
class CostReport:
    """The costs of a clip in a prompt, whole and pruned. ``dataclasses.asdict`` of it is JSON as it stands."""

    model_type: str
    """The family."""
    language_model_type: str | None
    """Of the language model's configuration; None for a plain encoder."""
    context_limit_tokens: int | None
    """Longest sequence: what was asked for, else ``max_position_embeddings``."""
    kv_dtype: str | None
    """Dtype of keys and values."""
    kv_budget_bytes: int | None
    """The budget asked for."""
    unpruned: PromptCost | None
    """At q = 0; None for a plain encoder."""
    pruned: PromptCost | None
    """With K video tokens; None for a plain encoder."""
    kv_cache_ratio: float | None
    """Pruned over unpruned keys and values."""
    prefill_linear_ratio: float | None
    """Pruned over unpruned."""
    prefill_attention_ratio: float | None
    """Pruned over unpruned; about the square of the ratio of lengths."""
    prefill_flops_ratio: float | None
    """Pruned over unpruned, everything."""
    vision_linear_flops: int | None
    """Of the tower. The pruning rate does not change it: frames are encoded whole before they are ranked."""
    vision_attention_flops: int | None
    """Of the tower. The pruning rate does not change it."""
    vision_projector_flops: int | None
    """Merger or projector. The pruning rate does not change it."""
    vision_flops: int | None
    """The sum of the three; None where the tower or its grid is not known."""
    embedding_dtype: str
    """Of the rows on disk."""
    embedding_size: int | None
    """D, width of a row; None where it is not known."""
    embedding_levels: int
    """Rows a token has: 1, and one for each DeepStack level."""
    embedding_bytes: int | None
    """The K kept rows on disk, all levels."""
    unpruned_embedding_bytes: int | None
    """All rows on disk, all levels."""
    assumed_fields: tuple[str, ...]
    """Fields ``config.json`` leaves out, taken from transformers' class."""


def cost_report(
    config: Mapping[str, Any],
    *,
    unpruned_tokens: int,
    pruned_tokens: int,
    retained_video_tokens: int,
    patch_grid_thw: tuple[int, int, int] | None = None,
    context_limit: int | None = None,
    kv_budget_bytes: int | None = None,
    kv_dtype: str | None = None,
    embedding_dtype: str | None = None,
) -> CostReport:
    """The costs of one clip, whole and pruned.

    Args:
        config: ``config.json`` as it stands (``ModelSource.config``).
        unpruned_tokens: length of the sequence at q = 0 (``EncodePlan.sequence_length()``).
        pruned_tokens: its length after pruning (``EncodePlan.sequence_length(q)``).
        retained_video_tokens: K (``EncodePlan.retained_tokens(q)``).
        patch_grid_thw: the family's grid (``EncodePlan.model_grid_thw``), for the vision part; None leaves it out.
        context_limit: longest sequence; None is the model's own.
        kv_budget_bytes: memory for caches, to tell how many such prompts fit.
        kv_dtype: of the cache; None is the model's.
        embedding_dtype: of the rows on disk; None is the model's, or float32 for a plain encoder.

    Raises:
        UsageError: lengths that contradict each other, a negative budget, an unknown dtype.
        ModelError: a configuration whose sizes are missing or make no sense.
    """
    total_video = retained_video_tokens + unpruned_tokens - pruned_tokens
    if not 0 <= retained_video_tokens <= pruned_tokens <= unpruned_tokens:
        raise UsageError(
            f"Invalid lengths: {retained_video_tokens} video tokens kept, {pruned_tokens} tokens pruned, "
            f"{unpruned_tokens} unpruned. Expected them in rising order, none negative."
        )
    if kv_budget_bytes is not None and kv_budget_bytes < 0:
        raise UsageError(f"Invalid cache budget ({kv_budget_bytes} bytes). Expected at least 0.")
    model = read_language_model(config)
    tower = read_vision_tower(config, None if model is None else model.hidden_size)
    vision = None if tower is None or patch_grid_thw is None else tower.flops(patch_grid_thw, total_video)
    unpruned = pruned = None
    if model is not None:
        if context_limit is not None:
            model = replace(model, context_limit_tokens=context_limit)
        unpruned = _prompt_cost(model, unpruned_tokens, total_video, kv_dtype, kv_budget_bytes)
        pruned = _prompt_cost(model, pruned_tokens, retained_video_tokens, kv_dtype, kv_budget_bytes)
    rows_dtype = dtype_name(embedding_dtype or ("float32" if model is None else model.dtype))
    size, levels = _embedding_shape(model, tower)
    return CostReport(
        model_type=str(config.get("model_type") or ""),
        language_model_type=None if model is None else model.model_type,
        context_limit_tokens=None if model is None else model.context_limit_tokens,
        kv_dtype=None if model is None else dtype_name(kv_dtype or model.dtype),
        kv_budget_bytes=kv_budget_bytes,
        unpruned=unpruned,
        pruned=pruned,
        kv_cache_ratio=_ratio(pruned, unpruned, "kv_cache_bytes"),
        prefill_linear_ratio=_ratio(pruned, unpruned, "prefill_linear_flops"),
        prefill_attention_ratio=_ratio(pruned, unpruned, "prefill_attention_flops"),
        prefill_flops_ratio=_ratio(pruned, unpruned, "prefill_flops"),
        **_vision_fields(vision),
        embedding_dtype=rows_dtype,
        embedding_size=size,
        embedding_levels=levels,
        embedding_bytes=None if size is None else embedding_bytes(retained_video_tokens, size, levels, rows_dtype),
        unpruned_embedding_bytes=None if size is None else embedding_bytes(total_video, size, levels, rows_dtype),
        assumed_fields=() if model is None else model.assumed_fields,
    )


def _embedding_shape(model: LanguageModel | None, tower: VisionTower | None) -> tuple[int | None, int]:
    """(D, levels) of a video token's rows."""
    width = model.hidden_size if model is not None else (None if tower is None else tower.hidden_size)
    return width, 1 if tower is None else tower.num_levels


def _vision_fields(vision: VisionFlops | None) -> dict[str, int | None]:
    names = ("vision_linear_flops", "vision_attention_flops", "vision_projector_flops", "vision_flops")
    return {name: None if vision is None else getattr(vision, name) for name in names}


def _prompt_cost(
    model: LanguageModel, num_tokens: int, num_video_tokens: int, kv_dtype: str | None, kv_budget_bytes: int | None
) -> PromptCost:
    flops = prefill_flops(model, num_tokens, num_video_tokens)
    cache, state = kv_cache_bytes(model, num_tokens, kv_dtype), recurrent_state_bytes(model)
    return PromptCost(
        sequence_tokens=num_tokens,
        video_tokens=num_video_tokens,
        kv_cache_bytes=cache,
        recurrent_state_bytes=state,
        prefill_linear_flops=flops.prefill_linear_flops,
        prefill_attention_flops=flops.prefill_attention_flops,
        prefill_scan_flops=flops.prefill_scan_flops,
        prefill_flops=flops.prefill_flops,
        context_share=num_tokens / model.context_limit_tokens,
        prompts_in_kv_budget=None if kv_budget_bytes is None else prompts_in_budget(kv_budget_bytes, cache + state),
    )


def prompts_in_budget(budget_bytes: int, prompt_bytes: int) -> int | None:
    """``budget // prompt``: whole prompts that fit side by side; None for a prompt that takes nothing."""
    return budget_bytes // prompt_bytes if prompt_bytes else None


def _ratio(pruned: PromptCost | None, unpruned: PromptCost | None, name: str) -> float | None:
    """Pruned over unpruned; None where there is nothing to compare with."""
    if pruned is None or unpruned is None or not getattr(unpruned, name):
        return None
    return float(getattr(pruned, name) / getattr(unpruned, name))


def _check_tokens(num_tokens: int) -> None:
    if num_tokens < 0:
        raise UsageError(f"Invalid length of a prompt ({num_tokens} tokens). Expected at least 0.")
