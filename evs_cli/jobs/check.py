"""``check``: one video planned, sent to a running server, and its answer beside the plan.

In: an address, a video, what the user asks of the plan. Out: an ``Outcome`` of a ``CheckReport``. It
reads no weight and no pixel; the server does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack, cast
from urllib.parse import urlsplit

from evs_cli.dialects import dialect_of_owner
from evs_cli.dialects.base import ServerOptions
from evs_cli.dialects.requests import DEFAULT_PROMPT, DEFAULT_SYSTEM, ServingRequest, absolute_path, chat_body
from evs_cli.encoders.source import DEFAULT_MODEL, SHORT_NAMES
from evs_cli.errors import ServerError, UsageError, without_secrets
from evs_cli.jobs.budget import model_context_limit
from evs_cli.jobs.check_matches import ServerCount, matching_plans, whole_frame_difference
from evs_cli.jobs.check_plan import CheckedClip, plan_clip
from evs_cli.jobs.check_verdict import answer_notes, difference_of, server_notes
from evs_cli.jobs.inputs import STDIN, opened
from evs_cli.jobs.runner import Input, Outcome, run_each
from evs_cli.pipeline.keywords import RequestKeywords
from evs_cli.pipeline.progress import Progress, Timings
from evs_cli.pipeline.request import SessionRequest, make_request
from evs_cli.servers.client import PromptUsage, ServedName, ServerClient, TokenizedPrompt, choose_served_name
from evs_cli.servers.comparison import (
    CheckReport,
    CheckSubject,
    compare_context,
    compare_count,
    compare_ids,
    first_divergence,
    split_prompts,
)
from evs_cli.servers.http_json import DEFAULT_TIMEOUT_SECONDS, HttpJson, HttpStatusError, key_in, parse_address
from evs_cli.servers.inline_video import MARKER, InlineVideo, RequestBody, media_type

ENDPOINTS = ("auto", "tokenize", "usage")
AS_FILE = "file"
"""Of ``as_url``: ``file://`` and the whole path of the video."""


@dataclass(frozen=True)
class CheckRequest:
    """Whom to ask about which video, and how.

    Raises:
        UsageError: a value outside its range.
    """

    video: str
    """A path, or ``-``."""
    url: str
    endpoint: str = "auto"
    """``tokenize`` asks for ids, ``usage`` for a number; ``auto`` takes ids where there are any."""
    served_model: str | None = None
    """The model's name in a request; None takes what the server lists."""
    api_key_variable: str | None = field(default=None, repr=False)
    """The environment variable that holds the server's key; not shown, as it may be the key by mistake."""
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    as_url: str | None = None
    """Where the server reads the clip from; None sends it inside the request."""

    def __post_init__(self) -> None:
        if self.endpoint not in ENDPOINTS:
            raise UsageError(f"Invalid --endpoint {self.endpoint!r}. Expected one of {', '.join(ENDPOINTS)}.")
        if self.as_url is not None and self.as_url != AS_FILE:
            try:
                parts = urlsplit(self.as_url)
            except ValueError:
                parts = urlsplit("")
            if parts.scheme not in ("http", "https", "file") or not (parts.netloc or parts.path):
                raise UsageError(
                    f"Invalid --as-url {without_secrets(self.as_url)!r}. Expected file, or a URL of http, https or "
                    "file by which the server reads the clip."
                )
        if self.as_url == AS_FILE and self.video == STDIN:
            raise UsageError("--as-url file needs a file that the server can read, and the video is standard input.")

    def client(self) -> ServerClient:
        """The server, with its key.

        Raises:
            UsageError: an address, a key or a time that cannot be.
        """
        return ServerClient(HttpJson(parse_address(self.url), key_in(self.api_key_variable), self.timeout_seconds))

    @property
    def sent_url(self) -> str:
        """What a request says of the clip; ``MARKER`` where the clip itself goes into it."""
        if self.as_url is None:
            return MARKER
        return absolute_path(self.video).as_uri() if self.as_url == AS_FILE else self.as_url


def run_check(
    request: CheckRequest, progress: Progress, **plan: Unpack[RequestKeywords]
) -> Iterator[Outcome[CheckReport]]:
    """Check one video; a count that differs from the plan is a refusal. Arguments and errors as ``check_video``."""

    def work(request: CheckRequest, _: Timings) -> CheckReport:
        return check_video(request, progress, **plan)

    return run_each([(Input(request.video), request)], work, is_single=True, refuses=difference_of)


