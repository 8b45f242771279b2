"""``torch_arange`` and ``torch_linspace`` against torch's own, to the last bit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from served_models import cases

from evs_cli.dialects.torch_ranges import torch_arange, torch_linspace


@cases(3000, daily=300)
@given(total=st.integers(1, 40_000), share=st.floats(0.0, 1.0), shift=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_every_bit_is_torchs(total, share, shift):
    step = total / max(1, round(total * share))
    own = torch.arange(shift * step, total, step).numpy()
    ours = torch_arange(shift * step, total, step)
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, own)


@cases(3000, daily=300)
@given(last=st.integers(0, 40_000), share=st.floats(0.0, 1.0), start=st.floats(0.0, 1.0))
def test_every_bit_of_linspace_is_torchs(last, share, start):
    first, num_places = round(last * start), 1 + round(min(last, 2000) * share)
    ours = torch_linspace(first, last, num_places)
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, torch.linspace(first, last, num_places).numpy())


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33, 32_768, 32_769])
def test_the_edges_of_pairs_and_threads(length):
    total = round(length * 1.7)
    step = total / length
    np.testing.assert_array_equal(torch_arange(0, total, step), torch.arange(0, total, step).numpy())


def test_numpys_own_differs():
    """Else this module would not be needed."""
    step = 1001 / 37
    assert (np.arange(0, 1001, step, dtype=np.float32) != torch_arange(0, 1001, step)).any()
