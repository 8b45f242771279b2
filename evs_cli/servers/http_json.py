"""JSON over HTTP to one server, by the standard library: what can go wrong is one sentence each.

In: an address and bodies. Out: decoded JSON objects. It knows no endpoint and no video. No client library comes with
every allowed huggingface_hub: 1.x brings httpx, 2.x brings httpx2.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Protocol
from urllib.parse import SplitResult, urlsplit

from evs_cli.errors import ServerError, UsageError, without_secrets
from evs_cli.servers.deadline import Deadline

DEFAULT_TIMEOUT_SECONDS = 300.0
"""A server decodes the whole clip before it answers."""
MAX_ANSWER_BYTES = 256 * 2**20
"""Ids of more than ten million tokens."""
_MAX_ERROR_BYTES = 2**16
_MAX_MESSAGE_LETTERS = 300


class Body(Protocol):
    """The bytes of a request, piece by piece."""

    @property
    def size_bytes(self) -> int:
        """Length of the whole request."""

    def __iter__(self) -> Iterator[bytes]:
        """The pieces in order."""


class HttpStatusError(ServerError):
    """An answer of the statuses 300 to 599.

    Args:
        message: what was asked and what the server says.
        status: the status.
        hint: the next step.
    """

    def __init__(self, message: str, status: int, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status

    @property
    def is_absent(self) -> bool:
        """Whether the server does not know what was asked for."""
        return self.status in (404, 405, 501)


def parse_address(text: str, option: str = "--url") -> str:
    """The root of a server from its address, ``http://host:8000`` or with the ``/v1`` that clients are given.

    Args:
        text: the address.
        option: what gives it, for the error.

    Raises:
        UsageError: an address of another scheme, without a host, or with more in it than a root has.
    """
    expected = "Expected http://HOST:PORT or https://HOST."
    if set("@?#") & set(text):
        # It may hold a password, so it is not repeated, not even in part by an error of urlsplit.
        fault = "it holds a user, a query or a fragment"
        raise UsageError(f"Invalid {option}: {fault}. {expected} A key goes by --api-key.")
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError as error:
        raise UsageError(f"Invalid {option} {text!r}: {error}. {expected}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise UsageError(f"Invalid {option} {text!r}. {expected}")
    if not text.isascii() or any(letter.isspace() for letter in text.strip()):
        raise UsageError(f"Invalid {option} {text!r}: it holds a space or a letter that is not ASCII. {expected}")
    path = parts.path.rstrip("/").removesuffix("/v1")
    return SplitResult(parts.scheme, parts.netloc, path, "", "").geturl()


def key_in(variable: str | None) -> str | None:
    """Read the server's key from an environment variable, without the line break that a file's last line adds.

    Raises:
        UsageError: there is none. The message does not repeat what was given: it may be the key itself.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UsageError("Invalid --api-key: no environment variable of this name holds a key. Expected its name.")
    return key


