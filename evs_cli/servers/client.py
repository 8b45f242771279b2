"""What a running server is asked: which model it serves, and how many tokens a prompt with a video is.

In: a server's address and request bodies. Out: its answers as plain values, checked. It follows the endpoints that
vLLM, SGLang and other servers of OpenAI's kind publish, and knows no plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evs_cli.dialects import dialect_of_owner
from evs_cli.errors import ServerError, UsageError
from evs_cli.servers.http_json import HttpJson, HttpStatusError
from evs_cli.servers.inline_video import RequestBody


@dataclass(frozen=True)
class ServedName:
    """A model as a server lists it."""

    name: str
    """What a request calls it."""
    root: str | None = None
    """The folder or hub id it was loaded from, where the server says so."""
    owner: str | None = None
    """``vllm``, ``sglang``, or what else the server calls itself."""
    max_model_len: int | None = None
    """Longest sequence, the answer included."""
    is_base: bool = True
    """Whether it is no adapter of another one."""


@dataclass(frozen=True)
class TokenizedPrompt:
    """An answer of ``/tokenize``."""

    input_ids: tuple[int, ...]
    """(L,) ids with the video's placeholders written out, as the server's tokenizer and processor make them."""
    max_model_len: int | None


@dataclass(frozen=True)
class PromptUsage:
    """The ``usage`` of a chat completion."""

    prompt_tokens: int
    """L."""
    video_tokens: int | None
    """The server's own count of the video's part, where it gives one; vLLM's holds the separators too."""


@dataclass(frozen=True)
class ServerClient:
    """A running server."""

    http: HttpJson

    def served_names(self) -> list[ServedName]:
        """The models it lists; none where it has no list.

        Raises:
            ServerError: no connection, an error, or a list that is none.
        """
        try:
            content = self.http.get("/v1/models")
        except HttpStatusError as error:
            if error.is_absent:
                return []
            raise
        cards = content.get("data")
        if not isinstance(cards, list) or not all(isinstance(card, dict) and card.get("id") for card in cards):
            raise self._odd("GET /v1/models", "no list of models with an id")
        return [_served_name(card) for card in cards]

    def version(self, owner: str | None) -> str | None:
        """The version that a server of a known kind states; None where it states none."""
        kind = dialect_of_owner(owner)
        path = None if kind is None else kind.rules.version_path
        if path is None:
            return None
        try:
            version = self.http.get(path).get("version")
        except ServerError:  # a proxy in front of it may let the model's endpoints through alone
            return None
        return version if isinstance(version, str) and version.isprintable() else None

    def tokenize(self, body: RequestBody) -> TokenizedPrompt:
        """The ids of a chat prompt.

        Raises:
            HttpStatusError: an error; ``is_absent`` where the server has no such endpoint.
            ServerError: no connection, or an answer without whole ids.
        """
        content = self._post("/tokenize", body)
        ids, count = content.get("tokens"), content.get("count")
        if not isinstance(ids, list) or not all(_is_count(token) for token in ids):
            raise self._odd("POST /tokenize", "no list of ids as tokens")
        if count != len(ids):
            raise self._odd("POST /tokenize", f"{len(ids):,} ids and a count of {count!r}")
        return TokenizedPrompt(tuple(ids), _count(content.get("max_model_len")))

    def usage(self, body: RequestBody) -> PromptUsage:
        """The prompt's length as a chat completion reports it.

        Raises:
            ServerError: no connection, an error, or an answer without ``usage.prompt_tokens``.
        """
        usage = self._post("/v1/chat/completions", body).get("usage")
        prompt_tokens = _count(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
        if prompt_tokens is None or not isinstance(usage, dict):
            raise self._odd("POST /v1/chat/completions", "no usage.prompt_tokens")
        return PromptUsage(prompt_tokens, _video_tokens(usage.get("prompt_tokens_details")))

    def _post(self, path: str, body: RequestBody) -> dict[str, Any]:
        try:
            return self.http.post(path, body)
        except HttpStatusError as error:
            hint = refused_arguments_hint(error)
            if hint is None:
                raise
            raise HttpStatusError(error.message, error.status, hint=hint) from error

    def _odd(self, what: str, fault: str) -> ServerError:
        return ServerError(f"{self.http.address} answers {what} with {fault}.")


def refused_arguments_hint(error: HttpStatusError) -> str | None:
    """The next step where a vLLM refuses what a request says of sampling and size; None of any other error."""
    option = "--trust-request-mm-kwargs"
    if error.status != 400 or option not in error.message:
        return None
    return (
        f"Start it with {option} where its clients are trusted; else with the options themselves (--media-io-kwargs, "
        "--mm-processor-kwargs), and give these to evs by --server-cmd."
    )


def choose_served_name(names: Sequence[ServedName], asked: str | None, model: str | None) -> ServedName:
    """The listed model to ask for.

    Args:
        names: what the server lists; empty where it lists nothing.
        asked: its name as the user gave it, or None.
        model: folder or hub id of the plan's model, which settles it where several are listed; None for any.

    Raises:
        UsageError: a name the server does not list, or several of which none is the plan's.
    """
    if asked is not None:
        found = next((listed for listed in names if listed.name == asked), None)
        if found is None and names:
            raise UsageError(f"Invalid --served-model {asked!r}. Expected {_listed(names)}.")
        return found or ServedName(asked)
    bases = [listed for listed in names if listed.is_base]
    same = [listed for listed in bases if model is not None and model in (listed.name, listed.root)]
    chosen = same or bases
    if not chosen:
        raise UsageError("The server lists no model. Expected its name as --served-model.")
    if len(chosen) > 1 and not same:
        raise UsageError(f"The server lists several models. Expected --served-model {_listed(bases)}.")
    return chosen[0]


def _listed(names: Sequence[ServedName]) -> str:
    return " or ".join(listed.name for listed in names)


def _served_name(card: dict[str, Any]) -> ServedName:
    root, owner = card.get("root"), card.get("owned_by")
    return ServedName(
        name=str(card["id"]),
        root=root if isinstance(root, str) else None,
        owner=owner if isinstance(owner, str) else None,
        max_model_len=_count(card.get("max_model_len")),
        is_base=not card.get("parent"),
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _count(value: Any) -> int | None:
    return value if _is_count(value) else None


def _video_tokens(details: Any) -> int | None:
    """The video's part of ``prompt_tokens_details``: SGLang's ``video_tokens``, vLLM's ``multimodal_tokens``."""
    if not isinstance(details, dict):
        return None
    by_modality = details.get("multimodal_tokens")
    own = by_modality.get("video") if isinstance(by_modality, dict) else None
    return _count(details.get("video_tokens") if own is None else own)
