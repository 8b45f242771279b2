"""Whole encodings of one or many videos, written in rank order: every rate of a video is then a read.

In: an ``EncodeRequest``. Out: an ``Outcome`` of a ``WrittenEncoding`` each, or of the plan of a
dry run, as it is finished. A failure stops no other video, and leaves no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evs_cli.core.counts import TokenGrid
from evs_cli.encoders.base import EncodePlan
from evs_cli.errors import UsageError
from evs_cli.jobs.inputs import opened
from evs_cli.jobs.outputs import OutputRequest, settle_outputs
from evs_cli.jobs.runner import Input, Outcome, announced, run_each
from evs_cli.pipeline.clip_plan import ClipPlan
from evs_cli.pipeline.progress import Progress, Timings
from evs_cli.pipeline.request import SessionRequest
from evs_cli.pipeline.row_selection import RowsToSink
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
class EncodeRequest:
    """What to encode and where to.

    Raises:
        UsageError: an input that is no video.
    """

    videos: Sequence[str]
    output: OutputRequest
    """Where the files go."""
    store: StoreRequest
    session: SessionRequest
    cache: EncodingCache | None = None
    """Where encodings are kept and taken from; None for nowhere."""
    dry_run: bool = False
    """Whether it is planned only."""

    def __post_init__(self) -> None:
        for video in self.videos:
            if is_own_file(video):
                raise UsageError(f"Invalid video {video}: it is a file of evs, encoded already. Expected a video.")


def run_encode(request: EncodeRequest, progress: Progress) -> Iterator[Outcome[Encoded]]:
    """Encode the videos in turn, or plan them. One that fails is an outcome with an error; the others go on.

    Raises:
        UsageError, ArtifactError: outputs that cannot be written, before any work.
        ModelError, UsageError: what concerns all videos: the model, the device, the options.
    """
    from evs_cli.jobs.cached_session import open_session

    outputs = settle_outputs(request.videos, request.output, (ENCODING_SUFFIX,))
    session = open_session(request.session, progress, request.cache)

    def work(named: Input, timings: Timings) -> Encoded:
        if named.is_skipped:
            return SkippedEncoding()
        with opened(named.video) as source:
            if request.dry_run:
                return session.plan(source, timings)
            assert named.output is not None
            return encode_to_file(
                source, named.output, session, request.store, timings, overwrite=request.output.overwrite
            )

    named = [
        Input(video, output.path, request.session.model, is_skipped=output.is_skipped)
        for video, output in zip(request.videos, outputs, strict=True)
    ]
    return run_each(((each, each) for each in announced(named, progress)), work, is_single=len(named) == 1)


@dataclass(frozen=True, eq=False)
class WrittenEncoding:
    """A file that was written."""

    encode: EncodePlan
    reused_frames: int
    """Frames that repeat the one before and were not encoded again."""
    store: StoreFacts
    size_bytes: int


@dataclass(frozen=True)
class SkippedEncoding:
    """A file that was there already and was left as it is."""


Encoded = WrittenEncoding | ClipPlan | SkippedEncoding
"""What becomes of one video; a plan of a dry run."""


def encode_to_file(
    source: VideoSource,
    target: Path,
    session: Session,
    store: StoreRequest,
    timings: Timings | None = None,
    *,
    overwrite: bool,
) -> WrittenEncoding:
    """Encode one video into a file, which may exist where ``overwrite`` is; each step's seconds go to ``timings``.

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
            spools.append(stack.enter_context(spool.expecting(token_grid_thw.t)))
            return spool

        clip = session.encode(source, RowsToSink(open_spool))
        spool, timings = spools[-1], timings or Timings()
        timings.seconds.update(clip.timings_seconds)
        session.progress.stage("write")
        with timings.measure("write"):
            size = write_encoding(clip, spool, StoredModel.of(session.encoder), target, overwrite=overwrite)
        return WrittenEncoding(clip.actual, clip.provenance["reused_frames"], store_facts(spool), size)