@dataclass(frozen=True)
class HttpJson:
    """One server.

    Raises:
        UsageError: a time that is not above 0, or a key that no header can hold.
    """

    address: str
    """Its root, as ``parse_address`` gives it."""
    api_key: str | None = field(default=None, repr=False)
    """Sent as a bearer token to this server alone: redirects are not followed."""
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        if not 0 < self.timeout_seconds < float("inf"):
            raise UsageError(f"Invalid --timeout ({self.timeout_seconds:g}). Expected seconds above 0.")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise UsageError("Invalid key of --api-key: it holds a line break or a letter that is not ASCII.")

    def get(self, path: str) -> dict[str, Any]:
        """The JSON object at a path.

        Raises:
            ServerError: no connection, an error, or an answer that is no JSON object.
        """
        return self._ask(urllib.request.Request(self.address + path, headers=self._headers()), f"GET {path}")

    def post(self, path: str, body: Body) -> dict[str, Any]:
        """The JSON object that answers a body; errors as ``get``."""
        headers = {
            **self._headers(),
            "Content-Type": "application/json",
            "Content-Length": str(body.size_bytes),  # else urllib sends an iterable in chunks, which few servers read
        }
        data: Any = iter(body)
        return self._ask(urllib.request.Request(self.address + path, data=data, headers=headers), f"POST {path}")

    def _headers(self) -> dict[str, str]:
        key = {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}
        return {"Accept": "application/json", **key}

    def _ask(self, request: urllib.request.Request, what: str) -> dict[str, Any]:
        with Deadline(self.timeout_seconds) as deadline:
            try:
                text = self._exchanged(request, deadline)
                if deadline.is_over:  # an answer without a length ends where the connection does
                    raise TimeoutError
            except urllib.error.HTTPError as error:
                with error:
                    raise self._status_error(error, what) from self._shown(error)
            except (OSError, http.client.HTTPException, ValueError) as error:  # the last of a chunk of negative size
                fault = TimeoutError() if deadline.is_over else error
                raise self._connection_error(fault, what) from self._shown(error)
        if len(text) > MAX_ANSWER_BYTES:
            raise ServerError(f"{self.address} answers {what} with more than {MAX_ANSWER_BYTES:,} bytes.")
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            said = self._said(_text(text)) or "nothing"
            raise ServerError(
                f"{self.address} answers {what} with something that is no JSON: {said}.",
                hint="Give the address of the server's root, as in http://localhost:8000.",
            ) from error
        if not isinstance(content, dict):
            raise ServerError(f"{self.address} answers {what} with JSON that is no object.")
        return content

    def _exchanged(self, request: urllib.request.Request, deadline: Deadline) -> bytes:
        """The body of the answer; of one that is too long, a byte more than is allowed."""
        with self._opener(deadline).open(request, timeout=self.timeout_seconds) as answer:
            text: bytes = answer.read(MAX_ANSWER_BYTES + 1)
            if len(text) <= MAX_ANSWER_BYTES and answer.length:  # a bounded read ends early without a word
                raise http.client.IncompleteRead(text, answer.length)
            return text

    def _opener(self, deadline: Deadline) -> urllib.request.OpenerDirector:
        """One that follows no redirect, and asks no proxy for a server on this machine."""
        proxies = [urllib.request.ProxyHandler({})] if is_loopback(urlsplit(self.address).hostname or "") else []
        return urllib.request.build_opener(_NoRedirects, deadline.handler(), *proxies)

    def _status_error(self, error: urllib.error.HTTPError, what: str) -> HttpStatusError:
        if 300 <= error.code < 400:
            target = self._said(error.headers.get("Location") or "nowhere")
            return HttpStatusError(
                f"{self.address} sends {what} elsewhere ({error.code} to {target}), and a clip is not sent on.",
                error.code,
                hint="Give that server's own address as --url.",
            )
        try:
            said = error_message(error.read(_MAX_ERROR_BYTES), self.api_key)
        except (OSError, http.client.HTTPException, ValueError):
            said = ""
        hints = {
            401: "Name the environment variable that holds the key: --api-key VARIABLE.",
            403: "Name the environment variable that holds the key: --api-key VARIABLE.",
            413: "Give --as-url file or --as-url http://…, so that the clip is not part of the request.",
        }
        reason = said or self._said(str(error.reason)) or "no reason"
        return HttpStatusError(
            f"{self.address} answers {what} with {error.code}: {reason}", error.code, hint=hints.get(error.code)
        )

    def _connection_error(self, error: OSError | http.client.HTTPException | ValueError, what: str) -> ServerError:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, TimeoutError):
            return ServerError(
                f"{self.address} gives no answer to {what} within {self.timeout_seconds:g} s.",
                hint="A long clip takes long to decode: give it more with --timeout.",
            )
        if isinstance(cause, ssl.SSLError):
            return ServerError(
                f"cannot reach {self.address}: its certificate or TLS is not accepted ({self._said(str(cause))}).",
                hint="SSL_CERT_FILE names the certificates to trust; a server without TLS has an http:// address.",
            )
        broken = (http.client.HTTPException, ConnectionResetError, BrokenPipeError, ValueError)
        if isinstance(error, broken) or isinstance(cause, broken):
            return ServerError(
                f"{self.address} breaks off the connection at {what}.",
                hint="It may take no HTTP there, or no request of this size: see its log, or give --as-url.",
            )
        reason = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        return ServerError(
            f"cannot reach {self.address}: {self._said(reason).lower()}.",
            hint="Start the server, or give its address as --url http://HOST:PORT.",
        )

    def _said(self, text: str) -> str:
        return _shortened(text, self.api_key)

    def _shown(self, error: Exception) -> Exception | None:
        """The cause that ``--debug`` prints; None where its text repeats the key, as a server's status line may."""
        return None if self.api_key is not None and self.api_key in f"{error} {error!r}" else error


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its name or number."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def error_message(answer: bytes, key: str | None = None) -> str:
    """What a server says in the body of an error, on one line; empty where it says nothing readable.

    vLLM and OpenAI nest it (``error.message``), SGLang does not (``message``), FastAPI calls it ``detail``. Some repeat
    the ``key`` they were sent, so it is taken out.
    """
    try:
        said = "; ".join(_messages(json.loads(answer)))
    except (ValueError, RecursionError):
        text = _text(answer)
        return "" if text.lstrip().startswith("<") else _shortened(text, key)
    return _shortened(said, key)


def _messages(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for entry in content:
            yield from _messages(entry)
    elif isinstance(content, dict):
        for name in ("error", "message", "detail", "msg"):
            if content.get(name):
                yield from _messages(content[name])
                return


def _text(answer: bytes) -> str:
    return answer[:_MAX_ERROR_BYTES].decode("utf-8", errors="replace")


def _shortened(text: str, key: str | None) -> str:
    """On one line, without control characters or secrets, cut where it is long."""
    text = without_secrets(text.replace(key, "…") if key else text)  # before the cut, which may halve the key
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split()).rstrip(".")
    return line if len(line) <= _MAX_MESSAGE_LETTERS else line[: _MAX_MESSAGE_LETTERS - 1] + "…"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: a POST would become a GET, and the key would go elsewhere."""

    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> None:
        """None: not followed."""
