"""``prune``: each input at one rate, and the file it is written to.

In: a ``PruneRequest``. Out: an ``Outcome`` of a ``PruneResult`` each, as it is finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evs_cli.core.counts import check_pruning_rate
from evs_cli.core.dtypes import dtype_name
from evs_cli.files import artifact
from evs_cli.jobs.encoded_input import EncodedInputs, open_inputs
from evs_cli.jobs.inputs import opened
from evs_cli.jobs.outputs import settle_outputs
from evs_cli.jobs.runner import Input, Outcome, run_each
from evs_cli.jobs.stored_session import StoredPlan
from evs_cli.pipeline.clip_plan import ClipPlan
from evs_cli.pipeline.progress import Progress, Timings
from evs_cli.pipeline.request import SessionRequest

if TYPE_CHECKING:
    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.files.cache.store import EncodingCache


@dataclass(frozen=True)
class PruneRequest:
    """What to prune and where to.

    Raises:
        UsageError: a rate outside [0, 1).
    """

    videos: Sequence[str]
    """Videos, or files of ``evs encode``."""
    session: SessionRequest
    q: float | None = None
    """None is the model's own rate."""
    output: str | None = None
    """A file for one video, a folder for several, of which each becomes ``{stem}.pt``; None prints only."""
    overwrite: bool = False
    cache: EncodingCache | None = None
    """Where encodings are kept and taken from; None for nowhere."""
    dry_run: bool = False
    """Whether it is planned only."""

    def __post_init__(self) -> None:
        if self.q is not None:
            check_pruning_rate(self.q)


@dataclass(frozen=True, eq=False)
class PruneResult:
    """A pruned video, or the plan of a dry run."""

    model: str
    """As it was named; of an encoding as that tells."""
    q: float
    q_source: str
    """Where the rate comes from, in a few words."""
    output: Path | None = None
    pruned: PrunedVideo | None = None
    """None of a dry run."""
    output_bytes: int | None = None
    plan: ClipPlan | StoredPlan | None = None
    """The plan of a dry run."""
    is_at_most: bool = False
    """Whether a floor may make the counts of ``plan`` smaller."""


def run_prune(request: PruneRequest, progress: Progress) -> Iterator[Outcome[PruneResult]]:
    """Prune the videos in turn. A video that fails is an outcome with an error; the others go on.

    Raises:
        UsageError, ArtifactError: outputs that cannot be written, before any work.
        ModelError, UsageError: what concerns all videos: the model, the device, the options.
    """
    outputs = settle_outputs(request.videos, request.output, artifact.SUFFIXES, overwrite=request.overwrite)
    inputs = open_inputs(request.videos, request.session, request.q, progress, request.cache)
    named = [
        Input(video, output, inputs.model, inputs.q) for video, output in zip(request.videos, outputs, strict=True)
    ]
    work = partial(_plan, inputs) if request.dry_run else partial(_prune, inputs, request.overwrite, progress)
    return run_each(((each, each) for each in named), work, is_single=len(named) == 1)


def _plan(inputs: EncodedInputs, named: Input, timings: Timings) -> PruneResult:
    with opened(named.video) as source, inputs.opened(source) as video:
        plan = video.plan(timings)
        is_at_most = inputs.rule.min_dissimilarity is not None
        return PruneResult(video.model_name, *video.rate, named.output, plan=plan, is_at_most=is_at_most)


def _prune(inputs: EncodedInputs, overwrite: bool, progress: Progress, named: Input, timings: Timings) -> PruneResult:
    with opened(named.video) as source, inputs.opened(source) as video:
        pruned, clip = video.prune(timings)
        model, (q, q_source) = video.model_name, video.rate
    if moved := clip.tokens_moved_by_score_dtype(q):
        progress.notice(
            f"{named.video}: scored in {dtype_name(clip.ranking.dissimilarity.dtype)}, {moved:,} of "
            f"{clip.ranking.retained_tokens(q):,} kept tokens are others than in the embeddings' own dtype."
        )
    size = None
    if named.output is not None:
        with timings.measure("write"):
            size = artifact.save(pruned, named.output, overwrite=overwrite)
    return PruneResult(model, q, q_source, named.output, pruned, size)
