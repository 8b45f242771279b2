"""How to start a server and what to send it, so that it does what was planned."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evs_cli.dialects import Dialect
from evs_cli.dialects.base import ServerOptions

DEFAULT_PROMPT = "Describe the video."
"""The text beside a video where none is given."""


@dataclass(frozen=True)
class ServerRecipe:
    """The line that starts a server and the body of a request to it."""

    command: str | None
    """The server's command line; None for transformers, which is no server."""
    request: Mapping[str, Any]
    """The body of a chat completion; for transformers, arguments of ``processor.apply_chat_template``."""


@dataclass(frozen=True)
class Serving:
    """What a recipe is made from, beside the server's options."""

    dialect: Dialect
    model: str
    """Folder or hub id, as the server takes it."""
    q: float
    context: int | None
    """``max_model_len``; None leaves the model's own."""
    video: str
    """Path of the file."""
    prompt: str | None
    max_tokens: int | None
    """Length of the answer; None leaves it to the server."""


def recipe(serving: Serving, options: ServerOptions) -> ServerRecipe:
    """The server line and the request for a plan.

    What a request may say is put into the request (vLLM's sampling and size); the rest starts the server.

    Args:
        serving: model, rate and video.
        options: the server's options, with what is asked of sampling and size put in.
    """
    if serving.dialect.server == "hf":
        arguments = {"tokenize": True, **options.mm_processor, **options.request}
        return ServerRecipe(None, arguments)
    if serving.dialect.server == "vllm":
        return ServerRecipe(_vllm_line(serving, options), _vllm_body(serving, options))
    return ServerRecipe(_sglang_line(serving, options), chat_body(serving, file_url(serving.video)))


def chat_body(serving: Serving, url: str) -> dict[str, Any]:
    """The body of a chat completion with one video and a text."""
    content = [
        {"type": "video_url", "video_url": {"url": url}},
        {"type": "text", "text": serving.prompt or DEFAULT_PROMPT},
    ]
    body: dict[str, Any] = {"model": serving.model, "messages": [{"role": "user", "content": content}]}
    return body if serving.max_tokens is None else {**body, "max_tokens": serving.max_tokens}


def vllm_extra_body(options: ServerOptions) -> dict[str, Any]:
    """What of sampling and size a request to vLLM says beside its messages."""
    body: dict[str, Any] = {}
    if options.request:
        body["media_io_kwargs"] = {"video": dict(options.request)}
    if options.mm_processor:
        body["mm_processor_kwargs"] = dict(options.mm_processor)
    return body


def file_url(path: str) -> str:
    """``file://`` and the whole path."""
    return Path(os.path.abspath(path)).as_uri()  # noqa: PTH100 - resolve() would follow links


def evs_flags(dialect: Dialect, options: ServerOptions) -> list[str]:
    """Options of ``evs`` that say the same of a server."""
    flags = ["--dialect", dialect.name]
    for name, value in options.request.items():
        flags += ["--" + name.replace("_", "-"), f"{value:.15g}" if isinstance(value, float) else str(value)]
    if options.media_io:
        flags += ["--media-io-kwargs", _json({"video": options.media_io})]
    if options.mm_processor:
        flags += ["--mm-processor-kwargs", _json(options.mm_processor)]
    if options.mm_process:
        flags += ["--mm-process-config", _json({"video": options.mm_process})]
    return flags


def _vllm_line(serving: Serving, options: ServerOptions) -> str:
    words = ["vllm", "serve", serving.model]
    words += ["--video-pruning-rate", f"{serving.q:g}"] if serving.q > 0 else []
    words += [] if serving.context is None else ["--max-model-len", str(serving.context)]
    if options.max_num_batched_tokens is not None:
        words += ["--max-num-batched-tokens", str(options.max_num_batched_tokens)]
    words += ["--media-io-kwargs", _json({"video": options.media_io})] if options.media_io else []
    folder = str(Path(os.path.abspath(serving.video)).parent)  # noqa: PTH100
    return shlex.join([*words, "--allowed-local-media-path", folder])


def _vllm_body(serving: Serving, options: ServerOptions) -> dict[str, Any]:
    return {**chat_body(serving, file_url(serving.video)), **vllm_extra_body(options)}


def _sglang_line(serving: Serving, options: ServerOptions) -> str:
    words = ["python", "-m", "sglang.launch_server", "--model-path", serving.model]
    words += [] if serving.context is None else ["--context-length", str(serving.context)]
    words += ["--mm-process-config", _json({"video": options.mm_process})] if options.mm_process else []
    words += ["--json-model-override-args", _json({"video_pruning_rate": serving.q})] if serving.q > 0 else []
    return shlex.join(words)


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps({key: dict(value) if isinstance(value, Mapping) else value for key, value in content.items()})
