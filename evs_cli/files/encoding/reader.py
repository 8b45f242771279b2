"""Reads an encoding from its file; a rate reads only the front and the rows that it keeps.

In: a path, or a URL that fsspec knows. Out: an ``Encoding``, whose ``at(q)`` equals a fresh prune of the same encoding
bit for bit. Header and small tensors are read when it is opened; rows when they are asked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from evs_cli.encoders.source import ModelSource
from evs_cli.errors import ArtifactError
from evs_cli.files.encoding.byte_source import ByteSource, is_url, open_bytes
from evs_cli.files.encoding.checks import check_clip, check_store, check_tensors, check_values
from evs_cli.files.encoding.container import LENGTH_BYTES, Header, TensorEntry, header_bytes, read_header
from evs_cli.files.encoding.digests import CHECKSUM_SUFFIX, FRONT_KEY, front_digest, row_checksums
from evs_cli.files.encoding.dtypes import DTYPES, tensor_of
from evs_cli.files.encoding.record import SCALE_SUFFIX, SCHEMA_VERSION, StoredModel, level_name
from evs_cli.files.encoding.row_reads import read_exactly, read_rows
from evs_cli.files.encoding.stored_rows import StoredRows
from evs_cli.files.kinds import ENCODING_KIND, METADATA_KEY
from evs_cli.files.record_checks import RecordFault, require
from evs_cli.pipeline.encoded_video import StoredVideo
from evs_cli.video.own_files import ENCODING_SUFFIX

if TYPE_CHECKING:
    from evs_cli.core.methods import RetentionRule
    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.core.retention import Ranking
    from evs_cli.encoders.base import EncodePlan


class Encoding:
    """An open file of ``evs encode``; made by ``open_encoding``, closed by ``close`` or at the end of a ``with``."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.name = source.name
        """The file's name."""
        self.size_bytes = source.size_bytes
        """Of the whole file."""
        header, record = _read_record(source)
        try:
            self._rows = {name: entry for name, entry in header.entries.items() if _is_rows(name)}
            small = {name: entry for name, entry in header.entries.items() if name not in self._rows}
            front = _read_front(source, header, small)
            check_values(record)
            num_frames, height, width = record["token_grid_thw"]
            self.store = check_store(record, self._rows, num_frames * height * width)
            """What the rows are."""
            tensors = _tensors_in(front, small)
            check_tensors(record, tensors, self.store)
            clip = check_clip(record, tensors, self.store)
            self.video = StoredVideo(**vars(clip), read_rows=self._read_level, num_levels=len(self.store.dims))
            """The encoding itself."""
        except RecordFault as fault:
            raise ArtifactError(
                f"cannot use {self.name}: {fault}.", hint="It is damaged or was changed; encode the video again."
            ) from fault
        self.front_bytes = sum(entry.size_bytes for entry in small.values()) + header.data_start
        """Bytes of header and small tensors, which every read needs."""
        self._scales = {name: tensors.get(name + SCALE_SUFFIX) for name in self._rows}
        self._checksums = {name: tensors[name + CHECKSUM_SUFFIX] for name in self._rows}
        model = record["model"]
        named = record["provenance"].get("model", {})
        self.model = StoredModel(
            ModelSource(str(named.get("id")), self.name, named.get("revision"), model["config"]),
            model["has_language_model"],
            model["default_pruning_rate"],
        )
        """What the file tells of its model."""

    def __enter__(self) -> Encoding:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Encoding({self.name!r}, grid {self.plan.token_grid_thw}, {self.store.dtype} rows of {self.store.dims})"

    def close(self) -> None:
        """Let go of the file."""
        self._source.close()

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user on what it lacks: frames of the video, or what a fresh prune would have."""
        notes = [] if self.video.loss is None else [self.video.loss]
        if self.store.dtype != self.store.embedding_dtype:
            notes.append(f"rows are stored in {self.store.dtype}, and were encoded in {self.store.embedding_dtype}.")
        if len(self.store.dims) < self.store.num_model_levels:
            notes.append(f"the main level alone is stored, of {self.store.num_model_levels}.")
        return tuple(notes)

    @property
    def ranking(self) -> Ranking:
        """The ranking of every token."""
        return self.video.ranking

    @property
    def plan(self) -> EncodePlan:
        """The plan of the frames that were encoded: every count before pruning."""
        return self.video.actual

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What made it."""
        return self.video.provenance

    def at(self, q: float, rule: RetentionRule | None = None) -> PrunedVideo:
        """The pruned video at rate q, ``0 <= q < 1``; by EVS unless ``rule`` says otherwise.

        It equals ``EncodedVideo.prune`` bit for bit where rows are stored as they were encoded. By EVS, with or without
        a floor, the first K rows of the file are read and no others; a control reads rows that lie apart.

        Raises:
            UsageError: a rate outside [0, 1).
            ArtifactError: rows that cannot be read or are damaged.
        """
        return self.video.prune(q, rule)

    def _read_level(self, tokens: torch.Tensor, level: int) -> torch.Tensor:
        """``(n, D)`` rows of tokens ``(n,)``, in the dtype they were encoded in."""
        ranks = self.ranking.rank.flatten()[tokens]
        name = level_name(level)
        values, scales = read_rows(self._source, self._rows[name], ranks), self._scales[name]
        if not torch.equal(row_checksums(values), self._checksums[name][ranks]):
            raise ArtifactError(
                f"cannot use {self.name}: rows of {name} are not those that were written.",
                hint="It is damaged or was changed; encode the video again.",
            )
        stored = StoredRows(values, None if scales is None else scales[ranks])
        return stored.restored(getattr(torch, self.store.embedding_dtype))


