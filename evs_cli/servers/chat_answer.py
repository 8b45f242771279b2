"""A written request sent to a server, and what it answers.

In: a server and a file. Out: a ``ChatAnswer``. The file is sent piece by piece, as a request of frames is large.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evs_cli.errors import ServerError
from evs_cli.servers.client import refused_arguments_hint
from evs_cli.servers.http_json import HttpJson, HttpStatusError

CHAT_PATH = "/v1/chat/completions"
_PIECE_BYTES = 2**18


@dataclass(frozen=True)
class WrittenBody:
    """The bytes of a request in a file."""

    path: Path

    @property
    def size_bytes(self) -> int:
        """Length of the request."""
        return self.path.stat().st_size

    def __iter__(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece


@dataclass(frozen=True)
class ChatAnswer:
    """The answer of a chat completion."""

    text: str
    """Of its first choice."""
    prompt_tokens: int | None
    """Length of the prompt as the server counts it; None where it says nothing."""
    completion_tokens: int | None


def send(http: HttpJson, path: Path) -> ChatAnswer:
    """Post a written request to the server's chat completions.

    Raises:
        ServerError: no connection, an error, or an answer without text.
    """
    try:
        content = http.post(CHAT_PATH, WrittenBody(path))
    except ServerError as error:
        raise ServerError(error.message, hint=_hint(error)) from error
    text, usage = _first_text(content), content.get("usage")
    if text is None:
        raise ServerError(f"{http.address} answers POST {CHAT_PATH} without a choice that holds text.")
    counts = usage if isinstance(usage, dict) else {}
    return ChatAnswer(text, _count(counts.get("prompt_tokens")), _count(counts.get("completion_tokens")))


def _hint(error: ServerError) -> str:
    """The next step, by the options of an export."""
    status = error.status if isinstance(error, HttpStatusError) else None
    if isinstance(error, HttpStatusError) and refused_arguments_hint(error) is not None:
        return "Start it with --trust-request-mm-kwargs: a request of frames says how many there are, and their times."
    if status in (401, 403):
        return "Name the environment variable that holds the key: --api-key VARIABLE."
    if status == 404:
        return "The server may call the model otherwise: --served-model NAME."
    if status == 413:
        return "Send less: fewer frames (--num-frames), smaller ones (--at planned) or a lower --quality."
    return "-o FILE.json keeps the request; --send takes the server's root, as in http://localhost:8000."


def _first_text(content: dict[str, Any]) -> str | None:
    """The text of the first choice, empty where it has none (a model that only thinks); None without a choice."""
    choices = content.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict):
        return None
    text = message.get("content")
    return text if isinstance(text, str) else ""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
