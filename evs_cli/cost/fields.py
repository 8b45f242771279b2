"""Reading numbers out of a ``config.json`` mapping: aliases, class defaults, errors that say what is wrong.

transformers writes only what differs from a configuration class's defaults, so a number that is missing is the
default's. ``config_defaults.py`` holds those as data; nothing is imported to ask for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evs_cli.errors import ModelError, UsageError

ALIASES: dict[str, tuple[str, ...]] = {
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("moe_k",),
    "layer_types": ("layers_block_type",),
    "n_groups": ("mamba_n_groups",),
    "conv_kernel": ("mamba_d_conv",),
    "depth": ("num_hidden_layers",),
    "num_channels": ("in_channels",),
    "temporal_patch_size": ("video_temporal_patch_size",),
    "dtype": ("torch_dtype",),
}
"""Other names of a field, in the order they are looked for (transformers' ``attribute_map`` and older releases)."""

DTYPE_BYTES: dict[str, int] = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8": 1,
    "int8": 1,
}
"""Bytes of one value."""

_DTYPE_PREFIXES = {
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp8": "float8",
    "float8_": "float8",
}


def dtype_name(dtype: str) -> str:
    """The key of ``DTYPE_BYTES`` that a dtype's name stands for; ``fp8``, ``fp8_e4m3``, ``float8_e5m2`` are ``float8``.

    Raises:
        UsageError: a dtype whose size is not known.
    """
    name = dtype.removeprefix("torch.")
    for prefix, full in _DTYPE_PREFIXES.items():
        if name.startswith(prefix):
            name = full
    if name not in DTYPE_BYTES:
        raise UsageError(f"Invalid dtype ({dtype}). Expected one of: {', '.join(DTYPE_BYTES)}.")
    return name


def dtype_bytes(dtype: str) -> int:
    """Bytes of one value of ``dtype``.

    Raises:
        UsageError: a dtype whose size is not known.
    """
    return DTYPE_BYTES[dtype_name(dtype)]


def names_of(name: str) -> tuple[str, ...]:
    """A field's name and its other ones, in the order they are looked for."""
    return (name, *ALIASES.get(name, ()))


@dataclass(frozen=True)
class Fields:
    """A part of a ``config.json``, and what its configuration class puts in where it is silent."""

    model_type: str
    """The configuration class's, for messages."""
    values: Mapping[str, Any]
    """The part as it stands."""
    defaults: Mapping[str, Any]
    """The class's defaults of every field that is asked for."""

    def get(self, name: str) -> Any:
        """The field's value, else its default; None where it is written as null or has no default.

        Raises:
            ModelError: neither written nor defaulted.
        """
        for key in names_of(name):
            if key in self.values:
                return self.values[key]
        if name in self.defaults:
            return self.defaults[name]
        raise ModelError(f"cannot tell the cost of {self.model_type}: its config.json has no {name}.")

    def optional(self, name: str) -> int | None:
        """A whole number, or None where the field is null.

        Raises:
            ModelError: missing, or anything but a whole number of at least 0.
        """
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ModelError(
                f"cannot tell the cost of {self.model_type}: {name} of its config.json is {value!r}. "
                "Expected a whole number of at least 0."
            )
        return value

    def number(self, name: str, *, at_least: int = 1) -> int:
        """A whole number of at least ``at_least``.

        Raises:
            ModelError: missing, null, too small, or no whole number.
        """
        value = self.optional(name)
        if value is None or value < at_least:
            raise ModelError(
                f"cannot tell the cost of {self.model_type}: {name} of its config.json is "
                f"{'null' if value is None else value}. Expected a whole number of at least {at_least}."
            )
        return value

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers; empty where the field is null.

        Raises:
            ModelError: missing, or anything else.
        """
        value = self.get(name)
        if value is None:
            return ()
        if not isinstance(value, (list, tuple)) or not all(type(n) is int and n >= 0 for n in value):
            raise ModelError(
                f"cannot tell the cost of {self.model_type}: {name} of its config.json is {value!r}. "
                "Expected a list of whole numbers."
            )
        return tuple(value)

    @property
    def assumed(self) -> tuple[str, ...]:
        """Fields with a default that the configuration leaves out, in alphabetical order."""
        written = self.values.keys()
        return tuple(sorted(n for n in self.defaults if written.isdisjoint(names_of(n))))
