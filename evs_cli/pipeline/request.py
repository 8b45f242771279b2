"""What a user asks of a run, typed: model, sampling, options, device, server.

In: flat keywords, as the command line and the Python calls have them. Out: a ``SessionRequest``, checked before any
work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Unpack

from evs_cli.dialects import EVS_DIALECT, Dialect
from evs_cli.dialects.base import ServerOptions
from evs_cli.dialects.server_command import ServerRequest
from evs_cli.encoders.base import EncodeOptions
from evs_cli.encoders.source import DEFAULT_MODEL
from evs_cli.errors import UsageError
from evs_cli.pipeline.keywords import RequestKeywords
from evs_cli.video.decoder import Decoder
from evs_cli.video.sampling import SamplingRequest


@dataclass(frozen=True)
class SessionRequest:
    """What a user asks for beside the videos and the rate; the defaults are the command line's."""

    model: str = DEFAULT_MODEL
    revision: str | None = None
    trust_remote_code: bool = False
    sampling: SamplingRequest = field(default_factory=SamplingRequest)
    options: EncodeOptions = field(default_factory=EncodeOptions)
    device: str = "auto"
    dtype: str = "auto"
    score_dtype: str | None = None
    method: str = "evs"
    min_dissimilarity: float | None = None
    seed: int = 0
    batch_frames: int | None = None
    reuse: bool = True
    decoder: Decoder = "pyav"
    dialect: Dialect = EVS_DIALECT
    server: ServerOptions = field(default_factory=ServerOptions)
    decodes_first: bool = False
    """Whether a file is decoded before it is planned, where the server leaves out what does not decode."""


def make_request(**request: Unpack[RequestKeywords]) -> SessionRequest:
    """A ``SessionRequest`` from flat keywords: sampling, model and server options are told apart by their names.

    Raises:
        UsageError: a value outside its range, or every dialect where one is wanted.
    """
    requests = make_requests(**request)
    if len(requests) > 1:
        raise UsageError("--dialect all has no effect here: it compares plans. Expected one dialect, or evs plan.")
    return requests[0]


def make_requests(**request: Unpack[RequestKeywords]) -> list[SessionRequest]:
    """A ``SessionRequest`` for each dialect asked for, from the keywords of ``make_request``."""
    parts = (SamplingRequest, EncodeOptions, ServerRequest)
    for name in request:
        if name not in RequestKeywords.__optional_keys__:
            raise TypeError(f"unexpected keyword {name!r}")
    rest: dict[str, Any] = dict(request)
    values = [{name: rest.pop(name) for name in part.__dataclass_fields__ if name in rest} for part in parts]
    sampling, options, server = SamplingRequest(**values[0]), EncodeOptions(**values[1]), ServerRequest(**values[2])
    command = server.command()
    if command is not None and command.model is not None and rest.get("model", DEFAULT_MODEL) == DEFAULT_MODEL:
        rest["model"] = command.model
    resolved = server.resolve()
    if rest.get("decodes_first") and all(dialect.is_evs for dialect, _ in resolved):
        raise UsageError(
            "--decode-first has no effect on evs: a run leaves out by itself what does not decode. Expected --dialect."
        )
    return [
        SessionRequest(sampling=sampling, options=options, dialect=dialect, server=server_options, **rest)
        for dialect, server_options in resolved
    ]
