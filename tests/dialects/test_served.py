"""A server's plan is what runs: ids by the processor's own hand, sizes and counts by encoding, facts by real files."""

import io
import json

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional as tvf
from video_files import damaged_clip, video

import evs_cli
from evs_cli.dialects import ALL, dialect_of_server, parse_dialect, parse_dialects
from evs_cli.dialects.base import ServerOptions, ServerSource
from evs_cli.dialects.opencv_frames import opencv_num_frames, opencv_reads
from evs_cli.dialects.served import ServedPlanner, SourceTimes, source_notes
from evs_cli.encoders.base import EncodeOptions
from evs_cli.errors import ModelError, UsageError, VideoError
from evs_cli.pipeline.request import make_request
from evs_cli.pipeline.row_selection import AllRows
from evs_cli.pipeline.session import Session
from evs_cli.video.info import probe_video
from evs_cli.video.reader import read_frames
from evs_cli.video.sampling import SamplingRequest

FAMILIES = ["qwen2_5_vl", "qwen3_vl", "nemotron_h_omni"]
SERVERS = ["hf", "vllm", "sglang"]
SAMPLE = "samples/crossing.mp4"


def served_of(encoder, dialect, source, prompt=None, sampling=None, server=None):
    sampling = sampling or SamplingRequest()
    planner = ServedPlanner(parse_dialect(dialect), encoder, server or ServerOptions(), sampling)
    fps = source.average_fps
    true = SourceTimes(np.arange(source.num_frames) / fps, source.num_frames / fps)
    return planner, planner.plan(source, true, sampling, EncodeOptions(prompt=prompt))


@pytest.mark.parametrize("prompt", [None, "What moves?"])
@pytest.mark.parametrize("dialect", SERVERS)
@pytest.mark.parametrize("model_type", FAMILIES)
def test_ids_are_the_processors_own(tiny_family, model_type, dialect, prompt):
    """The servers run transformers' processor on the frames they chose; what comes of the text is theirs too."""
    family = tiny_family(model_type)
    source = ServerSource(57, 24000 / 1001, 90, 120)
    _, served = served_of(family.encoder, dialect, source, prompt)
    server = served.server
    height, width = server.resizes[0] if len(server.resizes) > 1 else (90, 120)
    frames = torch.zeros((len(server.frame_indices), 3, height, width), dtype=torch.uint8)
    metadata = {
        "fps": source.average_fps,
        "frames_indices": server.frame_indices.tolist(),
        "total_num_frames": source.num_frames,
    }
    inputs = family.processor(
        text=[family.text(prompt)],
        videos=[frames],
        video_metadata=[metadata],
        do_sample_frames=False,
        input_data_format="channels_first",
    )
    ids = inputs["input_ids"][0]
    if model_type == "nemotron_h_omni" and dialect == "sglang":  # its size is its own
        pad = served.encode.layout.placeholder_token_id
        ids = [id_ for id_ in ids if id_ != pad]
        ours = [id_ for id_ in served.encode.layout.input_ids.tolist() if id_ != pad]
        assert ours == ids
        return
    assert served.encode.layout.input_ids.tolist() == ids
    if "video_grid_thw" in inputs:
        assert served.encode.model_grid_thw == tuple(inputs["video_grid_thw"][0].tolist())
        np.testing.assert_array_equal(served.encode.token_type_ids, inputs["mm_token_type_ids"][0])
    if "second_per_grid_ts" in inputs and dialect != "sglang":  # SGLang tells no metadata
        assert served.encode.seconds_per_grid == pytest.approx(float(inputs["second_per_grid_ts"][0]))


