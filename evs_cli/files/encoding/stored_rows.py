"""Converts rows to the dtype they are stored in and back, and measures the rounding error of every row.

In: rows in the dtype they were encoded in. Out: rows as they are stored, a scale a row for the one-byte dtypes, and the
error; and back. The ranking never sees any of it: tokens are ranked by the rows as they were encoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from evs_cli.core.dtypes import dtype_name
from evs_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

STORE_DTYPES: Mapping[str, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.int8,
    "fp8": torch.float8_e4m3fn,
}
"""By the names of ``--store-dtype``."""
_LARGEST_CODE = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}  # of the dtypes with a scale a row
_SIGNIFICANT_DIGITS = 6  # sums over threads differ behind these, and the same run must give the same bytes


@dataclass(frozen=True)
class StoreError:
    """How far stored rows of one level are from the encoded ones."""

    max_abs: float
    """Largest difference of an element."""
    mean_abs: float
    """Mean difference of an element."""
    cosine_min: float
    """Smallest cosine of a row with its stored self; rows of zeros are left out, 1 where there are no others."""
    cosine_mean: float
    """Mean of these cosines."""


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows as they lie in a file."""

    values: torch.Tensor
    """(n, D) in the store dtype."""
    scales: torch.Tensor | None
    """(n,) float32: a row is its values times this; None for dtypes of two bytes or more."""

    def restored(self, dtype: torch.dtype) -> torch.Tensor:
        """(n, D) rows in the dtype they were encoded in; the values themselves where that is the store dtype."""
        if self.scales is None:
            return self.values.to(dtype)
        restored = torch.empty(self.values.shape, dtype=dtype)
        for part in _parts(self.values):
            restored[part] = self.values[part].float() * self.scales[part, None]
        return restored


def parse_store_dtype(name: str | None) -> torch.dtype | None:
    """The dtype of a name in ``STORE_DTYPES``; None for None, which is the embeddings' own.

    Raises:
        UsageError: another name.
    """
    if name is not None and name not in STORE_DTYPES:
        raise UsageError(f"Invalid store dtype {name!r}. Expected one of {', '.join(STORE_DTYPES)}.")
    return None if name is None else STORE_DTYPES[name]


def has_scales(dtype: torch.dtype) -> bool:
    """Whether rows stored in it have a scale each."""
    return dtype in _LARGEST_CODE


class RowStore:
    """Rounds the rows of one level to a store dtype, and measures the error over all of them.

    Args:
        dtype: the store dtype; the rows' own keeps them as they are, and no error is measured.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._max_abs = self._sum_abs = self._sum_cosine = 0.0
        self._cosine_min = 1.0
        self._num_elements = self._num_rows = 0

    def store(self, rows: torch.Tensor) -> StoredRows:
        """``rows (n, D)`` as they are stored.

        Raises:
            UsageError: values beyond the range of float16.
        """
        if rows.dtype == self.dtype:
            return StoredRows(rows, None)
        values = torch.empty(rows.shape, dtype=self.dtype)
        scales = torch.empty(len(rows)) if has_scales(self.dtype) else None
        for part in _parts(rows):
            whole = rows[part].float()
            if scales is None:
                values[part] = rows[part].to(self.dtype)
                self._check_range(values[part])
            else:
                values[part], scales[part] = self._scaled(whole)
            stored = StoredRows(values[part], None if scales is None else scales[part])
            self._measure(whole, stored.restored(rows.dtype).float())
        return StoredRows(values, scales)

    def _scaled(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes and scales of float32 rows, each scaled so that its largest element is the largest code."""
        largest = _LARGEST_CODE[self.dtype]
        scales = rows.abs().amax(dim=1) / largest
        codes = rows / scales.clamp_min(torch.finfo(torch.float32).tiny)[:, None]
        if self.dtype == torch.int8:
            codes = codes.round()
        return codes.clamp(-largest, largest).to(self.dtype), scales

    def _check_range(self, values: torch.Tensor) -> None:
        if not bool(values.isfinite().all()):
            raise UsageError(
                f"Invalid store dtype {dtype_name(self.dtype)}: the embeddings hold values beyond "
                f"{torch.finfo(self.dtype).max:g}. Expected bfloat16, int8 or fp8 for these."
            )

    def _measure(self, rows: torch.Tensor, restored: torch.Tensor) -> None:
        difference = (rows - restored).abs()
        self._max_abs = max(self._max_abs, float(difference.max()))
        self._sum_abs += float(difference.sum(dtype=torch.float64))
        self._num_elements += rows.numel()
        is_row = (rows != 0).any(dim=1)
        if bool(is_row.any()):
            cosines = torch.nn.functional.cosine_similarity(rows[is_row].double(), restored[is_row].double(), dim=1)
            self._cosine_min = min(self._cosine_min, float(cosines.min()))
            self._sum_cosine += float(cosines.sum())
            self._num_rows += len(cosines)

    def error(self) -> StoreError | None:
        """The error over all rows so far; None where they were kept as they are."""
        if not self._num_elements:
            return None
        mean_cosine = self._sum_cosine / self._num_rows if self._num_rows else 1.0
        numbers = (self._max_abs, self._sum_abs / self._num_elements, self._cosine_min, mean_cosine)
        return StoreError(*(float(f"{number:.{_SIGNIFICANT_DIGITS}g}") for number in numbers))


def _parts(rows: torch.Tensor) -> list[slice]:
    """Slices of rows small enough that a copy of one in double costs little memory."""
    step = max(1, (1 << 20) // max(1, rows.shape[1]))
    return [slice(start, start + step) for start in range(0, len(rows), step)]
