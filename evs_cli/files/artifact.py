"""The file evs writes: a pruned video as ``.pt`` or ``.safetensors``, schema 2.

In: a ``PrunedVideo``. Out: a file that holds tensors and plain values alone, so that ``torch.load`` opens it with
``weights_only=True``; and back, with every count checked against the mask, and every tensor against its checksum. The
same video gives the same bytes.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from evs_cli.errors import ArtifactError
from evs_cli.files.artifact_checks import check_pruned_video
from evs_cli.files.artifact_checksums import INPUT_PREFIX, LEVEL_PREFIX, split_tensors, with_checksums
from evs_cli.files.kinds import ENCODING_KIND, METADATA_KEY
from evs_cli.files.output_file import check_output_file, replacing
from evs_cli.files.record_checks import describe
from evs_cli.files.untrusted_record import check_archive

if TYPE_CHECKING:
    from evs_cli.core.pruned_video import PrunedVideo

SCHEMA_VERSION = 2
UNCHECKED_SCHEMA = 1
"""Of files from before checksums; they are read, with a note."""
SUFFIXES = (".pt", ".safetensors")
_DTYPE_ORDER = ("I64", "F64", "F32", "I32", "BF16", "F16", "BOOL")
"""The order safetensors' own library puts tensors in a file: the widest first, so that each begins at a multiple of its
item size."""


def check_output_path(path: Path, *, overwrite: bool) -> None:
    """Refuse an output before any work is done for it.

    Raises:
        UsageError: a suffix other than ``.pt`` or ``.safetensors``.
        ArtifactError: the file exists and ``overwrite`` is False, it is a folder, or its folder cannot be written.
    """
    check_output_file(path, SUFFIXES, overwrite=overwrite)


def to_record(pruned: PrunedVideo) -> dict[str, Any]:
    """The dict that a ``.pt`` file holds: fields of ``PrunedVideo`` by name, tensors that own their storage."""
    storages: set[int] = set()
    record: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
    for field in fields(pruned):
        record[field.name] = _plain(getattr(pruned, field.name), storages)
    return with_checksums(record)


def save(pruned: PrunedVideo, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write a pruned video to ``path``, whole or not at all.

    Args:
        pruned: the video.
        path: a ``.pt`` or ``.safetensors`` file; its folder is made where it is missing.
        overwrite: whether a file that is there already may go.

    Returns:
        The size of the file in bytes.

    Raises:
        UsageError: another suffix.
        ArtifactError: the file exists, or cannot be written.
    """
    target = Path(path)
    check_output_path(target, overwrite=overwrite)
    record = to_record(pruned)
    write = _write_pt if target.suffix == ".pt" else _write_safetensors
    with replacing(target, overwrite=overwrite) as file:
        write(record, file)
    return target.stat().st_size


def warn_of(note: str) -> None:
    """Tell a library's user something worth knowing."""
    warnings.warn(note, stacklevel=3)


def load(path: str | os.PathLike[str], notice: Callable[[str], None] = warn_of) -> PrunedVideo:
    """Read a pruned video back and check it: shapes, counts, the sequence's spans against the mask, and checksums.

    Args:
        path: the file.
        notice: told in a sentence what is worth knowing of it: that it is of schema 1, which had no checksums.

    Raises:
        ArtifactError: no such file, not one of evs, a newer schema, or one whose parts contradict each other.
    """
    source = Path(path)
    try:
        is_file = source.is_file()
    except OSError as error:
        raise ArtifactError(f"cannot read {source}: {(error.strerror or str(error)).lower()}.") from error
    if not is_file:
        raise ArtifactError(f"cannot read {source}: no such file.")
    record = _read_safetensors(source) if source.suffix == ".safetensors" else _read_pt(source)
    version = record.get("schema_version")
    if type(version) is not int or version not in (UNCHECKED_SCHEMA, SCHEMA_VERSION):
        raise ArtifactError(
            f"cannot read {source.name}: schema_version {describe(version)}. "
            f"Expected {UNCHECKED_SCHEMA} or {SCHEMA_VERSION}.",
            hint="It is not an artifact of evs, or was written by a newer one.",
        )
    pruned = check_pruned_video(record, source.name, has_checksums=version == SCHEMA_VERSION)
    if version == UNCHECKED_SCHEMA:
        notice(f"{source.name} is of schema 1, which has no checksums: damage in its embeddings would not be seen.")
    return pruned


