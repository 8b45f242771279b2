"""``evs show --frames`` from its arguments to stdout: of both kinds of files, at any width, for people and programs."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from made_once import made_once

import evs_cli
from evs_cli.core.methods import RetentionRule
from evs_cli.report.signs import ASCII, UNICODE

ROOT = Path(__file__).resolve().parents[2]
CROSSING = str(ROOT / "samples" / "crossing.mp4")
SMALL = {"num_frames": 6, "size": 56}
"""A grid of 6 x 4 x 7 tokens."""


def write_files(folder):
    """Pruned videos: at a rate, with a floor, by another method, of one frame; and a whole encoding."""
    folder.mkdir(exist_ok=True)
    evs_cli.prune_video(CROSSING, q=0.7, output=folder / "out.pt", **SMALL)
    evs_cli.prune_video(CROSSING, q=0.3, min_dissimilarity=0.9, output=folder / "floor.pt", **SMALL)
    evs_cli.prune_video(CROSSING, q=0.7, method="random", seed=3, output=folder / "random.pt", **SMALL)
    evs_cli.prune_video(CROSSING, q=0.5, num_frames=1, size=56, output=folder / "one.pt")
    evs_cli.encode_video(CROSSING, folder / "full.safetensors", **SMALL).close()


@pytest.fixture(scope="session")
def files():
    return made_once("shown_frames", write_files)


def maps(out, signs, height, width):
    """The masks of the maps in an output, (count, height, width), and their captions."""
    captions = re.findall(r"[\d.]+ s  [\d,]+", out)
    panel = max(width, *map(len, captions)) + 2
    found = []
    for block in out.split("\n\n")[1:]:
        *lines, caption, _bars = block.removesuffix("\n").split("\n")
        for at in range(caption.count(" s  ")):
            places = np.array([[signs.halves.index(sign) for sign in line[at * panel :][:width]] for line in lines])
            found.append(np.stack([places & 1, places >> 1], axis=1).reshape(-1, width)[:height].astype(bool))
    assert len(found) == len(captions)
    return np.stack(found), captions


def mask_of(runs, shape):
    """A mask from its run lengths, kept first."""
    kept = np.arange(len(runs)) % 2 == 0
    return np.repeat(kept, runs).reshape(shape)


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
@pytest.mark.parametrize("name", ["out.pt", "floor.pt", "random.pt", "one.pt"])
def test_the_drawn_masks_are_those_of_the_file(evs, files, monkeypatch, name, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    pruned = evs_cli.load(files / name)
    code, out, err = evs("show", files / name, "--frames")
    assert (code, err) == (0, "")
    drawn, captions = maps(out, UNICODE, 4, 7)
    assert np.array_equal(drawn, pruned.retention_mask.numpy())
    times, counts = pruned.frame_pts_seconds.tolist(), pruned.num_tokens_per_frame.tolist()
    assert captions == [f"{time:.2f} s  {count}" for time, count in zip(times, counts, strict=True)]
    assert all(len(line) <= columns for line in out.splitlines()[1:])
    assert out.startswith(f"{files / name}  (crossing.mp4, dinov2-small)\nq = {pruned.q:g}")
    assert ("method random" in out) == (name == "random.pt")


@pytest.mark.parametrize("name", ["out.pt", "full.safetensors", "random.pt"])
def test_another_rate_is_a_view_of_the_ranking(evs, files, name):
    with evs_cli.open_encoding(files / "full.safetensors") as encoding:
        rule = RetentionRule("random", seed=3) if name == "random.pt" else RetentionRule()
        expected = rule.retain(encoding.video.ranking, 0.5).retention_mask
    _, out, _ = evs("show", files / name, "--frames", "--q", "0.5")
    assert np.array_equal(maps(out, UNICODE, 4, 7)[0], expected.numpy())
    assert "q = 0.5" in out


def test_an_encoding_has_the_models_own_rate_or_the_default(evs, files):
    with evs_cli.open_encoding(files / "full.safetensors") as encoding:
        expected = encoding.video.ranking.at(0.7).retention_mask
    _, out, _ = evs("show", files / "full.safetensors", "--frames")
    assert np.array_equal(maps(out, UNICODE, 4, 7)[0], expected.numpy())


def test_tubelets_are_drawn_at_their_first_time(evs, tmp_path, tiny_model):
    pruned = evs_cli.prune_video(
        CROSSING, q=0.6, model=str(tiny_model("qwen3_vl")), num_frames=8, output=tmp_path / "t.pt"
    )
    assert pruned.temporal_patch_size == 2
    _, height, width = pruned.token_grid_thw
    _, out, _ = evs("show", tmp_path / "t.pt", "--frames")
    drawn, captions = maps(out, UNICODE, height, width)
    assert np.array_equal(drawn, pruned.retention_mask.numpy())
    assert [caption.split()[0] for caption in captions] == [f"{t:.2f}" for t in pruned.frame_pts_seconds.tolist()]


def test_thinning_is_even_and_told(evs, files):
    mask = evs_cli.load(files / "out.pt").retention_mask.numpy()
    _, out, _ = evs("show", files / "out.pt", "--frames", "--max-frames", "3")
    assert np.array_equal(maps(out, UNICODE, 4, 7)[0], mask[[0, 2, 4]])
    assert "3 of 6 frames, evenly spread" in out
    for most in ("6", "1000"):
        assert "evenly" not in evs("show", files / "out.pt", "--frames", "--max-frames", most)[1]


def test_of_many_frames_64_are_drawn(evs, tmp_path):
    evs_cli.prune_video(CROSSING, num_frames=70, size=28, output=tmp_path / "many.pt")
    _, out, _ = evs("show", tmp_path / "many.pt", "--frames")
    drawn, _ = maps(out, UNICODE, 2, 4)
    mask = evs_cli.load(tmp_path / "many.pt").retention_mask.numpy()
    assert np.array_equal(drawn, mask[[index * 70 // 64 for index in range(64)]])
    assert "64 of 70 frames" in out


@pytest.mark.parametrize("name", ["out.pt", "full.safetensors"])
def test_json_and_csv_have_every_mask(evs, files, name):
    options = ("--frames", "--q", "0.8", "--max-frames", "2")
    (record,) = json.loads(evs("show", files / name, *options, "--json")[1])["videos"]
    plain = json.loads(evs("show", files / name, "--json")[1])["videos"][0]
    frames = record.pop("frames")
    assert record == plain
    with evs_cli.open_encoding(files / "full.safetensors") as encoding:
        expected = encoding.video.ranking.at(0.8)
    masks = np.stack([mask_of(frame["mask_runs"], (4, 7)) for frame in frames])
    assert np.array_equal(masks, expected.retention_mask.numpy())
    assert [frame["tokens"] for frame in frames] == expected.num_tokens_per_frame.tolist()
    assert {frame["q"] for frame in frames} == {0.8}
    rows = list(csv.DictReader(io.StringIO(evs("show", files / name, *options, "--format", "csv")[1])))
    flat = [{**frame, "mask_runs": " ".join(map(str, frame["mask_runs"]))} for frame in frames]
    assert rows == [{key: str(value) for key, value in {"video": "crossing.mp4", **frame}.items()} for frame in flat]


def run(*arguments, **environment):
    """The command as a process whose streams are pipes."""
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(
        [sys.executable, "-c", CHECKED, "show", *map(str, arguments)],
        capture_output=True,
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
        check=True,
    ).stdout


CHECKED = (
    "import sys; from evs_cli.cli.app import main; code = main(sys.argv[1:]);"
    "assert not {'transformers', 'decord', 'av', 'PIL'} & set(sys.modules); sys.exit(code)"
)


def test_into_a_pipe_it_is_80_columns_without_colour_and_in_ascii_where_need_be(files):
    """And neither a model's library nor a decoder is loaded for it."""
    mask = evs_cli.load(files / "out.pt").retention_mask.numpy()
    wide = run(files / "out.pt", "--frames", PYTHONIOENCODING="utf-8").decode("utf-8")
    plain = run(files / "out.pt", "--frames", PYTHONIOENCODING="ascii").decode("ascii")
    forced = run(files / "out.pt", "--frames", PYTHONIOENCODING="ascii", COLUMNS="80").decode("ascii")
    assert plain == forced
    assert "\x1b" not in wide + plain
    assert 58 < max(map(len, plain.split("\n\n", 1)[1].splitlines())) <= 80
    assert np.array_equal(maps(wide, UNICODE, 4, 7)[0], mask)
    assert np.array_equal(maps(plain, ASCII, 4, 7)[0], mask)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--q", "0.5"), "--q has no effect without --frames"),
        (("--max-frames", "5"), "--max-frames has no effect without --frames"),
        (("--frames", "--max-frames", "0"), "Invalid --max-frames (0). Expected at least 1."),
        (("--frames", "--q", "1"), "Invalid pruning rate 1.0. Expected 0 <= q < 1."),
        (("--frames", "--q", "0.5,0.7"), "--q gives 2 rates (0.5,0.7). Expected one."),
        (("--frames", "--q", "half"), "Invalid"),
    ],
)
def test_what_cannot_be_drawn_is_refused(evs, files, options, words):
    for name in ("out.pt", "full.safetensors"):
        code, out, err = evs("show", files / name, *options)
        assert (code, out) == (2, "")
        assert words in err


def test_a_damaged_file_is_refused_as_ever(evs, files, tmp_path):
    record = torch.load(files / "out.pt", weights_only=True)
    record["retention_mask"][1] = True
    torch.save(record, tmp_path / "odd.pt")
    code, out, err = evs("show", tmp_path / "odd.pt", "--frames")
    assert (code, out) == (5, "")
    assert err.startswith("Error:")
