"""``evs prune`` from its arguments to stdout, stderr, files and exit codes."""

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from video_files import video

import evs_cli
from evs_cli.encoders.plain import PlainFrameEncoder

ROOT = Path(__file__).resolve().parents[2]
CROSSING, SLIDES = (str(ROOT / "samples" / name) for name in ("crossing.mp4", "slides.mp4"))
FAST = ("--num-frames", "4", "--size", "56")
ISSUE_KEYS = {
    "video",
    "output",
    "model",
    "q",
    "video_grid_thw",
    "token_grid_thw",
    "tokens_per_frame",
    "total_tokens",
    "retained_tokens",
    "num_tokens_per_frame",
    "sequence_length",
    "unpruned_sequence_length",
    "timings_seconds",
}


@pytest.fixture
def no_weights(monkeypatch):
    """Whoever loads weights fails the test."""

    def refuse(*_, **__):
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(PlainFrameEncoder, "load", refuse)


def only_error(code, expected, out, err):
    """An error is one line, a hint at most one more, and nothing on stdout."""
    assert code == expected, err
    assert out == ""
    lines = err.splitlines()
    assert lines[0].startswith("Error: "), err
    assert lines[0].endswith((".", "!", "?", "`"))
    assert len(lines) <= 2
    assert all(line.startswith("Hint: ") for line in lines[1:])
    return lines[0]


# JSON.


def test_json_has_the_keys_of_the_issue(evs, tmp_path):
    out_path = tmp_path / "out.pt"
    code, out, err = evs("prune", CROSSING, *FAST, "--q", "0.7", "-o", out_path, "--json")
    assert code == 0
    assert out.count("\n") == 1
    document = json.loads(out)
    assert set(document) == {"schema_version", "command", "videos"}
    assert (document["schema_version"], document["command"]) == (2, "prune")
    (record,) = document["videos"]
    assert set(record) >= ISSUE_KEYS
    assert (record["video"], record["output"], record["model"]) == (CROSSING, str(out_path), "dinov2-small")
    assert record["q"] == 0.7
    assert record["token_grid_thw"] == record["video_grid_thw"] == [4, 4, 7]
    assert (record["tokens_per_frame"], record["total_tokens"], record["retained_tokens"]) == (28, 112, 33)
    assert sum(record["num_tokens_per_frame"]) == 33
    assert record["num_tokens_per_frame"][0] == 28
    assert (record["sequence_length"], record["unpruned_sequence_length"]) == (33 + 8, 112 + 8)
    assert {"probe", "load_model", "decode", "encode", "rank", "write"} <= set(record["timings_seconds"])
    assert all(isinstance(v, float) and v >= 0 for v in record["timings_seconds"].values())
    assert record["output_bytes"] == out_path.stat().st_size
    loaded = evs_cli.load(out_path)
    assert loaded.num_tokens_per_frame.tolist() == record["num_tokens_per_frame"]
    assert "Hint" not in err  # a hint is for people
    assert f"wrote {out_path} (" in err


def test_json_is_strict_and_keeps_letters(evs, tmp_path):
    path = tmp_path / "füñ 日本 %s {x} [red]x.mp4"
    path.symlink_to(CROSSING)
    code, out, _ = evs("prune", path, *FAST, "--json")
    assert code == 0
    assert path.name in out
    assert "NaN" not in out
    assert json.loads(out)["videos"][0]["video"] == str(path)


def test_format_json_is_json(evs):
    _, one, _ = evs("prune", CROSSING, *FAST, "--json", "--dry-run")
    _, two, _ = evs("prune", CROSSING, *FAST, "--format", "json", "--dry-run")
    strip = re.compile(r'"timings_seconds":\{[^}]*\}')
    assert strip.sub("", one) == strip.sub("", two)


@pytest.mark.parametrize("form", [("--json",), ()], ids=["json", "without a format"])
def test_print_gives_ids_and_embeddings_whole_as_json(evs, tmp_path, form):
    code, out, _ = evs("prune", CROSSING, *FAST, "--print", "ids,embeddings", "-o", tmp_path / "out.pt", *form)
    assert code == 0
    (record,) = json.loads(out)["videos"]
    loaded = evs_cli.load(tmp_path / "out.pt")
    assert record["input_ids"] == loaded.input_ids.tolist()
    assert record["frame_offsets"] == loaded.frame_offsets.tolist()
    assert torch.equal(torch.tensor(record["embeddings"]), loaded.embeddings)


