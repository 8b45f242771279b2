"""The result: what is left of a video at one rate, and everything needed to feed it to a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from evs_cli.core.counts import TokenGrid
from evs_cli.core.model_inputs import attention_mask, batched_positions, check_model, features_output, require_release
from evs_cli.errors import UsageError

_NORM_ROWS = 4096


@dataclass(frozen=True, eq=False)
class PrunedVideo:
    """A pruned video: T frames of h x w tokens, of which K are kept; field by field as the artifact stores it."""

    embeddings: torch.Tensor
    """(K, D) kept rows of the main level, in the original order."""
    deepstack_embeddings: tuple[torch.Tensor, ...]
    """(K, D) a further level, under the same mask; empty for most families."""
    extra_embeddings: torch.Tensor
    """(E, D) rows that are no grid token (a newline, a CLS), always kept."""
    extra_positions: torch.Tensor
    """(E,) int64 places of the extra rows in ``input_ids``."""
    retention_mask: torch.Tensor
    """(T, h, w) bool."""
    dissimilarity: torch.Tensor
    """(T, h, w) float32; frame 0 stands as 255."""
    num_tokens_per_frame: torch.Tensor
    """(T,) int64, sums to K."""
    token_thw: torch.Tensor
    """(K, 3) int32 original place of each kept row."""
    input_ids: torch.Tensor
    """(L,) int64 the rebuilt sequence."""
    frame_offsets: torch.Tensor
    """(T, 2) int64 inclusive (start, end) of each frame's placeholders; an empty frame has end = start - 1."""
    position_ids: torch.Tensor | None
    """(3, L) or (L,) int64 positions, selected from the unpruned sequence's; None for a model without (Nemotron)."""
    token_inputs: Mapping[str, torch.Tensor]
    """(L,) int64 further inputs of the language model by their names (ERNIE's experts go by one); mostly empty."""
    frame_indices: torch.Tensor
    """(S,) int64 sampled frames of the file."""
    pts_seconds: torch.Tensor
    """(S,) float64 their presentation times."""
    frame_pts_seconds: torch.Tensor
    """(T,) float64 presentation time of the first sampled frame in each frame of tokens."""
    prompt_seconds: torch.Tensor
    """(T,) float64 the time of each frame of tokens as the model is told it."""
    token_grid_thw: TokenGrid
    """(T, h, w) in tokens."""
    video_grid_thw: tuple[int, int, int]
    """(T, h * m, w * m), m the spatial merge."""
    model_grid_thw: tuple[int, int, int]
    """The family's own grid."""
    spatial_merge_size: int
    temporal_patch_size: int
    placeholder_token_id: int
    modality: str
    """Key of the embeddings in the model's ``mm_encoder_outputs``, ``video`` or ``image``; ``none``: no model's."""
    features_are_batched: bool
    """Whether the model takes the embeddings as ``(1, K + E, D)``; else as a sequence of one ``(K + E, D)`` a video."""
    q: float
    """Pruning rate, in [0, 1)."""
    method: str
    """What chose the tokens: ``evs``, or a control at the same K (``uniform-frames``, ``random``)."""
    min_dissimilarity: float | None
    """Floor of ``evs``: below it nothing is kept beyond frame 0, so fewer than K may be; None for none."""
    seed: int | None
    """Seed of ``random``; None for the others."""
    noise_tokens: int
    """Kept tokens outside frame 0 whose dissimilarity is within rounding of zero."""
    zero_frames: tuple[int, ...]
    """Frames that hold an all-zero token; the rule counts such tokens as new."""
    planned: Mapping[str, Any]
    """Counts known before decoding; see ``ClipCounts.at``."""
    actual: Mapping[str, Any]
    """The same counts of what decoded; they differ for damaged files alone."""
    provenance: Mapping[str, Any]
    """Versions, model, video, sampling, device: what it takes to make the same bytes again."""

    def __post_init__(self) -> None:
        # Callers may give the plain triple; its properties are used from here on.
        object.__setattr__(self, "token_grid_thw", TokenGrid(*self.token_grid_thw))

    @property
    def tokens_per_frame(self) -> int:
        """``h * w``, before pruning."""
        return self.token_grid_thw.tokens_per_frame

    @property
    def total_tokens(self) -> int:
        """N, video tokens before pruning."""
        return self.token_grid_thw.num_tokens

    @property
    def retained_tokens(self) -> int:
        """K, video tokens kept."""
        return int(self.embeddings.shape[0])

    @property
    def sequence_length(self) -> int:
        """L, length of ``input_ids``."""
        return int(self.input_ids.shape[0])

    @property
    def unpruned_sequence_length(self) -> int:
        """Length of the sequence with every video token in it."""
        return self.sequence_length + self.total_tokens - self.retained_tokens

    @property
    def empty_frames(self) -> int:
        """Frames that keep no token."""
        return int((self.num_tokens_per_frame == 0).sum())

    def embedding_norms(self) -> torch.Tensor:
        """``(K,)`` norms of the main level's rows, in float32; in float64 where they overflow that."""
        norms = self._norms(torch.float32)
        return norms if bool(norms.isfinite().all()) else self._norms(torch.float64)

    def _norms(self, dtype: torch.dtype) -> torch.Tensor:
        # Some rows at a time: a widened copy of all would take as much memory as they, or twice.
        return torch.cat([rows.to(dtype).norm(dim=1) for rows in torch.split(self.embeddings, _NORM_ROWS)])

    def model_inputs(self, device: torch.device | str | None = None, *, model: Any = None) -> dict[str, Any]:
        """Keyword arguments for a model's ``forward`` or ``generate``; a batch of one.

        The embeddings go in as ``mm_encoder_outputs``, transformers' way in for features encoded elsewhere, so the
        model puts them (DeepStack levels too) where the placeholders stand. The video is of a model with a language
        part, and preferably made with a prompt.

        Args:
            device: where the tensors go; None leaves them where they are, or is the device of ``model``.
            model: the model they are for, which is then checked: transformers' flash attention reads gaps in 1-d
                positions as packed sequences, and cannot be kept from it.

        Returns:
            ``input_ids (1, L)``, ``attention_mask (1, L)`` that masks nothing (see
            ``evs_cli.core.model_inputs.attention_mask``), ``mm_encoder_outputs``, and ``position_ids``: ``(1, L)``, or
            ``(4, 1, L)`` for mrope (the text's own positions over the three rows); none for a model without positions
            (Nemotron).

        Raises:
            UsageError: embeddings of a plain encoder, which no language model takes, or without the DeepStack levels
                that the model takes.
            ModelError: the installed transformers is too old to take such rows, or ``model`` would give other tokens.
        """
        if self.modality == "none":
            raise UsageError(
                "Invalid video for a language model: its embeddings are a plain encoder's, with generic ids. "
                "Expected an artifact of a vision-language model."
            )
        if self.provenance.get("stored", {}).get("levels") == "main":
            raise UsageError(
                "Invalid video for its language model: it is of an encoding of the main level alone, and the model "
                "takes DeepStack levels too. Expected one of `evs encode --levels all`."
            )
        model_type = str(self.provenance.get("model", {}).get("model_type", ""))
        require_release(model_type)
        positions = self.position_ids
        has_gaps = positions is not None and positions.ndim == 1 and self.retained_tokens < self.total_tokens
        if model is not None:
            check_model(
                model,
                has_gaps=has_gaps,
                modality=self.modality,
                placeholder_token_id=self.placeholder_token_id,
                width=self.embeddings.shape[1],
            )
            device = model.device if device is None else device
        features = features_output(
            with_extra_rows(self).to(device),
            [level.to(device) for level in self.deepstack_embeddings],
            is_batched=self.features_are_batched,
            model_type=model_type,
        )
        inputs: dict[str, Any] = {
            "input_ids": self.input_ids[None].to(device),
            "attention_mask": attention_mask(self.sequence_length, has_gaps=has_gaps).to(device),
            "mm_encoder_outputs": {self.modality: features},
        }
        inputs |= {name: values[None].to(device) for name, values in self.token_inputs.items()}
        if positions is not None:
            inputs["position_ids"] = batched_positions(positions).to(device)
        return inputs

    def __repr__(self) -> str:
        return (
            f"PrunedVideo(q={self.q:g}, {self.retained_tokens} of {self.total_tokens} tokens, "
            f"grid {self.token_grid_thw}, embeddings {tuple(self.embeddings.shape)} {self.embeddings.dtype}, "
            f"sequence {self.sequence_length})"
        )


def with_extra_rows(pruned: PrunedVideo) -> torch.Tensor:
    """(K + E, D): kept and extra rows in the order of their placeholders."""
    if not len(pruned.extra_positions):
        return pruned.embeddings
    spans = pruned.frame_offsets.tolist()
    places = torch.tensor([place for start, end in spans for place in range(start, end + 1)])
    order = torch.cat([places, pruned.extra_positions]).argsort()
    return torch.cat([pruned.embeddings, pruned.extra_embeddings])[order]
