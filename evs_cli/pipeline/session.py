"""A session encodes many videos with one model; every command that runs a model has one.

In: a model's name and what the user asks for, checked before any work. Out: encodings, one video at a time. The
model is opened once, and its weights are loaded when the first video has been planned.
"""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol, TypeVar

from evs_cli._version import __version__
from evs_cli.core.counts import TokenGrid
from evs_cli.dialects.option_check import check_options
from evs_cli.encoders.base import VideoEncoder
from evs_cli.encoders.registry import open_encoder
from evs_cli.encoders.runtime import resolve_runtime
from evs_cli.errors import ModelError, ModelLoadError
from evs_cli.pipeline.clip_plan import ClipPlan
from evs_cli.pipeline.encode import EncodePipeline, LostFramesError
from evs_cli.pipeline.encoded_video import EncodedClip
from evs_cli.pipeline.planner import Planner
from evs_cli.pipeline.progress import Progress, SilentProgress, Timings
from evs_cli.pipeline.request import SessionRequest
from evs_cli.pipeline.row_selection import RowSelection, SinkT
from evs_cli.pipeline.settings import DEFAULT_PRUNING_RATE, EncodeSettings
from evs_cli.video.decoder import check_decoder
from evs_cli.video.source import VideoSource

if TYPE_CHECKING:
    from evs_cli.core.streaming import TokenSink

EncodedT = TypeVar("EncodedT", bound=EncodedClip)
AskedRate = tuple[float, str]
"""A pruning rate, and where it comes from in a few words: the user, the server, the model's configuration, or evs."""


def open_requested(request: SessionRequest, *, counts_alone: bool = False) -> VideoEncoder:
    """The encoder of a request, its options and decoder checked; no weights are read.

    Args:
        request: what the user asks for.
        counts_alone: whether it will only plan; see ``resolve_model``.

    Raises:
        ModelError: no such model, or an unknown family.
        UsageError: an option without meaning for the model, or a decoder that is unknown or not installed.
    """
    encoder = open_encoder(
        request.model,
        revision=request.revision,
        trust_remote_code=request.trust_remote_code,
        counts_alone=counts_alone,
    )
    check_request(encoder, request)
    return encoder


def check_request(encoder: VideoEncoder, request: SessionRequest) -> None:
    """Raise ``UsageError`` for an option without meaning for an opened model, or a decoder that is not there."""
    check_options(encoder, request.dialect, request.options)
    check_decoder(request.decoder)


def _threads_reason() -> str:
    """How many threads run and who says so."""
    import torch

    named = [name for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if os.environ.get(name)]
    why = f"{named[0]}" if named else "torch's own choice: one a core"
    return f"threads: {torch.get_num_threads()} ({why}); decoding and preprocessing run in others beside"


class ClipCache(Protocol):
    """Keeps the encodings of videos, and gives those that are kept."""

    def encode(self, session: Session, source: VideoSource, rows: RowSelection[SinkT, EncodedT]) -> EncodedT:
        """The kept encoding of a video, or what ``session.encode_fresh`` makes of it, which is kept then."""


