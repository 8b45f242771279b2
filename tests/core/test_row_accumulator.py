"""Values that come batch by batch: all of them, in order, whatever was expected."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evs_cli.core.row_accumulator import RowAccumulator


@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=12), expected=st.integers(0, 70))
def test_it_is_what_came_in_order(sizes, expected):
    rows = torch.arange(3 * sum(sizes), dtype=torch.int64).view(-1, 3)
    gathered = RowAccumulator(expected)
    for part in rows.split(sizes):
        gathered.append(part)
    assert len(gathered) == len(rows)
    assert torch.equal(gathered.rows, rows)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_what_came_may_be_written_over(dtype):
    """The next batch often lies where the last one lay."""
    gathered, batch = RowAccumulator(4), torch.ones(2, 1, dtype=dtype)
    gathered.append(batch)
    batch.fill_(2)
    gathered.append(batch)
    assert gathered.rows.dtype == dtype
    assert gathered.rows.flatten().tolist() == [1, 1, 2, 2]
    gathered.clear()
    assert len(gathered) == 0


def test_as_many_as_expected_take_no_more():
    gathered = RowAccumulator(100)
    for _ in range(10):
        gathered.append(torch.zeros(10, 2))
    assert gathered.rows.untyped_storage().nbytes() == 100 * 2 * 4
