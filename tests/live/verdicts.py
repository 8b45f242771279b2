"""Whether a running server counts a clip as planned: ``evs check``'s own job, and a question where that refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from evs_cli.dialects import parse_dialect
from evs_cli.dialects.base import RefusedByServerError, ServerOptions
from evs_cli.dialects.requests import DEFAULT_PROMPT, ServingRequest, absolute_path, chat_body
from evs_cli.errors import EvsError, ServerError
from evs_cli.jobs.check import CheckRequest, check_video
from evs_cli.servers.http_json import HttpJson, parse_address
from evs_cli.servers.inline_video import RequestBody

SERVED_NAME = "tiny"


class Kind(Enum):
    """What came out for one clip."""

    EQUAL = "equal"
    """The server's ids are the plan's, every one."""
    REFUSED = "refused by both"
    DIFFERS = "differs"


@dataclass(frozen=True)
class Verdict:
    """What came out for one clip, in words."""

    clip: str
    kind: Kind
    detail: str = ""
    """What differs, or why it is refused."""


def judge(clip: Path, url: str, dialect: str, server_cmd: str, asked: Mapping[str, Any]) -> Verdict:
    """Run ``evs check`` on a clip.

    Args:
        clip: the file, which the server reads too.
        url: of the server.
        dialect: with its version.
        server_cmd: the command line that started the server.
        asked: what the user asks of the request.
    """
    request = CheckRequest(str(clip), url, endpoint="tokenize", as_url="file")
    plan: Any = {"dialect": dialect, "server_cmd": server_cmd, **asked}
    try:
        report = check_video(request, **plan)
    except EvsError as error:
        return _refused(clip, url, dialect, asked, error)
    differing = [part for part in report.comparisons if part.differs]
    detail = ", ".join(f"{part.kind} {part.planned} planned, {part.served} served" for part in differing)
    return Verdict(clip.name, Kind.DIFFERS if report.differs else Kind.EQUAL, detail)


def _refused(clip: Path, url: str, dialect: str, asked: Mapping[str, Any], error: EvsError) -> Verdict:
    """The plan refuses, and then the server is asked all the same; or the server refuses what is planned."""
    if isinstance(error, ServerError):
        return Verdict(clip.name, Kind.DIFFERS, f"planned; the server: {error.message}"[:300])
    if not isinstance(error, RefusedByServerError):
        return Verdict(clip.name, Kind.DIFFERS, f"evs: {type(error).__name__}: {error.message}"[:300])
    serving = ServingRequest(SERVED_NAME, 0.0, 0.0, None, str(clip), DEFAULT_PROMPT, None, None)
    sampling = {name: asked[name] for name in ("fps", "num_frames", "max_frames") if name in asked}
    more = parse_dialect(dialect).rules.extra_body(ServerOptions(request=sampling))
    body = RequestBody({**chat_body(serving, absolute_path(clip).as_uri()), **more}, None)
    try:
        answer = HttpJson(parse_address(url), None, 300.0).post("/tokenize", body)
    except ServerError as refusal:
        return Verdict(clip.name, Kind.REFUSED, f"{error.message} | {refusal.message}"[:300])
    return Verdict(
        clip.name, Kind.DIFFERS, f"refused by the plan alone ({error.message}); {answer.get('count')} served"
    )
