"""Rows in fewer bytes: what comes back, and that the error told is the error there is."""

import json

import pytest
import torch
from encodings_made import assert_same, make_encoded, write
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from evs_cli.errors import UsageError
from evs_cli.files.encoding.reader import open_encoding
from evs_cli.files.encoding.stored_rows import STORE_DTYPES, RowStore, parse_store_dtype

OWN = (torch.float32, torch.bfloat16, torch.float16)


def stored(rows, dtype, chunk=7):
    """Rows after a store in chunks and back, and the error told."""
    store = RowStore(dtype)
    parts = [store.store(part).restored(rows.dtype) for part in rows.split(chunk)]
    return torch.cat(parts), store.error()


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("name", STORE_DTYPES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_the_error_told_is_the_error_there_is(own, name, data):
    """Told with six digits, of rows whose sizes span what a tower may give."""
    dtype = STORE_DTYPES[name]
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**16)))
    shape = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 33))
    size = 10.0 ** data.draw(st.integers(-2, 3))
    rows = (torch.randn(shape, generator=generator) * size).to(own)
    rows[data.draw(st.integers(0, shape[0] - 1))] = 0
    restored, error = stored(rows, dtype)
    assert restored.dtype == own
    if own == dtype:
        assert torch.equal(restored, rows)
        assert error is None
        return
    difference = (rows.double() - restored.double()).abs()
    cosines = torch.nn.functional.cosine_similarity(rows.double(), restored.double(), dim=1)
    cosines = cosines[(rows != 0).any(dim=1)]
    assert error.max_abs == pytest.approx(float(difference.max()), rel=1e-5)
    assert error.mean_abs == pytest.approx(float(difference.mean()), rel=1e-5)
    if len(cosines):
        assert error.cosine_min == pytest.approx(float(cosines.min()), abs=1e-6)
        assert error.cosine_mean == pytest.approx(float(cosines.mean()), abs=1e-6)
    else:
        assert (error.cosine_min, error.cosine_mean) == (1, 1)


@pytest.mark.parametrize(
    ("name", "largest"),
    # Half a step: of int8 half of 1/127 of the row's largest; of fp8 and bfloat16 half a unit of 3 and 7 bits behind
    # the first. Measured in float32, hence a thousandth more.
    [("int8", 0.5 / 127), ("fp8", 2.0**-4), ("bfloat16", 2.0**-8), ("float16", 2.0**-11)],
)
def test_no_element_is_off_by_more_than_half_a_step(name, largest):
    rows = torch.randn(500, 64, generator=torch.Generator().manual_seed(1)) * torch.logspace(-2, 2, 500)[:, None]
    restored, _ = stored(rows, STORE_DTYPES[name])
    bound = largest * rows.abs().amax(dim=1, keepdim=True) * 1.001
    assert bool(((rows - restored).abs() <= bound).all())


@pytest.mark.parametrize("name", ["int8", "fp8"])
def test_zeros_and_the_largest_element_come_back_as_they_were(name):
    """The row's largest is the largest code, so only the scale's own rounding touches it."""
    rows = torch.tensor([[0.0, 0.0, 0.0], [-3.0, 1.0, 0.0], [1e4, 0.0, -1.0], [1e-30, 0.0, 0.0]])
    restored, _ = stored(rows, STORE_DTYPES[name])
    assert torch.equal(restored == 0, (rows == 0) | (restored == 0))
    assert torch.equal(restored[0], rows[0])
    for row, place in ((1, 0), (2, 0), (3, 0)):
        assert float(restored[row, place]) == pytest.approx(float(rows[row, place]), rel=1e-6)


def test_values_beyond_float16_are_refused():
    rows = torch.tensor([[1.0, 2e5]])
    with pytest.raises(
        UsageError, match=r"Invalid store dtype float16: .*beyond 65504\. Expected bfloat16, int8 or fp8"
    ):
        RowStore(torch.float16).store(rows)
    for name in ("bfloat16", "int8", "fp8"):
        assert stored(rows, STORE_DTYPES[name])[0].isfinite().all()


def test_a_dtype_that_is_not_known():
    with pytest.raises(UsageError, match=r"Invalid store dtype 'int4'\. Expected one of bfloat16, float16, int8, fp8"):
        parse_store_dtype("int4")
    assert parse_store_dtype(None) is None


@pytest.mark.parametrize("name", STORE_DTYPES)
def test_a_file_keeps_the_ranking_and_tells_its_error(tmp_path, name):
    """Which tokens are kept is settled by the rows as they were encoded; what is kept of them is rounded."""
    encoded = make_encoded((9, 3, 4), (33, 7), seed=3)
    path = tmp_path / "full.safetensors"
    write(encoded, path, store_dtype=STORE_DTYPES[name])
    rounded = ("embeddings", "deepstack_embeddings", "provenance")
    with open_encoding(path) as encoding:
        for q in (0.0, 0.6):
            fresh, pruned = encoded.prune(q), encoding.at(q)
            assert_same(pruned, fresh, but=rounded)
            assert pruned.embeddings.dtype == torch.float32
            whole = torch.cat([fresh.embeddings, pruned.embeddings], dim=1)
            assert not torch.equal(fresh.embeddings, pruned.embeddings)
            assert float((whole[:, :33] - whole[:, 33:]).abs().max()) <= encoding.store.errors[0].max_abs * 1.00001
            expected = str(STORE_DTYPES[name]).removeprefix("torch.")
            assert pruned.provenance == {**fresh.provenance, "stored": {"dtype": expected}}
        assert len(encoding.store.errors) == 2
        assert len(encoding.notes) == 1
    with safe_open(path, framework="pt") as file:
        record = json.loads(file.metadata()["evs"])
        scales = [key for key in file.keys() if key.endswith(".scale")]  # noqa: SIM118
    assert len(scales) == (2 if name in ("int8", "fp8") else 0)
    assert set(record["store"]["errors"][1]) == {"max_abs", "mean_abs", "cosine_min", "cosine_mean"}


def test_the_main_level_alone(tmp_path):
    encoded = make_encoded((4, 2, 3), (5, 6, 7))
    write(encoded, tmp_path / "all.safetensors")
    write(encoded, tmp_path / "main.safetensors", main_only=True)
    with open_encoding(tmp_path / "main.safetensors") as encoding:
        pruned, fresh = encoding.at(0.5), encoded.prune(0.5)
        assert_same(pruned, fresh, but=("deepstack_embeddings", "provenance"))
        assert pruned.deepstack_embeddings == ()
        assert pruned.provenance == {**fresh.provenance, "stored": {"levels": "main"}}
        assert encoding.notes == ("the main level alone is stored, of 3.",)
    saved = (tmp_path / "all.safetensors").stat().st_size - (tmp_path / "main.safetensors").stat().st_size
    told = 600  # at most: what the header tells of four tensors
    assert 0 <= saved - 24 * (6 + 7 + 2) * 4 < told  # rows and their checksums


def test_one_level_is_all_there_is(tmp_path):
    encoded = make_encoded()
    for main_only in (False, True):
        write(encoded, tmp_path / f"{main_only}.safetensors", main_only=main_only)
    assert (tmp_path / "True.safetensors").read_bytes() == (tmp_path / "False.safetensors").read_bytes()
