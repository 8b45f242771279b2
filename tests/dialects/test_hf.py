"""The rules of ``hf`` against transformers' own processors, in 10,000 drawn cases."""

import json
import warnings

import numpy as np
import pytest
import torch
import transformers as tf
from hypothesis import given
from hypothesis import strategies as st
from served_models import NEMOTRON_12B, NEMOTRON_OMNI, QWEN3, QWEN25, SOURCES, cases
from transformers.image_utils import SizeDict
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize as qwen2_resize
from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize as qwen3_resize
from transformers.video_utils import VideoMetadata, default_sample_indices_fn

from evs_cli.dialects import parse_dialect
from evs_cli.dialects import transformers_5_24 as hf
from evs_cli.dialects.base import RefusedByServerError, ServerOptions, ServerSource
from evs_cli.dialects.resize import qwen2_frame_size, qwen3_frame_size
from evs_cli.dialects.server_options import parse_server_options
from evs_cli.dialects.transformers_5_24_server import SERVER

PIXELS = st.tuples(st.integers(1, 200_000), st.integers(200_000, 30_000_000))


def metadata_of(source):
    return VideoMetadata(total_num_frames=source.num_frames, fps=source.average_fps, duration=source.duration_seconds)


def own_indices(processor, source, **arguments):
    """What transformers samples, or None where it fails."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            indices = np.asarray(processor.sample_frames(metadata_of(source), **arguments))
    except (ValueError, ZeroDivisionError, RuntimeError):
        return None
    return None if indices[-1] >= source.num_frames else indices  # it would index past the last frame


def our_indices(rule, source, model, **arguments):
    try:
        return rule(source, model, arguments)[0]
    except RefusedByServerError:
        return None


def assert_same(ours, own):
    assert (ours is None) == (own is None)
    if own is not None:
        np.testing.assert_array_equal(ours, own)


RATE_OR_NUMBER = st.one_of(
    st.builds(lambda fps: {"fps": fps}, st.one_of(st.floats(0.05, 40.0), st.sampled_from([0.5, 1.0, 2.0, 4.0]))),
    st.builds(lambda n: {"num_frames": n}, st.integers(2, 900)),
)


@cases(2500)
@given(source=SOURCES, arguments=RATE_OR_NUMBER, bounds=st.tuples(st.integers(1, 8), st.integers(8, 900)))
def test_qwen2_samples_as_its_processor(source, arguments, bounds):
    processor = tf.Qwen2VLVideoProcessor()
    given_bounds = {"min_frames": bounds[0], "max_frames": bounds[1]}
    own = own_indices(processor, source, **arguments, **given_bounds)
    assert_same(our_indices(hf.qwen2_indices, source, QWEN25, **arguments, **given_bounds), own)


@cases(2500)
@given(source=SOURCES, arguments=RATE_OR_NUMBER)
def test_qwen3_samples_as_its_processor(source, arguments):
    own = own_indices(tf.Qwen3VLVideoProcessor(), source, **arguments)
    assert_same(our_indices(hf.qwen3_indices, source, QWEN3, **arguments), own)


@cases(1000)
@given(source=SOURCES, arguments=RATE_OR_NUMBER)
def test_nemotron_samples_as_transformers_does_by_default(source, arguments):
    try:
        own = default_sample_indices_fn(metadata_of(source), **arguments)
    except ValueError:
        own = None
    try:
        ours = hf.nemotron(source, NEMOTRON_OMNI, ServerOptions(mm_processor=arguments)).frame_indices
    except RefusedByServerError:
        ours = None
    assert_same(ours, own)


@cases(2000)
@given(source=SOURCES, pixels=PIXELS, factor=st.sampled_from([28, 32]))
def test_qwen2_resizes_as_its_processor(source, pixels, factor):
    try:
        own = qwen2_resize(source.height, source.width, factor, *pixels)
    except ValueError:
        with pytest.raises(RefusedByServerError, match="200 times"):
            qwen2_frame_size(source.height, source.width, factor=factor, min_pixels=pixels[0], max_pixels=pixels[1])
        return
    assert own == qwen2_frame_size(
        source.height, source.width, factor=factor, min_pixels=pixels[0], max_pixels=pixels[1]
    )


@cases(2000)
@given(source=SOURCES, pixels=PIXELS, num_frames=st.integers(1, 768))
def test_qwen3_resizes_as_its_processor(source, pixels, num_frames):
    def ours():
        return qwen3_frame_size(
            source.height,
            source.width,
            num_frames=num_frames,
            temporal_factor=2,
            factor=32,
            min_pixels=pixels[0],
            max_pixels=pixels[1],
        )

    try:
        own = qwen3_resize(num_frames, source.height, source.width, 2, 32, *pixels)
    except ValueError:
        with pytest.raises(RefusedByServerError):
            ours()
        return
    assert own == ours()


def resized(processor, num_frames, height, width, model, **arguments):
    """(height, width) after the processor's own ``resize``, on a tensor without pixels."""
    frames = torch.empty((1, num_frames, 3, height, width), dtype=torch.uint8, device="meta")
    size = SizeDict(shortest_edge=model.min_pixels, longest_edge=model.max_pixels)
    out = processor.resize(frames, size, None, factor=model.factor, temporal_factor=2, **arguments)
    return tuple(out.shape[-2:])


