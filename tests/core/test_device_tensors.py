"""What takes arrays takes tensors on an accelerator: placeholders, spans, masks, and the float64 sums of a ranking."""

import numpy as np
import pytest
import torch
from device_tensors import on_device

from evs_cli.core import dtypes
from evs_cli.core.placeholders import (
    layouts_of_videos,
    prune_sequence,
    replace_offsets_with_tokens_per_frame,
    run_lengths,
)
from evs_cli.integration import EVSEmbeddingResult, chunk_placeholders, kept_places, move_offsets

IDS = [5, 0, 0, 0, 0, 6, 0, 0, 7]
MASKS = [[True, True, False, True], [True, False]]


def test_the_stand_in_refuses_what_a_device_refuses():
    with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\) first"):
        np.asarray(on_device([1, 2]))
    with pytest.raises(TypeError, match="float64"):
        on_device([1.0]).double()
    assert type(on_device([1]).cpu()) is torch.Tensor


def test_kept_places():
    places = on_device(IDS) == 0
    keep = kept_places(places, [on_device(mask) for mask in MASKS])
    assert keep.tolist() == [True, True, True, False, True, True, True, False, True]


def test_layouts_and_pruned_sequences():
    is_video = on_device([True] * len(IDS))
    layouts = layouts_of_videos(on_device(IDS), 0, [(2, 1, 2), (2, 1, 1)], is_video=is_video)
    first, second = prune_sequence(layouts, [on_device(mask) for mask in MASKS])
    assert first.input_ids.tolist() == second.input_ids.tolist() == [5, 0, 0, 0, 6, 0, 7]
    assert second.frame_offsets.tolist() == [[5, 5], [6, 5]]
    assert layouts[0].prune(on_device(MASKS[0])).input_ids.tolist() == [5, 0, 0, 0, 6, 0, 0, 7]
    assert run_lengths(on_device(IDS))[1] == (0, 4)


def test_spans_and_counts():
    spans, counts = on_device([(1, 4), (6, 7)]), on_device([1, 3])
    real = [5, 0, 6, 0, 0, 0, 7]
    assert replace_offsets_with_tokens_per_frame(on_device(IDS), counts, spans, 0) == real
    result = EVSEmbeddingResult(torch.zeros(4, 2), counts)
    ids, moved = result.redistribute_pruned_frames_placeholders(on_device(IDS), spans, filler_token_id=0)
    assert ids.tolist() == real
    assert moved == [(1, 1), (3, 5)]
    assert move_offsets(on_device([(8, 8)]), spans, on_device(moved)) == [(6, 6)]
    chunk = chunk_placeholders(on_device(real), on_device(moved), 2, 3)
    assert (chunk.input_ids, chunk.rows) == ([6, 0, 0], (1, 3))


def test_a_tensor_that_requires_a_gradient_is_read():
    assert run_lengths(torch.ones(3, requires_grad=True)) == [(1, 3)]


def test_float64_is_taken_on_the_cpu_where_the_device_has_none(monkeypatch):
    values = on_device([0.1, 0.2])
    monkeypatch.setattr(type(values), "device", torch.device("mps"), raising=False)
    assert dtypes.in_double(values).dtype == torch.float64
    assert type(dtypes.in_double(values)) is torch.Tensor
