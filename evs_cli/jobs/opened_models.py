"""Models that stay open between calls from Python, so that a program may plan a thousand videos a second.

An opened model is a configuration, a tokenizer and the texts it has tokenized; no weights. A folder's is opened again
when one of its files changes. A hub's is looked up once a process, and again after ``forget_models``.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict

from evs_cli.encoders.base import VideoEncoder
from evs_cli.encoders.published import PLAN_FILES
from evs_cli.pipeline.request import SessionRequest
from evs_cli.pipeline.session import check_request, open_requested

_MOST_OPEN = 8  # a tokenizer of 150,000 tokens takes about 100 MB
_READ = (*PLAN_FILES, "special_tokens_map.json", "added_tokens.json")
"""Files of a folder that plans depend on."""

_Key = tuple[str, str | None, bool, tuple[tuple[int, int] | None, ...]]
_open: OrderedDict[_Key, VideoEncoder] = OrderedDict()
_lock = threading.Lock()


def opened_model(request: SessionRequest) -> VideoEncoder:
    """The model of a request, to count with; as ``open_requested`` opens and checks it.

    Raises:
        ModelError: no such model, or an unknown family.
        UsageError: an option without meaning for the model, or a decoder that is not installed.
    """
    key = request.model, request.revision, request.trust_remote_code, _stamps(request.model)
    with _lock:
        encoder = _open.get(key)
        if encoder is not None:
            _open.move_to_end(key)
    if encoder is None:
        encoder = open_requested(request, counts_alone=True)
        with _lock:
            _open[key] = encoder
            while len(_open) > _MOST_OPEN:
                _open.popitem(last=False)
        return encoder
    check_request(encoder, request)
    return encoder


def forget_models() -> None:
    """Close every model, so that the next call looks each up again."""
    with _lock:
        _open.clear()


def _stamps(name: str) -> tuple[tuple[int, int] | None, ...]:
    """When each file of a folder was written, and its size; nothing of a model that is no folder."""
    return tuple(_stamp(f"{name}/{each}") for each in _READ) if _stamp(name) is not None else ()


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - ten of them a plan, and a Path takes longer than the plan
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
