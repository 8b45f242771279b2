"""The main job over one or many videos: outputs settled first, one video at a time, a failure stops no other.

In: videos or encodings, a rate, an output, a ``SessionRequest``. Out: a ``PruneOutcome`` each as it is finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evs_cli.core.counts import check_pruning_rate
from evs_cli.core.dtypes import dtype_name
from evs_cli.encoders.base import EncodePlan
from evs_cli.errors import EvsError
from evs_cli.files import artifact
from evs_cli.jobs.inputs import opened
from evs_cli.jobs.outputs import settle_outputs
from evs_cli.jobs.runner import one_by_one
from evs_cli.jobs.stored_session import StoredSession, are_encodings
from evs_cli.pipeline.clip_plan import ClipPlan
from evs_cli.pipeline.encoded_video import EncodedClip
from evs_cli.pipeline.progress import Progress, Timings
from evs_cli.pipeline.request import SessionRequest
from evs_cli.pipeline.row_selection import RowsAtRates
from evs_cli.pipeline.session import Session
from evs_cli.pipeline.settings import DEFAULT_PRUNING_RATE

if TYPE_CHECKING:
    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.files.cache.store import EncodingCache


@dataclass(frozen=True)
class PruneJob:
    """What to prune and where to; made by ``plan_job``, so its outputs are settled."""

    videos: tuple[str, ...]
    """Videos, or files of ``evs encode``."""
    outputs: tuple[Path | None, ...]
    """One a video; None prints only."""
    q: float | None
    overwrite: bool
    request: SessionRequest
    cache: EncodingCache | None = None
    """Where encodings are kept and taken from; None for nowhere."""


@dataclass(frozen=True, eq=False)
class StoredPlan:
    """What a dry run tells of an encoding."""

    encode: EncodePlan
    read_bytes: int
    """Bytes of the file that the rate needs, at most."""
    size_bytes: int
    """Bytes of the file."""


@dataclass(frozen=True, eq=False)
class PruneOutcome:
    """What became of one video or encoding."""

    video: str
    output: Path | None
    model: str | None
    """As it was named; of an encoding as that tells, None where it could not be read."""
    q: float
    q_source: str
    """Where the rate comes from, in a few words."""
    pruned: PrunedVideo | None = None
    """The result; None where the video failed or the run was dry."""
    plan: ClipPlan | None = None
    """The plan, of a dry run on a video alone."""
    stored: StoredPlan | None = None
    """What an encoding would be read for, of a dry run on that alone."""
    error: EvsError | None = None
    """Why the video failed."""
    is_at_most: bool = False
    """Whether a floor may make the counts of ``plan`` smaller."""
    output_bytes: int | None = None
    timings_seconds: Mapping[str, float] = field(default_factory=dict)


def plan_job(
    videos: Sequence[str],
    q: float | None,
    output: str | None,
    *,
    overwrite: bool,
    request: SessionRequest,
    cache: EncodingCache | None = None,
) -> PruneJob:
    """Settle the outputs: one video goes to a file, several into a folder as ``{stem}.pt``.

    Raises:
        UsageError: a rate outside [0, 1), or a suffix evs does not write.
        ArtifactError: an output that exists, or two videos that would become the same one.
    """
    if q is not None:
        check_pruning_rate(q)
    outputs = settle_outputs(videos, output, artifact.SUFFIXES, overwrite=overwrite)
    return PruneJob(tuple(videos), outputs, q, overwrite, request, cache)


def run_job(job: PruneJob, progress: Progress, *, dry_run: bool = False) -> Iterator[PruneOutcome]:
    """Prune the videos in turn. A video that fails is an outcome with an error; the others go on.

    Raises:
        ModelError, UsageError: what concerns all videos: the model, the device, the options.
    """
    if are_encodings(job.videos):
        yield from _run_stored(job, progress, dry_run=dry_run)
        return
    from evs_cli.jobs.cached_session import open_session

    session = open_session(job.request, progress, job.cache)
    q, q_source = session.pruning_rate(job.q)
    yield from one_by_one(
        [PruneOutcome(*each, job.request.model, q, q_source) for each in zip(job.videos, job.outputs, strict=True)],
        lambda base: _dry(base, session) if dry_run else _prune(base, session, job.overwrite),
        lambda base, error: replace(base, error=error),
        is_single=len(job.videos) == 1,
    )


def _dry(base: PruneOutcome, session: Session) -> PruneOutcome:
    timings = Timings()
    with opened(base.video) as source:
        plan = session.plan(source, timings)
    is_at_most = session.rule.min_dissimilarity is not None
    return replace(base, plan=plan, is_at_most=is_at_most, timings_seconds=timings.seconds)


def _prune(base: PruneOutcome, session: Session, overwrite: bool) -> PruneOutcome:
    with opened(base.video) as source:
        retained = session.encode(source, RowsAtRates([base.q], session.rule))
    timings = Timings(dict(retained.timings_seconds))
    with timings.measure("rank"):
        pruned = retained.prune(base.q)
    _tell_moved(base, retained, session.progress)
    return _written(base, pruned, timings, overwrite)


def _tell_moved(base: PruneOutcome, clip: EncodedClip, progress: Progress) -> None:
    if moved := clip.tokens_moved_by_score_dtype(base.q):
        scores = clip.ranking.dissimilarity.dtype
        kept = clip.ranking.retained_tokens(base.q)
        progress.notice(
            f"{base.video}: scored in {dtype_name(scores)}, {moved:,} of {kept:,} kept "
            "tokens are others than in the embeddings' own dtype."
        )


def _written(base: PruneOutcome, pruned: PrunedVideo, timings: Timings, overwrite: bool) -> PruneOutcome:
    size: int | None = None
    if base.output is not None:
        with timings.measure("write"):
            size = artifact.save(pruned, base.output, overwrite=overwrite)
    return replace(base, pruned=pruned, output_bytes=size, timings_seconds=timings.seconds)


def _run_stored(job: PruneJob, progress: Progress, *, dry_run: bool) -> Iterator[PruneOutcome]:
    """As ``run_job``, of files of ``evs encode``."""
    session = StoredSession(job.request, progress, uses_cache=job.cache is not None)
    # Model and rate of a file are known when it is read; until then, what a failure tells.
    q = DEFAULT_PRUNING_RATE if job.q is None else job.q
    yield from one_by_one(
        [PruneOutcome(*each, None, q, "as asked") for each in zip(job.videos, job.outputs, strict=True)],
        lambda base: _prune_stored(base, session, job, progress, dry_run=dry_run),
        lambda base, error: replace(base, error=error),
        is_single=len(job.videos) == 1,
    )


def _prune_stored(
    base: PruneOutcome, session: StoredSession, job: PruneJob, progress: Progress, *, dry_run: bool
) -> PruneOutcome:
    timings = Timings()
    with timings.measure("read"), session.opened(base.video) as encoding:
        q, q_source = session.pruning_rate(job.q, encoding)
        base = replace(base, model=encoding.model.source.name, q=q, q_source=q_source)
        if dry_run:
            rows_bytes = encoding.plan.retained_tokens(q) * encoding.store.row_bytes
            plan = StoredPlan(encoding.plan, encoding.front_bytes + rows_bytes, encoding.size_bytes)
            is_at_most = session.rule.min_dissimilarity is not None
            return replace(base, stored=plan, is_at_most=is_at_most)
        pruned = encoding.at(q, session.rule)
        _tell_moved(base, encoding.video, progress)
    return _written(base, pruned, timings, job.overwrite)
