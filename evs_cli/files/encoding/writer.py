"""Writes an encoding's file in one pass: header, small tensors, then every level's rows in rank order.

In: an ``EncodedClip`` and the ``RowSpool`` its rows went to. Out: one file, whole or not at all. The same input,
versions, device, dtype and batch size give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from evs_cli.files.encoding.container import write_header
from evs_cli.files.encoding.digests import CHECKSUM_SUFFIX, FRONT_KEY, front_digest
from evs_cli.files.encoding.dtypes import NAMES, bytes_of
from evs_cli.files.encoding.record import SCALE_SUFFIX, StoredModel, StoreFacts, level_name, small_tensors, to_record
from evs_cli.files.kinds import METADATA_KEY
from evs_cli.files.output_file import replacing

if TYPE_CHECKING:
    from evs_cli.files.encoding.row_spool import RowSpool
    from evs_cli.pipeline.encoded_video import EncodedClip

_NOTHING: Mapping[str, str] = MappingProxyType({})


def store_facts(spool: RowSpool) -> StoreFacts:
    """What the rows of a spool are."""
    return StoreFacts(
        dtype=str(spool.dtype).removeprefix("torch."),
        embedding_dtype=str(spool.embedding_dtype).removeprefix("torch."),
        dims=tuple(spool.dims),
        num_model_levels=spool.num_levels,
        errors=tuple(spool.errors()),
    )


def write_encoding(
    clip: EncodedClip, spool: RowSpool, model: StoredModel, target: Path, *, overwrite: bool = False
) -> int:
    """Write the file and return its size in bytes.

    Args:
        clip: all but the rows.
        spool: the rows, in the order of time.
        model: what is to be told of the model.
        target: the file.
        overwrite: whether one that is there may go.

    Raises:
        ArtifactError: it cannot be written, or is there and may not go.
    """
    return EncodingDraft(clip, spool, model).write(target, overwrite=overwrite)


class EncodingDraft:
    """A file before it is written, when its size is known.

    Args:
        clip: all but the rows.
        spool: the rows, in the order of time; open until the file is written.
        model: what is to be told of the model.
        beside: further metadata, by keys other than evs's own.
    """

    def __init__(
        self, clip: EncodedClip, spool: RowSpool, model: StoredModel, *, beside: Mapping[str, str] = _NOTHING
    ) -> None:
        self._spool = spool
        self._order = order = clip.ranking.order()
        front = small_tensors(clip, order)
        for level in range(len(spool.dims)):
            scales = spool.scales(level, order)
            if scales is not None:
                front[level_name(level) + SCALE_SUFFIX] = scales
            front[level_name(level) + CHECKSUM_SUFFIX] = spool.checksums(level, order)
        # Large items first, and rows last: then every tensor lies at a multiple of its items.
        self._front = dict(sorted(front.items(), key=lambda item: (-item[1].element_size(), item[0])))
        rows = [(level_name(level), NAMES[spool.dtype], (len(order), dim)) for level, dim in enumerate(spool.dims)]
        record = to_record(clip, store_facts(spool), model)
        text = json.dumps(record, sort_keys=True, allow_nan=False, separators=(",", ":"))
        layout = [*((name, NAMES[tensor.dtype], tuple(tensor.shape)) for name, tensor in self._front.items()), *rows]
        metadata = {**beside, METADATA_KEY: text}
        metadata[FRONT_KEY] = front_digest(metadata, layout, map(bytes_of, self._front.values()))
        self._header = write_header(metadata, layout)
        row_bytes = sum(spool.dims) * spool.dtype.itemsize
        small_bytes = sum(tensor.nbytes for tensor in self._front.values())
        self.size_bytes: int = len(self._header) + small_bytes + len(order) * row_bytes
        """Of the file."""

    def write(self, target: Path, *, overwrite: bool) -> int:
        """Write the file and return its size in bytes.

        Raises:
            ArtifactError: it cannot be written, or is there and ``overwrite`` is False.
        """
        with replacing(target, overwrite=overwrite) as file:
            file.write(self._header)
            for tensor in self._front.values():
                file.write(bytes_of(tensor))
            for level in range(len(self._spool.dims)):
                for block in self._spool.blocks(level, self._order):
                    file.write(block)
        return self.size_bytes
