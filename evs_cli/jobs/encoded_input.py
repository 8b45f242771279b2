"""One input of ``prune`` and ``sweep``, open: a video to be encoded, or an encoding to be read.

In: a session and a video, or a file of ``evs encode``. Out: the same answers for both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, cast

from evs_cli.jobs.stored_session import StoredSession, are_encodings
from evs_cli.pipeline.progress import Timings
from evs_cli.pipeline.row_selection import AllRows, NoRows, RowsAtRates
from evs_cli.pipeline.settings import DEFAULT_PRUNING_RATE

if TYPE_CHECKING:
    from evs_cli.core.methods import RetentionRule
    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.encoders.base import EncodePlan
    from evs_cli.files.cache.store import EncodingCache
    from evs_cli.files.encoding.reader import Encoding
    from evs_cli.jobs.budget import CostedModel
    from evs_cli.pipeline.clip_plan import ClipPlan
    from evs_cli.pipeline.encoded_video import EncodedClip
    from evs_cli.pipeline.progress import Progress
    from evs_cli.pipeline.request import SessionRequest
    from evs_cli.pipeline.session import Session
    from evs_cli.video.source import VideoSource


@dataclass(frozen=True, eq=False)
class StoredPlan:
    """What a dry run tells of an encoding."""

    encode: EncodePlan
    read_bytes: int
    """Bytes of the file that the rate needs, at most."""
    size_bytes: int
    """Bytes of the file."""


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
        return _Encodings(StoredSession(request, progress, uses_cache=cache is not None), q)
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
        """See ``EncodedInputs.q``."""
        return self.rate[0]

    def opened(self, source: VideoSource) -> AbstractContextManager[EncodedInput]:
        """See ``EncodedInputs.opened``."""
        return nullcontext(_Video(self, source))


class _Video:
    """A video that is encoded; see ``EncodedInput``."""

    def __init__(self, inputs: _Videos, source: VideoSource) -> None:
        self._inputs, self._session, self._source = inputs, inputs.session, source
        self.model, self.model_name = self._session.encoder, self._session.request.model

    @property
    def rate(self) -> tuple[float, str]:
        """See ``EncodedInput.rate``."""
        return self._inputs.rate

    def plan(self, timings: Timings) -> ClipPlan:
        """See ``EncodedInput.plan``."""
        return self._session.plan(self._source, timings)

    def prune(self, timings: Timings) -> tuple[PrunedVideo, EncodedClip]:
        """See ``EncodedInput.prune``."""
        q, _ = self.rate
        retained = self._session.encode(self._source, RowsAtRates([q], self._session.rule))
        timings.seconds.update(retained.timings_seconds)
        with timings.measure("rank"):
            return retained.prune(q), retained

    def encode(self, *, with_rows: bool) -> EncodedClip:
        """See ``EncodedInput.encode``."""
        return self._session.encode(self._source, AllRows() if with_rows else NoRows())


class _Encodings:
    """Files of ``evs encode``; see ``EncodedInputs``."""

    model: str | None = None

    def __init__(self, session: StoredSession, q: float | None) -> None:
        self._session, self._q = session, q
        self.rule = session.rule

    @property
    def q(self) -> float:
        """See ``EncodedInputs.q``."""
        return DEFAULT_PRUNING_RATE if self._q is None else self._q

    @contextmanager
    def opened(self, source: VideoSource) -> Iterator[EncodedInput]:
        """See ``EncodedInputs.opened``."""
        opening = Timings()
        with ExitStack() as stack:
            with opening.measure("read"):
                encoding = stack.enter_context(self._session.opened(os.fspath(cast("str", source))))
            yield _StoredInput(encoding, self.rule, self._session.pruning_rate(self._q, encoding), opening)


class _StoredInput:
    """A file of ``evs encode``; see ``EncodedInput``."""

    def __init__(self, encoding: Encoding, rule: RetentionRule, rate: tuple[float, str], opening: Timings) -> None:
        self._encoding, self._rule, self.rate, self._opening = encoding, rule, rate, opening
        self.model, self.model_name = encoding.model, encoding.model.source.name

    def plan(self, timings: Timings) -> StoredPlan:
        """See ``EncodedInput.plan``."""
        encoding = self._encoding
        rows_bytes = encoding.plan.retained_tokens(self.rate[0]) * encoding.store.row_bytes
        return StoredPlan(encoding.plan, encoding.front_bytes + rows_bytes, encoding.size_bytes)

    def prune(self, timings: Timings) -> tuple[PrunedVideo, EncodedClip]:
        """See ``EncodedInput.prune``."""
        timings.seconds.update(self._opening.seconds)
        with timings.measure("read"):
            return self._encoding.at(self.rate[0], self._rule), self._encoding.video

    def encode(self, *, with_rows: bool) -> EncodedClip:
        """See ``EncodedInput.encode``."""
        return self._encoding.video
