"""Measurements: what they count and what their medians are of. How long anything takes is not looked at."""

import csv
import io
import json
from pathlib import Path

import oracle
import pytest
import torch
from video_files import damaged_clip, video

from evs_cli.core.counts import TokenGrid
from evs_cli.core.dissimilarity import compute_dissimilarity
from evs_cli.core.retention import Ranking
from evs_cli.encoders.runtime import resolve_runtime, synchronise
from evs_cli.errors import UsageError
from evs_cli.jobs.bench import BenchResult, Measurement, _time, bench, plain_mask
from evs_cli.pipeline.progress import SilentProgress
from evs_cli.pipeline.request import make_request

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
STEPS = ["decode", "preprocess", "encode", "mask", "plain mask", "pass"]
TOKENS = 2 * 3  # of a frame of 160 x 96 at a short side of 28, patches of 14


@pytest.fixture(scope="module")
def result():
    """Five frames in batches of two: an encoder's batch is smaller than the clip."""
    return bench(video("normal.mp4"), make_request(num_frames=5, size=28, batch_frames=2), repeats=2)


def test_each_step_is_there_with_what_it_ran(result):
    assert [each.step for each in result.measurements] == STEPS
    amounts = {each.step: (each.amount, each.unit) for each in result.measurements}
    assert amounts == {
        "decode": (5, "frames"),
        "preprocess": (2, "frames"),
        "encode": (2, "frames"),
        "mask": (5 * TOKENS, "tokens"),
        "plain mask": (5 * TOKENS, "tokens"),
        "pass": (5, "frames"),
    }


def test_each_repeat_has_its_seconds(result):
    assert all(len(each.seconds) == 2 for each in result.measurements)
    assert all(seconds > 0 for each in result.measurements for seconds in each.seconds)
    assert len(result.busy_shares) == 2


def test_the_encoder_is_busy_in_a_part_of_each_pass(result):
    assert all(0 < share < 1 for share in result.busy_shares)


def test_what_was_run_is_told(result):
    assert (result.video, result.model, result.device, result.dtype) == ("normal.mp4", "dinov2-small", "cpu", "float32")
    assert (result.batch_frames, result.num_sampled_frames, result.token_grid_thw) == (2, 5, (5, 2, 3))
    assert result.peak_device_bytes is None
    assert result.machine["threads"] == torch.get_num_threads()


def measured(step, amount, *seconds):
    return Measurement(step, "", "tokens" if "mask" in step else "frames", amount, seconds)


def test_figures_are_of_the_medians():
    """A first or last repeat that lags moves none of them."""
    encode, mask = measured("encode", 4, 9.0, 2.0, 1.0), measured("mask", 60, 0.5, 0.5, 70.0)
    assert (encode.median_seconds, encode.per_second) == (2.0, 2.0)
    result = BenchResult(
        video="",
        model="",
        machine={},
        device="cpu",
        dtype="float32",
        batch_frames=4,
        num_sampled_frames=40,
        token_grid_thw=TokenGrid(20, 2, 3),
        reused_frames=0,
        measurements=(encode, mask, measured("plain mask", 60, 3.0, 2.0, 0.1)),
        busy_shares=(0.1, 0.9, 0.8),
        peak_memory_bytes=None,
        peak_device_bytes=None,
    )
    assert result.busy_share == 0.8
    assert result.mask_speedup == 2.0 / 0.5
    # 60 tokens are 10 frames of tokens, of 20 sampled frames, which take 10 s to encode.
    assert result.mask_share == 0.5 / 10


def test_the_first_run_is_not_counted():
    calls = []
    assert len(_time(lambda: calls.append(None), 3, resolve_runtime("cpu"))) == 3
    assert len(calls) == 4


@pytest.mark.parametrize("dims", [(16,), (16, 5, 7)], ids=["one level", "three levels"])
def test_the_plain_formula_is_the_published_one_and_ours(dims):
    levels = [oracle.draw_embeddings(6, 3, 4, dim, torch.float32, seed=dim, kind="still") for dim in dims]
    mask = plain_mask(levels, 0.6)
    assert torch.equal(mask, oracle.mask_of(oracle.dissimilarity(torch.cat(levels, -1)), 0.6))
    assert torch.equal(mask, Ranking(compute_dissimilarity(levels)).at(0.6).retention_mask)


def test_the_mask_is_measured_on_two_frames_at_least():
    """One frame has no dissimilarity to compute."""
    result = bench(video("one.mp4"), make_request(size=28), repeats=1)
    assert result["pass"].amount == 1
    assert result["mask"].amount == 2 * TOKENS


def test_repeats_below_one_are_refused_before_any_work():
    with pytest.raises(UsageError, match=r"Invalid repeats \(0\). Expected at least 1"):
        bench("no such file.mp4", make_request(model="no such model"), repeats=0)


def test_frames_that_repeat_are_told():
    result = bench(SAMPLES / "still.mp4", make_request(size=28, num_frames=4), repeats=1)
    assert result.reused_frames == 3


def test_a_note_is_told_once_and_not_once_a_pass(tmp_path):
    watcher, notes = SilentProgress(), []
    watcher.notice = notes.append
    bench(str(damaged_clip(tmp_path)), make_request(num_frames=20, size=28), repeats=2, progress=watcher)
    assert notes.count("damaged.mp4: 5 of 20 sampled frames do not decode and are left out.") == 1
    assert len(notes) == len(set(notes))


def test_the_device_is_waited_for(monkeypatch):
    """Which call waits, where no such device is at hand."""
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    synchronise("cpu")
    assert waited == []
    synchronise("cuda:1")
    assert waited == ["cuda:1"]


def test_without_a_video_a_clip_is_drawn(evs):
    code, out, err = evs("bench", "--num-frames", 2, "--size", 28, "--repeats", 1, "--json")
    assert code == 0, err
    (document,) = json.loads(out)["videos"]
    assert document["video"] == "drawn clip"
    assert document["num_sampled_frames"] == 2
    assert [each["step"] for each in document["measurements"]] == STEPS
    for each in document["measurements"]:
        assert each["seconds"] == [each["median_seconds"]] == [each["min_seconds"]] == [each["max_seconds"]]
        assert each["per_second"] == each["amount"] / each["median_seconds"]
    assert 0 < document["encoder_busy_share"] < 1


def test_the_table_and_the_rows_of_csv(evs):
    asked = ("bench", video("normal.mp4"), "--num-frames", 2, "--size", 28, "--repeats", 1)
    code, table, err = evs(*asked)
    assert code == 0, err
    lines = table.splitlines()
    assert "normal.mp4" in lines[0]
    for label in ("machine", "frames", "run", *STEPS, "encoder busy", "peak memory"):
        assert any(line.startswith(label) for line in lines), label
    code, out, _ = evs(*asked, "--format", "csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["step"], row["repeats"]) for row in rows] == [(step, "1") for step in STEPS]


def test_a_video_that_is_not_there(evs):
    code, out, err = evs("bench", "no such file.mp4")
    assert (code, out) == (3, "")
    assert "no such file" in err
