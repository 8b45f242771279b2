"""Whole encodings of one or many videos, written in rank order: every rate of a video is then a read.

In: videos, an output, what rows are stored as, a ``SessionRequest``. Out: an ``EncodeOutcome`` a video as it is
finished. A failure stops no other video, and leaves no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evs_cli.encoders.base import EncodePlan
from evs_cli.errors import EvsError, UsageError
from evs_cli.jobs.inputs import opened
from evs_cli.jobs.outputs import settle_outputs
from evs_cli.jobs.runner import one_by_one
from evs_cli.pipeline.clip_plan import ClipPlan
from evs_cli.pipeline.progress import Progress, Timings
from evs_cli.pipeline.request import SessionRequest
from evs_cli.pipeline.row_selection import RowsInto, TokenGrid
from evs_cli.pipeline.session import Session
from evs_cli.video.own_files import ENCODING_SUFFIX, is_own_file

if TYPE_CHECKING:
    from evs_cli.files.cache.store import EncodingCache
    from evs_cli.files.encoding.record import StoreFacts
    from evs_cli.video.source import VideoSource

LEVELS = ("all", "main")
"""What ``--levels`` may be: every level of rows (DeepStack), or the main one alone."""


@dataclass(frozen=True)
class StoreRequest:
    """What rows are stored as.

    Raises:
        UsageError: a dtype or choice of levels that is not known.
    """

    dtype: str | None = None
    """A name of ``STORE_DTYPES``; None is the embeddings' own."""
    levels: str = "all"
    """One of ``LEVELS``."""

    def __post_init__(self) -> None:
        from evs_cli.files.encoding.stored_rows import parse_store_dtype

        if self.levels not in LEVELS:
            raise UsageError(f"Invalid levels {self.levels!r}. Expected one of {', '.join(LEVELS)}.")
        parse_store_dtype(self.dtype)


@dataclass(frozen=True)
class EncodeJob:
    """What to encode and where to; made by ``plan_encode_job``, so its outputs are settled."""

    videos: tuple[str, ...]
    outputs: tuple[Path, ...]
    """One a video."""
    store: StoreRequest
    request: SessionRequest
    cache: EncodingCache | None = None
    """Where encodings are kept and taken from; None for nowhere."""


@dataclass(frozen=True, eq=False)
class EncodeOutcome:
    """What became of one video."""

    video: str
    output: Path
    model: str
    store: StoreFacts | None = None
    """What its rows are; None where the video failed or the run was dry."""
    encode: EncodePlan | None = None
    """The counts of what was encoded."""
    reused_frames: int = 0
    """Frames that repeat the one before and were not encoded again."""
    plan: ClipPlan | None = None
    """The plan, of a dry run alone."""
    error: EvsError | None = None
    """Why the video failed."""
    output_bytes: int | None = None
    timings_seconds: Mapping[str, float] = field(default_factory=dict)


def plan_encode_job(
    videos: Sequence[str],
    output: str,
    store: StoreRequest,
    *,
    overwrite: bool,
    request: SessionRequest,
    cache: EncodingCache | None = None,
) -> EncodeJob:
    """Settle the outputs: one video goes to a file, several into a folder as ``{stem}.safetensors``.

    Raises:
        UsageError: an input that is no video, or a suffix other than ``.safetensors``.
        ArtifactError: an output that exists, or two videos that would become the same one.
    """
    for video in videos:
        if is_own_file(video):
            raise UsageError(f"Invalid video {video}: it is a file of evs, encoded already. Expected a video.")
    outputs = settle_outputs(videos, output, (ENCODING_SUFFIX,), overwrite=overwrite)
    return EncodeJob(tuple(videos), tuple(path for path in outputs if path is not None), store, request, cache)


def run_encode_job(job: EncodeJob, progress: Progress, *, dry_run: bool = False) -> Iterator[EncodeOutcome]:
    """Encode the videos in turn. A video that fails is an outcome with an error; the others go on.

    Raises:
        ModelError, UsageError: what concerns all videos: the model, the device, the options.
    """
    from evs_cli.jobs.cached_session import open_session

    session = open_session(job.request, progress, job.cache)
    yield from one_by_one(
        [EncodeOutcome(*each, job.request.model) for each in zip(job.videos, job.outputs, strict=True)],
        lambda base: _dry(base, session) if dry_run else _encode(base, session, job.store),
        lambda base, error: replace(base, error=error),
        is_single=len(job.videos) == 1,
    )


def _dry(base: EncodeOutcome, session: Session) -> EncodeOutcome:
    timings = Timings()
    with opened(base.video) as source:
        plan = session.plan(source, timings)
    return replace(base, plan=plan, timings_seconds=timings.seconds)


def _encode(base: EncodeOutcome, session: Session, store: StoreRequest) -> EncodeOutcome:
    with opened(base.video) as source:
        written = encode_to_file(source, base.output, session, store)
    return replace(
        base,
        store=written.store,
        encode=written.encode,
        reused_frames=written.reused_frames,
        output_bytes=written.size_bytes,
        timings_seconds=written.timings_seconds,
    )


@dataclass(frozen=True, eq=False)
class WrittenEncoding:
    """A file that was written."""

    encode: EncodePlan
    reused_frames: int
    """Frames that repeat the one before and were not encoded again."""
    store: StoreFacts
    size_bytes: int
    timings_seconds: Mapping[str, float]


def encode_to_file(source: VideoSource, target: Path, session: Session, store: StoreRequest) -> WrittenEncoding:
    """Encode one video into a file, which is replaced where it exists.

    Memory does not grow with the video but for some tens of bytes a token; the disk holds the rows twice until the
    file is there.

    Raises:
        EvsError: the video, the model or the file fails.
    """
    from evs_cli.files.encoding.record import StoredModel
    from evs_cli.files.encoding.row_spool import RowSpool
    from evs_cli.files.encoding.stored_rows import parse_store_dtype
    from evs_cli.files.encoding.writer import store_facts, write_encoding

    with ExitStack() as stack:
        spools: list[RowSpool] = []

        def open_spool(token_grid_thw: TokenGrid) -> RowSpool:
            spool = RowSpool(target, parse_store_dtype(store.dtype), main_only=store.levels == "main")
            spools.append(stack.enter_context(spool.expecting(token_grid_thw[0])))
            return spool

        clip = session.encode(source, RowsInto(open_spool))
        spool, timings = spools[-1], Timings(dict(clip.timings_seconds))
        session.progress.stage("write")
        with timings.measure("write"):
            size = write_encoding(clip, spool, StoredModel.of(session.encoder), target)
        return WrittenEncoding(clip.actual, clip.provenance["reused_frames"], store_facts(spool), size, timings.seconds)
