"""The open inputs of ``prune`` and ``sweep``: a video to encode, or a file of ``evs encode`` to read.

In: a session and a video, or a file of ``evs encode``. Out: the same answers for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from evs_cli.jobs.stored_session import StoredInputs, StoredPlan, are_encodings
from evs_cli.pipeline.row_selection import AllRows, NoRows, RowsAtRates

if TYPE_CHECKING:
    from evs_cli.core.methods import RetentionRule
    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.files.cache.store import EncodingCache
    from evs_cli.jobs.budget import CostedModel
    from evs_cli.pipeline.clip_plan import ClipPlan
    from evs_cli.pipeline.encoded_video import EncodedClip, RetainedVideo
    from evs_cli.pipeline.progress import Progress, Timings
    from evs_cli.pipeline.request import SessionRequest
    from evs_cli.pipeline.session import AskedRate, Session
    from evs_cli.video.source import VideoSource


class EncodedInput(Protocol):
    """One input that is open."""

    @property
    def model(self) -> CostedModel:
        """What its tokens go into."""

    @property
    def model_name(self) -> str:
        """As the user named it; of an encoding as that tells."""

    @property
    def rates(self) -> Sequence[AskedRate]:
        """The pruning rates, one where none was asked for."""

    def plan(self, q: float, timings: Timings) -> ClipPlan | StoredPlan:
        """What ``prune`` would do at a rate."""

    def prune(self, q: float, timings: Timings) -> tuple[PrunedVideo, EncodedClip]:
        """The pruned video at one of ``rates``, and the encoding it is made from: one for all rates."""

    def encode(self, *, with_rows: bool) -> EncodedClip:
        """The encoding; its rows are there where they are asked for."""


class EncodedInputs(Protocol):
    """What opens the inputs of a command, one at a time."""

    model: str | None
    """As it was named; None of encodings, each of which tells it."""

    @property
    def rule(self) -> RetentionRule:
        """What chooses the tokens."""

    @property
    def rates(self) -> Sequence[float]:
        """The pruning rates, as far as they are known before an input is open."""

    def opened(self, source: VideoSource) -> AbstractContextManager[EncodedInput]:
        """An input, open for as long as it is used; its ``source`` is as ``jobs.inputs.opened`` gives it."""


def open_inputs(
    videos: Sequence[VideoSource],
    request: SessionRequest,
    rates: Sequence[float] | None,
    progress: Progress,
    cache: EncodingCache | None,
) -> EncodedInputs:
    """Videos and their session, or files of evs, by their names; at ``rates``, or where None at one of their own.

    Raises:
        ModelError, UsageError: what concerns all inputs: the model, the device, the options, or a mix of both kinds.
    """
    if are_encodings(videos):
        return StoredInputs(request, rates, progress, uses_cache=cache is not None)
    from evs_cli.jobs.cached_session import open_session

    return _Videos(open_session(request, progress, cache), rates)


class _Videos:
    """Videos that are encoded; see ``EncodedInputs``."""

    def __init__(self, session: Session, rates: Sequence[float] | None) -> None:
        self.session, self._asked = session, rates
        self.model: str | None = session.request.model
        self.rule = session.rule

    @cached_property
    def asked_rates(self) -> tuple[AskedRate, ...]:
        """Of every video."""
        return self.session.pruning_rates(self._asked)

    @property
    def rates(self) -> list[float]:
        return [q for q, _ in self.asked_rates]

    def opened(self, source: VideoSource) -> AbstractContextManager[EncodedInput]:
        return nullcontext(_Video(self, source))


class _Video:
    """A video that is encoded; see ``EncodedInput``."""

    def __init__(self, inputs: _Videos, source: VideoSource) -> None:
        self._inputs, self._session, self._source = inputs, inputs.session, source
        self.model, self.model_name = self._session.encoder, self._session.request.model
        self._planned: ClipPlan | None = None
        self._retained: RetainedVideo | None = None

    @property
    def rates(self) -> tuple[AskedRate, ...]:
        return self._inputs.asked_rates

    def plan(self, q: float, timings: Timings) -> ClipPlan:
        if self._planned is None:
            self._planned = self._session.plan(self._source, timings)
        return self._planned

    def prune(self, q: float, timings: Timings) -> tuple[PrunedVideo, EncodedClip]:
        retained = self._retained
        if retained is None:
            rows = RowsAtRates([rate for rate, _ in self.rates], self._session.rule)
            retained = self._retained = self._session.encode(self._source, rows)
            timings.seconds.update(retained.timings_seconds)
        with timings.measure("rank"):
            return retained.prune(q), retained

    def encode(self, *, with_rows: bool) -> EncodedClip:
        if with_rows:
            return self._session.encode(self._source, AllRows())
        return self._session.encode(self._source, NoRows())
