"""Where and in what precision a model runs: the user's words made into a device and a dtype, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from evs_cli.core.dtypes import dtype_name
from evs_cli.errors import ModelError, UsageError, first_line

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Runtime:
    """A device and a dtype that are there, and why these."""

    device: str
    """A torch device string."""
    dtype: torch.dtype
    reason: str
    """Why, in a few words, for ``-v``."""

    @property
    def dtype_name(self) -> str:
        """The dtype's name without the module."""
        return dtype_name(self.dtype)


def resolve_runtime(device: str = "auto", dtype: str = "auto") -> Runtime:
    """Check that a device is there and choose what was left to evs.

    Args:
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps`` or any torch device string.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``; auto is float32 on the CPU and bfloat16 elsewhere.

    Raises:
        UsageError: not a device string, or another dtype.
        ModelError: a device that this machine does not have; evs never falls back in silence.
    """
    import torch

    if device == "auto":
        name, why = _best_device()
    else:
        name, why = _check_device(device), "as asked"
    kind = torch.device(name).type
    if dtype == "auto":
        chosen, reason = _dtype_of(kind)
        return Runtime(name, chosen, f"device {name} ({why}), dtype {dtype_name(chosen)} (auto: {reason})")
    return Runtime(name, parse_dtype(dtype), f"device {name} ({why}), dtype {dtype} (as asked)")


def parse_dtype(name: str | torch.dtype) -> torch.dtype:
    """The dtype of a name in ``DTYPES``, or the dtype itself.

    Raises:
        UsageError: another name.
    """
    import torch

    name = str(name).removeprefix("torch.")
    if name not in DTYPES:
        raise UsageError(f"Invalid dtype {name!r}. Expected auto, {', '.join(DTYPES)}.")
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def synchronise(device: str) -> None:
    """Wait until a device has done what it was given: accelerators work on while Python goes on.

    Args:
        device: a torch device string.
    """
    import torch

    kind = torch.device(device).type
    if kind == "cuda":
        torch.cuda.synchronize(device)
    elif kind == "mps":
        torch.mps.synchronize()


def _dtype_of(kind: str) -> tuple[torch.dtype, str]:
    """The dtype for a kind of device, and why it."""
    import torch

    if kind == "cpu":
        return torch.float32, "exact, and few CPUs are faster in another"
    return torch.bfloat16, f"half the memory of float32 at its range, and what {kind} is fast in"


def _best_device() -> tuple[str, str]:
    import torch

    if torch.cuda.is_available():
        return "cuda", "a CUDA device is there"
    if torch.backends.mps.is_available():
        return "mps", "an MPS device is there"
    return "cpu", "no CUDA or MPS device is there"


def _check_device(name: str) -> str:
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(
            f"Invalid device {name!r}. Expected auto, cpu, cuda, cuda:0, mps or another torch device."
        ) from error
    if device.type == "meta":
        raise UsageError("Invalid device 'meta': it computes nothing. Expected auto, cpu, cuda, mps or another device.")
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        raise ModelError(
            f"cannot run on {name}: {first_line(error).split('. ')[0].rstrip('.')}.",
            hint="--device auto takes what is there; --device cpu works everywhere.",
        ) from error
    return str(device)