@pytest.mark.parametrize("caps", [False, True])
@pytest.mark.parametrize(
    ("rule", "model", "processor"),
    [(hf.qwen2_5_vl, QWEN25, tf.Qwen2VLVideoProcessor), (hf.qwen3_vl, QWEN3, tf.Qwen3VLVideoProcessor)],
)
def test_the_cap_a_frame_is_the_processors(rule, model, processor, caps):
    for num_frames, height, width in [(300, 1080, 1920), (61, 720, 1280), (2, 100, 90), (768, 2160, 3840)]:
        source = ServerSource(num_frames, 30.0, height, width)
        arguments = {"cap_pixels_per_frame": caps, "do_sample_frames": False}
        plan = rule(source, model, ServerOptions(mm_processor=arguments))
        assert plan.resizes[-1] == resized(processor(), num_frames, height, width, model, cap_pixels_per_frame=caps)


def test_without_a_word_qwen25_takes_every_frame_and_qwen3_two_a_second():
    source = ServerSource(451, 30.0, 720, 1280)
    assert len(hf.qwen2_5_vl(source, QWEN25, ServerOptions()).frame_indices) == 451
    assert len(hf.qwen3_vl(source, QWEN3, ServerOptions()).frame_indices) == 30
    # The chat template's call samples once a rate is given; do_sample_frames overrules it.
    asked = ServerOptions(request={"fps": 1.0})
    assert len(hf.qwen2_5_vl(source, QWEN25, asked).frame_indices) == 14
    kept = ServerOptions(request={"fps": 1.0}, mm_processor={"do_sample_frames": False})
    assert len(hf.qwen2_5_vl(source, QWEN25, kept).frame_indices) == 451


def test_what_the_processor_cannot_do_is_refused():
    source = ServerSource(451, 30.0, 720, 1280)
    both = ServerOptions(mm_processor={"fps": 1.0, "num_frames": 4})
    with pytest.raises(RefusedByServerError, match="exclude each other"):
        hf.qwen3_vl(source, QWEN3, both)
    with pytest.raises(RefusedByServerError, match="neither of its own"):
        hf.qwen2_5_vl(source, QWEN25, ServerOptions(mm_processor={"do_sample_frames": True}))
    with pytest.raises(RefusedByServerError, match="1 sampled frame"):
        hf.qwen3_vl(ServerSource(1, 30.0, 64, 64), QWEN3, ServerOptions())
    with pytest.raises(RefusedByServerError, match="no processor of Nemotron Nano VL 12B v2"):
        hf.nemotron(source, NEMOTRON_12B, ServerOptions())


def test_the_processor_takes_both_edges_of_size_or_none():
    source = ServerSource(60, 30.0, 720, 1280)
    one = ServerOptions(mm_processor={"size": {"longest_edge": 100_000}})
    for rule, model in ((hf.qwen2_5_vl, QWEN25), (hf.qwen3_vl, QWEN3)):
        with pytest.raises(RefusedByServerError, match="Expected both edges"):
            rule(source, model, one)
    frames = torch.zeros((2, 3, 64, 64), dtype=torch.uint8)
    for processor in (tf.Qwen2VLVideoProcessor(), tf.Qwen3VLVideoProcessor()):
        with pytest.raises(ValueError, match="shortest_edge"):
            processor(videos=[frames], size={"longest_edge": 100_000}, do_sample_frames=False)


