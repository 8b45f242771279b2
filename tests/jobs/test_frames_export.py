"""The request of ``evs export --to vllm-frames``: read back by the published contract, it gives the planned frames,
and the checkpoint's own processor makes of them the planned ids, grid and times.

``received`` restates what vLLM 0.33 does with such a URL (``VideoMediaIO.load_base64``).
"""

import base64
import functools
import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from served_checkpoints import save_nemotron_12b
from server_wheels import wheel_function
from video_files import read_number, video

from evs_cli.dialects.base import ServerOptions
from evs_cli.dialects.vllm_frames import SentFrames, require_decodable, sent_frames
from evs_cli.encoders.base import EncodeOptions
from evs_cli.errors import ArtifactError, BudgetError, UsageError
from evs_cli.jobs.frames_export import ExportRequest, FramesExporter
from evs_cli.pipeline.request import make_request
from evs_cli.pipeline.session import Session
from evs_cli.video.reader import read_frames

FAMILIES = ["qwen2_5_vl", "qwen3_vl", "nemotron_h_omni"]
PROMPT = "What moves?"


def received(body, server_kwargs=None):
    """(frames (n, H, W, 3) uint8, metadata) of a request, as the server takes it.

    Args:
        body: the request.
        server_kwargs: ``--media-io-kwargs`` of the server, which the request's override one by one.
    """
    (message,) = body["messages"]
    (url,) = [part["video_url"]["url"] for part in message["content"] if part["type"] == "video_url"]
    said = dict(server_kwargs or {})
    request = body["media_io_kwargs"]["video"]
    said.update(request)
    for name, other in (("num_frames", "fps"), ("fps", "num_frames")):
        if name in request and other not in request:
            said.pop(other, None)
    assert url.startswith("data:")
    specification, _, data = url[5:].partition(",")
    assert specification == "video/jpeg;base64"
    most = said.pop("num_frames", 32)
    assert most > 0
    parts = data.split(",")[:most]
    frames = np.stack(
        [np.asarray(Image.open(io.BytesIO(base64.b64decode(part, validate=True))).convert("RGB")) for part in parts]
    )
    indices, total = said["frames_indices"], said["total_num_frames"]
    assert isinstance(indices, list)
    assert {type(index) for index in indices} == {int}
    assert len(indices) == len(frames)
    assert type(total) is int
    assert total >= len(frames)
    assert said["duration"] >= 0
    return frames, {
        "total_num_frames": total,
        "fps": float(said["fps"]),
        "duration": said["duration"],
        "frames_indices": indices,
        "do_sample_frames": said.get("do_sample_frames", False),
    }


@pytest.fixture
def export(tiny_model, tmp_path):
    """Export a video: the result, the body, and the plan its frames are from."""

    def run(model_type, name="normal.mp4", *, asked=None, **request):
        session = Session(make_request(model=str(tiny_model(model_type)), prompt=PROMPT, **request))
        path = tmp_path / "body.json"
        result = FramesExporter(session, asked or ExportRequest()).export(video(name), name, path, overwrite=True)
        assert path.stat().st_size == result.body_bytes
        return result, json.loads(path.read_text()), session.plan(video(name))

    return run


def processed(processor, body):
    """What the checkpoint's processor makes of a request, as vLLM calls it."""
    frames, metadata = received(body)
    sample = metadata.pop("do_sample_frames")
    (message,) = body["messages"]
    text = "".join(part["text"] for part in message["content"] if part["type"] == "text")
    chat = [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": text}]}]
    return processor(
        text=[processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)],
        videos=[torch.from_numpy(frames).permute(0, 3, 1, 2)],
        video_metadata=[metadata],
        input_data_format="channels_first",
        return_tensors="pt",
        **{"do_sample_frames": sample, **body.get("mm_processor_kwargs", {})},
    )