def test_print_gives_one_part_alone(evs):
    _, out, _ = evs("prune", CROSSING, *FAST, "--print", " ids ", "--json")
    (record,) = json.loads(out)["videos"]
    assert "input_ids" in record
    assert "embeddings" not in record


# CSV.


def test_csv_is_a_row_a_frame(evs, tmp_path):
    code, out, _ = evs("prune", CROSSING, *FAST, "--format", "csv", "-o", tmp_path / "out.pt")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    loaded = evs_cli.load(tmp_path / "out.pt")
    assert [int(row["tokens"]) for row in rows] == loaded.num_tokens_per_frame.tolist()
    assert [float(row["pts_seconds"]) for row in rows] == loaded.frame_pts_seconds.tolist()
    assert [[int(row["start"]), int(row["end"])] for row in rows] == loaded.frame_offsets.tolist()
    assert [int(row["frame"]) for row in rows] == [0, 1, 2, 3]
    assert {row["video"] for row in rows} == {CROSSING}


def test_csv_of_several_videos_has_one_header_even_if_the_first_fails(evs, tmp_path):
    code, out, _ = evs("prune", tmp_path / "missing.mp4", CROSSING, SLIDES, *FAST, "--format", "csv")
    assert code == 1
    lines = out.splitlines()
    assert lines[0].startswith("video,frame,")
    assert sum(line.startswith("video,frame,") for line in lines) == 1
    assert len(lines) == 1 + 4 + 4


def test_csv_quotes_what_needs_it(evs, tmp_path):
    path = tmp_path / 'a, "b".mp4'
    path.symlink_to(CROSSING)
    _, out, _ = evs("prune", path, *FAST, "--format", "csv")
    assert {row["video"] for row in csv.DictReader(io.StringIO(out))} == {str(path)}


def test_a_dry_run_in_csv_says_something(evs, no_weights):
    code, out, _ = evs("prune", CROSSING, *FAST, "--format", "csv", "--dry-run")
    assert code == 2 or (code == 0 and CROSSING in out)


# The table.


def test_the_table_says_what_the_issue_asks(evs, tmp_path):
    code, out, err = evs("prune", CROSSING, *FAST, "-o", tmp_path / "out.pt")
    assert code == 0
    loaded = evs_cli.load(tmp_path / "out.pt")
    assert CROSSING in out
    assert "q = 0.7 (default)" in out
    assert "4 sampled, 4 of 4 x 7 = 28 tokens" in out
    assert "33 of 112 kept (29.5%)" in out
    assert "120 ids before, 41 after" in out
    assert "(33, 384) float32; norms" in out
    assert re.search(r"^time .*encode \d+\.\d\d.*; \d+\.\d\d s in all$", out.replace("  \n", "\n"), re.MULTILINE)
    bars = next(line for line in out.splitlines() if "█" in line and "bar" not in line)
    assert len(bars.split()[-1]) == 4
    counts = loaded.num_tokens_per_frame.tolist()
    assert [bar == "·" for bar in bars.split()[-1]] == [count == 0 for count in counts]
    sequence = out.rstrip().splitlines()[-1]
    assert sequence == " ".join(f"1 0x{n} 2" if n else "1 2" for n in counts)
    assert f"Hint: evs view {tmp_path / 'out.pt'} --video {CROSSING} -o report.html" in err


def test_the_rate_says_where_it_comes_from(evs, tmp_path, tiny_model):
    _, out, _ = evs("prune", CROSSING, *FAST, "--q", "0.5")
    assert "q = 0.5 (as asked)" in out
    folder = tmp_path / "model"
    folder.mkdir()
    for file in Path(tiny_model("nemotron_h_omni")).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config["video_pruning_rate"] = 0.35
    (folder / "config.json").write_text(json.dumps(config))
    _, out, _ = evs("prune", CROSSING, "--num-frames", "4", "--model", folder)
    assert "q = 0.35 (the model's own)" in out
    config["video_pruning_rate"] = 0.0
    (folder / "config.json").write_text(json.dumps(config))
    _, out, _ = evs("prune", CROSSING, "--num-frames", "4", "--model", folder)
    assert "q = 0.7 (default)" in out


