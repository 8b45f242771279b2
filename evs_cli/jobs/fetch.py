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
    try:
        found = [path for path in (checkpoint_file(source, each) for each in PLAN_FILES) if path is not None]
    except OSError as error:
        raise ModelError(f"cannot fetch {name}: {first_line(error)[:160].rstrip('.')}.") from error
    size_bytes = sum(path.stat().st_size for path in found)
    return FetchedModel(name, source.location, source.revision, tuple(map(str, found)), size_bytes)
