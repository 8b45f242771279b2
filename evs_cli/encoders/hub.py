"""Files of the Hugging Face hub: one question whether it answers, before anything retries.

The hub's client tries five times and waits longer each time, which is right for a download that breaks off and wrong
for a machine without a network: 25 seconds until a word. Here it is asked once, and for a few seconds.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PATIENCE_SECONDS = 4.0  # for one answer of a few hundred bytes
_COMMIT = re.compile(r"[0-9a-f]{40}")


def hub_answers(location: str, revision: str | None) -> bool:
    """Whether the hub gives an answer about a repository in time; yes where it is set to be offline.

    A refusal, a redirect and "no such model" are answers. Where the hub is set to be offline (HF_HUB_OFFLINE) nothing
    waits for it, and its client says so itself.

    Args:
        location: the repository's id.
        revision: branch, tag or commit; files of a commit that are in the cache are not asked for again.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import FileMetadataError, HfHubHTTPError

    if constants.HF_HUB_OFFLINE:
        return True
    if _COMMIT.fullmatch(revision or "") and isinstance(
        try_to_load_from_cache(location, "config.json", revision=revision), str
    ):
        return True
    answers: list[bool] = []

    def ask() -> None:
        try:
            get_hf_file_metadata(hf_hub_url(location, "config.json", revision=revision), timeout=_PATIENCE_SECONDS)
        except HfHubHTTPError as error:
            answers.append(error.response is None or error.response.status_code < 500)
        except FileMetadataError:
            answers.append(True)
        except Exception:  # no connection: releases of the client raise the errors of httpx, httpx2 or the system
            answers.append(False)
        else:
            answers.append(True)

    # In a thread, since looking up a name takes no limit of time.
    asking = threading.Thread(target=ask, name="evs-hub", daemon=True)
    with quiet_hub():
        asking.start()
        asking.join(_PATIENCE_SECONDS)
    return answers == [True]


def hub_file(location: str, name: str, *, revision: str | None, is_reachable: bool) -> Path:
    """A file of a repository, from the cache where that is fresh or the hub is out of reach.

    Raises:
        OSError, ValueError: what ``hf_hub_download`` raises.
    """
    from huggingface_hub import hf_hub_download

    only_local: dict[str, Any] = {} if is_reachable else {"local_files_only": True}
    with quiet_hub():
        return Path(hf_hub_download(location, name, revision=revision, **only_local))


def is_known_missing(location: str, name: str, revision: str | None) -> bool:
    """Whether the hub has said before that this commit of a repository has no such file."""
    from huggingface_hub import _CACHED_NO_EXIST, try_to_load_from_cache

    return try_to_load_from_cache(location, name, revision=revision) is _CACHED_NO_EXIST


@contextlib.contextmanager
def quiet_hub() -> Iterator[None]:
    """Keep the hub client's retry messages off the terminal."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