class Session:
    """An opened model, ready to plan and encode videos.

    Args:
        request: what the user asks for.
        progress: who watches.
        cache: where encodings are kept and taken from; None for nowhere.

    Raises:
        ModelError: no such model, an unknown family, or a device that is not there.
        UsageError: an option without meaning for the model.
    """

    def __init__(
        self, request: SessionRequest, progress: Progress | None = None, cache: ClipCache | None = None
    ) -> None:
        from evs_cli.core.methods import RetentionRule
        from evs_cli.encoders.runtime import parse_dtype

        self.rule = RetentionRule(request.method, request.min_dissimilarity, request.seed)
        self.request = request
        self.progress = progress or SilentProgress()
        self.encoder = open_requested(request)
        self.settings = EncodeSettings(
            runtime=resolve_runtime(request.device, request.dtype),
            batch_frames=request.batch_frames,
            decoder=request.decoder,
            score_dtype=None if request.score_dtype is None else parse_dtype(request.score_dtype),
            reuses_frames=request.reuse,
        )
        self.pipeline = EncodePipeline(self.encoder, self.settings, request.options, self.progress)
        self._cache = cache
        self.planner = Planner.of(request, self.encoder)
        self._served = self.planner.served  # what a server has no rules for is raised here, before any work
        self._is_loaded = False
        for line in self._details():
            self.progress.detail(line)

    def _details(self) -> list[str]:
        """What ``-v`` tells of the run before it begins."""
        source, sampling = self.encoder.source, self.encoder.sampling_defaults
        return [
            f"evs {__version__}, torch {version('torch')}, transformers {version('transformers')}",
            f"model {source.location}, revision {source.revision or 'local'}, family {source.model_type}",
            self.settings.runtime.reason,
            _threads_reason(),
            f"sampling of the model: fps {sampling.fps}, num_frames {sampling.num_frames}, "
            f"min_frames {sampling.min_frames}, max_frames {sampling.max_frames}",
        ]

    def pruning_rates(self, asked: Sequence[float] | None) -> tuple[AskedRate, ...]:
        """The rates to use; where None is asked for, the one of the server, of the model's configuration, or of evs."""
        if asked is None:
            return (self._own_rate(),)
        if self._served is not None and max(asked) > 0 and not self._served.pruning.can_prune:
            self.progress.notice(f"{self.request.dialect.name} would prune nothing: {self._served.pruning.source}.")
        return tuple((q, "as asked") for q in asked)

    def _own_rate(self) -> AskedRate:
        if self._served is not None:
            pruning = self._served.pruning
            return pruning.q, f"{self.request.dialect.name}: {pruning.source}"
        if self.encoder.default_pruning_rate is not None:
            return self.encoder.default_pruning_rate, "the model's own"
        return DEFAULT_PRUNING_RATE, "default"

    def plan(self, source: VideoSource, timings: Timings | None = None) -> ClipPlan:
        """Plan one video; see ``Planner.plan_video``."""
        return self.planner.plan_video(source, self.request.sampling, self.request.options, timings=timings)

    def plan_and_report(self, source: VideoSource, timings: Timings | None = None) -> ClipPlan:
        """As ``plan``, its notes told."""
        self.progress.stage("plan")
        plan = self.plan(source, timings)
        for note in plan.notes:
            self.progress.notice(f"{plan.video.name}: {note}")
        return plan

    def encode(self, source: VideoSource, rows: RowSelection[SinkT, EncodedT]) -> EncodedT:
        """The encoding of one video with a selection of its rows; from the cache where that has it.

        Where frames of a server's plan do not decode, the file is decoded whole and planned again, as the server's
        reader leaves them out.
        """
        encode = self.encode_fresh if self._cache is None else functools.partial(self._cache.encode, self)
        try:
            return encode(source, rows)
        except LostFramesError as error:
            if self.request.decodes_first or not error.is_left_out:
                raise
            self.progress.notice(f"{error.message} It is planned again, as that server reads it.")
        return self._decoding_first().encode(source, rows)

    def encode_fresh(
        self,
        source: VideoSource,
        rows: RowSelection[SinkT, EncodedT],
        *,
        extra_sink: Callable[[TokenGrid], TokenSink] | None = None,
    ) -> EncodedT:
        """Plan, decode and encode one video; the first one loads the weights.

        Args:
            source: a path or a seekable binary file object.
            rows: what is kept.
            extra_sink: makes a second sink, for the planned grid, that takes every row too.
        """
        from evs_cli.core.streaming import BothSinks

        timings = Timings()
        plan = self.plan_and_report(source, timings)
        self._load_once(timings)
        grid = plan.encode.token_grid_thw
        sink = rows.open(grid)
        both = sink if extra_sink is None else BothSinks(sink, extra_sink(grid))
        return rows.finish(self.pipeline.encode(plan, both, timings=timings), sink)

    def _decoding_first(self) -> Session:
        """The same session, which decodes a file before it plans it."""
        session = copy.copy(self)
        session.request = replace(self.request, decodes_first=True)
        session.planner = Planner.of(session.request, self.encoder)
        return session

    def _load_once(self, timings: Timings) -> None:
        if self._is_loaded:
            return
        self.progress.stage("load model")
        with timings.measure("load_model"):
            try:
                read = self.encoder.load(self.settings.runtime.device, self.settings.runtime.dtype)
            except ModelError as error:
                raise ModelLoadError(error.message, hint=error.hint) from error
        self._is_loaded = True
        self.progress.detail(
            f"weights: read {read.bytes_read:,} of {read.bytes_total:,} bytes "
            f"({read.bytes_read / read.bytes_total:.1%}), {read.files_read} of {read.files_total} files"
        )
