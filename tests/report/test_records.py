"""Records, CSV and the small forms in which numbers are shown."""

import csv
import io
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pruned_made import make_pruned

from evs_cli.report import records
from evs_cli.report.console import sentence
from evs_cli.report.render import size_text
from evs_cli.report.signs import ASCII, UNICODE
from evs_cli.report.tables import _run_length_text

# Bars.


@pytest.mark.parametrize("signs", [UNICODE, ASCII], ids=["unicode", "ascii"])
@given(full=st.integers(1, 5000), data=st.data())
def test_a_bar_is_empty_for_nothing_and_full_for_all_alone(signs, full, data):
    count = data.draw(st.integers(0, full))
    shown = signs.bar(count, full)
    assert len(shown) == 1
    assert (shown == signs.none) == (count == 0)
    assert shown != signs.levels[-1] or count * 8 > full * 7
    assert signs.bar(full, full) == signs.levels[-1]


@pytest.mark.parametrize("signs", [UNICODE, ASCII], ids=["unicode", "ascii"])
@given(full=st.integers(1, 5000), data=st.data())
def test_more_tokens_are_no_lower_bar(signs, full, data):
    less, more = sorted(data.draw(st.tuples(st.integers(0, full), st.integers(0, full))))
    order = signs.none + signs.levels
    assert order.index(signs.bar(less, full)) <= order.index(signs.bar(more, full))


# Sizes and sentences.


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 KB"),
        (58_400, "58.4 KB"),
        (999_949, "999.9 KB"),
        (999_960, "1.0 MB"),
        (1_000_000, "1.0 MB"),
        (999_999_999, "1.0 GB"),
        (2_500_000_000_000, "2500.0 GB"),
    ],
)
def test_sizes(size, text):
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a", "a."), ("a.", "a."), ("a!", "a!"), ("a?", "a?"), ("run `evs`", "run `evs`"), ("a \n", "a."), ("a:", "a:.")],
)
def test_sentences(text, expected):
    assert sentence(text) == expected


# The sequence in short.


def test_the_sequence_in_short():
    pruned = make_pruned(q=0.5, num_extras=0)
    counts = pruned.num_tokens_per_frame.tolist()
    assert counts[2] == 0
    runs = [f"9x{n}" for n in counts]
    assert _run_length_text(pruned) == f"1 2 3 20 {runs[0]} 21 {runs[1]} 22 23 {runs[3]} 4 5"


@pytest.mark.parametrize("num_runs", [1, 12, 13, 200])
def test_a_long_sequence_in_short_is_cut_in_the_middle(num_runs):
    pruned = make_pruned(num_extras=0)
    ids = torch.tensor([n for k in range(num_runs) for n in (100 + k, 9, 9)])
    object.__setattr__(pruned, "input_ids", ids)
    parts = _run_length_text(pruned)
    assert parts.startswith("100 9x2")
    assert parts.endswith(f"{99 + num_runs} 9x2")
    assert ("more" in parts) == (num_runs > 12)
    assert len(parts.split()) <= 28  # 24 parts and "… N more …"


def test_much_text_in_short_is_a_number():
    pruned = make_pruned(num_extras=0)
    object.__setattr__(pruned, "input_ids", torch.tensor([1, 2, 3, 4, 5, 9, 9, 9, 1, 2, 3, 4, 9]))
    assert _run_length_text(pruned) == "[5 ids] 9x3 1 2 3 4 9x1"


# Records.


def test_counts_are_plain_and_true():
    pruned = make_pruned(q=0.5)
    counts = records.pruned_counts(pruned)
    json.dumps(counts, allow_nan=False)
    assert counts["retained_tokens"] == sum(counts["num_tokens_per_frame"]) == pruned.embeddings.shape[0] == 12
    assert counts["retained_share"] == 0.5
    assert counts["sequence_length"] == len(pruned.input_ids)
    assert counts["unpruned_sequence_length"] == len(pruned.input_ids) + 12
    assert counts["empty_frames"] == counts["num_tokens_per_frame"].count(0) == 1
    assert counts["embeddings_shape"] == [12, 5]
    assert counts["embeddings_dtype"] == "float32"
    norms = [sum(v * v for v in row) ** 0.5 for row in pruned.embeddings.double().tolist()]
    assert counts["embeddings_norm"]["min"] == pytest.approx(min(norms), rel=1e-5)
    assert counts["embeddings_norm"]["mean"] == pytest.approx(sum(norms) / 12, rel=1e-5)
    assert counts["embeddings_norm"]["max"] == pytest.approx(max(norms), rel=1e-5)
    assert counts["deepstack_levels"] == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_floats_are_printed_whole(dtype):
    pruned = make_pruned(dtype=dtype)
    parts = json.loads(json.dumps(records.printed_parts(pruned, ("ids", "embeddings")), allow_nan=False))
    assert torch.equal(torch.tensor(parts["embeddings"]).to(dtype), pruned.embeddings)
    assert parts["input_ids"] == pruned.input_ids.tolist()
    assert records.printed_parts(pruned, ()) == {}


def test_frame_rows_hold_the_spans():
    pruned = make_pruned(q=0.5)
    rows = records.frame_rows("x", pruned)
    assert len(rows) == 4
    for row, count in zip(rows, pruned.num_tokens_per_frame.tolist(), strict=True):
        assert row["end"] - row["start"] + 1 == row["tokens"] == count
    assert [row["prompt_seconds"] for row in rows] == [0.125, 0.625, 1.125, 1.625]


@given(st.lists(st.fixed_dictionaries({"a": st.text(alphabet='x,"\n é'), "b": st.integers()}), min_size=1, max_size=5))
def test_csv_comes_back(rows):
    text = records.to_csv(rows)
    back = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [{"a": row["a"], "b": int(row["b"])} for row in back] == rows
    assert records.to_csv(rows, header=False) == text.split("\n", 1)[1]


def test_csv_of_nothing_is_nothing():
    assert records.to_csv([]) == ""
