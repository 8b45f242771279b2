"""The main job over one or many videos: outputs settled first, one video at a time, a failure stops no other.

In: videos, a rate, an output, a ``SessionRequest``. Out: a ``PruneOutcome`` a video as it is finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evs_cli import artifact
from evs_cli.core.counts import check_pruning_rate
from evs_cli.encoded_video import ClipPlan
from evs_cli.errors import ArtifactError, EvsError, UsageError
from evs_cli.progress import Progress, Timings
from evs_cli.session import STDIN, Session, SessionRequest, one_by_one, opened

if TYPE_CHECKING:
    from evs_cli.core.pruned_video import PrunedVideo


@dataclass(frozen=True)
class PruneJob:
    """What to prune and where to; made by ``plan_job``, so its outputs are settled."""

    videos: tuple[str, ...]
    outputs: tuple[Path | None, ...]
    """One a video; None prints only."""
    q: float | None
    overwrite: bool
    request: SessionRequest


@dataclass(frozen=True, eq=False)
class PruneOutcome:
    """What became of one video."""

    video: str
    output: Path | None
    model: str
    q: float
    q_source: str
    """Where the rate comes from, in a few words."""
    pruned: PrunedVideo | None = None
    """The result; None where the video failed or the run was dry."""
    plan: ClipPlan | None = None
    """The plan, of a dry run alone."""
    error: EvsError | None = None
    """Why the video failed."""
    is_at_most: bool = False
    """Whether a floor may make the counts of ``plan`` smaller."""
    output_bytes: int | None = None
    timings_seconds: Mapping[str, float] = field(default_factory=dict)


def plan_job(
    videos: Sequence[str], q: float | None, output: str | None, *, overwrite: bool, request: SessionRequest
) -> PruneJob:
    """Settle the outputs: one video goes to a file, several into a folder as ``{stem}.pt``.

    Raises:
        UsageError: a rate outside [0, 1), or a suffix evs does not write.
        ArtifactError: an output that exists, or two videos that would become the same one.
    """
    if q is not None:
        check_pruning_rate(q)
    if list(videos).count(STDIN) > 1:
        raise UsageError("Invalid videos: - stands for standard input, which comes but once. Give it once.")
    outputs: list[Path | None]
    if output is None:
        outputs = [None] * len(videos)
    elif len(videos) == 1:
        outputs = [Path(output)]
    else:
        folder = Path(output)
        if folder.suffix in artifact.SUFFIXES or (folder.exists() and not folder.is_dir()):
            raise UsageError(
                f"Invalid output {output} for {len(videos)} videos: it is a file. "
                "Expected a folder; each video becomes {stem}.pt in it."
            )
        outputs = [folder / f"{'stdin' if video == STDIN else Path(video).stem}.pt" for video in videos]
        _refuse_clashes(videos, outputs)
    for path in outputs:
        if path is not None:
            artifact.check_output_path(path, overwrite=overwrite)
    return PruneJob(tuple(videos), tuple(outputs), q, overwrite, request)


def _refuse_clashes(videos: Sequence[str], outputs: Sequence[Path | None]) -> None:
    taken: dict[str, str] = {}
    for video, output in zip(videos, outputs, strict=True):
        key = str(output).casefold()  # some file systems do not tell cases apart
        if key in taken:
            raise ArtifactError(
                f"cannot write {video} and {taken[key]}: both would become {output}.",
                hint="Prune them one by one, each with its own -o.",
            )
        taken[key] = video


def run_job(job: PruneJob, progress: Progress, *, dry_run: bool = False) -> Iterator[PruneOutcome]:
    """Prune the videos in turn. A video that fails is an outcome with an error; the others go on.

    Raises:
        ModelError, UsageError: what concerns all videos: the model, the device, the options.
    """
    session = Session(job.request, progress)
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
        retained = session.retain(source, [base.q])
    timings = Timings(dict(retained.timings_seconds))
    with timings.measure("rank"):
        pruned = retained.prune(base.q)
    if moved := retained.tokens_moved_by_score_dtype(base.q):
        session.progress.notice(
            f"{base.video}: scored in {session.request.score_dtype}, {moved:,} of {pruned.retained_tokens:,} kept "
            "tokens are others than in the embeddings' own dtype."
        )
    size: int | None = None
    if base.output is not None:
        with timings.measure("write"):
            size = artifact.save(pruned, base.output, overwrite=overwrite)
    return replace(base, pruned=pruned, output_bytes=size, timings_seconds=timings.seconds)
