"""The Python entry points: prune, sweep or encode one video in one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from evs_cli.core.counts import check_pruning_rate
from evs_cli.files import artifact
from evs_cli.files.output_file import check_output_file
from evs_cli.jobs.cache import open_cache
from evs_cli.jobs.encoded_input import open_inputs
from evs_cli.jobs.stored_session import RULE_OPTIONS
from evs_cli.jobs.sweep import SweepRow, sweep
from evs_cli.pipeline.keywords import EncodeKeywords, RequestKeywords
from evs_cli.pipeline.progress import SilentProgress, Timings
from evs_cli.pipeline.request import make_request
from evs_cli.video.own_files import ENCODING_SUFFIX
from evs_cli.video.source import VideoSource

if TYPE_CHECKING:
    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.files.encoding.reader import Encoding


def prune_video(
    video: VideoSource,
    *,
    q: float | None = None,
    output: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    cache: bool = False,
    **request: Unpack[RequestKeywords],
) -> PrunedVideo:
    """Decode, encode and prune one video, or read what a rate keeps of an encoding.

    Args:
        video: a path or a seekable binary file object; or a path or URL of a file that ``encode_video`` or
            ``evs encode`` wrote, which takes ``method``, ``min_dissimilarity`` and ``seed`` alone.
        q: pruning rate, ``0 <= q < 1``; None is the model's own, else 0.7.
        output: a ``.pt`` or ``.safetensors`` file to write, or None.
        overwrite: whether ``output`` may exist already.
        cache: whether the encoding is kept in evs's cache, and taken from there where it is (``evs cache``).
        **request: the options of ``evs prune``, as ``RequestKeywords`` names and types them.

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
    asked = make_request(**request)
    inputs = open_inputs([video], asked, None if q is None else [q], SilentProgress(), open_cache() if cache else None)
    with inputs.opened(video) as each:
        pruned, _ = each.prune(each.rates[0][0], Timings())
    if output is not None:
        artifact.save(pruned, output, overwrite=overwrite)
    return pruned


def sweep_video(
    video: VideoSource,
    rates: Sequence[float],
    *,
    with_quality: bool = False,
    cache: bool = False,
    **request: Unpack[RequestKeywords],
) -> list[SweepRow]:
    """Encode one video once, or read its encoding, and tell what each rate keeps.

    Args:
        video: as for ``prune_video``.
        rates: pruning rates, each ``0 <= q < 1``.
        with_quality: whether to measure coverage and drift at each rate.
        cache: as for ``prune_video``.
        **request: as for ``prune_video``.
    """
    for q in rates:
        check_pruning_rate(q)
    asked = make_request(**request)
    inputs = open_inputs([video], asked, None, SilentProgress(), open_cache() if cache else None)
    with inputs.opened(video) as each:
        encoded = each.encode(with_rows=with_quality)
        return sweep(encoded, rates, inputs.rule, encoder=each.model, with_quality=with_quality)


def encode_video(
    video: VideoSource,
    output: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    store_dtype: str | None = None,
    levels: str = "all",
    cache: bool = False,
    **request: Unpack[EncodeKeywords],
) -> Encoding:
    """Encode one video whole into a file, from which ``Encoding.at`` serves any rate.

    Args:
        video: a path or a seekable binary file object.
        output: a ``.safetensors`` file to write.
        overwrite: whether ``output`` may exist already.
        store_dtype: ``bfloat16``, ``float16``, ``int8`` or ``fp8`` to store rows in; None is the embeddings' own.
        levels: ``all`` or ``main``: whether further levels (DeepStack) are stored.
        cache: as for ``prune_video``.
        **request: as for ``prune_video``, without ``method``, ``min_dissimilarity`` and ``seed``.

    Returns:
        The file, opened; close it, or use it in a ``with``.

    Raises:
        EvsError: see ``evs_cli.errors``; a bad argument raises before any work.
        TypeError: a keyword that is none of the above.
    """
    from pathlib import Path

    from evs_cli.files.encoding.reader import open_encoding
    from evs_cli.jobs.cached_session import open_session
    from evs_cli.jobs.encode import StoreRequest, encode_to_file

    for name in RULE_OPTIONS:
        if name in request:
            raise TypeError(f"unexpected keyword {name!r}: an encoding keeps every row")
    store, target = StoreRequest(store_dtype, levels), Path(output)
    check_output_file(target, (ENCODING_SUFFIX,), overwrite=overwrite)
    session = open_session(make_request(**request), None, open_cache() if cache else None)
    encode_to_file(video, target, session, store)
    return open_encoding(target)
