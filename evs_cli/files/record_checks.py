"""The fields of a file as a table, and the functions that hold what was read against it.

A new field is one entry: a ``ValueCheck`` of the record, or the shape and dtype of a tensor. Rules that relate several
fields stand in the checks of each kind of file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class RecordFault(Exception):  # noqa: N818 - never leaves the checks of a file
    """What is wrong, in a clause."""


def require(is_true: bool, fault: str) -> None:
    """Raise ``RecordFault`` unless it is true."""
    if not is_true:
        raise RecordFault(fault)


def is_int(value: object) -> bool:
    """Whether it is an integer and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether it is an integer or a float, and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_json(value: Any) -> bool:
    """Whether it is made of plain values alone, without NaN."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


@dataclass(frozen=True)
class ValueCheck:
    """What a field without a tensor must be."""

    expected: str
    """In words."""
    is_right: Callable[[Any], bool]

    @property
    def or_none(self) -> ValueCheck:
        """The same, and None as well."""
        return ValueCheck(f"{self.expected} or None", lambda value: value is None or self.is_right(value))


def at_least(least: int) -> ValueCheck:
    """An integer from ``least`` on that a tensor of int64 can hold."""
    return ValueCheck(f"an integer of at least {least}", lambda value: is_int(value) and least <= value < 2**63)


def one_of(names: Sequence[str]) -> ValueCheck:
    """One of several strings."""
    return ValueCheck(f"one of {', '.join(names)}", lambda value: isinstance(value, str) and value in names)


POSITIVE = ValueCheck(
    "positive integers", lambda value: isinstance(value, (list, tuple)) and all(map(at_least(1).is_right, value))
)
TRIPLE = ValueCheck("three positive integers", lambda value: POSITIVE.is_right(value) and len(value) == 3)
INTEGER = ValueCheck("an integer", is_int)
RATE = ValueCheck("0 <= q < 1", lambda value: is_number(value) and 0 <= value < 1)
TEXT = ValueCheck("a string", lambda value: isinstance(value, str))
FLAG = ValueCheck("true or false", lambda value: isinstance(value, bool))
LIST = ValueCheck("a list", lambda value: isinstance(value, (list, tuple)))
DICT = ValueCheck("a dict", lambda value: isinstance(value, Mapping))
PLAIN = ValueCheck("a dict of plain values", lambda value: isinstance(value, Mapping) and is_json(value))


def check_values(record: Mapping[str, Any], table: Mapping[str, ValueCheck]) -> None:
    """Hold a record against a table.

    Args:
        record: by name.
        table: by name; ``store.dims`` is a field of the dict ``store``, whose own entry stands before, and ``?`` marks
            a field that may be missing.

    Raises:
        RecordFault: a field is missing or of another kind.
    """
    for path, value in table.items():
        name = path.removesuffix("?")
        parent, _, last = name.rpartition(".")
        holder = record[parent] if parent else record
        if last in holder:
            is_right = value.is_right(holder[last])
            require(is_right, f"{name} is {describe(holder[last])}, expected {value.expected}")
        else:
            require(path.endswith("?"), f"{name} is missing")


def check_tensors(found: Mapping[str, Any], table: Mapping[str, str], sizes: dict[str, Any]) -> None:
    """Hold tensors against a table of shapes and dtypes.

    Args:
        found: by name; other fields are passed over.
        table: by name, as in ``(K, 3) int32 ascending``. ``F`` is a floating dtype, ``_`` any size, and a letter takes
            the size that it first meets. A name that ends in a dot stands for all that begin so; ``?`` as above.
        sizes: what the letters stand for; those that are met are added.

    Raises:
        RecordFault: a tensor is missing, not finite, or of another shape, dtype or order.
    """
    for key, expected in table.items():
        name = key.removesuffix("?")
        names = [each for each in found if each.startswith(name)] if name.endswith(".") else [name]
        for each in names:
            if name == key or found.get(each) is not None:
                require(each in found, f"{each} is missing")
                _check_tensor(each, found[each], expected, sizes)


def _check_tensor(name: str, tensor: Any, expected: str, sizes: dict[str, Any]) -> None:
    import torch

    # The words of the table become what is expected here, and that a pattern for the words that describe the tensor.
    expected, order, _ = expected.partition(" ascending")
    expected = re.sub(r"\b[A-Za-z]\b", lambda letter: str(sizes.get(letter[0], letter[0])), expected)
    pattern = re.sub(r"\b[A-Za-z]\b", r"(?P<\g<0>>\\d+)", re.escape(expected)).replace("(?P<F>", "(?P<F>b?float")
    pattern = re.sub(r"\b_\b", r"\\d+", pattern).replace(r"\ or\ ", "|")
    match = re.fullmatch(pattern, describe(tensor)) if isinstance(tensor, torch.Tensor) else None
    if match is None:
        raise RecordFault(f"{name} is {describe(tensor)}, expected {re.sub(r'F$', 'floats', expected)}")
    sizes |= {letter: size if letter == "F" else int(size) for letter, size in match.groupdict().items()}
    require(bool(tensor.isfinite().all()), f"{name} holds NaN or infinite values")
    require(not order or bool((tensor.diff() >= 0).all()), f"{name} descend")


def check_zero_frames(zero: Sequence[Any], num_frames: int) -> None:
    """Raise ``RecordFault`` unless these are frames of tokens, each once and in order."""
    is_right = all(is_int(frame) and 0 <= frame < num_frames for frame in zero) and list(zero) == sorted(set(zero))
    require(is_right, f"zero_frames are {describe(list(zero))}, expected ascending frames below {num_frames}")


def describe(value: object) -> str:
    """A value in a few characters: a tensor by its shape and dtype."""
    import torch

    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, int) and abs(value) >= 10**60:  # Python refuses to write some of thousands of digits
        return "an integer of many digits"
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
