"""What settles an encoding, as a key: the same key means the same rows, ranking and counts, bit for bit.

In: what the user asks for, the model and device it came to, the video's hash. Out: plain values and their digest. What
only chooses among tokens (rate, method, floor) is left out, and so is the prompt: it settles the sequence around the
video, which is made anew for another one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evs_cli._version import __version__
from evs_cli.core.dtypes import dtype_name
from evs_cli.dialects.base import LIMIT_OPTIONS, NOTED_OPTIONS, PRUNING_OPTIONS
from evs_cli.encoders import embedded
from evs_cli.encoders.runtime import Runtime
from evs_cli.encoders.source import ModelSource
from evs_cli.pipeline.provenance import model_record

if TYPE_CHECKING:
    from evs_cli.encoders.base import VideoEncoder
    from evs_cli.pipeline.request import SessionRequest
    from evs_cli.pipeline.settings import EncodeSettings

KEY_VERSION = 1
"""Raised where what stands in a key changes its meaning."""
CHOOSES_TOKENS = ("method", "min_dissimilarity", "seed")
"""Fields of a request that no encoding depends on."""
_RESOLVED = ("model", "revision", "device", "dtype", "score_dtype", "reuse")  # in a key as what they came to
_PACKAGES = ("torch", "torchvision", "transformers", "tokenizers", "av", "decord", "decord2", "numpy", "pillow")
_WHOLE_BYTES = 64 << 20  # of a file of a model that is hashed; a larger one goes by its size and times


@dataclass(frozen=True)
class EncodingKey:
    """A key, and the parts it is made of."""

    parts: Mapping[str, Any]
    """Plain values by name, flat, so that two keys can be told apart in words."""

    @property
    def digest(self) -> str:
        """64 hexadecimal digits."""
        text = json.dumps(self.parts, sort_keys=True, allow_nan=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def differences(self, parts: Mapping[str, Any]) -> list[str]:
        """Names of the parts that are others there, sorted."""
        return sorted(name for name in {*self.parts, *parts} if self.parts.get(name, ...) != parts.get(name, ...))


def encoding_key(
    request: SessionRequest, settings: EncodeSettings, encoder: VideoEncoder, video_sha256: str, schema_version: int
) -> EncodingKey:
    """The key of a video's encoding.

    Args:
        request: what the user asks for; a field that is not known here is taken as it stands.
        settings: what of it was resolved.
        encoder: the model.
        video_sha256: of the video's bytes.
        schema_version: of the file that keeps the encoding.
    """
    asked = {name: value for name, value in asdict(request).items() if name not in (*CHOOSES_TOKENS, *_RESOLVED)}
    del asked["options"]["prompt"], asked["options"]["system"]
    asked["dialect"] = request.dialect.name  # what else it holds is said of the version asked for
    for name in (*PRUNING_OPTIONS, *NOTED_OPTIONS, *LIMIT_OPTIONS):  # no row depends on them
        del asked["server"][name]
    score_dtype = settings.score_dtype
    parts = {
        "key": KEY_VERSION,
        "schema": schema_version,
        "video_sha256": video_sha256,
        "model": model_identity(encoder.source),
        **asked,
        "device": _device(settings.runtime),
        "dtype": settings.runtime.dtype_name,
        "score_dtype": None if score_dtype is None else dtype_name(score_dtype),
        "reuse": settings.reuses_frames and encoder.frames_are_independent,
        "versions": {"evs": __version__, **dict(_versions())},
    }
    # As it is after JSON, so that a key read back from a file equals itself.
    plain: dict[str, Any] = json.loads(json.dumps(dict(_flat("", parts)), allow_nan=False))
    return EncodingKey(plain)


def model_identity(source: ModelSource) -> dict[str, Any]:
    """What tells a checkpoint's weights and processor from any other's.

    On the hub that is the commit. In a folder it is every file in it: its content up to 64 MiB, and of larger ones, the
    weights, size and times of change, which no copy or edit leaves as they were.
    """
    record = {**model_record(source), "location": None if source.is_local else source.location}
    if source.is_embedded:
        return {**record, "files": embedded.ONNX_SHA256}
    return {**record, "files": _folder_digest(Path(source.location)) if source.is_local else None}


def _folder_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in _files(folder):
        digest.update(os.fsencode(path.relative_to(folder)) + b"\0" + _mark(path).encode() + b"\n")
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """Every file below a folder, sorted, but for hidden ones and those in hidden folders."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        else:
            yield path


def _mark(path: Path) -> str:
    try:
        status = path.stat()
        if not path.is_file() or status.st_size > _WHOLE_BYTES:
            return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:  # what cannot be read is no part of the model, until it can be
        return f"errno {error.errno}"


def _device(runtime: Runtime) -> dict[str, str]:
    """The device by name, and the kind of processor behind it: another one rounds otherwise."""
    import torch

    if runtime.device.startswith("cuda"):
        return {"name": runtime.device, "kind": torch.cuda.get_device_name(runtime.device)}
    return {"name": runtime.device, "kind": torch.backends.cpu.get_cpu_capability()}


def _versions() -> Iterator[tuple[str, str]]:
    """Versions of what decodes, resizes, encodes and ranks, where it is installed."""
    for name in _PACKAGES:
        try:
            yield name, str(version(name))
        except PackageNotFoundError:
            continue


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Leaves of nested mappings under names joined by dots."""
    if not isinstance(value, Mapping):
        yield prefix, value
        return
    for name, each in value.items():
        yield from _flat(f"{prefix}.{name}" if prefix else str(name), each)
