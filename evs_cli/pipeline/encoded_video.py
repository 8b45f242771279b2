"""A video encoded once: the counts it was planned with, the ranking of its tokens, and the rows that were kept of them.

``EncodedClip`` holds everything except the rows. Its three subclasses add them: ``EncodedVideo`` has every row and
serves any rate, ``RetainedVideo`` has the rows that the rates asked for keep, ``StoredVideo`` reads rows from a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evs_cli.core.counts import TokenGrid
from evs_cli.encoders.base import EncodePlan
from evs_cli.errors import UsageError

if TYPE_CHECKING:
    import torch

    from evs_cli.core.methods import RetentionRule
    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.core.retention import Ranking, Retention
    from evs_cli.core.streaming import RetainedRows


@dataclass(frozen=True)
class ClipCounts:
    """The counts that settle all others at every rate; those of the plan outlive it, in a file."""

    num_sampled_frames: int
    """S."""
    token_grid_thw: TokenGrid
    sequence_length: int
    """L before pruning."""

    @classmethod
    def of(cls, plan: EncodePlan) -> ClipCounts:
        """The counts of a plan."""
        return cls(len(plan.pts_seconds), plan.token_grid_thw, plan.sequence_length())

    def at(self, q: float) -> dict[str, Any]:
        """All counts at rate q, as the artifact records them; with a floor, the tokens kept are at most these."""
        total, retained = self.token_grid_thw.num_tokens, self.token_grid_thw.retained_tokens(q)
        return {
            "num_sampled_frames": self.num_sampled_frames,
            "token_grid_thw": list(self.token_grid_thw),
            "total_tokens": total,
            "retained_tokens": retained,
            "sequence_length": self.sequence_length - total + retained,
        }


def lost_frames_sentence(num_lost: int, num_sampled: int) -> str:
    """What to tell of sampled frames that did not decode."""
    return f"{num_lost} of {num_sampled} sampled frames do not decode and are left out."


@dataclass(frozen=True, eq=False)
class EncodedClip:
    """What an encoding tells but for its rows; with the rows a rate keeps, ``assemble`` makes the pruned video."""

    planned: ClipCounts
    """Of all sampled frames; of ``actual`` unless the file is damaged."""
    actual: EncodePlan
    """The plan of the frames that decoded."""
    frame_indices: np.ndarray[Any, np.dtype[np.int64]]
    """(S,) indices of the sampled frames that decoded."""
    extra_embeddings: torch.Tensor
    """(E, D) rows that are no grid token, in the order of their placeholders."""
    ranking: Ranking
    own_ranking: Ranking | None
    """The ranking by the embeddings' own dtype, where scores of another were asked for."""
    zero_frames: tuple[int, ...]
    """Frames that hold an all-zero token."""
    position_ids: torch.Tensor | None
    """Positions of the unpruned sequence."""
    provenance: Mapping[str, Any]
    timings_seconds: Mapping[str, float]

    @property
    def loss(self) -> str | None:
        """A sentence on sampled frames that did not decode; None where all did."""
        lost = self.planned.num_sampled_frames - len(self.actual.pts_seconds)
        return lost_frames_sentence(lost, self.planned.num_sampled_frames) if lost else None

    def tokens_moved_by_score_dtype(self, q: float) -> int | None:
        """Tokens kept at rate q that the embeddings' own dtype would have dropped; None where it scored itself."""
        if self.own_ranking is None:
            return None
        ours, own = self.ranking.at(q).retention_mask, self.own_ranking.at(q).retention_mask
        return int((ours & ~own).sum())

    def rows_of(self, tokens: torch.Tensor, level: int = 0) -> torch.Tensor:
        """``(n, D)`` rows of tokens ``(n,)`` int64, counted in (t, h, w) order; level 0 is the main one.

        Raises:
            TypeError: an encoding without rows.
        """
        raise TypeError(f"rows were asked of {type(self).__name__}, which has none. Expected an EncodedVideo.")

    def assemble(self, retention: Retention, rule: RetentionRule, rows: Sequence[torch.Tensor]) -> PrunedVideo:
        """The pruned video of a retention.

        Args:
            retention: what is kept of ``ranking``.
            rule: what chose it.
            rows: ``(K, D)`` kept rows a level, the main one first, in the original order; they are not copied.
        """
        import torch

        from evs_cli.core.pruned_video import PrunedVideo

        retained = retention.retained_tokens
        sequence = self.actual.layout.prune(retention.retention_mask.numpy())
        kept = torch.from_numpy(sequence.kept_positions)
        main, *further = rows
        positions = self.position_ids
        return PrunedVideo(
            embeddings=main,
            deepstack_embeddings=tuple(further),
            extra_embeddings=self.extra_embeddings,
            extra_positions=torch.from_numpy(sequence.extra_positions),
            retention_mask=retention.retention_mask,
            dissimilarity=self.ranking.dissimilarity.float(),
            num_tokens_per_frame=retention.num_tokens_per_frame,
            token_thw=retention.token_thw,
            input_ids=torch.from_numpy(sequence.input_ids),
            frame_offsets=torch.from_numpy(sequence.frame_offsets),
            token_inputs={name: torch.from_numpy(values)[kept] for name, values in self.actual.token_inputs.items()},
            position_ids=None if positions is None else positions[..., kept],
            frame_indices=torch.from_numpy(self.frame_indices),
            pts_seconds=torch.from_numpy(self.actual.pts_seconds),
            frame_pts_seconds=torch.from_numpy(self.actual.frame_pts_seconds.copy()),
            prompt_seconds=torch.from_numpy(self.actual.prompt_seconds),
            token_grid_thw=self.actual.token_grid_thw,
            video_grid_thw=self.actual.video_grid_thw,
            model_grid_thw=self.actual.model_grid_thw,
            spatial_merge_size=self.actual.spatial_merge_size,
            temporal_patch_size=self.actual.temporal_patch_size,
            placeholder_token_id=self.actual.layout.placeholder_token_id,
            modality=self.actual.modality,
            features_are_batched=self.actual.features_are_batched,
            q=retention.q,
            method=rule.method,
            min_dissimilarity=rule.min_dissimilarity,
            seed=rule.seed if rule.method == "random" else None,
            noise_tokens=retention.noise_tokens,
            zero_frames=self.zero_frames,
            planned=self.planned.at(retention.q),
            actual={
                **ClipCounts.of(self.actual).at(retention.q),
                "retained_tokens": retained,
                "sequence_length": len(sequence.input_ids),
            },
            provenance=self.provenance,
        )


