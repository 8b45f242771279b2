"""Rates from text, and a row a rate from one encoding and one sort."""

import dataclasses
import functools
import itertools
from fractions import Fraction
from pathlib import Path

import oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import evs_cli
from evs_cli.core.retention import Ranking
from evs_cli.encoders.base import EncodeOptions
from evs_cli.encoders.plain import PlainFrameEncoder
from evs_cli.errors import UsageError
from evs_cli.jobs.plan import BudgetJob, PlanRequest
from evs_cli.jobs.rates import parse_rates
from evs_cli.jobs.sweep import SweepRequest, sweep
from evs_cli.pipeline.request import SessionRequest, make_request
from evs_cli.pipeline.row_selection import AllRows
from evs_cli.pipeline.session import Session
from evs_cli.video.sampling import SamplingRequest

CROSSING = Path(__file__).resolve().parents[2] / "samples" / "crossing.mp4"
NINETY_NINE = [round(0.01 * k, 9) for k in range(99)]

# Rates.


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("0.5", [0.5]),
        ("0", [0.0]),
        ("0.75,0.5", [0.5, 0.75]),
        (" 0.5 , .75 ", [0.5, 0.75]),
        ("0.5,0.5", [0.5]),
        ("0:0.9:0.1", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
        ("0.1:0.3:0.1", [0.1, 0.2, 0.3]),
        ("0.1:0.35:0.1", [0.1, 0.2, 0.3]),
        ("0.5:0.5:0.1", [0.5]),
        ("0:0.9:1", [0.0]),
        ("0:0.2:0.1,0.95", [0.0, 0.1, 0.2, 0.95]),
        ("0:0.98:0.01", NINETY_NINE),
        ("1e-1", [0.1]),
        ("0.30000000000000004", [0.3]),
    ],
)
def test_rates(text, rates):
    assert parse_rates(text) == rates


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", "0.5,", ",0.5", "a", "0.5;0.6", "50%", "0,5x", "nan", "inf", "-0.1", "1", "1.0", "0.9999999999"),
        *("0:0.9", "0:0.9:0.1:0.1", "0:0.9:", "::", ":0.9:0.1", "0:1:0.1", "-0.1:0.9:0.1", "0.9:0.1:0.1"),
        *("0:0.9:0", "0:0.9:-0.1", "0:0.9:nan", "0:0.9:inf", "0:nan:0.1", "nan:0.9:0.1", "0:0.9:1.5"),
        *("0:0.9:1e-9", "0:0.9:0.0008", "0:0.9:1e-300", "0:0.9:5e-324", "0.5 0.6"),
    ],
)
def test_rates_that_are_refused(text):
    with pytest.raises(UsageError, match="Invalid") as caught:
        parse_rates(text)
    assert "\n" not in caught.value.message


def test_no_more_than_a_thousand_rates():
    assert len(parse_rates("0:0.999:0.001")) == 1000
    with pytest.raises(UsageError, match="more than 1000"):
        parse_rates("0:0.999:0.001,0.0005")
    with pytest.raises(UsageError, match="more than 1000"):
        parse_rates(",".join(str(k / 2000) for k in range(1001)))


hundredths = st.integers(0, 99)


@given(start=hundredths, end=hundredths, step=st.integers(1, 100))
def test_a_range_is_exact_and_holds_its_end(start, end, step):
    """In decimal arithmetic, whatever floats make of it: 0.1 + 2 * 0.1 is 0.3."""
    text = f"{start / 100}:{end / 100}:{step / 100}"
    if end < start:
        with pytest.raises(UsageError, match="start <= end"):
            parse_rates(text)
        return
    assert parse_rates(text) == [float(Fraction(k, 100)) for k in range(start, end + 1, step)]


@given(st.lists(hundredths, min_size=1, max_size=30))
def test_rates_ascend_and_are_distinct(numbers):
    rates = parse_rates(",".join(f"{n / 100}" for n in numbers))
    assert rates == sorted({n / 100 for n in numbers})


@settings(max_examples=300)
@given(st.text(alphabet="0123456789.:,-+e naif_", max_size=16))
def test_any_text_is_rates_or_a_usage_error(text):
    try:
        rates = parse_rates(text)
    except UsageError as error:
        assert "\n" not in error.message  # noqa: PT017 - it need not be raised
        return
    assert 0 < len(rates) <= 1000
    assert rates == sorted(set(rates))
    assert all(0 <= q < 1 and q == round(q, 9) for q in rates)


# Rows.


@functools.cache
def encoded():
    request = SessionRequest(sampling=SamplingRequest(num_frames=6), options=EncodeOptions(size=56))
    return Session(request).encode(CROSSING, AllRows())


def row_of(scores, q, num_separators):
    """A row recomputed from the scores alone."""
    num_frames, height, width = scores.shape
    mask = oracle.mask_of(scores, q)
    kept, later = int(mask.sum()), mask[1:]
    positive = scores[1:].double().clamp_min(0)
    exact = max(height * width, int(num_frames * height * width * (1 - Fraction(repr(q)))))
    return {
        "q": q,
        "retained_tokens": oracle.retained_tokens(height * width, num_frames, q),
        "exact_retained_tokens": exact,
        "retained_share": kept / scores.numel(),
        "sequence_length": kept + num_separators,
        "empty_frames": sum(1 for frame in mask if not frame.any()),
        "dissimilarity_kept": float(positive[later].sum() / positive.sum()),
        "noise_tokens": int((scores[1:][later] < 1e-6).sum()),
    }


def check_row(row, expected):
    """Of the row's fields those that are recomputed here; a sum of floats may be added up in another order."""
    found = dataclasses.asdict(row)
    assert set(expected) <= set(found)
    for key, value in expected.items():
        assert found[key] == (pytest.approx(value, abs=1e-12) if isinstance(value, float) else value), key


