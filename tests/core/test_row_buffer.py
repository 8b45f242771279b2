"""Rows that are filled from the front and thinned in place, in memory and in a mapped file."""

import errno
import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evs_cli.core import row_buffer
from evs_cli.core.row_buffer import RowBuffer, row_bytes
from evs_cli.errors import EvsError

LEVELS = (torch.arange(40.0).view(10, 4), torch.arange(20).view(10, 2).to(torch.bfloat16))


def filled(num_rows, rows, **options):
    buffer = RowBuffer(num_rows, LEVELS, **options)
    buffer.append(LEVELS, torch.tensor(rows))
    return buffer


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    kept=st.lists(st.booleans(), min_size=10, max_size=10),
    block_bytes=st.sampled_from([1, 60, 1 << 22]),
    is_mapped=st.booleans(),
)
def test_thinning_closes_up_in_order(kept, block_bytes, is_mapped):
    """Whatever the blocks are that rows move in."""
    before, row_buffer._BLOCK_BYTES = row_buffer._BLOCK_BYTES, block_bytes
    try:
        buffer = filled(12, range(10), free_bytes=0 if is_mapped else None)
        buffer.thin(torch.tensor(kept))
    finally:
        row_buffer._BLOCK_BYTES = before
    assert buffer.room == 12 - sum(kept)
    for own, level in zip(buffer.levels, LEVELS, strict=True):
        assert torch.equal(own, level[torch.tensor(kept)])


def test_rows_move_to_another_buffer():
    kept, candidates = filled(6, [1, 3]), filled(3, [5, 6, 8])
    candidates.move_to(kept, torch.tensor([True, False, True]))
    assert candidates.filled == 0
    assert torch.equal(kept.levels[1], LEVELS[1][[1, 3, 5, 8]])


@pytest.mark.parametrize("free_bytes", [None, 0])
def test_levels_are_the_buffer_itself_and_own_their_storage(free_bytes):
    buffer = filled(6, [0, 2, 4], free_bytes=free_bytes)
    for own, again in zip(buffer.levels, buffer.levels, strict=True):
        assert own.untyped_storage().nbytes() == own.nbytes
        assert own.data_ptr() == again.data_ptr()


def test_a_file_is_taken_above_half_of_the_free_memory():
    size_bytes = 6 * row_bytes(LEVELS)
    assert row_bytes(LEVELS) == 4 * 4 + 2 * 2
    assert not RowBuffer(6, LEVELS, free_bytes=2 * size_bytes).is_mapped
    assert RowBuffer(6, LEVELS, free_bytes=2 * size_bytes - 1).is_mapped


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system cannot reserve room in a file")
def test_a_full_disk_is_said(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(EvsError, match=r"cannot keep 0\.0 GB of embeddings") as caught:
        RowBuffer(6, LEVELS, free_bytes=0)
    assert "TMPDIR" in caught.value.hint
