"""``evs encode``, and its file in place of a video: the same bytes as from the video, without pixels or weights."""

import csv
import io
import json
from pathlib import Path

import pytest
import torch
from fresh_python import run_evs
from safetensors import safe_open
from video_files import damaged_clip

import evs_cli
from evs_cli.errors import UsageError

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
CROSSING, PAN, CUTS = (str(SAMPLES / f"{name}.mp4") for name in ("crossing", "pan", "cuts"))
FAST = ("--num-frames", "4", "--size", "56")


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A small encoding of the crossing; leave it as it is."""
    path = tmp_path_factory.mktemp("full") / "full.safetensors"
    evs_cli.encode_video(CROSSING, path, num_frames=4, size=56).close()
    return path


@pytest.fixture
def no_work(monkeypatch):
    """Nothing may open a model or a video."""
    monkeypatch.setattr("evs_cli.pipeline.session.open_encoder", lambda *_, **__: pytest.fail("a model was opened"))
    monkeypatch.setattr("evs_cli.pipeline.planner.probe_video", lambda *_, **__: pytest.fail("a video was opened"))


def assert_same_bytes(evs, tmp_path, video, options, rate, *, suffix=".pt"):
    """A prune of the video and one of its encoding write the very same file."""
    full, fresh, read = tmp_path / "encoding.safetensors", tmp_path / f"fresh{suffix}", tmp_path / f"read{suffix}"
    for arguments in (
        ("encode", video, *options, "-o", full),
        ("prune", video, *options, *rate, "-o", fresh),
        ("prune", full, *rate, "-o", read),
    ):
        code, _, err = evs(*arguments, "--force", "-q")
        assert code == 0, err
    assert fresh.read_bytes() == read.read_bytes()


# The same bytes.


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_prune_of_it_is_the_file_of_a_fresh_prune(evs, tmp_path, suffix):
    for rate in ((), ("--q", "0"), ("--q", "0.9"), ("--keep", "0.5", "--min-dissimilarity", "0.05")):
        assert_same_bytes(evs, tmp_path, CROSSING, FAST, rate, suffix=suffix)


@pytest.mark.parametrize("rule", [("--method", "random", "--seed", "3"), ("--method", "uniform-frames")])
def test_a_control_of_it_too(evs, tmp_path, rule):
    assert_same_bytes(evs, tmp_path, CROSSING, FAST, ("--q", "0.6", *rule))


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("qwen2_5_vl", ("--prompt", "Who?", "--fps", "4")),
        ("qwen3_vl", ("--prompt", "Who?", "--num-frames", "6", "--dtype", "bfloat16")),
        ("nemotron_h_omni", ("--num-frames", "6")),
        ("dinov2", ("--num-frames", "6", "--score-dtype", "bfloat16")),
        ("qwen3_vl", ("--fps", "3", "--dtype", "float16", "--score-dtype", "float32", "--batch-frames", "2")),
    ],
)
def test_families_with_all_they_have(evs, tmp_path, tiny_model, family, options):
    options = ("--model", tiny_model(family), *options)
    assert_same_bytes(evs, tmp_path, CROSSING, options, ("--q", "0.6"))


def test_a_damaged_video(evs, tmp_path, tmp_path_factory):
    """Frames are lost: planned and actual differ, in the file as in a fresh prune."""
    video = damaged_clip(tmp_path_factory.getbasetemp())
    assert_same_bytes(evs, tmp_path, video, ("--num-frames", "20", "--size", "42"), ("--q", "0.5"))
    pruned = evs_cli.load(tmp_path / "read.pt")
    assert pruned.planned["num_sampled_frames"] == 20
    assert pruned.actual["num_sampled_frames"] == 15
    with evs_cli.open_encoding(tmp_path / "encoding.safetensors") as encoding:
        assert encoding.notes == ("5 of 20 sampled frames do not decode and are left out.",)


def test_two_runs_are_the_same_bytes(evs, tmp_path):
    for name in ("a", "b"):
        assert evs("encode", CROSSING, *FAST, "-o", tmp_path / f"{name}.safetensors", "--store-dtype", "int8")[0] == 0
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a.safetensors", "b.safetensors"]


def test_prune_and_sweep_load_no_model_library(tmp_path, full):
    for arguments in (("prune", full, "-o", "out.pt"), ("sweep", full, "--quality"), ("show", full)):
        done, loaded = run_evs(tmp_path, *(str(word) for word in arguments))
        assert done.returncode == 0, done.stderr
        assert not loaded & {"transformers", "av", "decord", "torchvision"}, arguments


# What it tells.


def test_encode_as_json(evs, tmp_path):
    path = tmp_path / "full.safetensors"
    code, out, err = evs("encode", CROSSING, *FAST, "-o", path, "--json")
    assert code == 0
    assert out.count("\n") == 1
    assert err == f"wrote {path} ({path.stat().st_size / 1e3:.1f} KB)\n"
    document = json.loads(out)
    assert (document["schema_version"], document["command"]) == (2, "encode")
    (record,) = document["videos"]
    assert (record["video"], record["output"], record["model"]) == (CROSSING, str(path), "dinov2-small")
    assert record["token_grid_thw"] == [4, 4, 7]
    assert (record["total_tokens"], record["tokens_per_frame"], record["num_sampled_frames"]) == (112, 28, 4)
    assert (record["unpruned_sequence_length"], record["reused_frames"]) == (120, 0)
    assert (record["embeddings_dtype"], record["store_dtype"], record["store_errors"]) == ("float32", "float32", [None])
    assert (record["embedding_sizes"], record["model_levels"], record["row_bytes"]) == ([384], 1, 1536)
    assert record["output_bytes"] == path.stat().st_size
    assert {"decode", "encode", "write"} <= set(record["timings_seconds"])


def test_frames_that_repeat_are_told(evs, tmp_path):
    """As ``evs prune`` tells them: encoded once, and stored as often as they are sampled."""
    slides, path = str(SAMPLES / "slides.mp4"), tmp_path / "full.safetensors"
    code, out, _ = evs("encode", slides, "--size", "56", "-o", path)
    assert code == 0
    reused = json.loads(evs("show", path, "--json")[1])["videos"][0]["reused_frames"]
    assert reused == json.loads(evs("prune", slides, "--size", "56", "--json")[1])["videos"][0]["reused_frames"] > 0
    assert f"{reused} of them repeat the one before and were not encoded again" in out
    assert f"{reused} of them repeat" in evs("show", path)[1]


def test_the_error_of_a_store_dtype_is_told(evs, tmp_path):
    path = tmp_path / "full.safetensors"
    code, out, _ = evs("encode", CROSSING, *FAST, "-o", path, "--store-dtype", "int8")
    assert code == 0
    error = next(line for line in out.splitlines() if line.startswith("error"))
    (record,) = json.loads(evs("show", path, "--json")[1])["videos"]
    (told,) = record["store_errors"]
    assert 0 < told["mean_abs"] < told["max_abs"] < 1
    assert 0.999 < told["cosine_min"] <= told["cosine_mean"] < 1
    for number in (f"{told['max_abs']:.3g}", f"{told['mean_abs']:.3g}", f"{told['cosine_min']:.6f}"):
        assert number in error
    assert (record["store_dtype"], record["row_bytes"]) == ("int8", 384)
    code, _, err = evs("prune", path)
    assert code == 0
    assert "Note: full.safetensors: rows are stored in int8, and were encoded in float32." in err


def test_levels_main_leaves_deepstack_out(evs, tmp_path, tiny_model):
    path = tmp_path / "full.safetensors"
    arguments = ("encode", CROSSING, "--model", tiny_model("qwen3_vl"), "--num-frames", "4", "-o", path, "--force")
    assert evs(*arguments)[0] == 0
    assert len(evs_cli.open_encoding(path).at(0.5).deepstack_embeddings) == 2
    code, out, _ = evs(*arguments, "--levels", "main")
    assert code == 0
    assert "2 further levels left out" in out
    pruned = evs_cli.open_encoding(path).at(0.5)
    assert pruned.deepstack_embeddings == ()
    with pytest.raises(UsageError, match=r"of the main level alone.*--levels all"):
        pruned.model_inputs()


def test_encode_as_csv(evs, tmp_path):
    arguments = ("encode", CROSSING, PAN, *FAST, "-o", tmp_path / "out")
    code, out, _ = evs(*arguments, "--format", "csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["video"] for row in rows] == [CROSSING, PAN]
    assert all(int(row["output_bytes"]) == Path(row["output"]).stat().st_size for row in rows)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["crossing.safetensors", "pan.safetensors"]


def test_a_dry_run_writes_nothing_and_loads_no_weights(evs, tmp_path, monkeypatch):
    monkeypatch.setattr("evs_cli.pipeline.encode.EncodePipeline.encode", lambda *_, **__: pytest.fail("encoded"))
    path = tmp_path / "full.safetensors"
    code, out, err = evs("encode", CROSSING, *FAST, "-o", path, "--dry-run")
    assert (code, err) == (0, "")
    assert "112 would be kept, in rank order" in out
    assert str(path) in out
    record = json.loads(evs("encode", CROSSING, *FAST, "-o", path, "--dry-run", "--json")[1])["videos"][0]
    assert (record["dry_run"], record["total_tokens"]) == (True, 112)
    assert list(tmp_path.iterdir()) == []


def test_show_of_an_encoding(evs, full, no_work):
    code, out, err = evs("show", full)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"{full}  (crossing.mp4, dinov2-small)"
    assert "112 in rank order" in out
    (record,) = json.loads(evs("show", full, "--json")[1])["videos"]
    assert (record["kind"], record["file_bytes"]) == ("encoding", full.stat().st_size)
    assert record["file_bytes"] == record["front_bytes"] + 112 * record["row_bytes"]
    assert [(rate["q"], rate["retained_tokens"]) for rate in record["rates"]] == [
        (0, 112),
        (0.5, 56),
        (0.7, 33),
        (0.9, 28),
    ]
    for rate in record["rates"]:
        assert rate["read_bytes"] == record["front_bytes"] + rate["retained_tokens"] * 1536
    assert list(csv.DictReader(io.StringIO(evs("show", full, "--format", "csv")[1])))[1]["q"] == "0.5"
    assert evs("show", full, "--print", "ids")[0] == 2


# In place of a video.


def test_prune_of_an_encoding(evs, full, tmp_path, no_work):
    code, out, err = evs("prune", full, "--q", "0.5", "-o", tmp_path / "out.pt", "--json")
    assert code == 0, err
    (record,) = json.loads(out)["videos"]
    assert (record["video"], record["model"], record["q"]) == (str(full), "dinov2-small", 0.5)
    assert record["retained_tokens"] == 56
    assert set(record["timings_seconds"]) == {"read", "write"}
    assert evs_cli.load(tmp_path / "out.pt").retained_tokens == 56


def test_several_encodings_go_into_a_folder(evs, full, tmp_path, no_work):
    other = tmp_path / "other.safetensors"
    other.write_bytes(full.read_bytes())
    assert evs("prune", full, other, "-o", tmp_path / "out")[0] == 0
    assert (tmp_path / "out" / "full.pt").read_bytes() == (tmp_path / "out" / "other.pt").read_bytes()
    other.write_bytes(full.read_bytes()[:-1])
    code, out, err = evs("prune", full, other, "--json")
    assert code == 1
    records = json.loads(out)["videos"]
    assert (records[1]["video"], records[1]["exit_code"]) == (str(other), 5)
    assert "1 of 2 videos failed" in err


def test_a_dry_run_of_an_encoding_tells_what_would_be_read(evs, full, tmp_path, no_work):
    code, out, _ = evs("prune", full, "--q", "0.5", "-o", tmp_path / "out.pt", "--dry-run", "--json")
    assert code == 0
    (record,) = json.loads(out)["videos"]
    with evs_cli.open_encoding(full) as encoding:
        assert record["read_bytes"] == encoding.front_bytes + 56 * 1536
    assert (
        f"at most {record['read_bytes']:,} of {full.stat().st_size:,} bytes"
        in evs("prune", full, "--q", "0.5", "--dry-run")[1]
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("family", ["dinov2", "qwen2_5_vl"])
def test_sweep_of_an_encoding_is_that_of_the_video(evs, tmp_path, tiny_model, family):
    """Costs and context too: the file tells the model's configuration."""
    model = ("--model", tiny_model(family), "--num-frames", "6")
    assert evs("encode", CROSSING, *model, "-o", tmp_path / "full.safetensors")[0] == 0
    sweep = ("--q", "0:0.9:0.3", "--quality", "--json")
    (fresh,) = json.loads(evs("sweep", CROSSING, *model, *sweep)[1])["videos"]
    (read,) = json.loads(evs("sweep", tmp_path / "full.safetensors", *sweep)[1])["videos"]
    assert read["rows"] == fresh["rows"]
    assert (read["rows"][0]["kv_cache_bytes"] is None) == (family == "dinov2")