def test_quiet_leaves_the_result_alone(evs, tmp_path):
    code, out, err = evs("prune", CROSSING, *FAST, "-o", tmp_path / "out.pt", "--quiet", "--max-frames", "3")
    assert (code, out, err) == (0, f"{tmp_path / 'out.pt'}\n", "")
    assert "tokens" in evs("prune", CROSSING, *FAST, "-q")[1]
    code, _, err = evs("prune", CROSSING, *FAST, "--max-frames", "3")
    assert "Note: crossing.mp4: max_frames 3 bound" in err
    assert evs("prune", CROSSING, *FAST, "-q")[2] == ""


def test_frames_that_repeat_are_counted(evs):
    options = ("--size", "28", "--num-frames", "12")
    record = json.loads(evs("prune", SLIDES, *options, "--json")[1])["videos"][0]
    assert 0 < record["reused_frames"] < 12
    line = f"{record['reused_frames']} of them repeat the one before and were not encoded again"
    assert line in evs("prune", SLIDES, *options)[1]
    _, out, _ = evs("prune", SLIDES, *options, "--no-reuse")
    assert "repeat the one before" not in out
    every = json.loads(evs("prune", SLIDES, *options, "--no-reuse", "--json")[1])["videos"][0]
    assert every["reused_frames"] == 0
    assert every["retained_tokens"] == record["retained_tokens"]


def test_the_help_says_who_gains_by_reuse(evs):
    _, out, _ = evs("prune", "--help-all")
    told = " ".join(out.split())
    assert "slides and screen recordings gain, camera video does not" in told


@pytest.mark.parametrize(("given", "frames"), [((), 4), (("--batch-frames", "auto"), 4), (("--batch-frames", "3"), 3)])
def test_frames_a_batch_are_in_the_provenance(evs, tmp_path, given, frames):
    evs("prune", CROSSING, *FAST, *given, "-o", tmp_path / "out.pt")
    assert evs_cli.load(tmp_path / "out.pt").provenance["batch_frames"] == frames


def test_verbose_says_what_was_chosen_and_why(evs):
    _, _, err = evs("prune", CROSSING, *FAST, "-v", "--device", "cpu")
    for words in ("dtype float32 (auto: ", "threads: ", "4 frames a batch (auto: ", "encoding took "):
        assert words in err


def test_verbose_says_versions_device_and_dtype(evs):
    _, out, err = evs("prune", CROSSING, *FAST, "-v", "--device", "cpu")
    assert f"torch {torch.__version__.split('+')[0]}" in err
    assert "device cpu (as asked)" in err
    assert "device cpu" not in out


# The rate.


@pytest.mark.parametrize("option", ["--q", "--pruning-rate", "--video-pruning-rate"])
def test_names_of_the_rate(evs, option, no_weights):
    _, out, _ = evs("prune", CROSSING, *FAST, option, "0.25", "--json", "--dry-run")
    assert json.loads(out)["videos"][0]["q"] == 0.25


@pytest.mark.parametrize(("keep", "q"), [("0.3", 0.7), ("1", 0.0), ("0.05", 0.95), ("0.9", 0.1)])
def test_keep_is_the_rest(evs, keep, q, no_weights):
    """0.3 kept is q = 0.7 itself, not 0.7000000000000001."""
    _, out, _ = evs("prune", CROSSING, *FAST, "--keep", keep, "--json", "--dry-run")
    assert json.loads(out)["videos"][0]["q"] == q


