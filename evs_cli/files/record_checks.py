"""The words and tests that checks of a file's record share: what a value is, what was expected of it."""

from __future__ import annotations

import json
from typing import Any


class Fault(Exception):  # noqa: N818 - never leaves the checks of a file
    """What is wrong, in a clause."""


def require(is_true: bool, fault: str) -> None:
    """Raise ``Fault`` unless it is true."""
    if not is_true:
        raise Fault(fault)


def is_int(value: object) -> bool:
    """Whether it is an integer and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_int_from(least: int, value: Any) -> bool:
    """Whether it is an integer of at least ``least``."""
    return is_int(value) and value >= least


def is_number(value: object) -> bool:
    """Whether it is an integer or a float, and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_triple(value: object) -> bool:
    """Whether it is three positive integers."""
    return isinstance(value, (list, tuple)) and len(value) == 3 and all(is_int(n) and n > 0 for n in value)


def is_json(value: Any) -> bool:
    """Whether it is made of plain values alone, without NaN."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def describe(value: object) -> str:
    """A value in a few characters: a tensor by its shape and dtype."""
    import torch

    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