def test_the_environment_is_nothing_that_was_asked(evs, full, monkeypatch, no_work):
    monkeypatch.setenv("EVS_MODEL", "qwen3-vl-8b")
    monkeypatch.setenv("EVS_DEVICE", "cuda")
    assert evs("prune", full)[0] == 0
    assert evs("sweep", full)[0] == 0


@pytest.mark.parametrize(
    "options",
    [
        ("--model", "qwen3-vl-8b"),
        ("--fps", "2"),
        ("--num-frames", "4"),
        ("--max-frames", "4"),
        ("--start", "1"),
        ("--end", "1"),
        ("--prompt", "Who?"),
        ("--size", "56"),
        ("--frame-max-pixels", "10000"),
        ("--cap-pixels-per-frame",),
        ("--decoder", "decord"),
        ("--device", "cpu"),
        ("--dtype", "float32"),
        ("--score-dtype", "float32"),
        ("--batch-frames", "4"),
        ("--no-reuse",),
        ("--revision", "main"),
        ("--trust-remote-code",),
        # Defaults are as much without effect as other values.
        ("--model", "dinov2-small"),
        ("--decoder", "pyav"),
        ("--reuse",),
        ("--batch-frames", "auto"),
        ("--dialect", "evs"),
        ("--no-cap",),
        ("--media-io-kwargs", "{}"),
    ],
    ids=" ".join,
)
def test_options_that_an_encoding_has_settled(evs, full, options, no_work):
    for command in ("prune", "sweep"):
        code, out, err = evs(command, full, *options)
        assert (code, out) == (2, ""), command
        assert err.startswith(f"Error: {options[0]} has no effect on an encoding")
        assert "--min-dissimilarity and --seed" in err


