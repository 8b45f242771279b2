"""A model as it would lie on a CUDA device, on a machine without one: fake tensors, which refuse a mix of devices.

Fake tensors have no values either: whatever waits for the device (``.item()``, ``bool``, an index by a mask) raises.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode


@contextmanager
def fake_cuda(model: Any) -> Iterator[tuple[Any, FakeTensorMode]]:
    """A copy of ``model`` whose parameters and buffers are fake CUDA tensors, and the mode they live in."""
    moved = copy.deepcopy(model)
    with FakeTensorMode() as mode:
        for module in moved.modules():
            for name, value in module._parameters.items():
                if value is not None:
                    module._parameters[name] = torch.nn.Parameter(_on_cuda(value), requires_grad=False)
            for name, value in module._buffers.items():
                if value is not None:
                    module._buffers[name] = _on_cuda(value)
        yield moved, mode


def _on_cuda(value: torch.Tensor) -> torch.Tensor:
    return torch.empty(value.shape, dtype=value.dtype, device="cuda")