def token_grid(outputs, processor):
    """(T, h, w) of the processor's outputs."""
    if "video_grid_thw" in outputs:
        grid_t, grid_h, grid_w = outputs["video_grid_thw"][0].tolist()
        merge = processor.video_processor.merge_size
        return grid_t, grid_h // merge, grid_w // merge
    tubelets, _, height, width = outputs["pixel_values_videos"].shape[-4:]
    side = processor.video_processor.patch_size * 2
    return tubelets, height // side, width // side


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize("at", ["planned", "source"])
@pytest.mark.parametrize("dialect", ["evs", "vllm"])
def test_the_request_gives_the_planned_ids_grid_and_times(export, tiny_family, model_type, at, dialect):
    sampling = {"num_frames": 8} if dialect == "evs" else {"fps": 4.0} if "qwen" in model_type else {"num_frames": 8}
    result, body, plan = export(model_type, asked=ExportRequest(at=at), dialect=dialect, **sampling)
    processor = tiny_family(model_type).processor
    outputs = processed(processor, body)
    assert token_grid(outputs, processor) == result.plan.token_grid_thw == plan.encode.token_grid_thw
    told_truly = tiny_family(model_type).encoder.plan(plan.clip, EncodeOptions(prompt=PROMPT))
    assert outputs["input_ids"][0].tolist() == told_truly.layout.input_ids.tolist()
    if plan.encode.seconds_per_grid is not None:
        # A total in whole milliseconds, of some seconds.
        assert float(outputs["second_per_grid_ts"][0]) == pytest.approx(plan.encode.seconds_per_grid, rel=1e-3)
        assert result.told == ()
    else:
        text = processor.tokenizer.decode(outputs["input_ids"][0])
        assert all(told in text for told in result.told)
        assert len(result.told) == plan.encode.token_grid_thw[0]


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize("at", ["planned", "source"])
def test_the_frames_are_the_planned_ones(export, model_type, at):
    """Each picture carries its own number, the index of the frame."""
    result, body, plan = export(model_type, "vfr.mp4", asked=ExportRequest(at=at), num_frames=6)
    frames, metadata = received(body)
    indices = plan.selection.frame_indices
    assert [read_number(frame) for frame in frames] == indices.tolist()
    assert metadata["frames_indices"] == [
        round(1000 * (t - (plan.clip.pts_seconds[0] if result.plan.seconds_per_grid else 0)))
        for t in plan.clip.pts_seconds.tolist()
    ]
    assert frames.shape[1:3] == (result.sent.height, result.sent.width)
    if at == "source":
        assert frames.shape[1:3] == (plan.video.height, plan.video.width)
        with read_frames(plan.video, indices, chunk_frames=len(indices)) as stream:
            pixels = next(stream).frames.permute(0, 2, 3, 1).numpy()
        # Flat blocks at quality 95: only the edges between them are touched.
        assert np.abs(frames.astype(int) - pixels.astype(int)).mean() < 2


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize("num_frames", [1, 5, 7])
def test_an_odd_last_frame_is_repeated_to_a_whole_tubelet(export, tiny_family, model_type, num_frames):
    result, body, plan = export(model_type, num_frames=num_frames)
    frames, metadata = received(body)
    assert len(frames) == num_frames + 1 == result.sent.num_frames
    assert result.num_repeated == 1
    assert (frames[-1] == frames[-2]).all()
    assert metadata["frames_indices"][-1] == metadata["frames_indices"][-2]
    processor = tiny_family(model_type).processor
    outputs = processed(processor, body)
    assert token_grid(outputs, processor) == result.plan.token_grid_thw
    assert result.plan.token_grid_thw[0] == plan.encode.token_grid_thw[0]
    if plan.encode.seconds_per_grid is not None:
        # A total in whole milliseconds, of 2.4 s.
        assert float(outputs["second_per_grid_ts"][0]) == pytest.approx(plan.encode.seconds_per_grid, rel=1e-3)


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize("q", [0.0, 0.6])
def test_the_prompt_is_as_long_as_the_server_writes_it(export, tiny_family, model_type, q):
    """vLLM's own way of writing each family, piece by piece."""
    result, body, plan = export(model_type, num_frames=8, asked=ExportRequest(q=q))
    processor = tiny_family(model_type).processor
    num_grids, height, width = result.plan.token_grid_thw
    kept = max(height * width, int(num_grids * height * width * (1 - q)))
    assert result.retained_tokens == kept

    def count(text):
        return len(processor.tokenizer(text, add_special_tokens=False)["input_ids"])

    chat = [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": PROMPT}]}]
    *system, _ = body["messages"]
    assert bool(system) == (q > 0 and model_type == "qwen3_vl")  # which fails without text before the video
    text = processor.apply_chat_template([*system, *chat], tokenize=False, add_generation_prompt=True)
    milliseconds = [round(1000 * t) for t in plan.clip.pts_seconds.tolist()]
    if model_type == "qwen2_5_vl":
        written = count(text) - 1 + kept  # a placeholder stands for all of them
    elif model_type == "qwen3_vl":
        means = [(a + b) / 2000 for a, b in zip(milliseconds[::2], milliseconds[1::2], strict=True)]
        written = count(text) - 1 + kept + sum(count(f"<{mean:.1f} seconds>") + 2 for mean in means)
    else:
        pieces = [
            f"Frame {k + 1} sampled at {milliseconds[k] / 1000:.2f} seconds and frame {k + 2} sampled at "
            f"{milliseconds[k + 1] / 1000:.2f} seconds: "
            for k in range(0, len(milliseconds), 2)
        ]
        pieces = [piece if k == 0 else "\n" + piece for k, piece in enumerate(pieces)]
        before, after = text.split("<video>")
        written = count(before) + count(after) + kept + sum(count(piece) + 2 for piece in pieces)
    start = processor.tokenizer("", add_special_tokens=True)["input_ids"]
    assert result.prompt_tokens == written + len(start)


def test_a_server_of_its_own_options_takes_the_frames_as_they_are(export):
    """Its own fps, num_frames and sampling do not stand."""
    _, body, _ = export("qwen3_vl", num_frames=40)
    frames, metadata = received(body, {"fps": 2, "num_frames": 4, "do_sample_frames": True})
    assert len(frames) == 40  # more than the 32 that are taken otherwise
    assert metadata["fps"] == 1000.0
    assert metadata["do_sample_frames"] is False
    assert body["mm_processor_kwargs"]["do_sample_frames"] is False


@pytest.mark.parametrize("model_type", ["qwen2_5_vl", "qwen3_vl"])
def test_the_planned_size_is_one_the_server_leaves(export, model_type):
    """The limits asked for go along, or a planned size below the checkpoint's least would be resized again."""
    limit = {"qwen2_5_vl": {"frame_max_pixels": 5000}, "qwen3_vl": {"video_max_pixels": 40_000}}[model_type]
    result, body, plan = export(model_type, num_frames=8, **limit)
    assert (result.sent.height, result.sent.width) == plan.encode.frame_size == result.plan.resizes[-1]
    assert body["mm_processor_kwargs"].keys() > {"do_sample_frames"}


def test_a_size_the_server_would_resize_again_goes_as_the_source(export):
    result, _, plan = export("nemotron_h_omni", num_frames=4)
    if result.plan.resizes[-1] == (result.sent.height, result.sent.width):
        pytest.fail("the planned size is a fixed point: take a clip where it is none")
    assert (result.sent.height, result.sent.width) == (plan.video.height, plan.video.width)
    assert any("source's size" in note for note in result.notes)


def test_a_damaged_file_sends_what_decodes(export):
    result, body, plan = export("qwen3_vl", "corrupt.mp4", num_frames=20)
    frames, metadata = received(body)
    assert len(result.pts_seconds) < plan.clip.num_frames
    assert len(frames) % 2 == 0
    shown = {round(1000 * t): index for index, t in enumerate(plan.video.pts_seconds.tolist())}
    assert [read_number(frame) for frame in frames] == [shown[index] for index in metadata["frames_indices"]]
    assert any("do not decode" in note for note in result.notes)


def test_colours_keep_their_resolution_and_quality_costs_bytes(export):
    sizes = {}
    for quality in (50, 95):
        result, body, _ = export("qwen3_vl", num_frames=4, asked=ExportRequest(quality=quality))
        url = body["messages"][0]["content"][0]["video_url"]["url"]
        jpegs = [base64.b64decode(part) for part in url.partition(",")[2].split(",")]
        assert sum(map(len, jpegs)) == result.jpeg_bytes
        assert {Image.open(io.BytesIO(jpeg)).layer[0][1:3] for jpeg in jpegs} == {(1, 1)}  # 4:4:4
        sizes[quality] = result.jpeg_bytes
    assert sizes[50] < sizes[95]


def test_decoded_frames_count_four_bytes_a_pixel():
    def sent(num_frames, height, width):
        return SentFrames(np.arange(num_frames), num_frames, height, width, 1.0)

    most = 715_827_880 // (4 * 1920 * 1080)
    require_decodable(sent(most, 1080, 1920), "clip", ServerOptions())
    with pytest.raises(BudgetError, match="721,612,800 decoded bytes, 715,827,880 are allowed") as caught:
        require_decodable(sent(most + 1, 1080, 1920), "clip", ServerOptions())
    assert str(most) in caught.value.hint
    with pytest.raises(BudgetError, match="178,956,970"):
        require_decodable(sent(1, 178_956_971, 1), "clip", ServerOptions())


def test_too_many_decoded_bytes_are_refused_before_a_file_is_written(export, monkeypatch, tmp_path):
    monkeypatch.setattr("evs_cli.dialects.vllm_0_33_limits.MAX_DECODED_BYTES", 1000)
    with pytest.raises(BudgetError, match="1,000 are allowed"):
        export("qwen3_vl", num_frames=4)
    assert not (tmp_path / "body.json").exists()


@pytest.mark.parametrize("start", [0.0, 3599.97])
@pytest.mark.parametrize("patch", [1, 2])
def test_times_are_told_to_the_millisecond(start, patch):
    pts = start + np.arange(7) * 1001 / 24000
    sent = sent_frames(pts, window_seconds=0.3, seconds_per_grid=None, temporal_patch_size=patch, height=8, width=8)
    assert sent.num_frames % patch == 0
    assert np.abs(sent.frames_indices[:7] / 1000 - pts).max() <= 0.0005 + 1e-9
    assert sent.total_num_frames > sent.frames_indices[-1]  # an index past the end would be no frame
    assert sent.media_io()["duration"] == 0.3


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"at": "half"}, "Expected planned or source"),
        ({"quality": 0}, "Expected 1 to 100"),
        ({"quality": 101}, "Expected 1 to 100"),
        ({"q": 1.0}, "Expected 0 <= q < 1"),
        ({"max_tokens": 0}, "Expected at least 1"),
    ],
)
def test_a_bad_request_is_refused(request_, message):
    with pytest.raises(UsageError, match=message):
        ExportRequest(**request_)


