"""A pruned video as transformers takes it: the keyword arguments of ``forward`` and ``generate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from packaging.version import Version

from evs_cli.core.releases import require_transformers, transformers_release
from evs_cli.errors import UsageError

if TYPE_CHECKING:
    from evs_cli.core.pruned_video import PrunedVideo


def model_inputs(pruned: PrunedVideo, device: torch.device | str | None = None) -> dict[str, Any]:
    """Keyword arguments for a model's ``forward`` or ``generate``; a batch of one.

    The embeddings go in as ``mm_encoder_outputs``, transformers' way in for features encoded elsewhere, so the model
    puts them (DeepStack levels too) where the placeholders stand. Load the model with its own pruning off: Nemotron
    with a ``video_pruning_rate`` above 0 would prune the rows again, in silence.

    Args:
        pruned: the video, of a model with a language part and preferably made with a prompt.
        device: where the tensors go; None leaves them where they are.

    Returns:
        ``input_ids (1, L)``, ``attention_mask (1, L)`` of ones, ``mm_encoder_outputs``, and ``position_ids``:
        ``(1, L)``, or ``(4, 1, L)`` for mrope (the text's own positions over the three rows); none for recurrent
        models.

    Raises:
        UsageError: embeddings of a plain encoder, which no language model takes, or without the DeepStack levels that
            the model takes.
        ModelError: the installed transformers is too old to take such rows.
    """
    if pruned.modality == "none":
        raise UsageError(
            "Invalid video for a language model: its embeddings are a plain encoder's, with generic ids. "
            "Expected an artifact of a vision-language model."
        )
    if pruned.provenance.get("stored", {}).get("levels") == "main":
        raise UsageError(
            "Invalid video for its language model: it is of an encoding of the main level alone, and the model takes "
            "DeepStack levels too. Expected one of `evs encode --levels all`."
        )
    _require_release(pruned)
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    rows = with_extra_rows(pruned).to(device)
    features = BaseModelOutputWithPooling(pooler_output=rows[None] if pruned.features_are_batched else (rows,))
    if pruned.deepstack_embeddings:
        # One list of videos a level, as the model's own encoder gives them.
        features["deepstack_features"] = [(level.to(device),) for level in pruned.deepstack_embeddings]
    inputs: dict[str, Any] = {
        "input_ids": pruned.input_ids[None].to(device),
        # Of ones, and needed: without it, gaps in the positions would be read as the seams of packed sequences.
        "attention_mask": torch.ones_like(pruned.input_ids)[None].to(device),
        "mm_encoder_outputs": {pruned.modality: features},
    }
    inputs |= {name: values[None].to(device) for name, values in pruned.token_inputs.items()}
    positions = pruned.position_ids
    if positions is not None:
        inputs["position_ids"] = _batched(positions).to(device)
    return inputs


def _require_release(pruned: PrunedVideo) -> None:
    """Raise ``ModelError`` where the installed transformers would refuse the rows, or put them in wrong places."""
    task = "give a pruned video to a model"
    require_transformers("5.18", task, "forward and generate have no mm_encoder_outputs")
    if pruned.provenance.get("model", {}).get("model_type") == "smolvlm" and transformers_release() > Version("5.20"):
        # 5.20.1 began to cut a SmolVLM's rows into blocks of vision_config.patch_size; 5.21 puts them where they go.
        require_transformers("5.21", task, "a SmolVLM takes rows in whole blocks alone")


def with_extra_rows(pruned: PrunedVideo) -> torch.Tensor:
    """(K + E, D): kept and extra rows in the order of their placeholders."""
    if not len(pruned.extra_positions):
        return pruned.embeddings
    spans = pruned.frame_offsets.tolist()
    places = torch.tensor([place for start, end in spans for place in range(start, end + 1)])
    order = torch.cat([places, pruned.extra_positions]).argsort()
    return torch.cat([pruned.embeddings, pruned.extra_embeddings])[order]


def _batched(positions: torch.Tensor) -> torch.Tensor:
    """``(1, L)`` of ``(L,)``; ``(4, 1, L)`` of mrope's ``(3, L)``, whose first row counts the ids themselves."""
    if positions.ndim == 1:
        return positions[None]
    text = torch.arange(positions.shape[-1])[None]
    return torch.cat([text, positions])[:, None]