def test_rows_equal_an_independent_recomputation():
    scores = oracle.dissimilarity(encoded().levels[0])
    rows = sweep(encoded(), NINETY_NINE)
    assert len(rows) == 99
    for row, q in zip(rows, NINETY_NINE, strict=True):
        check_row(row, row_of(scores, q, num_separators=12))


def test_rows_equal_what_prune_gives():
    for row in sweep(encoded(), [0.0, 0.7, 0.8, 0.98]):
        pruned = encoded().prune(row.q)
        assert row.retained_tokens == pruned.retained_tokens
        assert row.sequence_length == pruned.sequence_length
        assert row.empty_frames == pruned.empty_frames
        assert row.noise_tokens == pruned.noise_tokens


def test_rows_come_in_the_order_asked_even_twice():
    assert [row.q for row in sweep(encoded(), [0.9, 0.1, 0.9])] == [0.9, 0.1, 0.9]
    assert sweep(encoded(), []) == []


def test_rows_are_monotone():
    rows = sweep(encoded(), NINETY_NINE)
    for more, less in itertools.pairwise(rows):
        assert more.retained_tokens >= less.retained_tokens
        assert more.dissimilarity_kept >= less.dissimilarity_kept
        assert more.empty_frames <= less.empty_frames
        assert more.noise_tokens >= less.noise_tokens


def test_the_float_rule_is_shown_beside_the_exact_one():
    """At q = 0.8 of 10 frames the float rule keeps one token less on many grids; both are in the row."""
    scores = torch.rand(10, 16, 16)
    scores[0] = 255
    retention = Ranking(scores).at(0.8)
    assert retention.retained_tokens == 511
    rows = {row.q: row for row in sweep(encoded(), [0.8, 0.5])}
    assert rows[0.8].exact_retained_tokens == max(28, 168 * 2 // 10)
    assert rows[0.5].exact_retained_tokens == rows[0.5].retained_tokens == 84


@pytest.mark.parametrize("rates", [[1.0], [0.5, -0.1], [float("nan")]])
def test_rates_outside_are_refused_before_any_work(monkeypatch, rates):
    with pytest.raises(UsageError, match="0 <= q < 1"):
        sweep(encoded(), rates)
    monkeypatch.setattr("evs_cli.pipeline.session.open_encoder", lambda *_, **__: pytest.fail("a model was opened"))
    with pytest.raises(UsageError, match="0 <= q < 1"):
        evs_cli.sweep_video(CROSSING, rates)


def test_99_rates_are_one_encoding_and_one_sort(monkeypatch):
    calls = {"argsort": 0, "sort": 0, "kthvalue": 0, "topk": 0, "frames": 0}

    def counted(name, original):
        def call(*arguments, **keywords):
            calls[name] += 1
            return original(*arguments, **keywords)

        return call

    for name in ("argsort", "sort", "kthvalue", "topk"):
        monkeypatch.setattr(torch, name, counted(name, getattr(torch, name)))
        monkeypatch.setattr(torch.Tensor, name, counted(name, getattr(torch.Tensor, name)))
    embed = PlainFrameEncoder.embed

    def counted_embed(self, inputs, plan):
        calls["frames"] += len(inputs["pixels"])
        return embed(self, inputs, plan)

    monkeypatch.setattr(PlainFrameEncoder, "embed", counted_embed)
    rows = evs_cli.sweep_video(CROSSING, NINETY_NINE, num_frames=6, size=56)
    assert len(rows) == 99
    assert calls == {"argsort": 1, "sort": 0, "kthvalue": 0, "topk": 0, "frames": 6}


def test_a_video_of_one_frame():
    """Nothing but frame 0: every rate keeps it all, and nothing was lost."""
    rows = evs_cli.sweep_video(CROSSING, [0.0, 0.9], num_frames=1, size=56)
    assert [(row.retained_tokens, row.empty_frames, row.dissimilarity_kept) for row in rows] == [(28, 0, 1), (28, 0, 1)]


def test_a_language_models_sweep_costs_what_its_plan_says(tiny_model):
    """Context, KV cache and prefill of each rate, from two commands that share the cost model alone."""
    folder = str(tiny_model("qwen3_vl"))
    options = {"model": folder, "num_frames": 16}
    rows = evs_cli.sweep_video("samples/crossing.mp4", [0.0, 0.5, 0.9], **options)
    job = BudgetJob(make_request(**options))
    (outcome,) = job.plan(["samples/crossing.mp4"], PlanRequest([0.0, 0.5, 0.9]))
    limit = outcome.result.context_limit
    assert limit == 4096
    for row, planned in zip(rows, outcome.result.rates, strict=True):
        assert row.sequence_length == planned.sequence_length
        assert row.context_share == planned.sequence_length / limit
        assert row.kv_cache_bytes == planned.cost.pruned.kv_cache_bytes > 0
        assert row.prefill_flops == planned.cost.pruned.prefill_flops > 0
    assert rows[0].kv_cache_bytes > rows[1].kv_cache_bytes > rows[2].kv_cache_bytes


def test_a_plain_encoders_sweep_has_no_such_cost():
    (row,) = evs_cli.sweep_video("samples/crossing.mp4", [0.5], num_frames=2, size=56)
    assert (row.context_share, row.kv_cache_bytes, row.prefill_flops) == (None, None, None)


def test_a_context_below_one_is_refused():
    for limit in (0, -5):
        with pytest.raises(UsageError, match=rf"Invalid context \({limit}\)\. Expected at least 1"):
            SweepRequest(("a.mp4",), (make_request(),), (0.5,), context_limit=limit)