def open_encoding(path: str | os.PathLike[str]) -> Encoding:
    """Open a file of ``evs encode`` and check it against itself.

    Args:
        path: a local file, which is mapped into memory, or a URL that fsspec knows (``https://``, ``s3://``,
            ``memory://``), of which exactly the bytes that are needed are read.

    Raises:
        ArtifactError: no such file, not an encoding of evs, a newer schema, or one whose parts contradict each other.
    """
    if str(path).endswith(".pt"):
        raise ArtifactError(
            f"cannot read {path} as an encoding: a .pt file is a pruned video, which `evs prune` wrote.",
            hint="Give the .safetensors file that `evs encode` wrote, or the video.",
        )
    source = open_bytes(path)
    try:
        return Encoding(source)
    except BaseException:
        source.close()
        raise


def holds_encoding(path: str) -> bool:
    """Whether a file is a whole encoding and no pruned video, by its metadata; False of one that cannot be read.

    A URL is taken for one: pruned videos are read of local files alone.
    """
    if is_url(path):
        return True
    if not path.endswith(ENCODING_SUFFIX):
        return False
    try:
        source = open_bytes(path)
        _, record = _read_header(source)
    except (ArtifactError, ValueError, RecursionError):
        return False
    source.close()
    return bool(record.get("kind") == ENCODING_KIND)


def _read_header(source: ByteSource) -> tuple[Header, dict[str, Any]]:
    """Header and metadata as they stand.

    Raises:
        ValueError: there are none.
        ArtifactError: the file cannot be read.
    """
    size = header_bytes(bytes(source.read(0, LENGTH_BYTES)))
    if LENGTH_BYTES + size > source.size_bytes:
        raise ValueError("shorter than its header")
    header = read_header(bytes(source.read(LENGTH_BYTES, LENGTH_BYTES + size)))
    record = json.loads(header.metadata.get(METADATA_KEY, "{}"))
    if not isinstance(record, dict):
        raise ValueError("metadata that is no object")
    return header, record


def _read_record(source: ByteSource) -> tuple[Header, dict[str, Any]]:
    """Header and metadata, after telling files apart that are no encoding."""
    try:
        header, record = _read_header(source)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(
            f"cannot read {source.name}: it is damaged or no file that evs wrote.",
            hint="Give a .safetensors file that `evs encode` wrote.",
        ) from error
    if record.get("kind") != ENCODING_KIND:
        what = "a pruned video, which `evs prune` wrote" if "retention_mask" in header.entries else "none"
        raise ArtifactError(
            f"cannot read {source.name} as an encoding: it is {what}.",
            hint="Give the .safetensors file that `evs encode` wrote, or the video.",
        )
    if record.get("schema_version") != SCHEMA_VERSION:
        raise ArtifactError(
            f"cannot read {source.name}: schema_version {record.get('schema_version')!r}. Expected {SCHEMA_VERSION}.",
            hint="It was written by a newer evs.",
        )
    if header.end != source.size_bytes:
        raise ArtifactError(
            f"cannot use {source.name}: it is {source.size_bytes:,} bytes long, {header.end:,} were written.",
            hint="It was cut or added to; copy it again.",
        )
    return header, record


def _is_rows(name: str) -> bool:
    is_further = name.startswith(level_name(1)[:-1]) and not name.endswith((SCALE_SUFFIX, CHECKSUM_SUFFIX))
    return name == level_name(0) or is_further


def _read_front(source: ByteSource, header: Header, entries: Mapping[str, TensorEntry]) -> memoryview:
    """The bytes of ``entries``, which lie side by side behind the header, in one read.

    Raises:
        RecordFault: they or the header are not what was written.
    """
    require(bool(entries), "there are no tensors beside the rows")
    end = max(entry.end for entry in entries.values())
    size_bytes = sum(entry.size_bytes for entry in entries.values())
    require(end == header.data_start + size_bytes, "the rows do not come last")
    data = read_exactly(source, header.data_start, end)
    layout = [(entry.name, entry.dtype, entry.shape) for entry in header.entries.values()]
    is_whole = front_digest(header.metadata, layout, [data]) == header.metadata.get(FRONT_KEY)
    require(is_whole, "what stands before its rows is not what was written")
    return data


def _tensors_in(front: memoryview, entries: Mapping[str, TensorEntry]) -> dict[str, torch.Tensor]:
    """The tensors of ``entries``, whose bytes stand side by side in ``front``."""
    tensors, start = {}, min(entry.start for entry in entries.values())
    for name, entry in entries.items():
        require(entry.dtype in DTYPES, f"{name} is {entry.dtype}, which no encoding holds")
        tensors[name] = tensor_of(front[entry.start - start : entry.end - start], DTYPES[entry.dtype], entry.shape)
    return tensors