@dataclass(frozen=True, eq=False)
class EncodedVideo(EncodedClip):
    """An encoding with every row; ``prune`` serves any rate from it."""

    levels: tuple[torch.Tensor, ...]
    """One (T, h, w, D) tensor a level on the CPU, the main one first."""

    def rows_of(self, tokens: torch.Tensor, level: int = 0) -> torch.Tensor:
        """See ``EncodedClip.rows_of``."""
        return self.levels[level].flatten(0, 2)[tokens]

    def prune(self, q: float, rule: RetentionRule | None = None) -> PrunedVideo:
        """The pruned video at rate q, ``0 <= q < 1``; by EVS unless ``rule`` says otherwise."""
        from evs_cli.core.methods import RetentionRule

        rule = rule or RetentionRule()
        retention = rule.retain(self.ranking, q)
        return self.assemble(retention, rule, [retention.select(level) for level in self.levels])


@dataclass(frozen=True, eq=False)
class RetainedVideo(EncodedClip):
    """An encoding with the rows that some rates keep; ``prune`` serves those rates, and every higher one."""

    rule: RetentionRule
    """What chose the rows."""
    rows: RetainedRows

    def prune(self, q: float) -> PrunedVideo:
        """The pruned video at rate q; at the lowest rate it holds the very rows, not copied.

        Raises:
            UsageError: a rate that keeps more than the rows that are there.
        """
        retention = self.rule.retain(self.ranking, q)
        is_kept = retention.retention_mask.flatten()[self.rows.positions]
        if int(is_kept.sum()) < retention.retained_tokens:
            raise UsageError(
                f"Invalid pruning rate {q!r}: it keeps {retention.retained_tokens:,} rows, "
                f"{len(is_kept):,} were retained. Expected one of the rates they were retained for."
            )
        levels = self.rows.levels if bool(is_kept.all()) else tuple(level[is_kept] for level in self.rows.levels)
        return self.assemble(retention, self.rule, levels)


@dataclass(frozen=True, eq=False)
class StoredVideo(EncodedClip):
    """An encoding whose rows lie in a file; ``prune`` serves any rate from it, and reads what that rate keeps."""

    read_rows: Callable[[torch.Tensor, int], torch.Tensor]
    """See ``EncodedClip.rows_of``."""
    num_levels: int
    """Levels that are stored."""

    def rows_of(self, tokens: torch.Tensor, level: int = 0) -> torch.Tensor:
        """See ``EncodedClip.rows_of``.

        Raises:
            ArtifactError: they cannot be read, or are not those that were written.
        """
        return self.read_rows(tokens, level)

    def prune(self, q: float, rule: RetentionRule | None = None) -> PrunedVideo:
        """The pruned video at rate q. It equals ``EncodedVideo.prune``, and reads the kept rows alone."""
        from evs_cli.core.methods import RetentionRule

        rule = rule or RetentionRule()
        retention = rule.retain(self.ranking, q)
        tokens = retention.retention_mask.flatten().nonzero().flatten()
        return self.assemble(retention, rule, [self.rows_of(tokens, level) for level in range(self.num_levels)])
