"""The Python entry points: one video in one call, with the names of the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar, Unpack

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
from evs_cli.servers.http_json import DEFAULT_TIMEOUT_SECONDS
from evs_cli.video.own_files import ENCODING_SUFFIX
from evs_cli.video.source import VideoSource

if TYPE_CHECKING:
    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.files.encoding.reader import Encoding
    from evs_cli.jobs.budget import BudgetReport
    from evs_cli.jobs.export import Exported
    from evs_cli.jobs.fit import FitReport
    from evs_cli.jobs.runner import Outcome
    from evs_cli.pipeline.clips import NumbersRequest
    from evs_cli.servers.comparison import CheckReport

Result = TypeVar("Result")


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
    encode_to_file(video, target, session, store, overwrite=overwrite)
    return open_encoding(target)


def plan_video(
    video: str | os.PathLike[str] | NumbersRequest,
    *,
    q: float | Sequence[float] | None = None,
    context: int | None = None,
    reserve: int = 0,
    kv_budget_bytes: int | None = None,
    with_details: bool = True,
    **request: Unpack[RequestKeywords],
) -> BudgetReport:
    """Count one video's tokens and their cost, as ``evs plan`` does: no pixel is decoded and no weight is read.

    The model stays open for the next call; one of the hub is looked up once a process.

    Args:
        video: a path, or the numbers of a video, which takes no file.
        q: one pruning rate or several to count at, each ``0 <= q < 1``; None is 0 and the model's own, else 0.7.
        context: longest sequence in tokens; None takes the server's, else the model's own.
        reserve: tokens of ``context`` kept for the answer.
        kv_budget_bytes: memory for KV caches, to tell how many such prompts fit.
        with_details: False leaves out each frame's times, the costs, and the longest clip that would pass a server's
            limits, which take most of the time.
        **request: as for ``prune_video``.

    Returns:
        The counts, a ``RateBudget`` a rate in ``rates``. A video that does not fit is no error: its ``context_share``
        is above 1, or its ``limit_hit`` names a limit of the server.

    Raises:
        EvsError: see ``evs_cli.errors``; a bad argument raises before any work.
        TypeError: a keyword that is none of the above.
    """
    from evs_cli.jobs.opened_models import opened_model
    from evs_cli.jobs.plan import BudgetJob, PlanRequest
    from evs_cli.pipeline.clips import NumbersRequest

    given = [q] if isinstance(q, (int, float)) else q
    rates = None if given is None else sorted({check_pruning_rate(rate) for rate in given})
    asked = make_request(**request)
    job = BudgetJob(asked, encoder=opened_model(asked))
    limit = job.context_less_reserve(context, reserve)
    plan = PlanRequest(rates, limit, kv_budget_bytes, reserve, with_details=with_details)
    return _only_result(job.plan([video if isinstance(video, NumbersRequest) else os.fspath(video)], plan))


def fit_video(
    video: str | os.PathLike[str],
    *,
    context: int | None = None,
    max_tokens: int | None = None,
    reserve: int = 0,
    **request: Unpack[RequestKeywords],
) -> FitReport:
    """Find the smallest pruning rate at which one video fits, and other ways, as ``evs fit`` does.

    Args:
        video: a path.
        context: longest sequence in tokens, the answer included; without ``max_tokens`` None is the model's own.
        max_tokens: longest prompt in tokens.
        reserve: tokens of ``context`` kept for the answer.
        **request: as for ``prune_video``.

    Returns:
        The ways to fit: the present sampling in ``present``, None where no rate up to 0.95 is enough, and ``others``.
        Each has a multiple of 0.01 for ``q`` and the line that does it.

    Raises:
        BudgetError: nothing makes it fit.
        EvsError: see ``evs_cli.errors``; a bad argument raises before any work.
        TypeError: a keyword that is none of the above.
    """
    from evs_cli.jobs.fit_run import fit_request, run_fit
    from evs_cli.jobs.plan import BudgetJob

    job = BudgetJob(make_request(**request))
    asked = fit_request(job.encoder, job.context_of(context), max_tokens, reserve)
    return _only_result(run_fit(job, [os.fspath(video)], asked))


def check_video(
    video: str | os.PathLike[str],
    url: str,
    *,
    q: float | None = None,
    context: int | None = None,
    served_model: str | None = None,
    endpoint: str = "auto",
    api_key: str | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    as_url: str | None = None,
    **request: Unpack[RequestKeywords],
) -> CheckReport:
    """Ask a running server for its count of one video and compare it with the plan, as ``evs check`` does.

    Args:
        video: a path.
        url: the server, such as ``http://localhost:8000``.
        q: the rate the server prunes at, ``0 <= q < 1``; None is the server's own.
        context: longest sequence in tokens that the server should have; None is the model's own.
        served_model: the model's name at the server; None takes what it lists.
        endpoint: ``tokenize`` for ids, ``usage`` for a number, ``auto`` for ids where there are any.
        api_key: the environment variable that holds the server's key.
        timeout: seconds to wait for an answer.
        as_url: where the server reads the clip from, or ``file``; None sends it inside the request.
        **request: as for ``prune_video``; ``model`` and ``dialect`` may be left out where the server states them.

    Returns:
        The counts side by side. A difference is no error: ``differs`` is True then, and ``comparisons`` say where.

    Raises:
        ServerError: no answer, or one that cannot be read.
        RefusedByServerError: a clip that the server would refuse.
        EvsError: see ``evs_cli.errors``.
        TypeError: a keyword that is none of the above.
    """
    from evs_cli.jobs.check import CheckRequest
    from evs_cli.jobs.check import check_video as run

    asked = CheckRequest(os.fspath(video), url, endpoint, served_model, api_key, timeout, as_url)
    plan: RequestKeywords = {**request, "video_pruning_rate": q, "max_model_len": context}
    return run(asked, **plan)


def export_video(
    video: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    to: str = "vllm-frames",
    at: str = "planned",
    quality: int = 95,
    q: float | None = None,
    reserve: int = 0,
    served_model: str | None = None,
    send: str | None = None,
    api_key: str | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    overwrite: bool = False,
    curl: bool = False,
    **request: Unpack[RequestKeywords],
) -> Exported:
    """Write exactly the planned frames of one video as a request to vLLM, as ``evs export`` does.

    Args:
        video: a path.
        output: a ``.json`` file to write; None only sends the body.
        to: ``vllm-frames``.
        at: ``planned`` for frames of the planned size, ``source`` for the server to resize.
        quality: of the JPEGs, 1 to 100.
        q: the rate the server prunes at, to count what it keeps; None is that of ``server_cmd``, else 0.
        reserve: tokens of the answer; 0 leaves that to the server.
        served_model: what the request calls the model; None is its folder or hub id.
        send: a running server to post the body to, ``http://HOST:PORT``.
        api_key: the environment variable that holds the server's key.
        timeout: seconds to wait for an answer.
        overwrite: whether ``output`` may exist already.
        curl: whether the result has the line that posts the file.
        **request: as for ``prune_video``.

    Returns:
        What was written in ``frames``, with the server's count of it; ``curl`` and ``answer`` where they were asked.

    Raises:
        EvsError: see ``evs_cli.errors``; a bad argument raises before any work.
        TypeError: a keyword that is none of the above.
    """
    from evs_cli.jobs.export import ExportJob, check_target, server_of
    from evs_cli.jobs.frames_export import ExportRequest

    check_target(to)
    job = ExportJob(
        os.fspath(video),
        None if output is None else os.fspath(output),
        server_of(send, api_key, timeout),
        ExportRequest(at, quality, q, served_model, reserve or None),
        overwrite=overwrite,
        with_curl=curl,
    )
    return _only_result(job.run(make_request(**request), SilentProgress()))


def _only_result(outcomes: Iterator[Outcome[Result]]) -> Result:
    """The result of a job on one video, whose error has been raised."""
    (outcome,) = outcomes
    assert outcome.result is not None
    return outcome.result