def test_what_vllm_is_not_known_to_take_is_refused(export, tiny_model):
    with pytest.raises(UsageError, match="sglang"):
        export("qwen3_vl", dialect="sglang")
    with pytest.raises(UsageError, match="qwen3_vl"):
        FramesExporter(Session(make_request(model=str(tiny_model("dinov2")))), ExportRequest())


def test_an_output_that_exists_is_refused_before_any_work(tiny_model, tmp_path):
    exporter = FramesExporter(Session(make_request(model=str(tiny_model("qwen3_vl")))), ExportRequest())
    path = tmp_path / "body.json"
    path.write_text("kept")
    with pytest.raises(ArtifactError, match="exists"):
        exporter.export("no such video", "x", path)
    assert path.read_text() == "kept"


@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_server_reads_the_request_as_restated_here(export, model_type):
    """``VideoMediaIO.load_base64`` itself, out of the wheel."""
    _, body, _ = export(model_type, num_frames=40)
    load_base64 = wheel_function(
        "EVS_VLLM_WHEEL",
        "vllm/multimodal/media/video.py",
        "VideoMediaIO.load_base64",
        {"partial": functools.partial, "np": np, "MediaWithBytes": lambda media, _: media},
    )

    class ImageIO:
        def load_base64(self, media_type, data):
            assert media_type == "image/jpeg"
            return Image.open(io.BytesIO(base64.b64decode(data, validate=True))).convert("RGB")

    said = body["media_io_kwargs"]["video"]
    rest = {name: value for name, value in said.items() if name != "num_frames"}
    server = SimpleNamespace(image_io=ImageIO(), num_frames=said["num_frames"], kwargs=rest)
    _, _, data = body["messages"][0]["content"][0]["video_url"]["url"].partition(",")
    frames, metadata = load_base64(server, "video/jpeg", data)
    ours, expected = received(body)
    assert (frames == ours).all()
    assert {name: metadata[name] for name in expected} == expected


def test_nemotron_12b_goes_as_squares_of_the_size_it_is_served_at(tmp_path):
    """transformers has no processor of it: the frames are those of vLLM's own sampling, one a tubelet."""
    save_nemotron_12b(tmp_path / "model")
    path = tmp_path / "body.json"
    options = {"media_io_kwargs": '{"video": {"num_frames": 5}}'}
    session = Session(make_request(model=str(tmp_path / "model"), dialect="vllm", **options))
    result = FramesExporter(session, ExportRequest(q=0.7)).export(video("normal.mp4"), "normal.mp4", path)
    body = json.loads(path.read_text())
    frames, metadata = received(body)
    assert frames.shape == (5, 512, 512, 3)
    assert [read_number(frame) for frame in frames] == [0, 14, 29, 44, 59]
    assert metadata["frames_indices"] == [0, 560, 1160, 1760, 2360]  # 25 frames a second
    assert "mm_processor_kwargs" not in body
    assert result.plan.token_grid_thw == (5, 16, 16)
    assert result.retained_tokens == 384
    assert result.told[1] == "Frame 2 sampled at 0.56 seconds:"
