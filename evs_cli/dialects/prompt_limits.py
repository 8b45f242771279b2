"""How many videos and images one request may hold, as a server's command line says it.

Read from vLLM 0.33's ``config/multimodal.py`` (``limit_per_prompt``) and SGLang 0.5.23's ``arg_groups/fields/mm.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evs_cli.dialects.server_options import json_object
from evs_cli.errors import UsageError

OPTIONS = ("limit-mm-per-prompt", "limit-mm-data-per-request")
"""vLLM's and SGLang's."""


@dataclass(frozen=True)
class PromptLimits:
    """What a limit by modality says of videos and images."""

    max_videos: int | None = None
    """None is as many as fit."""
    takes_images: bool = True
    """Whether images are taken at all: vLLM sizes its encoder cache by them too."""
    unread: tuple[str, ...] = ()
    """What of it only sizes that cache in some families, and is not counted with."""


def prompt_limits(given: Mapping[str, str]) -> PromptLimits:
    """The limits of a command line's options.

    Args:
        given: the values of a command line by option, without dashes.

    Raises:
        UsageError: a number that is none.
    """
    if "language-model-only" in given:
        return PromptLimits(max_videos=0, takes_images=False)
    name = next((name for name in OPTIONS if name in given), None)
    if name is None:
        return PromptLimits()
    by_kind = _by_kind(name, given[name])
    counts = {kind: _count(name, given[name], kind, by_kind.get(kind)) for kind in ("video", "image")}
    # A size that is said of a modality shapes the largest item that the server expects at start.
    sizes = [key for kind in counts if isinstance(by_kind.get(kind), dict) for key in by_kind[kind] if key != "count"]
    unread = (f"{', '.join(dict.fromkeys(sizes))} in --{name}",) if sizes else ()
    return PromptLimits(counts["video"], takes_images=counts["image"] != 0, unread=unread)


def _by_kind(name: str, text: str) -> dict[str, Any]:
    """The JSON object, also of the older ``video=2,image=1``."""
    if not text.startswith("{"):
        pairs = dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)
        text = json.dumps({kind: json.loads(count) if count.isdigit() else count for kind, count in pairs.items()})
    return json_object(name.replace("-", "_"), text)


def _count(name: str, text: str, kind: str, limit: Any) -> int | None:
    """The number of one modality, of ``2`` or ``{"count": 2, …}``; None where it is not said."""
    count = limit.get("count") if isinstance(limit, dict) else limit
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
        raise UsageError(f'Invalid --{name} {text!r}. Expected a number of {kind}s, as in {{"{kind}": 1}}.')
    return count
