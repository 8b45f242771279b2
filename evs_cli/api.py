"""The Python entry points: prune or sweep one video in one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evs_cli import artifact
from evs_cli.core.counts import check_pruning_rate
from evs_cli.dialects.server_options import ServerRequest
from evs_cli.encoders.base import EncodeOptions
from evs_cli.encoders.source import DEFAULT_MODEL
from evs_cli.errors import UsageError
from evs_cli.session import Session, SessionRequest
from evs_cli.sweep import SweepRow, sweep
from evs_cli.video.sampling import SamplingRequest
from evs_cli.video.source import VideoSource

if TYPE_CHECKING:
    from evs_cli.core.pruned_video import PrunedVideo


def prune_video(
    video: VideoSource,
    *,
    q: float | None = None,
    output: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    **request: Any,
) -> PrunedVideo:
    """Decode, encode and prune one video.

    Args:
        video: a path or a seekable binary file object.
        q: pruning rate, ``0 <= q < 1``; None is the model's own, else 0.7.
        output: a ``.pt`` or ``.safetensors`` file to write, or None.
        overwrite: whether ``output`` may exist already.
        **request: ``model``, ``revision``, ``trust_remote_code``, ``device``, ``dtype``, ``score_dtype``,
            ``method``, ``min_dissimilarity``, ``seed``, ``batch_frames``, ``decoder``;
            ``fps``, ``num_frames``, ``max_frames``, ``start_seconds``,
            ``end_seconds``; ``prompt``, ``size``, ``frame_min_pixels``, ``frame_max_pixels``, ``video_min_pixels``,
            ``video_max_pixels``, ``cap_pixels_per_frame``; ``dialect`` and the server's options as
            ``ServerRequest`` has them: as the options of ``evs prune``.

    Returns:
        The pruned video.

    Raises:
        EvsError: see ``evs_cli.errors``; a bad argument raises before any work.
        TypeError: a keyword that is none of the above.
    """
    from pathlib import Path

    if q is not None:
        check_pruning_rate(q)
    if output is not None:
        artifact.check_output_path(Path(output), overwrite=overwrite)
    session = Session(make_request(**request))
    rate, _ = session.pruning_rate(q)
    pruned = session.encode(video).prune(rate, session.rule)
    if output is not None:
        artifact.save(pruned, output, overwrite=overwrite)
    return pruned


def sweep_video(
    video: VideoSource, rates: Sequence[float], *, with_quality: bool = False, **request: Any
) -> list[SweepRow]:
    """Encode one video once and tell what each rate keeps.

    Args:
        video: a path or a seekable binary file object.
        rates: pruning rates, each ``0 <= q < 1``.
        with_quality: whether to measure coverage and drift at each rate.
        **request: as for ``prune_video``.
    """
    for q in rates:
        check_pruning_rate(q)
    session = Session(make_request(**request))
    encoded = session.encode(video)
    return sweep(encoded, rates, session.rule, encoder=session.encoder, with_quality=with_quality)


def make_request(**request: Any) -> SessionRequest:
    """A ``SessionRequest`` from flat keywords: sampling, model and server options are told apart by their names.

    Raises:
        UsageError: a value outside its range, or every dialect where one is wanted.
    """
    requests = make_requests(**request)
    if len(requests) > 1:
        raise UsageError("--dialect all has no effect here: it compares plans. Expected one dialect, or evs plan.")
    return requests[0]


def make_requests(**request: Any) -> list[SessionRequest]:
    """A ``SessionRequest`` for each dialect asked for, from the keywords of ``make_request``."""
    parts = (SamplingRequest, EncodeOptions, ServerRequest)
    known = {name for part in (SessionRequest, *parts) for name in part.__dataclass_fields__}
    for name in request:
        if name not in known:
            raise TypeError(f"unexpected keyword {name!r}")
    values = [{name: request.pop(name) for name in part.__dataclass_fields__ if name in request} for part in parts]
    sampling, options, server = SamplingRequest(**values[0]), EncodeOptions(**values[1]), ServerRequest(**values[2])
    command = server.command()
    if command is not None and command.model is not None and request.get("model", DEFAULT_MODEL) == DEFAULT_MODEL:
        request["model"] = command.model
    return [
        SessionRequest(sampling=sampling, options=options, dialect=dialect, server=server_options, **request)
        for dialect, server_options in server.resolve()
    ]
