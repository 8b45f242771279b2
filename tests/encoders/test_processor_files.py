"""Plans from a checkpoint's files alone against plans by its own processor: every field, every id."""

import json
import shutil
from dataclasses import fields

import numpy as np
import pytest
import transformers as tf
from fresh_python import ROOT, run_evs
from hypothesis import given
from hypothesis import strategies as st
from served_models import CLIPS, cases, qwen_like_tokenizer
from tiny_frame_models import frame_family
from tiny_grid_models import grid_family
from tiny_models import clips, make_clip, profile

from evs_cli.core.placeholders import SequenceLayout
from evs_cli.dialects import parse_dialect
from evs_cli.dialects.base import RefusedByServerError, ServerOptions, ServerSource
from evs_cli.dialects.served import ServedPlanner, SourceTimes
from evs_cli.encoders.base import EncodeOptions
from evs_cli.encoders.processor_defaults import CLASSES, FIELDS, MODEL_FIELDS
from evs_cli.encoders.processor_files import ProcessorFiles, read_processor, read_tokenizer_files
from evs_cli.encoders.registry import open_encoder
from evs_cli.encoders.source import resolve_model
from evs_cli.errors import EvsError, UsageError
from evs_cli.video.sampling import SamplingRequest

SAMPLE = "samples/crossing.mp4"
TINY = ("qwen2_5_vl", "qwen3_vl", "nemotron_h_omni")
GRIDS = ("qwen2_vl", "qwen3_vl_moe", "glm4v", "glm4v_moe", "glm46v")
READ = (*TINY, *GRIDS, "internvl")
DIALECTS = ("hf", "vllm", "sglang")


@pytest.fixture(scope="session")
def checkpoint(tiny_model):
    """The folder of a family's tiny checkpoint."""

    def folder_of(model_type):
        if model_type in TINY:
            return tiny_model(model_type)
        return (frame_family if model_type == "internvl" else grid_family)(model_type).folder

    return folder_of


@pytest.fixture(scope="session")
def both(checkpoint):
    """Of a family the encoder that reads files, and the one that asks the processor."""
    made = {}

    def pair(model_type):
        if model_type not in made:
            name = str(checkpoint(model_type))
            made[model_type] = open_encoder(name, counts_alone=True), open_encoder(name)
        return made[model_type]

    return pair


def assert_same(ours, theirs, path="plan"):
    """Two plans agree in every field, arrays to the bit and type."""
    assert type(ours) is type(theirs), path
    if isinstance(ours, np.ndarray):
        assert ours.dtype == theirs.dtype, path
        np.testing.assert_array_equal(ours, theirs, err_msg=path)
    elif isinstance(ours, SequenceLayout) or hasattr(ours, "layout"):
        for each in fields(ours):
            assert_same(getattr(ours, each.name), getattr(theirs, each.name), f"{path}.{each.name}")
    elif isinstance(ours, dict):
        assert ours.keys() == theirs.keys(), path
        for key in ours:
            assert_same(ours[key], theirs[key], f"{path}[{key!r}]")
    else:
        assert ours == theirs, path


def outcome(plan):
    """A plan, or the words of its error."""
    try:
        return plan()
    except EvsError as error:
        return type(error), error.message, error.hint


OPTIONS = st.sampled_from(
    [
        {},
        {"prompt": "What moves?"},
        {"prompt": "日本語 <b> 12.5 seconds\n", "system": "Be brief."},
        {"cap_pixels_per_frame": True},
        {"frame_max_pixels": 28 * 28 * 6, "prompt": "x"},
        {"video_max_pixels": 32 * 32 * 40, "video_min_pixels": 32 * 32 * 4},
    ]
)


@pytest.mark.parametrize("model_type", READ)
def test_a_plan_from_files_is_the_processors(both, model_type):
    light, heavy = both(model_type)
    assert isinstance(light.plan_processor, ProcessorFiles)
    assert not isinstance(heavy.plan_processor, ProcessorFiles)
    assert light.sampling_defaults == heavy.sampling_defaults

    @profile(150)
    @given(drawn=clips(), asked=OPTIONS)
    def agrees(drawn, asked):
        options = EncodeOptions(**asked)
        assert_same(*(outcome(lambda each=each: each.plan(drawn.clip, options)) for each in (light, heavy)))

    agrees()


@pytest.mark.parametrize("model_type", READ)
def test_a_settled_size_is_kept(both, model_type):
    clip = clips_of(5)
    side = both(model_type)[1].plan(clip, EncodeOptions()).frame_size
    assert_same(*(each.plan(clip, EncodeOptions(), frame_size=side) for each in both(model_type)))


def clips_of(num_frames):
    return make_clip(num_frames, 90, 120, fps=3.0, start=7.0)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("model_type", [name for name in READ if name != "qwen2_vl"])
