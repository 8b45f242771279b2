"""Files of ``evs encode`` in place of videos: what ``Session`` is to videos, without a model, a pixel or a weight.

In: what the user asks for, of which an encoding has settled almost everything. Out: open encodings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING

from evs_cli.encoders.base import EncodeOptions
from evs_cli.errors import UsageError
from evs_cli.pipeline.request import SessionRequest
from evs_cli.pipeline.settings import DEFAULT_PRUNING_RATE
from evs_cli.video.own_files import is_own_file
from evs_cli.video.sampling import SamplingRequest

if TYPE_CHECKING:
    from evs_cli.files.encoding.reader import Encoding
    from evs_cli.pipeline.progress import Progress

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


class StoredSession:
    """Encodings, and the rule that prunes them.

    Raises:
        UsageError: an option that an encoding has settled, or an unknown rule.
    """

    def __init__(self, request: SessionRequest, progress: Progress, *, uses_cache: bool = False) -> None:
        from evs_cli.core.methods import RetentionRule

        _refuse_settled(request)
        if uses_cache:
            raise no_effect("--cache")
        self.rule = RetentionRule(request.method, request.min_dissimilarity, request.seed)
        self._progress = progress

    @contextmanager
    def opened(self, path: str) -> Iterator[Encoding]:
        """An encoding, while it is read; what its rows lack is told.

        Raises:
            ArtifactError: it is no encoding, or is damaged.
        """
        from evs_cli.files.encoding.reader import open_encoding

        self._progress.stage("read")
        with open_encoding(path) as encoding:
            for note in encoding.notes:
                self._progress.notice(f"{encoding.name}: {note}")
            yield encoding

    def pruning_rate(self, q: float | None, encoding: Encoding) -> tuple[float, str]:
        """The rate to use and where it comes from; as ``Session.pruning_rate``."""
        if q is not None:
            return q, "as asked"
        if encoding.model.default_pruning_rate is not None:
            return encoding.model.default_pruning_rate, "the model's own"
        return DEFAULT_PRUNING_RATE, "default"


def _refuse_settled(request: SessionRequest) -> None:
    """Raise for the first option that is not as it is when nobody asks for it."""
    for part in (request.sampling, request.options, request):
        unasked: SamplingRequest | EncodeOptions | SessionRequest = type(part)()
        for field in fields(part):
            name = field.name
            if name in (*RULE_OPTIONS, "sampling", "options") or getattr(part, name) == getattr(unasked, name):
                continue
            raise no_effect(_FLAGS.get(name, "--" + name.replace("_", "-")))


def no_effect(flag: str) -> UsageError:
    """The error of an option that an encoding has settled."""
    return UsageError(
        f"{flag} has no effect on an encoding, whose frames are sampled and encoded already. Expected none but "
        "--q, --keep, --method, --min-dissimilarity and --seed; or give the video."
    )
