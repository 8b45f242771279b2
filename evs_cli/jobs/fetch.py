"""``models fetch``: the few files of a model that plans read, from the hub into its cache; no weights."""

from __future__ import annotations

from dataclasses import dataclass

from evs_cli.encoders.published import PLAN_FILES
from evs_cli.encoders.source import checkpoint_file, resolve_model
from evs_cli.errors import ModelError, first_line


@dataclass(frozen=True)
class FetchedModel:
    """A model that can be counted from now on without the hub."""

    model: str
    """As it was named."""
    location: str
    """Its hub id, or its folder."""
    revision: str | None
    files: tuple[str, ...]
    """Paths of its files here."""
    size_bytes: int
    """Of all of them."""


def fetch_model(name: str) -> FetchedModel:
    """Get what a plan reads of a model; of a folder, tell it.

    Args:
        name: a short name, a Hugging Face id or a folder.

    Raises:
        ModelError: no such model, or the hub out of reach.
    """
    source = resolve_model(name)
    found, lacking = [], []
    for each in PLAN_FILES:
        try:
            path = checkpoint_file(source, each)
        except OSError as error:  # out of reach: what the cache holds is all there is
            lacking.append(f"{each}: {first_line(error)[:160].rstrip('.')}")
        else:
            found += [] if path is None else [path]
    if "tokenizer.json" not in {path.name for path in found} and lacking:
        raise ModelError(f"cannot fetch {name}: {lacking[-1]}.", hint="Allow access to the hub, and fetch it again.")
    size_bytes = sum(path.stat().st_size for path in found)
    return FetchedModel(name, source.location, source.revision, tuple(map(str, found)), size_bytes)
