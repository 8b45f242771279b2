"""A pruned video as keyword arguments of transformers' ``forward`` and ``generate``.

In: a ``PrunedVideo``, and perhaps the model it goes to. Out: tensors, and the family's own output object around the
rows. What transformers does with a mask and with gaps in the positions is written down here, with its source.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

import torch
from packaging.version import Version

from evs_cli.core.pruned_video import with_extra_rows
from evs_cli.core.releases import require_transformers, transformers_release
from evs_cli.errors import ModelError, UsageError

if TYPE_CHECKING:
    from evs_cli.core.pruned_video import PrunedVideo


def model_inputs(pruned: PrunedVideo, device: torch.device | str | None, model: Any) -> dict[str, Any]:
    """See ``PrunedVideo.model_inputs``."""
    if pruned.modality == "none":
        raise UsageError(
            "Invalid video for a language model: its embeddings are a plain encoder's, with generic ids. "
            "Expected an artifact of a vision-language model."
        )
    if pruned.provenance.get("stored", {}).get("levels") == "main":
        raise UsageError(
            "Invalid video for its language model: it is of an encoding of the main level alone, and the model "
            "takes DeepStack levels too. Expected one of `evs encode --levels all`."
        )
    require_release(pruned)
    if model is not None:
        _check_model(pruned, model)
        device = model.device if device is None else device
    inputs: dict[str, Any] = {
        "input_ids": pruned.input_ids[None].to(device),
        "attention_mask": attention_mask(pruned).to(device),
        "mm_encoder_outputs": {pruned.modality: _features(pruned, device)},
    }
    inputs |= {name: values[None].to(device) for name, values in pruned.token_inputs.items()}
    if pruned.position_ids is not None:
        inputs["position_ids"] = _batched(pruned.position_ids).to(device)
    return inputs


def require_release(pruned: PrunedVideo) -> None:
    """Raise ``ModelError`` where the installed transformers would refuse the rows, or put them in wrong places."""
    task = "give a pruned video to a model"
    require_transformers("5.18", task, "forward and generate have no mm_encoder_outputs")
    if _model_type(pruned) == "smolvlm" and transformers_release() > Version("5.20"):
        # 5.20.1 began to cut a SmolVLM's rows into blocks of vision_config.patch_size; 5.21 puts them where they go.
        require_transformers("5.21", task, "a SmolVLM takes rows in whole blocks alone")


def attention_mask(pruned: PrunedVideo) -> torch.Tensor:
    """``(1, L)`` mask that masks nothing, and that ``generate`` does not drop where it is needed.

    Without a mask and without a cache transformers reads every gap in 1-d positions as the seam of packed sequences
    (``masking_utils.find_packed_sequence_indices``, 5.24), and a pruned sequence has gaps. ``generate`` makes None of a
    mask that equals 1 everywhere (``(attention_mask == 1).all()`` in ``GenerationMixin.generate``). So where tokens
    were dropped the mask is float32, and its first entry the next float above 1: as bool, as integers and in sums it
    is a mask of ones, but not equal to one. mrope's positions count the ids themselves in a row of their own, which
    has no gaps; they and unpruned sequences get int64 ones.
    """
    positions = pruned.position_ids
    ones = torch.ones(1, pruned.sequence_length, dtype=torch.int64)
    if positions is None or positions.ndim != 1 or pruned.retained_tokens == pruned.total_tokens:
        return ones
    mask = ones.float()
    mask[0, 0] += torch.finfo(mask.dtype).eps
    return mask


def _check_model(pruned: PrunedVideo, model: Any) -> None:
    """Raise ``ModelError`` for a model that would give other tokens for these inputs, in silence."""
    name, config = type(model).__name__, model.config
    positions = pruned.position_ids
    has_gaps = positions is not None and positions.ndim == 1 and pruned.retained_tokens < pruned.total_tokens
    text_config = config.get_text_config()
    attention = str(getattr(text_config, "_attn_implementation", None))
    # modeling_flash_attention_utils._is_packed_sequence (5.24) looks at the positions alone, with a cache and any mask.
    if has_gaps and "flash" in attention:
        raise ModelError(
            f"{name} would give other tokens: {attention} reads the gaps that pruning leaves in the positions as the "
            "seams of packed sequences. Expected sdpa, eager or flex_attention.",
            hint='model.set_attn_implementation("sdpa"), or from_pretrained(..., attn_implementation="sdpa")',
        )
    placeholder = getattr(config, f"{pruned.modality}_token_id", pruned.placeholder_token_id)
    if placeholder != pruned.placeholder_token_id:
        raise ModelError(
            f"{name} is another model than the video's: its {pruned.modality} placeholder has id {placeholder}. "
            f"Expected {pruned.placeholder_token_id}."
        )
    width = int(text_config.hidden_size)
    if width != pruned.embeddings.shape[1]:
        raise ModelError(
            f"{name} is another model than the video's: it takes rows of {width} numbers. "
            f"Expected {pruned.embeddings.shape[1]}."
        )


def _features(pruned: PrunedVideo, device: torch.device | str | None) -> Any:
    """The rows in the output class of the family's own encoder, which chunked prefill makes again of their slices."""
    rows = with_extra_rows(pruned).to(device)
    pooled = rows[None] if pruned.features_are_batched else (rows,)
    if not pruned.deepstack_embeddings:
        from transformers.modeling_outputs import BaseModelOutputWithPooling

        return BaseModelOutputWithPooling(pooler_output=pooled)
    # One list of videos a level, as the model's own encoder gives them.
    levels = [(level.to(device),) for level in pruned.deepstack_embeddings]
    return _deepstack_class(_model_type(pruned))(pooler_output=pooled, deepstack_features=levels)


def _deepstack_class(model_type: str) -> Any:
    """The output class with ``deepstack_features`` of a family; Qwen3-VL's where it has none of its own."""
    for name in (model_type, "qwen3_vl"):
        module = f"transformers.models.{name}.modeling_{name}"
        if name and importlib.util.find_spec(module.rpartition(".")[0]) is not None:
            found = getattr(importlib.import_module(module), "BaseModelOutputWithDeepstackFeatures", None)
            if found is not None:
                return found
    raise ModelError("cannot give DeepStack levels to a model: the installed transformers has no class for them.")


def _model_type(pruned: PrunedVideo) -> str:
    return str(pruned.provenance.get("model", {}).get("model_type", ""))


def _batched(positions: torch.Tensor) -> torch.Tensor:
    """``(1, L)`` of ``(L,)``; ``(4, 1, L)`` of mrope's ``(3, L)``, whose first row counts the ids themselves."""
    if positions.ndim == 1:
        return positions[None]
    text = torch.arange(positions.shape[-1])[None]
    return torch.cat([text, positions])[:, None]
