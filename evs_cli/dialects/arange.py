"""``torch.arange`` in float32, bit for bit, without torch.

Processors choose frames by it and truncate, so the last bit of a place decides which frame is taken. torch fills
vectors of 8 floats (RangeFactoriesKernel.cpp and DispatchStub.h of ATen 2.14; its AVX2 kernel, which machines with
AVX-512 take too). The first place of each is ``start + step * index`` in float64, rounded to float32; the others add
multiples of the step to that. Two vectors are filled at a time; what is left behind the last whole pair is computed
place by place.
"""

from __future__ import annotations

import math
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