def check_video(
    request: CheckRequest, progress: Progress | None = None, **plan: Unpack[RequestKeywords]
) -> CheckReport:
    """Plan a video, ask a server for its count, and compare.

    Args:
        request: the video and the server.
        progress: who is told, before the request is sent, what the server must be started with to take it.
        **plan: the keywords of ``make_request``; model and dialect may be left out where the server states them.

    Raises:
        UsageError: options that exclude each other, or a server that does not say what it is.
        ServerError: no answer, or one that cannot be read.
        RefusedByServerError: a clip that the dialect's server would refuse.
    """
    client = request.client()
    plan = cast("RequestKeywords", {name: value for name, value in plan.items() if value is not None})
    model = session_of(plan, None).model  # of --server-cmd too; what is wrong with the plan shows before the network
    is_named = "model" in plan or model != DEFAULT_MODEL
    names = client.served_names()
    listed = choose_served_name(names, request.served_model, SHORT_NAMES.get(model, model) if is_named else None)
    if not is_named:
        if plan.get("trust_remote_code"):  # a server would choose what is run here
            raise UsageError(
                "--trust-remote-code runs a model's code, and without --model the server names it. Expected both."
            )
        plan["model"] = _root(listed, client)
    session = session_of(plan, listed.owner)
    is_guess = _has_no_dialect(plan) and dialect_of_owner(listed.owner) is None
    if is_guess and request.endpoint == "usage":
        raise _unknown_server(client)
    with opened(request.video) as source:
        assert isinstance(source, (str, os.PathLike))
        clip = _with_text_before(plan_clip(request.video, source, session), progress)
        if clip.served.request_note is not None and progress is not None:
            progress.notice(f"{clip.name}: {clip.served.request_note}")
        answer = _ask(client, request, listed, clip, Path(source), is_guess=is_guess)
        return _report(client, request, listed, clip, answer)


def _with_text_before(clip: CheckedClip, progress: Progress | None) -> CheckedClip:
    """The clip with a system message where the server would fail for want of text, unless the user settled it."""
    session = clip.session
    note = clip.planner.text_before_note(clip.served.server, clip.q, session.options)
    if note is None or session.options.system is not None:
        return clip
    if progress is not None:
        progress.notice(f"{clip.name}: the system message {DEFAULT_SYSTEM!r} goes in front. {note}; '' sends none")
    return clip.replanned(replace(session, options=replace(session.options, system=DEFAULT_SYSTEM)))


def session_of(plan: RequestKeywords, owner: str | None) -> SessionRequest:
    """The request of a plan with the whole chat prompt, by the dialect asked for, else by that of the server.

    Args:
        plan: keywords of ``make_request``.
        owner: what the server calls itself; one that is not known is taken for vLLM.

    Raises:
        UsageError: ``evs``, which no server is, every dialect, or an empty prompt.
    """
    prompt = plan.get("prompt")
    prompt = DEFAULT_PROMPT if prompt is None else prompt
    if not prompt.strip():
        raise UsageError("Invalid --prompt: it is empty. Expected the text that is sent beside the video.")
    dialect = plan.get("dialect")
    if _has_no_dialect(plan):
        known = dialect_of_owner(owner)
        dialect = "vllm" if known is None else known.name
    asked: RequestKeywords = {**plan, "prompt": prompt, "dialect": dialect}
    # A server decodes the file before it answers, so that a check may wait for as much.
    session = replace(make_request(**asked), decodes_first=True)
    if session.dialect.is_evs:
        raise UsageError("--dialect evs is no server's. Expected vllm, sglang or hf.")
    return session