def _plain(value: Any, storages: set[int]) -> Any:
    """``value`` as plain Python and tensors that own exactly their storage, and no two the same one.

    A view would write all of what it looks into. ``storages`` holds the storages given out so far.
    """
    import torch

    if isinstance(value, torch.Tensor):
        tensor = value.detach().cpu().contiguous()
        storage = tensor.untyped_storage()
        if storage.nbytes() != tensor.numel() * tensor.element_size() or storage.data_ptr() in storages:
            tensor = tensor.clone()
        storages.add(tensor.untyped_storage().data_ptr())
        return tensor
    if isinstance(value, Mapping):
        # Sorted, as JSON has them in the file of an encoding: a prune of that gives the very bytes of a fresh one.
        return {sys.intern(str(key)): _plain(value[key], storages) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(item, storages) for item in value]
    # pickle writes an object once and refers to it after: equal strings must be one object for equal bytes.
    return sys.intern(value) if isinstance(value, str) else value


def _write_pt(record: dict[str, Any], file: IO[bytes]) -> None:
    import torch

    try:
        torch.save(record, file)  # to an open file: a path would put the file's stem into the bytes
    except RuntimeError as error:  # torch hides the file's own error behind its archive's
        cause = error.__context__ if isinstance(error.__context__, OSError) else None
        raise OSError(cause.errno if cause else None, cause.strerror if cause else "the disk may be full") from error


def _write_safetensors(record: dict[str, Any], file: IO[bytes]) -> None:
    """The very bytes of safetensors' own ``save``, which holds all of them twice in memory; here tensors are written
    from where they lie.
    """
    from evs_cli.files.encoding.container import write_header
    from evs_cli.files.encoding.dtypes import NAMES, bytes_of

    tensors, rest = split_tensors(record)
    names = sorted(tensors, key=lambda name: (_DTYPE_ORDER.index(NAMES[tensors[name].dtype]), name))
    layout = [(name, NAMES[tensors[name].dtype], tuple(tensors[name].shape)) for name in names]
    file.write(write_header({METADATA_KEY: json.dumps(rest, sort_keys=True, allow_nan=False)}, layout))
    for name in names:
        file.write(bytes_of(tensors[name]))


def _read_pt(path: Path) -> dict[str, Any]:
    import torch

    try:
        check_archive(path)
        record = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # a broken file makes the unpickler raise anything, and say pages about weights_only
        raise _unreadable(path) from error
    if not isinstance(record, dict):
        raise ArtifactError(f"cannot read {path.name}: it holds a {type(record).__name__}, not an artifact of evs.")
    return record


def _read_safetensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            record: dict[str, Any] = json.loads((file.metadata() or {}).get(METADATA_KEY, "{}"))
            if not isinstance(record, dict):
                raise ValueError(f"the metadata {METADATA_KEY} is no object")
            if record.get("kind") == ENCODING_KIND:
                raise ArtifactError(
                    f"cannot read {path.name} as a pruned video: it is a whole encoding, which `evs encode` wrote.",
                    hint="evs_cli.open_encoding reads it; `evs prune` takes it in place of a video.",
                )
            names = list(file.keys())
            levels = sorted((n for n in names if n.startswith(LEVEL_PREFIX)), key=lambda n: int(n.rsplit(".", 1)[1]))
            inputs = [name for name in names if name.startswith(INPUT_PREFIX)]
            record["deepstack_embeddings"] = [file.get_tensor(name) for name in levels]
            record["token_inputs"] = {name.removeprefix(INPUT_PREFIX): file.get_tensor(name) for name in inputs}
            record |= {name: file.get_tensor(name) for name in names if name not in (*levels, *inputs)}
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise _unreadable(path) from error
    return record


def _unreadable(path: Path) -> ArtifactError:
    return ArtifactError(
        f"cannot read {path.name}: it is damaged or no file that evs wrote.",
        hint="Give a .pt or .safetensors file that `evs prune -o` wrote.",
    )
