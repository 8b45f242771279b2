"""A tensor that behaves as one on an accelerator does where the host asks for it, without an accelerator.

``FakeTensorMode`` finds mixes of devices; what it cannot run is numpy, and arithmetic whose values a test looks at.
"""

from __future__ import annotations

from typing import Any

import torch


class DeviceTensor(torch.Tensor):
    """Values that numpy refuses, that have no float64, and that only ``cpu()`` and ``tolist()`` bring to the host."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name in {"numpy", "__array__"}:
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")
        if name == "double":
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype: the framework doesn't support float64.")
        if name == "cpu":
            return args[0].as_subclass(torch.Tensor)
        return super().__torch_function__(function, types, args, kwargs or {})

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")


def on_device(values: Any) -> DeviceTensor:
    """The values as such a tensor."""
    return torch.as_tensor(values).as_subclass(DeviceTensor)
