"""Tensors as the container's bytes, and bytes as tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES: Mapping[torch.dtype, str] = {
    **{torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"},
    **{torch.int64: "I64", torch.int32: "I32", torch.int8: "I8", torch.float8_e4m3fn: "F8_E4M3"},
    torch.bool: "BOOL",
}
"""The container's name of each dtype that files of evs hold."""
DTYPES: Mapping[str, torch.dtype] = {name: dtype for dtype, name in NAMES.items()}
"""By the container's name."""


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor, to read or to write; of a contiguous one on the CPU its very own."""
    flat = tensor.contiguous().flatten()
    # Of a tensor of one item or none, torch takes any stride for contiguous, but views only a stride of 1 as bytes.
    return memoryview(flat.as_strided(flat.shape, (1,)).view(torch.uint8).numpy().data)


def tensor_of(data: memoryview, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of its own with these bytes."""
    tensor = torch.empty(shape, dtype=dtype)
    if len(data):
        bytes_of(tensor)[:] = data
    return tensor
