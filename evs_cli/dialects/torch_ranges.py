"""``torch.arange`` and ``torch.linspace`` in float32, bit for bit, without torch.

Processors choose frames by it and truncate, so the last bit of a place decides which frame is taken. torch fills
vectors of 8 floats (RangeFactoriesKernel.cpp and DispatchStub.h of ATen 2.14; its AVX2 kernel, which machines with
AVX-512 take too). The first place of each is ``start + step * index`` in float64, rounded to float32; the others add
multiples of the step to that. Two vectors are filled at a time; what is left behind the last whole pair is computed
place by place. ``linspace`` counts from either end to the middle, each place rounded once: AVX2 machines fuse the
product and the sum.
"""

from __future__ import annotations

import functools
import importlib
import math
import os
import platform

import numpy as np
import numpy.typing as npt

_MOST_IN_ONE_THREAD = 32_768  # torch cuts a longer range into one part a thread
_WIDTH = 8
_SAME_WIDTH = ("x86_64", "amd64")  # processors on which torch's kernels have that width


def torch_arange(start: float, end: float, step: float) -> npt.NDArray[np.float32]:
    """(ceil((end - start) / step),) float32, what ``torch.arange`` of floats gives on this machine.

    Args:
        start: the first place.
        end: no place is at or past it before rounding.
        step: above 0.
    """
    length = math.ceil((end - start) / step)
    if length > _MOST_IN_ONE_THREAD or platform.machine().lower() not in _SAME_WIDTH:
        import torch

        whole: npt.NDArray[np.float32] = torch.arange(float(start), end, step).numpy()
        return whole
    places: npt.NDArray[np.float32] = (start + step * np.arange(length, dtype=np.float64)).astype(np.float32)
    in_pairs = length // (2 * _WIDTH) * (2 * _WIDTH)
    firsts = places[:in_pairs:_WIDTH].astype(np.float64)
    places[:in_pairs] = (firsts[:, None] + step * np.arange(_WIDTH)).astype(np.float32).ravel()
    return places


def torch_linspace(first: float, last: float, num_places: int) -> npt.NDArray[np.float32]:
    """(num_places,) float32, what ``torch.linspace`` gives on this machine.

    Args:
        first: the first place, as float32 has it.
        last: the last.
        num_places: at least 1.
    """
    if num_places > _MOST_IN_ONE_THREAD or not _fuses_products():
        import torch

        whole: npt.NDArray[np.float32] = torch.linspace(first, last, num_places).numpy()
        return whole
    if num_places == 1:
        return np.array([first], dtype=np.float32)
    step = float((np.float32(last) - np.float32(first)) / np.float32(num_places - 1))
    places = np.arange(num_places, dtype=np.float64)
    # Products of two float32 are exact in float64: what is left is the one rounding of a fused product and sum.
    rising, falling = first + step * places, last - step * (num_places - 1 - places)
    return np.where(places < num_places // 2, rising, falling).astype(np.float32)


@functools.cache
def _fuses_products() -> bool:
    """Whether torch's kernels here are those of AVX2; False also where only torch can tell."""
    if platform.machine().lower() not in _SAME_WIDTH or "ATEN_CPU_CAPABILITY" in os.environ:
        return False
    has = importlib.import_module("numpy._core._multiarray_umath").__cpu_features__
    return bool(has.get("AVX2") and has.get("FMA3"))