@pytest.mark.parametrize(
    "options",
    [
        ("--q", "1"),
        ("--q", "-0.1"),
        ("--q", "nan"),
        ("--q", "inf"),
        ("--keep", "0"),
        ("--keep", "1.1"),
        ("--keep", "nan"),
        ("--keep", "-1"),
        ("--q", "0.7", "--keep", "0.3"),
        ("--print", "tokens"),
        ("--print", ""),
        ("--print", "ids,,"),
        ("--format", "yaml"),
        ("--fps", "0"),
        ("--fps", "nan"),
        ("--fps", "2", "--num-frames", "3"),
        ("--num-frames", "0"),
        ("--max-frames", "-1"),
        ("--start", "-1"),
        ("--start", "5", "--end", "4"),
        ("--size", "0"),
        ("--batch-frames", "0"),
        ("--batch-frames", "many"),
        ("--dtype", "float64"),
        ("--dtype", ""),
        ("--score-dtype", "int8"),
        ("--device", "bogus"),
        ("--device", ""),
        ("--decoder", "ffmpeg"),
        ("--prompt", "What is it?"),
        ("--frame-max-pixels", "100"),
        ("--no-cap",),
        ("-o", "out.npz"),
        ("-o", "out"),
        ("--start", "100"),
    ],
    ids=" ".join,
)
def test_bad_options_are_refused_before_weights_are_read(evs, no_weights, options):
    code, out, err = evs("prune", CROSSING, *options)
    line = only_error(code, 2, out, err)
    assert "unexpected" not in line


def test_bad_options_with_several_videos_are_usage_too(evs, no_weights):
    """What concerns all videos is no failure of each."""
    for options in (("--decoder", "ffmpeg"), ("--batch-frames", "0"), ("--q", "2"), ("--prompt", "What?")):
        code, out, err = evs("prune", CROSSING, SLIDES, *options)
        only_error(code, 2, out, err)


def test_an_unknown_decoder_is_refused_by_a_dry_run(evs, no_weights):
    code, out, err = evs("prune", CROSSING, "--decoder", "ffmpeg", "--dry-run")
    only_error(code, 2, out, err)


@pytest.mark.parametrize("option", ["-o", "--plot"])
def test_a_place_that_cannot_be_written_is_refused_before_weights_are_read(evs, no_weights, tmp_path, option):
    command = "prune" if option == "-o" else "sweep"
    suffix = ".pt" if option == "-o" else ".png"
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    for target, words in (
        (tmp_path / "file" / f"out{suffix}", "is not a folder"),
        (tmp_path / "folder", "it is a folder"),
        (tmp_path / ("x" * 300 + suffix), "name too long"),
    ):
        code, out, err = evs(command, CROSSING, option, target)
        assert words in only_error(code, 5, out, err)
    code, out, err = evs(command, CROSSING, option, "")
    assert "empty value" in only_error(code, 2, out, err)


# Where the model and the device come from.


def test_environment_and_option(evs, monkeypatch, no_weights, tiny_model):
    monkeypatch.setenv("EVS_MODEL", "no-such-model")
    code, out, err = evs("prune", CROSSING, "--dry-run")
    assert "no-such-model" in only_error(code, 4, out, err)
    assert evs("prune", CROSSING, "--dry-run", "--model", "dinov2-small")[0] == 0
    monkeypatch.delenv("EVS_MODEL")
    monkeypatch.setenv("EVS_DEVICE", "bogus")
    code, out, err = evs("prune", CROSSING, "--dry-run")
    assert "bogus" in only_error(code, 2, out, err)
    assert evs("prune", CROSSING, "--dry-run", "--device", "cpu")[0] == 0


def test_decord_gives_the_same_tokens(evs, tmp_path):
    assert evs("prune", CROSSING, *FAST, "-o", tmp_path / "a.pt", "--decoder", "pyav")[0] == 0
    assert evs("prune", CROSSING, *FAST, "-o", tmp_path / "b.pt", "--decoder", "decord")[0] == 0
    a, b = evs_cli.load(tmp_path / "a.pt"), evs_cli.load(tmp_path / "b.pt")
    assert a.frame_indices.tolist() == b.frame_indices.tolist()
    similarity = torch.nn.functional.cosine_similarity(a.embeddings[:28], b.embeddings[:28], dim=-1)
    assert similarity.min() > 0.98


# A dry run.


