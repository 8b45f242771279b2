"""``prune``: each input at each rate, and the files they are written to.

In: a ``PruneRequest``. Out: an ``Outcome`` of a ``PruneResult`` each, as it is finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from evs_cli.core.counts import check_pruning_rate
from evs_cli.core.dtypes import dtype_name
from evs_cli.files import artifact
from evs_cli.jobs.encoded_input import EncodedInput, EncodedInputs, open_inputs
from evs_cli.jobs.inputs import opened
from evs_cli.jobs.outputs import Output, OutputRequest, settle_outputs
from evs_cli.jobs.runner import Input, Outcome, announced, run_each
from evs_cli.jobs.stored_session import StoredPlan
from evs_cli.pipeline.clip_plan import ClipPlan
from evs_cli.pipeline.progress import Progress, Timings
from evs_cli.pipeline.request import SessionRequest

if TYPE_CHECKING:
    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.files.cache.store import EncodingCache
    from evs_cli.pipeline.encoded_video import EncodedClip


@dataclass(frozen=True)
class PruneRequest:
    """What to prune and where to.

    Raises:
        UsageError: a rate outside [0, 1).
    """

    videos: Sequence[str]
    """Videos, or files of ``evs encode``."""
    session: SessionRequest
    rates: Sequence[float] | None = None
    """Each is a result of its own; None is the model's own rate."""
    output: OutputRequest = field(default_factory=OutputRequest)
    """Where the results go."""
    cache: EncodingCache | None = None
    """Where encodings are kept and taken from; None for nowhere."""
    dry_run: bool = False
    """Whether it is planned only."""

    def __post_init__(self) -> None:
        for q in self.rates or ():
            check_pruning_rate(q)


@dataclass(frozen=True, eq=False)
class PruneResult:
    """A pruned video, or the plan of a dry run."""

    model: str | None
    """As it was named; of an encoding as that tells, and None of one that was not read."""
    q: float
    q_source: str
    """Where the rate comes from, in a few words; empty of what was skipped."""
    output: Path | None = None
    pruned: PrunedVideo | None = None
    """None of a dry run."""
    output_bytes: int | None = None
    plan: ClipPlan | StoredPlan | None = None
    """The plan of a dry run."""
    is_at_most: bool = False
    """Whether a floor may make the counts of ``plan`` smaller."""
    is_skipped: bool = False
    """Whether ``output`` was there already and nothing was done."""


def run_prune(request: PruneRequest, progress: Progress) -> Iterator[Outcome[PruneResult]]:
    """Prune the videos in turn, each at every rate from one encoding.

    A video that fails is one outcome with an error, and ends its rates; the other videos go on.

    Raises:
        UsageError, ArtifactError: outputs that cannot be written, before any work.
        ModelError, UsageError: what concerns all videos: the model, the device, the options.
    """
    outputs = iter(settle_outputs(request.videos, request.output, artifact.SUFFIXES, rates=request.rates))
    inputs = open_inputs(request.videos, request.session, request.rates, progress, request.cache)
    rates = inputs.rates
    named = [[_named(video, next(outputs), inputs, q) for q in rates] for video in request.videos]
    of_videos = announced(named, progress)
    return chain.from_iterable(_prune_at_rates(inputs, request, progress, of_video) for of_video in of_videos)


def _named(video: str, output: Output, inputs: EncodedInputs, q: float) -> Input:
    return Input(video, output.path, inputs.model, q, is_skipped=output.is_skipped)


def _prune_at_rates(
    inputs: EncodedInputs, request: PruneRequest, progress: Progress, of_video: Sequence[Input]
) -> Iterator[Outcome[PruneResult]]:
    """An outcome a rate of one video, which is opened when the first is made; none after one that failed."""
    with ExitStack() as stack:

        @cache
        def video() -> EncodedInput:
            return stack.enter_context(inputs.opened(stack.enter_context(opened(of_video[0].video))))

        def work(named: tuple[int, Input], timings: Timings) -> PruneResult:
            place, each = named
            if each.is_skipped:
                return PruneResult(each.model, inputs.rates[place], "", each.output, is_skipped=True)
            model, (q, q_source) = video().model_name, video().rates[place]
            if request.dry_run:
                is_at_most = inputs.rule.min_dissimilarity is not None
                plan = video().plan(q, timings)
                return PruneResult(model, q, q_source, each.output, plan=plan, is_at_most=is_at_most)
            pruned, clip = video().prune(q, timings)
            _tell_moved(each.video, clip, q, progress)
            size = None
            if each.output is not None:
                with timings.measure("write"):
                    size = artifact.save(pruned, each.output, overwrite=request.output.overwrite)
            return PruneResult(model, q, q_source, each.output, pruned, size)

        items = ((each, (place, each)) for place, each in enumerate(of_video))
        for outcome in run_each(items, work, is_single=len(request.videos) == 1):
            yield outcome
            if outcome.error is not None:
                return


def _tell_moved(video: str, clip: EncodedClip, q: float, progress: Progress) -> None:
    """Tell how many kept tokens are others for the dtype they were scored in."""
    if moved := clip.tokens_moved_by_score_dtype(q):
        progress.notice(
            f"{video}: scored in {dtype_name(clip.ranking.dissimilarity.dtype)}, {moved:,} of "
            f"{clip.ranking.retained_tokens(q):,} kept tokens are others than in the embeddings' own dtype."
        )
