"""``evs view`` from its arguments to files, stdout, stderr and exit codes. What the page shows is in ``report``."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import evs_cli
from evs_cli.core.methods import RetentionRule
from evs_cli.core.retention import Ranking

ROOT = Path(__file__).resolve().parents[2]
CROSSING = ROOT / "samples" / "crossing.mp4"
FAST = {"num_frames": 4, "size": 56}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a video, a pruned video and a whole encoding of it."""
    folder = tmp_path_factory.mktemp("view")
    shutil.copy(CROSSING, folder / "crossing.mp4")
    evs_cli.prune_video(CROSSING, q=0.5, output=folder / "crossing.pt", **FAST)
    evs_cli.encode_video(CROSSING, folder / "crossing.safetensors", **FAST).close()
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A copy of it to work in."""
    for file in made.iterdir():
        shutil.copy(file, tmp_path / file.name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def page_data(path):
    text = Path(path).read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def record_of(evs, *arguments):
    code, out, err = evs("view", *arguments, "--json")
    assert code == 0, err
    (record,) = json.loads(out)["videos"]
    return record


@pytest.mark.parametrize("name", ["crossing.pt", "crossing.safetensors"])
def test_a_file_beside_its_video(evs, folder, name):
    record = record_of(evs, name, "-o", "out/report.html")
    assert record["has_pictures"]
    assert record["outputs"] == ["out/report.html"]
    data = page_data("out/report.html")
    assert (data["video"], data["source_size"]) == ("crossing.mp4", [256, 448])
    assert len(data["pictures"]) == 4
    assert data["runs"][0]["picture"] == [0, 1, 2, 3]
    expected = evs_cli.load("crossing.pt")
    assert record["runs"][0]["total_tokens"] == expected.total_tokens
    if name.endswith(".pt"):
        assert record["runs"][0]["num_tokens_per_frame"] == expected.num_tokens_per_frame.tolist()


def test_a_video_is_encoded_and_pruned_as_prune_does(evs, folder):
    record = record_of(evs, "crossing.mp4", "--num-frames", "4", "--size", "56", "--q", "0.5", "-o", "r.html")
    expected = evs_cli.load("crossing.pt")
    assert record["runs"][0]["num_tokens_per_frame"] == expected.num_tokens_per_frame.tolist()
    assert record["runs"][0]["sequence_length"] == expected.sequence_length


def test_a_video_from_standard_input_has_pictures(folder):
    import subprocess
    import sys

    run = subprocess.run(
        [sys.executable, "-m", "evs_cli", "view", "-", "--num-frames", "2", "--size", "28", "-o", "r.html"],
        input=CROSSING.read_bytes(),
        capture_output=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr.decode()
    assert len(page_data("r.html")["pictures"]) == 2


def test_another_rate_and_method_of_a_file(evs, folder):
    pruned = evs_cli.load("crossing.pt")
    record = record_of(evs, "crossing.pt", "--q", "0.75", "--method", "random", "--seed", "3", "-o", "r.html")
    expected = RetentionRule("random", seed=3).retain(Ranking(pruned.dissimilarity), 0.75)
    assert record["runs"][0]["num_tokens_per_frame"] == expected.num_tokens_per_frame.tolist()
    assert record["runs"][0]["method"] == "random"


def test_files_and_models_side_by_side(evs, folder, tiny_model):
    record = record_of(evs, "crossing.pt", "crossing.safetensors", "-o", "r.html")
    assert [run["label"] for run in record["runs"]] == ["crossing.pt", "crossing.safetensors"]
    model = str(tiny_model("qwen2_5_vl"))
    asked = ("crossing.mp4", "--num-frames", "4", "--model", "dinov2-small", "--model", model, "-o", "two.html")
    record = record_of(evs, *asked)
    dinov2, qwen = record["runs"]
    assert (dinov2["kv_cache_bytes"], dinov2["context_limit"]) == (None, None)
    assert qwen["kv_cache_bytes"] > 0
    assert qwen["context_limit"] > 0
    assert str(tiny_model("qwen2_5_vl").parent) not in Path("two.html").read_text(encoding="utf-8")


def test_a_named_model_tells_what_a_pruned_video_costs(evs, folder, tiny_model):
    model = str(tiny_model("qwen2_5_vl"))
    evs_cli.prune_video(CROSSING, q=0.5, output=folder / "qwen.pt", model=model, num_frames=4)
    assert record_of(evs, "qwen.pt", "-o", "a.html")["runs"][0]["kv_cache_bytes"] is None
    told = record_of(evs, "qwen.pt", "--model", model, "-o", "b.html")["runs"][0]
    assert told["kv_cache_bytes"] > 0
    code, _, err = evs("view", "crossing.pt", "--model", model, "-o", "c.html")
    assert code == 2
    assert "of another configuration" in err


def test_masks_alone_where_the_video_is_missing_or_another(evs, folder):
    (folder / "crossing.mp4").unlink()
    code, _, err = evs("view", "crossing.pt", "-o", "r.html")
    assert code == 0
    assert "crossing.mp4, which crossing.pt was made from, is neither beside it nor in the current folder" in err
    data = page_data("r.html")
    assert data["pictures"] == []
    assert "--video FILE names the video" in data["notes"][0]
    assert data["source_size"] == [256, 448]
    shutil.copy(ROOT / "samples" / "slides.mp4", folder / "crossing.mp4")
    code, _, err = evs("view", "crossing.pt", "-o", "r.html", "--force")
    assert code == 0
    assert "is not the video that crossing.pt was made from" in err
    shutil.copy(CROSSING, folder / "elsewhere.mp4")
    assert record_of(evs, "crossing.pt", "--video", "elsewhere.mp4", "-o", "r.html", "--force")["has_pictures"]


def test_a_video_named_wrongly_is_refused(evs, folder):
    code, _, err = evs("view", "crossing.pt", "--video", str(ROOT / "samples" / "slides.mp4"), "-o", "r.html")
    assert code == 3
    assert "it is not the video that the mask was made of" in err
    code, _, err = evs("view", "crossing.pt", "--video", "missing.mp4", "-o", "r.html")
    assert code == 3
    assert not (folder / "r.html").exists()


def test_an_older_file_is_drawn_over_the_whole_frame_and_says_so(evs, folder):
    pruned = evs_cli.load("crossing.pt")
    older = {name: value for name, value in pruned.provenance.items() if name != "pixel_region"}
    evs_cli.save(replace(pruned, provenance=older), "older.pt")
    code, _, err = evs("view", "older.pt", "-o", "r.html")
    assert code == 0
    assert "did not record what its model sees of a frame" in err
    evs_cli.save(replace(pruned, provenance={**pruned.provenance, "pixel_region": [1, 0, 0, 1]}), "odd.pt")
    code, _, err = evs("view", "odd.pt", "-o", "s.html")
    assert code == 5
    assert "Invalid pixel region" in err


def test_scores_in_float64_keep_the_files_own_mask():
    """Two scores that round to one float32 stand in the order of the mask that was written."""
    from evs_cli.jobs.viewed_run import run_of_artifact

    pruned = evs_cli.prune_video(CROSSING, q=0.5, **FAST)
    equal = torch.where(pruned.dissimilarity == 255, pruned.dissimilarity, torch.ones(()))
    backwards = torch.zeros_like(pruned.retention_mask)
    backwards[0] = True
    backwards.view(-1)[-(pruned.retained_tokens - pruned.tokens_per_frame) :] = (
        True  # the last of equals: not float32's
    )
    run = run_of_artifact(replace(pruned, dissimilarity=equal, retention_mask=backwards), "x.pt")
    assert torch.equal(run.rank < pruned.retained_tokens, backwards)


def test_frames_are_thinned_by_a_number(evs, folder):
    record_of(evs, "crossing.pt", "--max-frames", "2", "-o", "r.html")
    data = page_data("r.html")
    assert len(data["pictures"]) == 2
    assert data["runs"][0]["shown"] == [0, 2]
    assert data["runs"][0]["token_grid_thw"][0] == 4


def test_the_table_and_csv(evs, folder):
    code, out, err = evs("view", "crossing.pt", "-o", "r.html")
    assert (code, err.count("wrote r.html")) == (0, 1)
    assert re.fullmatch(
        r"crossing\.pt: q = 0\.5 keeps \d+ of \d+ tokens \(50\.0%\) of 4 frames of 4 x 7; \d keep nothing", out.strip()
    )
    code, out, _ = evs("view", "crossing.pt", "-o", "r.html", "--force", "--format", "csv")
    header, row = out.strip().splitlines()
    assert header.startswith("video,label,model,method,q,total_tokens,retained_tokens")
    assert row.startswith("crossing.pt,crossing.pt,dinov2-small,evs,0.5,112,56")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("crossing.pt",), 2, "-o report.html draws the report page"),
        (("crossing.pt", "-o", "r.gif"), 2, "suffix '.gif'. Expected one of .html"),
        (("crossing.pt", "-o", "r.html", "-o", "r.html"), 2, "is given twice"),
        (("crossing.pt", "-o", "r.html", "--max-frames", "0"), 2, "Expected at least 1"),
        (("crossing.pt", "-o", "r.html", "--q", "1"), 2, "Expected 0 <= q < 1"),
        (("crossing.pt", "-o", "r.html", "--fps", "1"), 2, "--fps has no effect on crossing.pt"),
        (("crossing.safetensors", "-o", "r.html", "--model", "dinov2-small"), 2, "which tells its model"),
        (("crossing.mp4", "-o", "r.html", "--video", "crossing.mp4"), 2, "which is a video itself"),
        (("crossing.mp4", "crossing.pt", "-o", "r.html"), 2, "files of evs and videos together"),
        (("crossing.mp4", "crossing.mp4", "-o", "r.html"), 2, "2 videos. Expected one"),
        (("crossing.pt", "-o", "crossing.mp4/r.html"), 5, "is not a folder"),
        (("crossing.pt", "-o", "there.html"), 5, "it exists already"),
        (("missing.pt", "-o", "r.html"), 5, "missing.pt"),
        (("missing.mp4", "-o", "r.html"), 3, "missing.mp4"),
    ],
)
def test_bad_input_is_told_and_nothing_is_written(evs, folder, arguments, code, words):
    (folder / "there.html").write_text("mine")
    found, out, err = evs("view", *arguments)
    assert (found, out) == (code, "")
    assert words in err
    assert err.count("\n") <= 2
    assert not (folder / "r.html").exists()
    assert (folder / "there.html").read_text() == "mine"


def test_files_of_two_videos_are_refused(evs, folder):
    evs_cli.prune_video(ROOT / "samples" / "still.mp4", q=0.5, output=folder / "still.pt", **FAST)
    code, _, err = evs("view", "crossing.pt", "still.pt", "-o", "r.html")
    assert code == 2
    assert "another file by its SHA-256" in err