def test_a_servers_plan_from_files_is_the_processors(both, model_type, dialect):
    try:
        planners = [
            ServedPlanner(parse_dialect(dialect), each, ServerOptions(), SamplingRequest()) for each in both(model_type)
        ]
    except UsageError:  # a server without rules for the family, whichever way it is read
        with pytest.raises(UsageError, match="no rules"):
            ServedPlanner(parse_dialect(dialect), both(model_type)[1], ServerOptions(), SamplingRequest())
        return
    assert planners[0].model == planners[1].model

    def served(planner, source, asked):
        true = SourceTimes(np.arange(source.num_frames) / source.average_fps, source.duration_seconds)
        try:
            return planner.plan(source, true, SamplingRequest(), EncodeOptions(**asked))
        except RefusedByServerError as error:
            return error.message

    @cases(100, daily=15)
    @given(source=CLIPS.filter(lambda source: source.num_frames <= 2000), asked=OPTIONS)
    def agrees(source, asked):
        asked = {name: value for name, value in asked.items() if name in ("prompt", "system")}
        ours, theirs = (served(planner, source, asked) for planner in planners)
        assert type(ours) is type(theirs)
        if isinstance(ours, str):
            assert ours == theirs
            return
        assert_same(ours.encode, theirs.encode)
        assert (ours.notes, ours.outer_tokens) == (theirs.notes, theirs.outer_tokens)
        np.testing.assert_array_equal(ours.selection.frame_indices, theirs.selection.frame_indices)

    agrees()


# ------------------------------------------------------------------------------------------------ the classes' own


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_defaults_are_those_of_the_class(name):
    made = getattr(tf, name)()
    for field, default in FIELDS[name].items():
        own = getattr(made, field)
        assert (dict(own) if field == "size" else own) == (dict(default) if field == "size" else default), field


@pytest.mark.parametrize("model_type", sorted(MODEL_FIELDS))
def test_defaults_are_those_of_the_configuration(model_type):
    config = tf.CONFIG_MAPPING[model_type]()
    known = dict(MODEL_FIELDS[model_type])
    vision = known.pop("vision_config")
    assert {name: tuple(getattr(config.vision_config, name)) for name in vision} == dict(vision)
    assert {name: getattr(config, name) for name in known} == known


@pytest.mark.parametrize("model_type", sorted(CLASSES))
def test_a_family_has_the_classes_that_transformers_maps_it_to(model_type):
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES
    from transformers.models.auto.video_processing_auto import VIDEO_PROCESSOR_MAPPING_NAMES

    known = CLASSES[model_type]
    assert PROCESSOR_MAPPING_NAMES[model_type] == known.processor[0]
    for names, mapping in ((known.video, VIDEO_PROCESSOR_MAPPING_NAMES), (known.image, IMAGE_PROCESSOR_MAPPING_NAMES)):
        if model_type in mapping:  # glm4v_moe has none: its files name their classes
            assert mapping[model_type]["torchvision"] == names[0]


# --------------------------------------------------------------------------------------- files as they are published


def qwen2_class_tokenizer():
    """A tokenizer with the pipeline of Qwen's own class, saved as the published ones are: under that class's name."""
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
    specials += ["<|image_pad|>", "<|video_pad|>"]
    plain = qwen_like_tokenizer(specials)
    state = json.loads(plain.to_str())
    merges = [tuple(merge) for merge in state["model"]["merges"]]
    return tf.Qwen2Tokenizer(vocab=state["model"]["vocab"], merges=merges, extra_special_tokens=specials[1:])


@pytest.fixture
def published(tmp_path, checkpoint):
    """A checkpoint of Qwen2.5-VL with the files that the published one has."""
    folder = tmp_path / "published"
    shutil.copytree(checkpoint("qwen2_5_vl"), folder)
    for name in ("processor_config.json", "chat_template.jinja", "tokenizer.json", "tokenizer_config.json"):
        template = (folder / "chat_template.jinja").read_text() if name == "chat_template.jinja" else None
        if template is not None:
            (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}), encoding="utf-8")
        (folder / name).unlink()
    tokenizer = qwen2_class_tokenizer()
    tokenizer.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        json.dumps(
            {
                "min_pixels": 3136,
                "max_pixels": 12_845_056,
                "patch_size": 14,
                "temporal_patch_size": 2,
                "merge_size": 2,
                "image_processor_type": "Qwen2VLImageProcessor",
                "processor_class": "Qwen2_5_VLProcessor",
            }
        ),
        encoding="utf-8",
    )
    write_json(folder / "config.json", **ids_of(tokenizer))
    return folder


def ids_of(tokenizer):
    named = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
    named |= {f"vision_{end}_token_id": f"<|vision_{end}|>" for end in ("start", "end")}
    return {name: tokenizer.convert_tokens_to_ids(text) for name, text in named.items()}


def write_json(path, **changes):
    """Change fields of a JSON file; None takes one out."""
    values = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    values = {name: value for name, value in (values | changes).items() if value is not None}
    path.write_text(json.dumps(values), encoding="utf-8")