def test_a_dry_run_tells_all_and_loads_and_writes_nothing(evs, tmp_path, no_weights):
    target = tmp_path / "new" / "out.pt"
    code, out, err = evs("prune", CROSSING, *FAST, "--q", "0.7", "-o", target, "--dry-run")
    assert code == 0
    assert "33 of 112 would be kept at q = 0.7" in out
    assert "120 ids before, 41 after" in out
    assert str(target) in out
    assert "448x256" in out
    assert not target.parent.exists()
    assert "wrote" not in err
    code, out, _ = evs("prune", CROSSING, *FAST, "--q", "0.7", "-o", target, "--dry-run", "--json")
    (record,) = json.loads(out)["videos"]
    assert record["dry_run"] is True
    assert ISSUE_KEYS - set(record) == {"num_tokens_per_frame"}  # of all keys only this needs the pixels
    assert record["retained_tokens"] == 33


def test_a_dry_run_is_the_run(evs, tmp_path):
    _, dry, _ = evs("prune", CROSSING, *FAST, "--json", "--dry-run")
    _, wet, _ = evs("prune", CROSSING, *FAST, "--json")
    dry, wet = json.loads(dry)["videos"][0], json.loads(wet)["videos"][0]
    for key in set(dry) & set(wet) - {"timings_seconds"}:
        assert dry[key] == wet[key], key


def test_a_dry_run_refuses_what_the_run_would(evs, tmp_path, no_weights):
    (tmp_path / "out.pt").write_bytes(b"old")
    code, out, err = evs("prune", CROSSING, "-o", tmp_path / "out.pt", "--dry-run")
    only_error(code, 5, out, err)
    code, out, err = evs("prune", video("no_moov.mp4"), "--dry-run")
    only_error(code, 3, out, err)


# Outputs.


def test_an_output_that_exists_is_refused_before_any_work(evs, tmp_path, no_weights, monkeypatch):
    monkeypatch.setattr("evs_cli.jobs.cached_session.open_session", lambda *_: pytest.fail("a model was opened"))
    path = tmp_path / "out.pt"
    path.write_bytes(b"old")
    code, out, err = evs("prune", CROSSING, *FAST, "-o", path)
    line = only_error(code, 5, out, err)
    assert "exists" in line
    assert "--force" in err
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("flag", ["--force", "-f"])
def test_force_overwrites(evs, tmp_path, flag):
    path = tmp_path / "out.safetensors"
    path.write_bytes(b"old")
    assert evs("prune", CROSSING, *FAST, "-o", path, flag)[0] == 0
    assert evs_cli.load(path).retained_tokens == 33


def test_the_command_and_the_library_write_the_same_bytes(evs, tmp_path):
    for suffix in (".pt", ".safetensors"):
        by_command, by_library = tmp_path / f"command{suffix}", tmp_path / f"library{suffix}"
        arguments = ("--model", "dinov2-small", "--device", "cpu", "--dtype", "float32", "--decoder", "pyav")
        assert evs("prune", CROSSING, *FAST, "--q", "0.7", *arguments, "-o", by_command)[0] == 0
        evs_cli.prune_video(CROSSING, q=0.7, num_frames=4, size=56, output=by_library)
        assert by_command.read_bytes() == by_library.read_bytes()


@pytest.mark.parametrize("name", ["[red]x.pt", "[/red] a b.pt", "50% ünï.pt", "x;y&z$.pt", "-dash.pt"])
def test_names_with_signs_in_them(evs, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    source = Path(name).with_suffix(".mp4").name
    Path(source).symlink_to(CROSSING)
    code, out, err = evs("prune", f"./{source}", *FAST, f"--output=./{name}")
    assert code == 0, err
    assert f"./{source}  (dinov2-small)" in out
    assert f"wrote {name} (" in err
    hint = next(line for line in err.splitlines() if line.startswith("Hint: evs view"))
    line = ["evs", "view", f"./{name}", "-o", "report.html"]
    assert shlex.split(hint.removeprefix("Hint: ")) == line, "the hint is no line to run"
    code, out, err = evs("show", f"./{name}")
    assert code == 0, err
    assert name in out
    assert source in out


@pytest.mark.parametrize("name", ["[red]x", "[/red]x", "[/]", "[b", "a\\"])
def test_signs_in_the_output_of_a_dry_run(evs, tmp_path, name, no_weights):
    target = tmp_path / f"{name}.pt"
    code, out, err = evs("prune", CROSSING, *FAST, "-o", target, "--dry-run")
    assert code == 0, err
    assert str(target) in out


@pytest.mark.parametrize("name", ["[red]gone.mp4", "[/red]gone.mp4", "[b", "go%sne.mp4", "g{o}ne.mp4", "gone\\.mp4"])
def test_signs_in_an_error(evs, tmp_path, name, no_weights):
    code, out, err = evs("prune", tmp_path / name)
    assert Path(name).name in only_error(code, 3, out, err)


def test_a_name_of_two_lines_is_an_error_of_one(evs, tmp_path, no_weights):
    code, out, err = evs("prune", tmp_path / "two\nlines.mp4")
    only_error(code, 3, out, err)


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes are Linux's")
@pytest.mark.parametrize("form", ["--json", "--format=csv", "--format=table"])
def test_a_name_that_is_no_text(tmp_path, form):
    path = os.fsencode(tmp_path) + b"/caf\xe9.mp4"
    os.symlink(os.fsencode(CROSSING), path)  # noqa: PTH211 - bytes
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "evs_cli",
            "prune",
            path,
            "--dry-run" if "csv" not in form else "-q",
            *FAST,
            form,
        ],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"caf" in done.stdout


