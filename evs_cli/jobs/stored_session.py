"""Files of ``evs encode`` in place of videos: no model, no pixel and no weight is needed.

In: what the user asks for, of which an encoding has settled almost everything. Out: open encodings, which ``prune`` and
``sweep`` take like videos.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, cast

from evs_cli.encoders.base import EncodeOptions
from evs_cli.errors import UsageError
from evs_cli.pipeline.progress import Timings
from evs_cli.pipeline.request import SessionRequest
from evs_cli.pipeline.settings import DEFAULT_PRUNING_RATE
from evs_cli.video.own_files import is_own_file
from evs_cli.video.sampling import SamplingRequest

if TYPE_CHECKING:
    from evs_cli.core.methods import RetentionRule
    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.encoders.base import EncodePlan
    from evs_cli.files.encoding.reader import Encoding
    from evs_cli.pipeline.encoded_video import EncodedClip
    from evs_cli.pipeline.progress import Progress
    from evs_cli.pipeline.session import AskedRate
    from evs_cli.video.source import VideoSource

RULE_OPTIONS = ("method", "min_dissimilarity", "seed")
"""What of a request still means something to an encoding."""
_FLAGS = {"start_seconds": "--start", "end_seconds": "--end", "reuse": "--no-reuse"}


def are_encodings(inputs: Sequence[object]) -> bool:
    """Whether the inputs are files of evs, by their names; all are, or none.

    Raises:
        UsageError: some are and some are not.
    """
    found = [is_own_file(each) for each in inputs]
    if any(found) and not all(found):
        raise UsageError(
            f"Invalid inputs: {inputs[found.index(True)]} is a file of evs, {inputs[found.index(False)]} a video. "
            "Expected encodings alone, or videos alone."
        )
    return any(found)


@dataclass(frozen=True, eq=False)
class StoredPlan:
    """What a dry run tells of an encoding."""

    encode: EncodePlan
    read_bytes: int
    """Bytes of the file that the rate needs, at most."""
    size_bytes: int
    """Bytes of the file."""


class StoredInputs:
    """Encodings, and the rule that prunes them; see ``EncodedInputs``.

    Raises:
        UsageError: an option that an encoding has settled, or an unknown rule.
    """

    model: str | None = None

    def __init__(
        self, request: SessionRequest, rates: Sequence[float] | None, progress: Progress, *, uses_cache: bool
    ) -> None:
        from evs_cli.core.methods import RetentionRule

        _refuse_settled(request)
        if uses_cache:
            raise no_effect_error("--cache")
        self.rule = RetentionRule(request.method, request.min_dissimilarity, request.seed)
        self._asked, self._progress = rates, progress

    @property
    def rates(self) -> Sequence[float]:
        """See ``EncodedInputs.rates``."""
        return (DEFAULT_PRUNING_RATE,) if self._asked is None else self._asked

    @contextmanager
    def opened(self, source: VideoSource) -> Iterator[StoredInput]:
        """An encoding, while it is read; what its rows lack is told.

        Raises:
            ArtifactError: it is no encoding, or is damaged.
        """
        from evs_cli.files.encoding.reader import open_encoding

        timings = Timings()
        self._progress.stage("read")
        with ExitStack() as stack:
            with timings.measure("read"):
                encoding = stack.enter_context(open_encoding(os.fspath(cast("str", source))))
            for note in encoding.notes:
                self._progress.notice(f"{encoding.name}: {note}")
            yield StoredInput(encoding, self.rule, self._rates(encoding), timings)

    def _rates(self, encoding: Encoding) -> tuple[AskedRate, ...]:
        """As ``Session.pruning_rates``."""
        if self._asked is not None:
            return tuple((q, "as asked") for q in self._asked)
        if encoding.model.default_pruning_rate is not None:
            return ((encoding.model.default_pruning_rate, "the model's own"),)
        return ((DEFAULT_PRUNING_RATE, "default"),)


class StoredInput:
    """An open encoding; see ``EncodedInput``."""

    def __init__(self, encoding: Encoding, rule: RetentionRule, rates: Sequence[AskedRate], opening: Timings) -> None:
        self._encoding, self._rule, self.rates, self._opening = encoding, rule, rates, opening
        self.model, self.model_name = encoding.model, encoding.model.source.name

    def plan(self, q: float, timings: Timings) -> StoredPlan:
        """See ``EncodedInput.plan``."""
        encoding = self._encoding
        rows_bytes = encoding.plan.retained_tokens(q) * encoding.store.row_bytes
        return StoredPlan(encoding.plan, encoding.front_bytes + rows_bytes, encoding.size_bytes)

    def prune(self, q: float, timings: Timings) -> tuple[PrunedVideo, EncodedClip]:
        """See ``EncodedInput.prune``."""
        timings.seconds.update(self._opening.seconds)
        self._opening.seconds.clear()  # it is opened once for all rates
        with timings.measure("read"):
            return self._encoding.at(q, self._rule), self._encoding.video

    def encode(self, *, with_rows: bool) -> EncodedClip:
        """See ``EncodedInput.encode``; rows are read as they are asked for."""
        return self._encoding.video


def _refuse_settled(request: SessionRequest) -> None:
    """Raise for the first option that is not as it is when nobody asks for it."""
    for part in (request.sampling, request.options, request):
        unasked: SamplingRequest | EncodeOptions | SessionRequest = type(part)()
        for field in fields(part):
            name = field.name
            if name in (*RULE_OPTIONS, "sampling", "options") or getattr(part, name) == getattr(unasked, name):
                continue
            raise no_effect_error(_FLAGS.get(name, "--" + name.replace("_", "-")))


def no_effect_error(flag: str) -> UsageError:
    """The error of an option that an encoding has settled."""
    return UsageError(
        f"{flag} has no effect on an encoding, whose frames are sampled and encoded already. Expected none but "
        "--q, --keep, --method, --min-dissimilarity and --seed; or give the video."
    )
