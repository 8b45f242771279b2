"""Chat completion requests, which all servers share, and the ``evs`` options that mean the same as a server's."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evs_cli.dialects.base import ServerOptions

DEFAULT_PROMPT = "Describe the video."
"""The text beside a video where none is given."""
DEFAULT_SYSTEM = "You are a helpful assistant."
"""The system message where a server fails without text in front of the video."""


@dataclass(frozen=True)
class ServerRecipe:
    """The line that starts a server and the body of a request to it."""

    command: str | None
    """The server's command line; None for transformers, which is no server."""
    request: Mapping[str, Any]
    """The body of a chat completion; for transformers, arguments of ``processor.apply_chat_template``."""


@dataclass(frozen=True)
class ServingRequest:
    """What a recipe is made from, beside the server's options."""

    model: str
    """Folder or hub id, as the server takes it."""
    q: float
    own_rate: float
    """What the server prunes at unless its line says otherwise."""
    context: int | None
    """``max_model_len``; None leaves the model's own."""
    videos: tuple[str | None, ...]
    """Path of each file, in the order of the request; None of numbers alone."""
    prompt: str | None
    max_tokens: int | None
    """Length of the answer; None leaves it to the server."""
    system: str | None = None
    """Text of a system message; none where it is empty."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Whole paths of the files."""
        return tuple(absolute_path(video) for video in self.videos)

    @property
    def urls(self) -> tuple[str, ...]:
        """``file://`` and the whole path, of each file."""
        return tuple(path.as_uri() for path in self.paths)


def only_asked(options: ServerOptions, started: ServerOptions) -> ServerOptions:
    """What a request must say so that ``options`` hold at a server that was started with ``started``."""
    own = started.mm_processor
    changed = {name: value for name, value in options.mm_processor.items() if name not in own or own[name] != value}
    return ServerOptions(request=options.request, mm_processor=changed)


def chat_body(serving: ServingRequest, *urls: str) -> dict[str, Any]:
    """The body of a chat completion with videos and a text, behind a system message where there is one."""
    content = [
        *({"type": "video_url", "video_url": {"url": url}} for url in urls),
        {"type": "text", "text": serving.prompt or DEFAULT_PROMPT},
    ]
    messages: list[dict[str, Any]] = [{"role": "system", "content": serving.system}] if serving.system else []
    messages.append({"role": "user", "content": content})
    body: dict[str, Any] = {"model": serving.model, "messages": messages}
    return body if serving.max_tokens is None else {**body, "max_tokens": serving.max_tokens}


def absolute_path(path: str | None) -> Path:
    """The whole path of a file; of numbers alone, one to be filled in."""
    return Path("/path/to/VIDEO") if path is None else Path(os.path.abspath(path))  # noqa: PTH100 - keeps links


def evs_flags(dialect: str, options: ServerOptions) -> list[str]:
    """Options of ``evs`` that say the same of a server."""
    flags = ["--dialect", dialect]
    for name, value in options.request.items():
        if value is None:  # no rate beside a number
            continue
        flags += ["--" + name.replace("_", "-"), f"{value:.15g}" if isinstance(value, float) else str(value)]
    if options.video_pruning_method != "evs":
        flags += ["--video-pruning-method", options.video_pruning_method]
    if options.media_io:
        flags += ["--media-io-kwargs", json_text({"video": options.media_io})]
    if options.mm_processor:
        flags += ["--mm-processor-kwargs", json_text(options.mm_processor)]
    if options.mm_process:
        flags += ["--mm-process-config", json_text({"video": options.mm_process})]
    if options.video_kwargs:
        flags += ["--video-kwargs", json_text(options.video_kwargs)]
    return flags


def json_text(content: Mapping[str, Any]) -> str:
    """Options as JSON on a command line."""
    return json.dumps({key: dict(value) if isinstance(value, Mapping) else value for key, value in content.items()})