# Several videos.


def test_several_videos_go_into_a_folder(evs, tmp_path):
    code, out, err = evs("prune", CROSSING, SLIDES, *FAST, "-o", tmp_path / "new")
    assert code == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["crossing.pt", "slides.pt"]
    assert out.index("crossing.mp4") < out.index("slides.mp4")
    assert err.count("wrote ") == 2
    for name in ("crossing", "slides"):
        assert evs_cli.load(tmp_path / "new" / f"{name}.pt").provenance["video"]["name"] == f"{name}.mp4"


def test_the_weights_of_several_videos_are_read_once(evs, monkeypatch):
    calls = []
    load = PlainFrameEncoder.load
    monkeypatch.setattr(PlainFrameEncoder, "load", lambda self, *a: calls.append(a) or load(self, *a))
    assert evs("prune", CROSSING, SLIDES, *FAST)[0] == 0
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("first", "second"), [("a/clip.mp4", "b/clip.mp4"), ("clip.mp4", "clip.mkv"), ("Clip.mp4", "clip.mp4")]
)
def test_a_clash_is_refused_before_any_work(evs, tmp_path, no_weights, monkeypatch, first, second):
    monkeypatch.setattr("evs_cli.jobs.cached_session.open_session", lambda *_: pytest.fail("a model was opened"))
    for name in (first, second):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(CROSSING)
    code, out, err = evs("prune", tmp_path / first, tmp_path / second, "-o", tmp_path / "out")
    line = only_error(code, 5, out, err)
    assert first in line
    assert second in line
    assert not (tmp_path / "out").exists()


def test_one_of_the_outputs_exists(evs, tmp_path, no_weights):
    (tmp_path / "slides.pt").write_bytes(b"old")
    code, out, err = evs("prune", CROSSING, SLIDES, "-o", tmp_path)
    assert "slides.pt" in only_error(code, 5, out, err)
    assert (tmp_path / "slides.pt").read_bytes() == b"old"


def test_a_file_for_several_videos_is_refused(evs, tmp_path, no_weights):
    (tmp_path / "file").write_bytes(b"")
    for output in (tmp_path / "out.pt", tmp_path / "file"):
        code, out, err = evs("prune", CROSSING, SLIDES, "-o", output)
        only_error(code, 2, out, err)


