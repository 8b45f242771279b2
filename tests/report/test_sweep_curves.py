"""The lines of a sweep's picture: their numbers, recomputed from the rows, and how they are told apart."""

import statistics

import pytest
from made_sweeps import ALL, RATES, sweep_of, sweeps_of

from evs_cli.jobs.sweep import Sweep
from evs_cli.report.sweep_curves import clip_labels, sweep_curves


def kept_percent(sweep, method="evs"):
    return [100 * row.dissimilarity_kept for row in sweep.of_method(method)]


def column_wise(function, sweeps, method="evs"):
    return [function(column) for column in zip(*(kept_percent(sweep, method) for _, sweep in sweeps), strict=True)]


@pytest.mark.parametrize("count", [1, 3, 8])
def test_up_to_eight_clips_are_a_line_each(count):
    sweeps = sweeps_of(count)
    curves = sweep_curves(sweeps).kept
    assert [curve.label for curve in curves] == [f"clip{seed}" for seed in range(count)]
    assert [curve.look for curve in curves] == list(range(count))
    for curve, (_, sweep) in zip(curves, sweeps, strict=True):
        assert list(curve.rates) == RATES
        assert list(curve.values) == pytest.approx(kept_percent(sweep))
        assert curve.band is None
        assert not curve.is_thin


@pytest.mark.parametrize("count", [9, 30])
def test_more_clips_are_a_median_and_the_quartiles(count):
    sweeps = sweeps_of(count)
    (curve,) = sweep_curves(sweeps).kept
    assert curve.label == f"median of {count} clips"
    assert list(curve.values) == pytest.approx(column_wise(statistics.median, sweeps))
    quartiles = column_wise(lambda column: statistics.quantiles(column, method="inclusive"), sweeps)
    assert list(curve.band[0]) == pytest.approx([low for low, _, _ in quartiles])
    assert list(curve.band[1]) == pytest.approx([high for _, _, high in quartiles])


def test_methods_on_one_clip_are_a_line_each():
    sweeps = sweeps_of(1, ALL)
    curves = sweep_curves(sweeps).kept
    assert [(curve.label, curve.look) for curve in curves] == [(method, place) for place, method in enumerate(ALL)]
    for curve in curves:
        assert list(curve.values) == pytest.approx(kept_percent(sweeps[0][1], curve.label))


@pytest.mark.parametrize(("count", "num_thin"), [(3, 3), (8, 8), (9, 0), (30, 0)])
def test_methods_on_several_clips_are_a_median_each(count, num_thin):
    sweeps = sweeps_of(count, ALL)
    curves = sweep_curves(sweeps).kept
    named = [curve for curve in curves if curve.label]
    assert [curve.label for curve in named] == [f"{method}: median of {count} clips" for method in ALL]
    assert [curve.look for curve in named] == [0, 1, 2]
    for curve, method in zip(named, ALL, strict=True):
        assert list(curve.values) == pytest.approx(column_wise(statistics.median, sweeps, method))
        assert (curve.band is None) == (num_thin > 0)
        thin = [each for each in curves if each.is_thin and each.look == curve.look]
        assert [list(each.values) for each in thin] == [
            pytest.approx(kept_percent(sweep, method)) for _, sweep in sweeps[:num_thin]
        ]


def test_models_are_compared_as_methods_are():
    sweeps = [*sweeps_of(2, ("evs", "random")), *sweeps_of(2, ("evs", "random"), model="org/other")]
    labels = [curve.label for curve in sweep_curves(sweeps).kept if curve.label]
    assert labels == [
        f"{model}, {method}: median of 2 clips"
        for model in ("dinov2-small", "org/other")
        for method in ("evs", "random")
    ]


