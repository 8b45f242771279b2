"""What transformers' ``forward`` and ``generate`` take of a pruned video: the mask, the positions, the rows' own class.

Knows no pruned video, only its tensors. What transformers does with a mask and with gaps in the positions is written
down here, with its source.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

import torch
from packaging.version import Version

from evs_cli.core.releases import require_transformers, transformers_release
from evs_cli.errors import ModelError


def require_release(model_type: str) -> None:
    """Raise ``ModelError`` where the installed transformers would refuse the rows, or put them in wrong places."""
    task = "give a pruned video to a model"
    require_transformers("5.18", task, "forward and generate have no mm_encoder_outputs")
    if model_type == "smolvlm" and transformers_release() > Version("5.20"):
        # 5.20.1 began to cut a SmolVLM's rows into blocks of vision_config.patch_size; 5.21 puts them where they go.
        require_transformers("5.21", task, "a SmolVLM takes rows in whole blocks alone")


def attention_mask(length: int, *, has_gaps: bool) -> torch.Tensor:
    """``(1, L)`` mask that masks nothing, and that ``generate`` does not drop where it is needed.

    Without a mask and without a cache transformers reads every gap in 1-d positions as the seam of packed sequences
    (``masking_utils.find_packed_sequence_indices``, 5.24), and a pruned sequence has gaps. ``generate`` makes None of a
    mask that equals 1 everywhere (``(attention_mask == 1).all()`` in ``GenerationMixin.generate``). So where tokens
    were dropped the mask is float32, and its first entry the next float above 1: as bool, as integers and in sums it
    is a mask of ones, but not equal to one. mrope's positions count the ids themselves in a row of their own, which
    has no gaps; they and unpruned sequences get int64 ones.

    Args:
        length: L, at least 1.
        has_gaps: whether the positions are 1-d and tokens were dropped.
    """
    if not has_gaps:
        return torch.ones(1, length, dtype=torch.int64)
    mask = torch.ones(1, length)
    mask[0, 0] += torch.finfo(mask.dtype).eps
    return mask


def check_model(model: Any, *, has_gaps: bool, modality: str, placeholder_token_id: int, width: int) -> None:
    """Raise ``ModelError`` for a model that would give other tokens for a pruned video, in silence.

    Args:
        model: of transformers.
        has_gaps: as of ``attention_mask``.
        modality: the video's key in ``mm_encoder_outputs``.
        placeholder_token_id: the id of the video's placeholders.
        width: D of its rows.
    """
    name, config = type(model).__name__, model.config
    text_config = config.get_text_config()
    attention = str(getattr(text_config, "_attn_implementation", None))
    # modeling_flash_attention_utils._is_packed_sequence (5.24) looks at the positions alone, with a cache and any mask.
    if has_gaps and "flash" in attention:
        raise ModelError(
            f"{name} would give other tokens: {attention} reads the gaps that pruning leaves in the positions as the "
            "seams of packed sequences. Expected sdpa, eager or flex_attention.",
            hint='model.set_attn_implementation("sdpa"), or from_pretrained(..., attn_implementation="sdpa")',
        )
    placeholder = getattr(config, f"{modality}_token_id", placeholder_token_id)
    if placeholder != placeholder_token_id:
        raise ModelError(
            f"{name} is another model than the video's: its {modality} placeholder has id {placeholder}. "
            f"Expected {placeholder_token_id}."
        )
    own_width = int(text_config.hidden_size)
    if own_width != width:
        raise ModelError(
            f"{name} is another model than the video's: it takes rows of {own_width} numbers. Expected {width}."
        )


def features_output(rows: torch.Tensor, levels: Sequence[torch.Tensor], *, is_batched: bool, model_type: str) -> Any:
    """The rows in the output class of the family's own encoder, which chunked prefill makes again of their slices.

    Args:
        rows: ``(K + E, D)`` of the main level.
        levels: ``(K, D)`` a further level (DeepStack).
        is_batched: whether the model takes the rows as ``(1, K + E, D)``; else as a sequence of one a video.
        model_type: the family.
    """
    pooled = rows[None] if is_batched else (rows,)
    if not levels:
        from transformers.modeling_outputs import BaseModelOutputWithPooling

        return BaseModelOutputWithPooling(pooler_output=pooled)
    # One list of videos a level, as the model's own encoder gives them.
    return _deepstack_class(model_type)(pooler_output=pooled, deepstack_features=[(level,) for level in levels])


def _deepstack_class(model_type: str) -> Any:
    """The output class with ``deepstack_features`` of a family; Qwen3-VL's where it has none of its own."""
    for name in filter(None, (model_type, "qwen3_vl")):
        if importlib.util.find_spec(f"transformers.models.{name}") is not None:
            module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
            found = getattr(module, "BaseModelOutputWithDeepstackFeatures", None)
            if found is not None:
                return found
    raise ModelError("cannot give DeepStack levels to a model: the installed transformers has no class for them.")


def batched_positions(positions: torch.Tensor) -> torch.Tensor:
    """``(1, L)`` of ``(L,)``; ``(4, 1, L)`` of mrope's ``(3, L)``, whose first row counts the ids themselves."""
    if positions.ndim == 1:
        return positions[None]
    text = torch.arange(positions.shape[-1])[None]
    return torch.cat([text, positions])[:, None]