def _ask(
    client: ServerClient, request: CheckRequest, listed: ServedName, clip: CheckedClip, path: Path, *, is_guess: bool
) -> TokenizedPrompt | PromptUsage:
    """The server's ids, or its number."""

    def body(max_tokens: int | None) -> RequestBody:
        video = InlineVideo(path, media_type(request.video)) if request.as_url is None else None
        return RequestBody(request_body(clip, listed.name, request.sent_url, max_tokens), video)

    known = dialect_of_owner(listed.owner)
    rules = (known or clip.session.dialect).rules
    if request.endpoint == "tokenize" or (request.endpoint == "auto" and rules.tokenizes_videos):
        try:
            tokenized = client.tokenize(body(None))
        except HttpStatusError as error:
            if request.endpoint == "tokenize" or not error.is_absent:
                raise
        else:
            # A server that does not expand the video leaves its one placeholder standing. Where the plan itself has one
            # token the two look alike.
            if tokenized.input_ids.count(clip.planned.placeholder_id) > 1 or clip.planned.video_tokens <= 1:
                return tokenized
            if request.endpoint == "tokenize" or known is not None:
                raise ServerError(
                    f"{client.http.address} leaves the video out of its ids: its /tokenize counts text alone.",
                    hint="Ask for its number: --endpoint usage.",
                )
        if is_guess:
            raise _unknown_server(client)
    return client.usage(body(1))


def request_body(clip: CheckedClip, served_model: str, url: str, max_tokens: int | None) -> dict[str, Any]:
    """The body of a request, with what a user asks of sampling and size where the server reads it there.

    Args:
        clip: as planned.
        served_model: its name at the server.
        url: of the video.
        max_tokens: length of the answer; None for ``/tokenize``.
    """
    session = clip.session
    assert session.options.prompt is not None
    text = (session.options.prompt, max_tokens, session.options.system)
    serving = ServingRequest(served_model, clip.q, clip.q, None, (clip.path,), *text)
    return {**chat_body(serving, url), **clip.planner.request_arguments(session.sampling, session.options)}


def _report(
    client: ServerClient,
    request: CheckRequest,
    listed: ServedName,
    clip: CheckedClip,
    answer: TokenizedPrompt | PromptUsage,
) -> CheckReport:
    session, planned, decode = clip.session, clip.planned, clip.decode
    parting, limit = None, listed.max_model_len
    if isinstance(answer, TokenizedPrompt):
        ids = answer.input_ids
        comparisons = compare_ids(planned, ids, decode)
        parting, limit = first_divergence(planned, ids, decode), answer.max_model_len or limit
        mine, theirs = split_prompts(planned, ids)
        answered = ServerCount(len(ids), theirs.video)
        is_searched = mine.video != theirs.video
    else:
        comparisons = compare_count(planned, answer.prompt_tokens)
        answered = ServerCount(answer.prompt_tokens, None)
        is_searched = comparisons[0].differs
    suggestions: tuple[str, ...] = ()
    if is_searched:
        suggestions = matching_plans(clip, answered)
        if not suggestions and answered.video_ids is None:
            suggestions = whole_frame_difference(clip.served, answered.prompt_tokens - len(planned.input_ids))
    asked_limit = session.server.max_model_len
    version = client.version(listed.owner)
    return CheckReport(
        asked=CheckSubject(
            video=clip.name,
            model=clip.planner.encoder.source.name,
            dialect=session.dialect.name,
            q=clip.q,
            url=client.http.address,
            endpoint="usage" if isinstance(answer, PromptUsage) else "tokenize",
            served_model=listed.name,
            owner=listed.owner,
            version=version,
            has_server_options=session.server != ServerOptions(),
        ),
        comparisons=(
            *comparisons,
            *compare_context(
                asked_limit or model_context_limit(clip.planner.encoder), limit, is_asked=asked_limit is not None
            ),
        ),
        parting=parting,
        suggestions=suggestions,
        notes=(*clip.notes, *server_notes(clip, listed, version), *answer_notes(clip, answer, answered, limit)),
    )


def _root(listed: ServedName, client: ServerClient) -> str:
    """The model that a server says it serves.

    Raises:
        UsageError: it does not say.
    """
    if listed.root is None:
        raise UsageError(f"{client.http.address} does not say which model it serves. Expected --model for the plan.")
    return listed.root


def _has_no_dialect(plan: RequestKeywords) -> bool:
    return plan.get("dialect") is None and plan.get("server_cmd") is None


def _unknown_server(client: ServerClient) -> UsageError:
    return UsageError(
        f"{client.http.address} does not say which server it is, and tells no ids. Expected --dialect vllm, sglang or "
        "hf: whose rules it samples and counts by."
    )
