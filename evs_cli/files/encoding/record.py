"""The parts of an encoding's file besides the rows, and their names.

In: an ``EncodedClip`` and what its rows were stored as. Out: a record of plain values for the metadata, and the small
tensors. What the record leaves to others: the rows, and every check of a record that was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from evs_cli.core.dtypes import dtype_name
from evs_cli.encoders.source import ModelSource
from evs_cli.files.kinds import ENCODING_KIND

if TYPE_CHECKING:
    import torch

    from evs_cli.encoders.base import VideoEncoder
    from evs_cli.files.encoding.stored_rows import StoreError
    from evs_cli.pipeline.encoded_video import EncodedClip

SCHEMA_VERSION = 1
INPUT_PREFIX, SCALE_SUFFIX = "token_inputs.", ".scale"
_MAIN, _FURTHER_PREFIX = "embeddings", "deepstack_embeddings."


def level_name(level: int) -> str:
    """Name of a level's rows; 0 is the main one."""
    return _MAIN if level == 0 else f"{_FURTHER_PREFIX}{level - 1}"


@dataclass(frozen=True, eq=False)
class StoredModel:
    """What a file tells of its model, so that nothing has to be opened: as much as costs and rates ask for."""

    source: ModelSource
    has_language_model: bool
    default_pruning_rate: float | None

    @classmethod
    def of(cls, encoder: VideoEncoder) -> StoredModel:
        """What a file is to tell of an encoder."""
        return cls(encoder.source, encoder.has_language_model, encoder.default_pruning_rate)

    def record(self) -> dict[str, Any]:
        """As it stands in the metadata; the configuration's note of the folder it was made in is left out."""
        return {
            "config": _without_paths(dict(self.source.config)),
            "has_language_model": self.has_language_model,
            "default_pruning_rate": self.default_pruning_rate,
        }


@dataclass(frozen=True)
class StoreFacts:
    """What the rows of a file are."""

    dtype: str
    """They lie in this dtype: the embeddings' own, or a name of torch's."""
    embedding_dtype: str
    """They were encoded in this dtype, and are given back in it."""
    dims: tuple[int, ...]
    """D of each stored level, the main one first."""
    num_model_levels: int
    """Levels the model gave; above ``len(dims)`` where only the main one was stored."""
    errors: tuple[StoreError | None, ...]
    """Of each stored level; None where rows lie as they were encoded."""

    @property
    def row_bytes(self) -> int:
        """Bytes of one token's rows in the file, all levels; scales stand in front."""
        import torch

        itemsize: int = getattr(torch, self.dtype).itemsize
        return sum(self.dims) * itemsize

    @property
    def losses(self) -> dict[str, Any]:
        """What a pruned video's provenance must tell; empty where its rows are those of a fresh encoding."""
        stored: dict[str, Any] = {}
        if self.dtype != self.embedding_dtype:
            stored["dtype"] = self.dtype
        if len(self.dims) < self.num_model_levels:
            stored["levels"] = "main"
        return {"stored": stored} if stored else {}


def to_record(clip: EncodedClip, store: StoreFacts, model: StoredModel) -> dict[str, Any]:
    """The values that are no tensors, for JSON."""
    plan = clip.actual
    return {
        "kind": ENCODING_KIND,
        "schema_version": SCHEMA_VERSION,
        "frame_size": list(plan.frame_size),
        "token_grid_thw": list(plan.token_grid_thw),
        "model_grid_thw": list(plan.model_grid_thw),
        "spatial_merge_size": plan.spatial_merge_size,
        "temporal_patch_size": plan.temporal_patch_size,
        "placeholder_token_id": plan.layout.placeholder_token_id,
        "modality": plan.modality,
        "features_are_batched": plan.features_are_batched,
        "processing": dict(plan.processing),
        "planned": asdict(clip.planned),
        "zero_frames": list(clip.zero_frames),
        "score_dtype": dtype_name(clip.ranking.dissimilarity.dtype),
        "store": asdict(store),
        "model": model.record(),
        "provenance": dict(clip.provenance),
    }


def small_tensors(clip: EncodedClip, order: torch.Tensor) -> dict[str, torch.Tensor]:
    """The tensors in front of the rows, by name.

    Args:
        clip: the encoding.
        order: ``(N,)`` int64 tokens by rank.
    """
    import torch

    plan, layout = clip.actual, clip.actual.layout
    tensors = {
        "input_ids": torch.from_numpy(layout.input_ids),
        "token_positions": torch.from_numpy(layout.token_positions),
        "extra_positions": torch.from_numpy(layout.extra_positions),
        "frame_indices": torch.from_numpy(clip.frame_indices),
        "pts_seconds": torch.from_numpy(plan.pts_seconds),
        "prompt_seconds": torch.from_numpy(plan.prompt_seconds),
        "dissimilarity": clip.ranking.dissimilarity.float(),
        "token_index": order.to(torch.int32),
        "extra_embeddings": clip.extra_embeddings,
    }
    if clip.position_ids is not None:
        tensors["position_ids"] = clip.position_ids
    if clip.own_ranking is not None:
        tensors["own_dissimilarity"] = clip.own_ranking.dissimilarity.float()
    return tensors | {f"{INPUT_PREFIX}{name}": torch.from_numpy(values) for name, values in plan.token_inputs.items()}


def _without_paths(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_paths(value) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if key != "_name_or_path"
    }
