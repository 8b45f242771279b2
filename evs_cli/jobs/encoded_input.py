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
    from evs_cli.pipeline.encoded_video import EncodedClip
    from evs_cli.pipeline.progress import Progress, Timings
    from evs_cli.pipeline.request import SessionRequest
    from evs_cli.pipeline.session import Session
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
    def rate(self) -> tuple[float, str]:
        """The pruning rate and where it comes from: the user, the model, or evs."""

    def plan(self, timings: Timings) -> ClipPlan | StoredPlan:
        """What ``prune`` would do."""

    def prune(self, timings: Timings) -> tuple[PrunedVideo, EncodedClip]:
        """The pruned video at ``rate``, and the encoding it is made from."""

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
    def q(self) -> float:
        """The pruning rate, as far as it is known before an input is open."""

    def opened(self, source: VideoSource) -> AbstractContextManager[EncodedInput]:
        """An input, open for as long as it is used; its ``source`` is as ``jobs.inputs.opened`` gives it."""


def open_inputs(
    videos: Sequence[VideoSource],
    request: SessionRequest,
    q: float | None,
    progress: Progress,
    cache: EncodingCache | None,
) -> EncodedInputs:
    """Videos and their session, or files of evs, by their names.

    Raises:
        ModelError, UsageError: what concerns all inputs: the model, the device, the options, or a mix of both kinds.
    """
    if are_encodings(videos):
        return StoredInputs(request, q, progress, uses_cache=cache is not None)
    from evs_cli.jobs.cached_session import open_session

    return _Videos(open_session(request, progress, cache), q)


class _Videos:
    """Videos that are encoded; see ``EncodedInputs``."""

    def __init__(self, session: Session, q: float | None) -> None:
        self.session, self._q = session, q
        self.model: str | None = session.request.model
        self.rule = session.rule

    @cached_property
    def rate(self) -> tuple[float, str]:
        """Of every video."""
        return self.session.pruning_rate(self._q)

    @property
    def q(self) -> float:
        return self.rate[0]

    def opened(self, source: VideoSource) -> AbstractContextManager[EncodedInput]:
        return nullcontext(_Video(self, source))


class _Video:
    """A video that is encoded; see ``EncodedInput``."""

    def __init__(self, inputs: _Videos, source: VideoSource) -> None:
        self._inputs, self._session, self._source = inputs, inputs.session, source
        self.model, self.model_name = self._session.encoder, self._session.request.model

    @property
    def rate(self) -> tuple[float, str]:
        return self._inputs.rate

    def plan(self, timings: Timings) -> ClipPlan:
        return self._session.plan(self._source, timings)

    def prune(self, timings: Timings) -> tuple[PrunedVideo, EncodedClip]:
        q, _ = self.rate
        retained = self._session.encode(self._source, RowsAtRates([q], self._session.rule))
        timings.seconds.update(retained.timings_seconds)
        with timings.measure("rank"):
            return retained.prune(q), retained

    def encode(self, *, with_rows: bool) -> EncodedClip:
        if with_rows:
            return self._session.encode(self._source, AllRows())
        return self._session.encode(self._source, NoRows())