ARGUMENTS = [
    {},
    {"max_pixels": 20_480},
    {"min_pixels": 409_600},
    {"videos_kwargs": {"max_pixels": 20_480}},
    {"videos_kwargs": {"min_pixels": 409_600}},
    {"videos_kwargs": {"total_pixels": 20_480}},
    {"total_pixels": 20_480},
    {"size": {"shortest_edge": 4096, "longest_edge": 61_440}},
    {"videos_kwargs": {"size": {"shortest_edge": 4096, "longest_edge": 61_440}}},
    {"do_sample_frames": True, "num_frames": 10},
    {"do_sample_frames": True, "num_frames": 10, "fps": None},
    {"do_sample_frames": True, "fps": 1.0},
    {"do_sample_frames": True, "fps": 1.0, "max_frames": 4},
    {"do_sample_frames": True, "fps": 4.0, "min_frames": 40},
    {"do_sample_frames": True, "fps": 1.0, "num_frames": 10},
    {"do_sample_frames": False, "max_frames": 4},
    {"videos_kwargs": {"num_frames": 10, "fps": None, "do_sample_frames": True}},
    {"videos_kwargs": {"num_frames": 10, "do_sample_frames": True}},
    {"videos_kwargs": {"max_frames": 8, "fps": 2.0, "do_sample_frames": True}},
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=json.dumps)
@pytest.mark.parametrize(
    ("checkpoint", "rule", "model"), [("qwen2_5_vl", hf.qwen2_5_vl, QWEN25), ("qwen3_vl", hf.qwen3_vl, QWEN3)]
)
def test_arguments_count_as_the_whole_processor_takes_them(served_checkpoint, checkpoint, rule, model, arguments):
    """Flat and inside videos_kwargs: what is taken, what is dropped, what ends as an error."""
    processor = tf.AutoProcessor.from_pretrained(served_checkpoint(checkpoint))
    source = ServerSource(60, 10.0, 120, 160)
    metadata = {"fps": 10.0, "total_num_frames": 60, "frames_indices": list(range(60))}
    text = "<|vision_start|><|video_pad|><|vision_end|>"
    frames = torch.zeros((60, 3, 120, 160), dtype=torch.uint8)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs = processor(
                text=[text], videos=[frames], video_metadata=[metadata], return_tensors="pt", **arguments
            )
        placeholder = processor.tokenizer.convert_tokens_to_ids("<|video_pad|>")
        own = int((outputs["input_ids"] == placeholder).sum())
    except (TypeError, ValueError):
        own = None
    options = parse_server_options(parse_dialect("hf"), mm_processor_kwargs=json.dumps(arguments))
    try:
        plan = rule(source, model, options)
    except RefusedByServerError:
        plan = None
    assert own == (None if plan is None else plan.total_tokens)
    if plan is None:
        return
    told = " ".join((*plan.notes, *SERVER.option_notes(options)))
    plain = rule(
        source,
        model,
        parse_server_options(
            parse_dialect("hf"),
            mm_processor_kwargs=json.dumps(
                {name: value for name, value in arguments.items() if name in ("do_sample_frames", "fps", "num_frames")}
            ),
        ),
    )
    for name in ("max_frames", "min_frames", "max_pixels", "min_pixels", "total_pixels"):
        if name in arguments and checkpoint == "qwen3_vl":  # which goes by none of them
            assert plan.total_tokens == plain.total_tokens
            assert f"{name} " in told


def test_a_number_of_frames_is_asked_for_as_the_processor_takes_it(evs, served_checkpoint):
    size = ["--height", 120, "--width", 160, "--duration", 6, "--source-fps", 10, "--dialect", "hf"]
    line = ["plan", *size, "--model", served_checkpoint("qwen3_vl"), "--json"]
    code, out, _ = evs(*line, "--mm-processor-kwargs", '{"num_frames": 10}')
    assert code == 6
    assert json.loads(out)["videos"][0]["hint"].startswith('Say that there is no rate: {"num_frames": 10, "fps": null}')
    for way in (["--mm-processor-kwargs", '{"num_frames": 10, "fps": null}'], ["--num-frames", 10]):
        code, out, err = evs(*line, *way)
        assert code == 0, err
        assert len(json.loads(out)["videos"][0]["frames"]) == 10
    code, out, _ = evs("fit", *line[1:-1], "--num-frames", 10, "--context", 5000)
    assert code == 0
    assert "num_frames=10, fps=None" in out
    assert "--num-frames 10" in out


def test_the_rate_of_config_json_prunes_nemotron_alone():
    source = ServerSource(60, 30.0, 720, 1280)
    assert hf.nemotron(source, NEMOTRON_OMNI, ServerOptions()).pruning.q == 0.7
    assert hf.nemotron(source, NEMOTRON_OMNI, ServerOptions(video_pruning_rate=0.2)).pruning.q == 0.2
    assert not hf.qwen3_vl(source, QWEN3, ServerOptions(video_pruning_rate=0.2)).pruning.can_prune
