"""Writes a new cache entry while a job encodes the same video. A failure here never fails the job.

In: tokens from the pass that encodes them for something else. Out: a file in the cache, or why there is none.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from evs_cli.core.counts import TokenGrid
from evs_cli.errors import ArtifactError
from evs_cli.files.cache.store import KEY_METADATA, EncodingCache
from evs_cli.files.encoding.row_spool import RowSpool
from evs_cli.files.encoding.writer import EncodingDraft

if TYPE_CHECKING:
    import torch

    from evs_cli.files.encoding.record import StoredModel
    from evs_cli.pipeline.encoded_video import EncodedClip
    from evs_cli.pipeline.encoding_key import EncodingKey


class EntrySpool:
    """A ``TokenSink`` that sets rows aside for an entry, until it finds that there can be none.

    Args:
        cache: where the entry goes.
        key: what it is of.
    """

    def __init__(self, cache: EncodingCache, key: EncodingKey) -> None:
        self._cache, self._key = cache, key
        self.path: Path = cache.path_of(key.digest)
        """Of the entry."""
        self._spool = RowSpool(self.path)
        self._grid: TokenGrid | None = None  # until the first rows have come
        self.fault: str | None = None
        """Why there will be no entry, as a sentence without its full stop; None as long as there may be one."""

    def __enter__(self) -> EntrySpool:
        return self

    def __exit__(self, *error: object) -> None:
        self._spool.__exit__(*error)

    def expecting(self, token_grid_thw: TokenGrid) -> EntrySpool:
        """Itself, told the planned grid: to find out with the first rows that they are too many."""
        self._grid = token_grid_thw
        self._spool.expecting(token_grid_thw.t)
        return self

    def add(self, levels: tuple[torch.Tensor, ...], dissimilarity: torch.Tensor) -> None:
        """See ``TokenSink.add``; what cannot be written is a ``fault``."""
        if self.fault is not None:
            return
        if self._grid is not None:
            row_bytes = sum(level.shape[-1] * level.itemsize for level in levels)
            self.fault = self._size_fault(math.prod(self._grid) * row_bytes)
            self._grid = None
        if self.fault is None:
            try:
                self._spool.add(levels, dissimilarity)
            except ArtifactError as error:
                self.fault = error.message.rstrip(".")
                self._spool.__exit__()  # what was set aside takes no more room

    def _size_fault(self, size_bytes: int) -> str | None:
        limit = self._cache.limit_bytes
        if size_bytes <= limit:
            return None
        return f"it takes {size_bytes / 1e9:.3g} GB, more than the whole cache ({limit / 1e9:.3g} GB)"

    def write(self, clip: EncodedClip, model: StoredModel) -> list[str]:
        """Write the entry unless there is a fault, or becomes one; the names of those that made room for it."""
        if self.fault is not None:
            return []
        metadata = {KEY_METADATA: json.dumps(self._key.parts, sort_keys=True)}
        draft = EncodingDraft(clip, self._spool, model, beside=metadata)
        self.fault = self._size_fault(draft.size_bytes)
        if self.fault is not None:
            return []
        removed = self._cache.make_room(draft.size_bytes, self.path)
        try:
            draft.write(self.path, overwrite=True)  # of another program, as good
        except ArtifactError as error:
            self.fault = error.message.rstrip(".")
        removed += self._cache.make_room(draft.size_bytes, self.path)  # for what others wrote meanwhile
        return [entry.name for entry in removed]