def test_inputs_and_outputs_that_are_refused_before_any_work(evs, full, tmp_path, no_work):
    (tmp_path / "old.safetensors").write_bytes(b"old")
    evs_cli.save(evs_cli.open_encoding(full).at(0.5), tmp_path / "pruned.pt")
    encode = ("encode", CROSSING)
    for arguments, code, words in (
        (("prune", full, CROSSING), 2, "Expected encodings alone, or videos alone"),
        (("prune", full, "--q", "1"), 2, "Expected 0 <= q < 1"),
        (("prune", full, "-o", full, "--force"), 2, "it is the input"),
        (("prune", tmp_path / "pruned.pt"), 5, "a .pt file is a pruned video"),
        (("prune", tmp_path / "none.safetensors"), 5, "no such file"),
        (("sweep", tmp_path / "old.safetensors"), 5, "damaged or no file that evs wrote"),
        (("sweep", full, "--model", "a", "--model", "b"), 2, "--model has no effect on an encoding"),
        (("sweep", full, "--dry-run"), 2, "--dry-run has no effect"),
        (("encode", full, "-o", tmp_path / "new.safetensors"), 2, "encoded already. Expected a video"),
        ((*encode, "-o", tmp_path / "full.pt"), 2, "Expected one of .safetensors"),
        ((*encode, "-o", tmp_path / "old.safetensors"), 5, "it exists already"),
        ((*encode, "-o", tmp_path / "x.safetensors", "--store-dtype", "int4"), 2, "Invalid store dtype 'int4'"),
        ((*encode, "-o", tmp_path / "x.safetensors", "--levels", "some"), 2, "Invalid levels 'some'"),
        ((*encode, PAN, "-o", tmp_path / "x.safetensors"), 2, "Expected a folder"),
        (encode, 2, "--output"),
    ):
        assert evs(*arguments)[0] == code, arguments
        assert words in " ".join(evs(*arguments)[2].split()), arguments
    assert (tmp_path / "old.safetensors").read_bytes() == b"old"