def test_a_bad_video_stops_no_other(evs, tmp_path):
    bad = video("no_moov.mp4")
    code, out, err = evs("prune", CROSSING, bad, SLIDES, *FAST, "-o", tmp_path / "out", "--json")
    assert code == 1
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["crossing.pt", "slides.pt"]
    first, second, third = json.loads(out)["videos"]
    assert (first["retained_tokens"], third["retained_tokens"]) == (33, 33)
    assert second["exit_code"] == 3
    assert "no_moov.mp4" in second["error"]
    assert second["video"] == str(bad)
    errors = [line for line in err.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 2
    assert "no_moov.mp4" in errors[0]
    assert errors[1] == f"Error: 1 of 3 videos failed: {bad}."


def test_every_video_bad(evs, tmp_path):
    code, _, err = evs("prune", tmp_path / "a.mp4", tmp_path / "b.mp4", *FAST)
    assert code == 1
    assert "2 of 2 videos failed" in err


def test_one_video_bad_keeps_its_own_code(evs, tmp_path):
    code, out, err = evs("prune", video("no_moov.mp4"), *FAST, "-o", tmp_path / "out.pt", "--json")
    only_error(code, 3, "", err)
    (record,) = json.loads(out)["videos"]
    assert record["exit_code"] == 3
    assert not list(tmp_path.iterdir())


# Standard input.


def run_piped(*arguments, stdin, **options):
    return subprocess.run(
        [sys.executable, "-m", "evs_cli", *arguments],
        stdin=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
        check=False,
        **options,
    )


def test_a_video_from_standard_input(evs, tmp_path):
    """Through a pipe, which cannot seek; the tokens are those of the file."""
    cat = subprocess.Popen(["cat", CROSSING], stdout=subprocess.PIPE)
    done = run_piped("prune", "-", *FAST, "-o", str(tmp_path / "out.pt"), "--json", stdin=cat.stdout)
    cat.stdout.close()
    cat.wait()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["videos"][0]["video"] == "-"
    loaded, same = evs_cli.load(tmp_path / "out.pt"), evs_cli.prune_video(CROSSING, num_frames=4, size=56)
    assert torch.equal(loaded.embeddings, same.embeddings)
    assert loaded.provenance["video"]["name"] == "stdin"
    assert loaded.provenance["video"]["sha256"] == same.provenance["video"]["sha256"]


def test_nothing_on_standard_input():
    done = run_piped("prune", "-", *FAST, stdin=subprocess.DEVNULL)
    only_error(done.returncode, 3, done.stdout, done.stderr)


def test_a_closed_standard_input():
    done = subprocess.run(
        ["sh", "-c", f'exec "{sys.executable}" -m evs_cli prune - --num-frames 4 <&-'],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
        check=False,
    )
    line = only_error(done.returncode, 2, done.stdout, done.stderr)
    assert "standard input" in line


def test_a_terminal_as_standard_input_is_refused(evs, monkeypatch, no_weights):
    class Terminal(io.TextIOWrapper):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO(b"")))
    code, out, err = evs("prune", "-")
    assert "terminal" in only_error(code, 2, out, err)


def test_standard_input_among_several(evs, tmp_path, no_weights):
    code, out, err = evs("prune", "-", tmp_path / "stdin.mp4", "-o", tmp_path / "out")
    only_error(code, 5, out, err)


# Lines off a terminal.


@pytest.mark.parametrize("columns", ["20", "80", "500"])
def test_no_line_is_broken_off_a_terminal(evs, tmp_path, monkeypatch, columns, no_weights):
    """Names longer than any width: each row is one line still."""
    monkeypatch.setenv("COLUMNS", columns)
    folder = tmp_path / ("d" * 120) / ("e" * 120)
    folder.mkdir(parents=True)
    source = folder / "clip with spaces.mp4"
    source.symlink_to(CROSSING)
    code, out, _ = evs("prune", source, *FAST, "-o", folder / "out file.pt", "--dry-run")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == f"{source}  (dinov2-small)"
    assert any(line.split(maxsplit=1) == ["output", f"{folder / 'out file.pt'}"] for line in map(str.rstrip, lines))
    assert len(lines) == 6


def test_a_long_sequence_stays_one_line_off_a_terminal(evs):
    code, out, _ = evs("prune", CROSSING, "--num-frames", "100", "--size", "28", "--q", "0.2")
    assert code == 0
    assert out.splitlines()[-2].startswith("the sequence")
    assert "more" in out.splitlines()[-1]


@pytest.mark.parametrize("variable", [{"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "cp1252"}])
def test_an_output_that_knows_few_letters(variable):
    """A Windows pipe is cp1252: the bars may look otherwise, but the run does not fail over them."""
    done = subprocess.run(
        [sys.executable, "-m", "evs_cli", "prune", CROSSING, *FAST],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "0", **variable},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"33 of 112 kept" in done.stdout