@pytest.mark.parametrize("q", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("dialect", SERVERS)
@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_length_of_what_a_client_sees(tiny_model, model_type, dialect, q):
    encoder = Session(make_request(model=str(tiny_model(model_type)))).encoder
    planner, served = served_of(encoder, dialect, ServerSource(57, 12.5, 90, 120), "What moves?")
    ids = planner.client_ids(served, q, EncodeOptions(prompt="What moves?"))
    assert len(ids) == planner.sequence_length([served.server], q, EncodeOptions(prompt="What moves?"))
    assert ids.count(served.encode.layout.placeholder_token_id) == served.encode.retained_tokens(q)
    assert len(ids) == served.encode.sequence_length(q)


RUNS = [(m, d) for m in FAMILIES for d in SERVERS if (m, d) != ("nemotron_h_omni", "sglang")]


@pytest.mark.parametrize(("model_type", "dialect"), RUNS)
def test_what_is_planned_is_what_runs(tiny_model, model_type, dialect):
    session = Session(make_request(model=str(tiny_model(model_type)), dialect=dialect, fps=1.0, prompt="Why?"))
    plan = session.plan(SAMPLE)
    pruned = session.encode(SAMPLE, AllRows()).prune(0.5)
    assert pruned.token_grid_thw == plan.encode.token_grid_thw
    assert pruned.retained_tokens == plan.encode.retained_tokens(0.5)
    assert len(pruned.input_ids) == plan.encode.sequence_length(0.5)
    assert pruned.provenance["dialect"] == parse_dialect(dialect).name
    np.testing.assert_array_equal(pruned.frame_indices.numpy(), plan.selection.frame_indices)


@pytest.mark.parametrize("model_type", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("dialect", ["hf", "vllm", "sglang"])
def test_embeddings_are_those_of_the_servers_pixels(tiny_family, model_type, dialect):
    """Decoded, resized by SGLang's loader where it is that, then by the processor: the whole model's own features."""
    family = tiny_family(model_type)
    request = make_request(model=str(family.folder), dialect=dialect, fps=1.0, dtype="float32")
    session = Session(request)
    plan = session.plan(SAMPLE)
    (batch,) = read_frames(plan.video, plan.selection.frame_indices, chunk_frames=1000)
    frames = torch.as_tensor(batch.frames)
    if dialect == "sglang":
        frames = tvf.resize(frames, list(plan.encode.loader_size or plan.encode.frame_size), antialias=True)
    metadata = {"fps": 2.0, "frames_indices": list(range(len(frames))), "total_num_frames": len(frames)}
    inputs = family.processor(
        text=[family.text(None)],
        videos=[frames],
        video_metadata=[metadata],
        do_sample_frames=False,
        return_tensors="pt",
    )
    own = family.own_levels(inputs)
    encoded = session.encode(SAMPLE, AllRows())
    for ours, theirs in zip(encoded.levels, own, strict=True):
        # Chunks of frames against the whole: rounding of the same sums in another order.
        torch.testing.assert_close(ours.flatten(0, 2), theirs, rtol=1e-5, atol=1e-5)


def test_vllm_goes_on_without_frames_that_do_not_decode(tiny_model):
    """Every frame is asked for. Some do not decode, so the processor does not go back to 2 frames a second."""
    path, options = str(video("corrupt.mp4")), {"model": str(tiny_model("qwen3_vl")), "dialect": "vllm", "fps": 30.0}
    info = probe_video(path)
    reads = opencv_reads(info, info.num_frames)
    read = reads[reads >= 0]
    assert 40 < len(read) < info.num_frames == 60
    encoded = Session(make_request(**options)).encode(path, AllRows())
    np.testing.assert_array_equal(encoded.frame_indices, read)
    assert encoded.ranking.token_grid_thw.t == -(-len(read) // 2)
    planned = Session(make_request(**options, decodes_first=True)).plan(path)
    assert planned.encode.token_grid_thw == encoded.ranking.token_grid_thw
    assert f"{60 - len(read)} of its 60 frames are not to be decoded, and it leaves them out" in planned.notes
    assert Session(make_request(**options)).plan(path).encode.token_grid_thw.t < 10  # as a whole file is sampled again


def test_sglang_fails_on_frames_that_do_not_decode(tiny_model, tmp_path):
    session = Session(make_request(model=str(tiny_model("qwen3_vl")), dialect="sglang"))
    with pytest.raises(
        VideoError, match=r"\d+ of \d+ sampled frames of damaged.mp4 do not decode, and sglang@0.5.23 fails"
    ) as e:
        session.encode(str(damaged_clip(tmp_path)), AllRows())
    assert "--dialect evs" in e.value.hint


def test_nemotron_at_sglangs_size_is_counted_and_not_run(tiny_model):
    session = Session(make_request(model=str(tiny_model("nemotron_h_omni")), dialect="sglang"))
    with pytest.raises(ModelError, match=r"with frames of 160x96: its processor makes them 128x64") as error:
        session.encode(SAMPLE, AllRows())
    assert "evs plan" in error.value.hint


def test_12b_v2_is_counted_and_not_run(served_checkpoint, evs):
    model = served_checkpoint("nemotron_12b")
    code, _, err = evs("prune", SAMPLE, "--model", model)
    assert code == 4
    assert "cannot use" in err
    assert "--dialect vllm" in err
    code, _, err = evs("prune", SAMPLE, "--model", model, "--dialect", "vllm")
    assert code == 4
    assert "it has no model there" in err


def test_the_default_rate_is_the_servers(tiny_model):
    folder = str(tiny_model("qwen3_vl"))
    assert Session(make_request(model=folder, dialect="vllm")).pruning_rates(None)[0] == (
        0.0,
        "vllm@0.33: no --video-pruning-rate",
    )
    command = "vllm serve X --video-pruning-rate 0.4"
    assert Session(make_request(model=folder, server_cmd=command)).pruning_rates(None)[0][0] == 0.4
    assert Session(make_request(model=folder, dialect="vllm")).pruning_rates([0.6]) == ((0.6, "as asked"),)


# ------------------------------------------------------------------------------------------ what a server sees


@pytest.mark.parametrize("name", ["normal.mp4", "vfr.mp4", "one.mp4", "truncated.mp4"])
def test_frames_are_the_headers_even_where_the_file_is_cut_off(name):
    """OpenCV 4.13 says so of such files: one that is cut off cannot be sought to its end, and is not corrected."""
    info = probe_video(video(name))
    assert info.is_cut_off == (name == "truncated.mp4")
    assert opencv_num_frames(info) == info.header_num_frames


def test_frames_that_an_edit_list_hides_are_not_counted():
    info = probe_video(video("edit_list.mp4"))
    assert info.header_num_frames > info.num_frames + 1
    assert not info.is_cut_off
    assert opencv_num_frames(info) == info.num_frames


def test_frames_of_a_file_without_a_count_come_of_its_length():
    info = probe_video(video("normal.mkv"))
    assert info.header_num_frames is None
    assert opencv_num_frames(info) == round(info.container_seconds * info.average_fps)
    live = probe_video(video("live.mkv"))
    assert live.container_seconds is None
    assert opencv_num_frames(live) == live.num_frames


def test_servers_do_not_make_pixels_square():
    info = probe_video(video("sar.mp4"))
    assert info.width != info.coded_width
    for server in SERVERS:
        assert parse_dialect(server).rules.source_of(info, ServerOptions()).width == info.coded_width


def test_a_different_belief_is_said():
    true = SourceTimes(np.arange(100) / 25, 4.0)
    assert source_notes(ServerSource(100, 25.0, 4, 4), true) == ()
    notes = source_notes(ServerSource(120, 30.0, 4, 4), true)
    assert notes == (
        "the server counts 120 frames, the file holds 100",
        "the server believes 30 fps, the file's frames come at 25",
    )


def test_frames_past_the_end_of_the_file_are_left_out_by_vllm(tiny_model):
    encoder = Session(make_request(model=str(tiny_model("qwen3_vl")))).encoder
    planner = ServedPlanner(parse_dialect("vllm"), encoder, ServerOptions(), SamplingRequest())
    true = SourceTimes(np.arange(40) / 10, 4.0)
    source = ServerSource(60, 10.0, 90, 120, lost=frozenset(range(40, 60)))
    served = planner.plan(source, true, SamplingRequest(), EncodeOptions())
    asked = planner.server_plan(ServerSource(60, 10.0, 90, 120), SamplingRequest(), EncodeOptions()).frame_indices
    assert asked[-1] == 59
    np.testing.assert_array_equal(served.selection.frame_indices, asked[asked < 40])
    assert served.encode.token_grid_thw[0] == -(-int((asked < 40).sum()) // 2)
    assert "4 of its 12 frames are past the end of the file, and it leaves them out" in served.notes


# ------------------------------------------------------------------------------------------------ names, refusals


def test_names_of_dialects():
    training = ["qwen-vl-utils@0.0.14", "llamafactory@0.9.5", "ms-swift@4.6", "verl@0.9"]
    assert [dialect.name for dialect in ALL] == ["evs", "hf@5.24", *training, "vllm@0.33", "sglang@0.5.23"]
    assert parse_dialects("all") == ALL
    assert parse_dialect("vllm@0.33.0").note is None
    assert dialect_of_server("vllm", "0.33.1") == parse_dialect("vllm")
    assert dialect_of_server("vllm", "0.30").note == "the rules of vllm 0.30 are not known: those of 0.33 are used"
    for version in ("banana", "0.33.banana", "0.33.", "0.33 ", "0.33..1", ".33", "", "v0.33", "0.33-1", "0.32"):
        with pytest.raises(UsageError, match=r"the rules of that version are not known. Expected vllm@0\.33\."):
            parse_dialect(f"vllm@{version}")
    for name in ("hf@5.24.x", "sglang@0.5.23.banana", "sglang@0.5.2"):
        with pytest.raises(UsageError, match="the rules of that version are not known"):
            parse_dialect(name)
    for name in ("vllm@0.33.0rc1", "vllm@0.33.1.dev5+g0123abc", "vllm@0.33.0+cpu", "sglang@0.5.23.post1"):
        assert parse_dialect(name).note is None
    for name in ("tgi", "evs@1", "", "all"):
        with pytest.raises(UsageError, match=r"Expected evs, hf@5\.24, .*, vllm@0\.33, sglang@0\.5\.23 or all"):
            parse_dialect(name)


def test_families_without_rules_and_windows_are_refused(evs, tiny_model):
    code, _, err = evs("plan", SAMPLE, "--dialect", "vllm", "--model", tiny_model("dinov2"))
    assert code == 2
    assert "--dialect has no rules for" in err
    code, _, err = evs("plan", SAMPLE, "--dialect", "vllm", "--model", tiny_model("qwen3_vl"), "--start", 1)
    assert code == 2
    assert "a server takes the whole file" in err
    numbers = ["--frames", 8, "--height", 64, "--width", 64]
    code, _, err = evs("plan", *numbers, "--dialect", "vllm", "--model", tiny_model("qwen3_vl"))
    assert code == 2
    assert "samples by itself" in err
    code, _, err = evs("prune", SAMPLE, "--dialect", "all", "--model", tiny_model("qwen3_vl"))
    assert code == 2
    assert "it compares plans" in err


def test_the_library_takes_a_dialect_too(tiny_model):
    pruned = evs_cli.prune_video(SAMPLE, q=0.5, model=str(tiny_model("qwen3_vl")), dialect="vllm", fps=1.0)
    assert pruned.provenance["dialect"] == "vllm@0.33"
    assert pruned.token_grid_thw[0] == 5


def test_a_file_is_decoded_before_it_is_planned(evs, tiny_model, tmp_path):
    """5 of 20 frames are noise: vLLM leaves those out that it asks for. A plan alone takes them for whole."""
    line = ["plan", damaged_clip(tmp_path), "--model", tiny_model("qwen3_vl"), "--dialect", "vllm", "--fps", 10]
    _, _, err = evs(*line)
    assert "it leaves them out" not in err
    code, _, err = evs(*line, "--decode-first")
    assert (code, "5 of its 20 frames are not to be decoded, and it leaves them out" in err) == (0, True)
    code, _, err = evs("plan", SAMPLE, "--decode-first")
    assert (code, "--decode-first has no effect on evs" in err) == (2, True)


def test_standard_input_is_read_again_where_a_server_needs_it(evs, tiny_model, monkeypatch, tmp_path):
    """An uneven file is sought to its end, which is behind the scan; its copy is there still."""
    path = video("vfr.mp4")
    _, expected, _ = evs("plan", path, "--model", tiny_model("qwen3_vl"), "--dialect", "vllm", "--json")
    with path.open("rb") as file:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
        code, out, err = evs("plan", "-", "--model", tiny_model("qwen3_vl"), "--dialect", "vllm", "--json")
    assert code == 0, err
    assert [d["server_source"] for d in json.loads(out)["videos"]] == [
        d["server_source"] for d in json.loads(expected)["videos"]
    ]