def test_the_knee_is_that_of_the_curve_and_a_control_has_none():
    (curve,) = sweep_curves(sweeps_of(1)).kept
    _, sweep = sweeps_of(1)[0]
    heights = [
        y - (curve.values[0] + (curve.values[-1] - curve.values[0]) * x / 0.9)
        for x, y in zip(RATES, kept_percent(sweep), strict=True)
    ]
    assert curve.knee == heights.index(max(heights))
    curves = sweep_curves(sweeps_of(9, ALL)).kept
    assert [curve.knee is not None for curve in curves] == [True, False, False]
    (alone,) = sweep_curves(sweeps_of(1, ("uniform-frames",))).kept
    assert alone.knee is not None


# Cost.


@pytest.mark.parametrize("methods", [("evs",), ALL])
@pytest.mark.parametrize("count", [1, 3, 30])
def test_one_line_in_tokens_where_all_prompts_are_equally_long(count, methods):
    sweeps = sweeps_of(count, methods)
    curves = sweep_curves(sweeps)
    (curve,) = curves.cost
    assert curves.cost_unit == "tokens in the prompt"
    assert list(curve.values) == [row.sequence_length for row in sweeps[0][1].of_method("evs")]
    assert curves.cost_title.endswith("the same for all") == (count > 1)
    assert (curve.look, curve.label, curve.knee) == (None, "", None)


def test_one_line_of_shares_where_clips_differ_in_length_alone():
    sweeps = [(f"{n}.mp4", sweep_of(n, num_frames=n)) for n in (40, 50, 60)]
    curves = sweep_curves(sweeps)
    (curve,) = curves.cost
    assert curves.cost_unit == "% of the full prompt"
    middle = [100 * row.sequence_share for row in sweeps[1][1].rows]
    assert list(curve.values) == pytest.approx(middle, abs=1)
    assert curves.cost_title.endswith("the same for all")


def test_shares_of_prompts_that_differ_are_a_line_each_in_the_clips_own_look():
    """A clip of few frames cannot go below its first one."""
    sweeps = [(f"{n}.mp4", sweep_of(n, num_frames=n)) for n in (2, 3, 60)]
    curves = sweep_curves(sweeps)
    assert [curve.look for curve in curves.cost] == [0, 1, 2]
    for curve, (_, sweep) in zip(curves.cost, sweeps, strict=True):
        assert list(curve.values) == pytest.approx([100 * row.sequence_share for row in sweep.rows])
    assert not curves.cost_title.endswith("the same for all")
    many = [(f"{n}.mp4", sweep_of(n, num_frames=n)) for n in range(2, 30)]
    (curve,) = sweep_curves(many).cost
    assert curve.band is not None
    (neutral,) = sweep_curves([(f"{n}.mp4", sweep_of(n, ALL, num_frames=n)) for n in range(2, 30)]).cost
    assert neutral.look is None
    assert neutral.values == curve.values


def test_one_rate_and_one_frame_are_points():
    sweep = sweep_of(0, num_frames=1)
    curves = sweep_curves([("a.mp4", Sweep(sweep.model, sweep.rows[:1]))])
    assert [curve.values for curve in curves.kept] == [(100.0,)]
    assert curves.kept[0].knee is None


# Names.


def test_clips_are_called_by_their_stem_or_by_more_where_two_have_the_same():
    assert clip_labels(["a/x.mp4", "b/y.mp4"]) == {"a/x.mp4": "x", "b/y.mp4": "y"}
    assert clip_labels(["a/x.mp4", "b/x.mp4", "y.mp4"]) == {"a/x.mp4": "a/x.mp4", "b/x.mp4": "b/x.mp4", "y.mp4": "y"}
    assert clip_labels(["x.mp4", "x.mp4"]) == {"x.mp4": "x"}
    (long,) = clip_labels(["folder/" + "n" * 60 + "7.mp4"]).values()
    assert len(long) == 40
    assert long.startswith("...")
    assert long.endswith("n7")
    assert clip_labels(["a\nb.mp4"]) == {"a\nb.mp4": "a b"}