def test_a_video_that_fails_leaves_nothing_and_stops_no_other(evs, tmp_path):
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    code, out, err = evs("encode", tmp_path / "bad.mp4", CROSSING, *FAST, "-o", tmp_path / "out", "--json")
    assert code == 1
    assert "1 of 2 videos failed" in err
    records = json.loads(out)["videos"]
    assert records[0]["exit_code"] == 3
    assert records[1]["total_tokens"] == 112
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["crossing.safetensors"]


def test_values_that_float16_cannot_hold_leave_nothing(evs, tmp_path, monkeypatch):
    """It is found while rows are set aside; none of them stay."""
    from evs_cli.encoders.plain import PlainFrameEncoder

    embed = PlainFrameEncoder.embed

    def large(self, inputs, plan):
        tokens = embed(self, inputs, plan)
        return type(tokens)(tuple(level * 1e6 for level in tokens.levels), tokens.extra)

    monkeypatch.setattr(PlainFrameEncoder, "embed", large)
    code, _, err = evs("encode", CROSSING, *FAST, "-o", tmp_path / "x.safetensors", "--store-dtype", "float16")
    assert code == 2
    assert "beyond 65504" in err
    assert list(tmp_path.iterdir()) == []


# From Python.


def test_the_api_takes_it_in_place_of_a_video(full, tmp_path, no_work):
    with evs_cli.open_encoding(full) as encoding:
        expected = encoding.at(0.6)
    pruned = evs_cli.prune_video(full, q=0.6, output=tmp_path / "out.pt")
    assert torch.equal(pruned.embeddings, expected.embeddings)
    assert evs_cli.load(tmp_path / "out.pt").q == 0.6
    assert [row.retained_tokens for row in evs_cli.sweep_video(str(full), [0, 0.5], with_quality=True)] == [112, 56]
    with pytest.raises(evs_cli.errors.UsageError, match="--fps has no effect on an encoding"):
        evs_cli.prune_video(full, fps=2)
    with pytest.raises(TypeError, match="unexpected keyword 'method'"):
        evs_cli.encode_video(CROSSING, tmp_path / "x.safetensors", method="random")


def test_encode_video_gives_the_open_file(tmp_path):
    path = tmp_path / "full.safetensors"
    with evs_cli.encode_video(CROSSING, path, num_frames=4, size=56, store_dtype="fp8") as encoding:
        assert isinstance(encoding, evs_cli.Encoding)
        assert encoding.plan.total_tokens == 112
        assert encoding.ranking.token_grid_thw == (4, 4, 7)
        assert "grid (4, 4, 7)" in repr(encoding)
    with safe_open(path, framework="pt") as file:
        assert file.get_tensor("embeddings").dtype == torch.float8_e4m3fn
