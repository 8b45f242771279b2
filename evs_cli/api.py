"""The Python entry points: prune or sweep one video in one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evs_cli import artifact
from evs_cli.core.counts import check_pruning_rate
from evs_cli.encoders.base import EncodeOptions
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
            ``method``, ``min_dissimilarity``, ``seed``, ``batch_frames`` (None is auto), ``reuse``, ``decoder``;
            ``fps``, ``num_frames``, ``max_frames``, ``start_seconds``,
            ``end_seconds``; ``prompt``, ``size``, ``frame_min_pixels``, ``frame_max_pixels``, ``video_min_pixels``,
            ``video_max_pixels``, ``cap_pixels_per_frame``: as the options of ``evs prune``.

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
    pruned = session.retain(video, [rate]).prune(rate)
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
    encoded = session.encode(video) if with_quality else session.score(video)
    return sweep(encoded, rates, session.rule, encoder=session.encoder, with_quality=with_quality)


def make_request(**request: Any) -> SessionRequest:
    """A ``SessionRequest`` from flat keywords: sampling and model options are told apart by their names."""
    known = {*SamplingRequest.__dataclass_fields__, *EncodeOptions.__dataclass_fields__}
    for name in request:
        if name not in known and name not in SessionRequest.__dataclass_fields__:
            raise TypeError(f"unexpected keyword {name!r}")
    sampling = {name: request.pop(name) for name in SamplingRequest.__dataclass_fields__ if name in request}
    options = {name: request.pop(name) for name in EncodeOptions.__dataclass_fields__ if name in request}
    return SessionRequest(sampling=SamplingRequest(**sampling), options=EncodeOptions(**options), **request)
