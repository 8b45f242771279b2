"""Dtypes by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def dtype_name(dtype: torch.dtype) -> str:
    """A dtype's name without the module, as it is written to the artifact."""
    return str(dtype).removeprefix("torch.")


def in_double(values: torch.Tensor) -> torch.Tensor:
    """The values in float64; on the CPU where their device has none (MPS)."""
    return (values.cpu() if values.device.type == "mps" else values).double()