def test_published_files_are_read(published):
    light, heavy = open_encoder(str(published), counts_alone=True), open_encoder(str(published))
    assert isinstance(light.plan_processor, ProcessorFiles)
    assert type(heavy.processor.tokenizer).__name__ == "Qwen2Tokenizer"
    assert light.plan_processor.video_processor.size == {"shortest_edge": 3136, "longest_edge": 12_845_056}
    for options in (EncodeOptions(), EncodeOptions(prompt="It's 12.5 seconds.\n\n ok", system="Hi")):
        assert_same(light.plan(clips_of(5), options), heavy.plan(clips_of(5), options))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("preprocessor_config.json", {"auto_map": {"AutoProcessor": "code.Processor"}}),
        ("preprocessor_config.json", {"image_processor_type": "OtherImageProcessor"}),
        ("preprocessor_config.json", {"processor_class": "Qwen3VLProcessor"}),
        ("preprocessor_config.json", {"do_resize": False}),
        ("preprocessor_config.json", {"size": {"height": 28, "width": 28}}),
        ("video_preprocessor_config.json", {"video_processor_type": "OtherVideoProcessor"}),
        ("tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer"}),
        ("tokenizer_config.json", {"split_special_tokens": True}),
        ("tokenizer_config.json", {"add_prefix_space": True}),
        ("tokenizer_config.json", {"bos_token": "<new>"}),
        ("tokenizer_config.json", {"extra_special_tokens": ["<|image_pad|>", "<new>"]}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"3": {"content": "<new>"}}}),
        ("chat_template.json", {"chat_template": "{% generation %}x{% endgeneration %}"}),
        ("chat_template.json", {"chat_template": ["x"]}),
        ("config.json", {"model_type": "qwen9_vl"}),
    ],
    ids=str,
)
def test_files_that_leave_room_for_doubt_are_left_to_transformers(published, name, changes):
    assert read_processor(resolve_model(str(published))) is not None
    write_json(published / name, **changes)
    assert read_processor(resolve_model(str(published))) is None


@pytest.mark.parametrize("name", ["tokenizer.json", "preprocessor_config.json", "tokenizer_config.json"])
def test_damaged_and_missing_files_are_left_to_transformers(published, name):
    (published / name).write_text("{", encoding="utf-8")
    assert read_processor(resolve_model(str(published))) is None
    (published / name).unlink()
    assert read_processor(resolve_model(str(published))) is None


def test_another_release_of_transformers_reads_its_own_way(published, monkeypatch):
    from packaging.version import Version

    monkeypatch.setattr("evs_cli.encoders.processor_files.transformers_release", lambda: Version("5.25.1"))
    assert read_processor(resolve_model(str(published))) is None


def test_code_of_the_checkpoint_runs_where_it_is_allowed(published):
    assert read_processor(resolve_model(str(published), trust_remote_code=True)) is None


def test_a_class_that_builds_its_own_pipeline_is_not_read_from_another(checkpoint):
    """Qwen3.5's class is taken whatever the files name, and a tokenizer of plain bytes becomes another one by it."""
    folder = grid_family("qwen3_5").folder
    assert read_processor(resolve_model(str(folder))) is None
    light, heavy = open_encoder(str(folder), counts_alone=True), open_encoder(str(folder))
    assert_same(light.plan(clips_of(5), EncodeOptions()), heavy.plan(clips_of(5), EncodeOptions()))


def test_a_checkpoint_without_a_processor_has_its_tokenizer_read(served_checkpoint):
    folder = str(served_checkpoint("nemotron_12b"))
    light, heavy = open_encoder(folder, counts_alone=True), open_encoder(folder)
    assert read_tokenizer_files(light.source) is not None
    planners = [
        ServedPlanner(parse_dialect("vllm"), each, ServerOptions(), SamplingRequest()) for each in (light, heavy)
    ]
    source = ServerSource(57, 24.0, 90, 120)
    true = SourceTimes(np.arange(57) / 24.0, 57 / 24)
    plans = [each.plan(source, true, SamplingRequest(), EncodeOptions(prompt="Why?")) for each in planners]
    assert_same(plans[0].encode, plans[1].encode)


# ------------------------------------------------------------------------------------------------------- what is loaded


@pytest.mark.parametrize("model_type", [name for name in READ if name != "qwen2_vl"])
def test_a_plan_loads_neither_torch_nor_transformers(tmp_path, checkpoint, model_type):
    arguments = ("plan", str(ROOT / SAMPLE), "--model", str(checkpoint(model_type)), "--dialect", "all")
    done, loaded = run_evs(tmp_path, *arguments, "--prompt", "What moves?", "--fps", "1")
    assert "evs" in done.stdout, done.stderr
    assert not loaded & {"torch", "torchvision", "transformers", "decord"}
    assert {"tokenizers", "jinja2"} <= loaded
