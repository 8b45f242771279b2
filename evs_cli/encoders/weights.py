"""Which tensors of a checkpoint are read: the vision part's alone, out of the shards that hold it.

In: a checkpoint on disk or on the hub. Out: a state dict under the checkpoint's own names, and how many bytes that
was of how many. It knows names of tensors, not what a model does with them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evs_cli.encoders.source import ModelSource, checkpoint_file

if TYPE_CHECKING:
    import torch

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
# Every family names its towers, mergers and projectors so; what is left and lies in a numbered layer is language.
_VISION = re.compile(r"vis|video|image|siglip|clip|mm_|project|align|connector|resampler|merger", re.IGNORECASE)
_AUDIO = re.compile(r"audio|sound|speech", re.IGNORECASE)
_LANGUAGE = re.compile(
    r"(^|\.)(layers|h|blocks)\.\d+\.|lm_head|embed_tokens|word_embeddings|^mtp\.|\.embeddings\.weight"
    r"|(^|\.)(norm|norm_f|ln_f|final_layernorm)\.(weight|bias)$"
)


@dataclass(frozen=True)
class WeightsRead:
    """What loading a vision part cost."""

    bytes_read: int
    """Bytes of the tensors that were read."""
    bytes_total: int
    """Bytes of all tensors of the checkpoint."""
    files_read: int
    files_total: int


def is_vision_tensor(name: str) -> bool:
    """Whether a tensor, by its name in the checkpoint, may belong to the vision part.

    Language layers, the token embedding, the output head and audio parts do not. Anything unknown does: reading too
    much costs time, reading too little is refused when the model is built.
    """
    if _AUDIO.search(name):
        return False
    return bool(_VISION.search(name)) or not _LANGUAGE.search(name)


def read_vision_tensors(source: ModelSource) -> tuple[dict[str, torch.Tensor], WeightsRead] | None:
    """The vision part's tensors, by the checkpoint's own names; shards without any are not even fetched.

    Returns:
        The tensors and the account, or None where the checkpoint has no safetensors files.

    Raises:
        OSError, SafetensorError: files that are missing or damaged.
    """
    index = checkpoint_file(source, _INDEX)
    if index is None:
        single = checkpoint_file(source, _SINGLE)
        if single is None:
            return None
        tensors = _read(single, None)
        total = single.stat().st_size
        return tensors, WeightsRead(_bytes(tensors.values()), total, 1, 1)
    document = json.loads(index.read_text(encoding="utf-8"))
    weight_map = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(weight_map, dict):
        raise ValueError(f"{_INDEX} has no weight_map")
    names: dict[str, list[str]] = defaultdict(list)
    for name, shard in weight_map.items():
        if (
            not isinstance(shard, str) or shard in ("", "..") or Path(shard).name != shard
        ):  # "../../x" would be read of another folder
            raise ValueError(f"{_INDEX} names {str(shard)[:80]!r} as the file of a tensor, which is no file's name")
        if is_vision_tensor(name):
            names[shard].append(name)
    tensors = {}
    for shard, wanted in names.items():
        path = checkpoint_file(source, shard)
        if path is None:
            raise FileNotFoundError(f"{shard} is missing")
        tensors |= _read(path, wanted)
    total = int((document.get("metadata") or {}).get("total_size", 0))
    read = _bytes(tensors.values())
    return tensors, WeightsRead(read, max(total, read), len(names), len(set(weight_map.values())))


def _read(path: Path, names: list[str] | None) -> dict[str, torch.Tensor]:
    """The named tensors of a file, or its vision tensors; only their bytes are read."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        wanted = names if names is not None else [name for name in file.keys() if is_vision_tensor(name)]  # noqa: SIM118
        return {name: file.get_tensor(name) for name in wanted}


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
