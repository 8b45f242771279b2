"""Opening a checkpoint: what is no model, a broken configuration, missing processor files, and the known families."""

import json

import pytest
import tiny_frame_models
import tiny_grid_models
import tiny_models
from tiny_models import make_clip

from evs_cli.encoders import embedded
from evs_cli.encoders.base import Clip, EncodeOptions, VideoEncoder
from evs_cli.encoders.registry import FAMILIES, encoder_of, open_encoder
from evs_cli.encoders.source import SHORT_NAMES, ModelSource, resolve_model
from evs_cli.errors import ModelError, UsageError

VLMS = sorted(tiny_models.VLM_BUILDERS)


@pytest.fixture
def copied(tiny_model, tmp_path):
    """``copied("qwen3_vl")``: a copy of a tiny checkpoint that a test may damage."""

    def copy(model_type):
        for file in tiny_model(model_type).iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        return tmp_path

    return copy


def failure(call, *arguments, match):
    """The ``ModelError`` of a call, whose exit code is 4."""
    with pytest.raises(ModelError, match=match) as error:
        call(*arguments)
    assert error.value.exit_code == 4
    return error.value


# ------------------------------------------------------------------------------------------- no such checkpoint


def test_a_folder_without_a_configuration(tmp_path):
    error = failure(resolve_model, str(tmp_path), match=r"^cannot load the model in .*: it has no config\.json\.$")
    assert "save_pretrained" in error.hint


@pytest.mark.parametrize("text", ["", "{", "not json", "\x00\x01", '{"model_type": "dinov2"'])
def test_a_broken_configuration(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    failure(resolve_model, str(tmp_path), match=r"^cannot read config\.json of ")


@pytest.mark.parametrize("text", ["[]", "3", '"dinov2"', "null"])
def test_a_configuration_that_is_no_object(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    failure(resolve_model, str(tmp_path), match=r"^cannot read config\.json of .*: expected a JSON object\.$")


def test_a_configuration_in_another_encoding(tmp_path):
    (tmp_path / "config.json").write_bytes('{"model_type": "dinov2", "x": "é"}'.encode("latin-1"))
    failure(resolve_model, str(tmp_path), match=r"^cannot read config\.json of ")


@pytest.mark.parametrize("name", ["resnet50", "a/b/c", "/no/such/folder", "a b"])
def test_a_name_that_is_nothing(name, monkeypatch):
    """Refused without a question to the hub, with the short names that there are."""
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *_, **__: pytest.fail("asked the hub"))
    error = failure(resolve_model, name, match="^cannot load ")
    assert all(short in error.hint for short in SHORT_NAMES)


def test_an_empty_name_is_not_the_present_folder(tiny_model, monkeypatch):
    monkeypatch.chdir(tiny_model("dinov2"))
    failure(resolve_model, "", match="^cannot load ")


@pytest.mark.parametrize("name", ["./nowhere", "~/model", "/model"])
def test_a_path_that_is_no_folder(name):
    failure(resolve_model, name, match="^cannot load ")


def test_a_hub_that_is_out_of_reach(monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    failure(
        resolve_model,
        "nobody/evs-no-such-model",
        match="^cannot load nobody/evs-no-such-model: the hub is out of reach and its files are not in the cache",
    )


def test_a_short_name_stands_for_its_id(monkeypatch, tmp_path):
    asked = []
    (tmp_path / "snapshots" / "0123abc").mkdir(parents=True)
    path = tmp_path / "snapshots" / "0123abc" / "config.json"
    path.write_text('{"model_type": "qwen3_vl"}')

    def download(location, file, *, revision):
        asked.append((location, file, revision))
        return str(path)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    source = resolve_model("qwen3-vl-8b", revision="main")
    assert asked == [("Qwen/Qwen3-VL-8B-Instruct", "config.json", "main")]
    assert source.revision == "0123abc"  # the commit, which later files are pinned to
    assert source.pretrained_arguments() == {"trust_remote_code": False, "revision": "0123abc"}


def test_code_of_a_checkpoint_is_not_trusted_unasked(tiny_model):
    folder = str(tiny_model("dinov2"))
    assert resolve_model(folder).pretrained_arguments() == {"trust_remote_code": False}
    assert resolve_model(folder, trust_remote_code=True).pretrained_arguments() == {"trust_remote_code": True}


def test_a_folder_goes_before_a_short_name(tiny_model, tmp_path, monkeypatch):
    (tmp_path / "dinov2-small").symlink_to(tiny_model("clip"))
    monkeypatch.chdir(tmp_path)
    assert resolve_model("dinov2-small").model_type == "clip"


# --------------------------------------------------------------------------------------------------- families


@pytest.mark.parametrize("config", [{"model_type": "resnet"}, {}, {"model_type": None}, {"model_type": ["dinov2"]}])
def test_an_unknown_family_lists_the_known_ones(tmp_path, config):
    (tmp_path / "config.json").write_text(json.dumps(config))
    error = failure(open_encoder, str(tmp_path), match=r"^cannot use .*: evs does not know its family .+\. Known: ")
    assert all(family in str(error) for family in FAMILIES)
    assert "evs models" in error.hint


def test_every_family_opens():
    for model_type in FAMILIES:
        encoder = encoder_of(ModelSource(model_type, "nowhere", None, {"model_type": model_type}))
        assert isinstance(encoder, VideoEncoder)
        assert encoder.supported_options


def test_every_family_said_to_be_tested_has_a_tiny_checkpoint():
    """One line in the registry, one builder in a table of the tests."""
    tested = {name for name, family in FAMILIES.items() if family.verified in ("tiny checkpoint", "real weights")}
    tables = (tiny_models.BUILDERS, tiny_grid_models.BUILDERS, tiny_frame_models.BUILDERS)
    assert tested == {name for table in tables for name in table}


@pytest.mark.parametrize("model_type", sorted(tiny_models.BUILDERS))
def test_no_model_takes_the_name_of_another(tiny_model, model_type):
    assert open_encoder(str(tiny_model(model_type))).source.model_type == model_type


# ------------------------------------------------------------------------------------------------- processors


@pytest.mark.parametrize("model_type", VLMS)
@pytest.mark.parametrize("file", ["processor_config.json", "tokenizer.json"])
@pytest.mark.parametrize("content", [None, b"", b'{"a": ', b"{}"])
def test_processor_files_that_are_missing_or_broken(copied, model_type, file, content):
    folder = copied(model_type)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    encoder = open_encoder(str(folder))
    failure(encoder.plan, make_clip(2, 64, 64), EncodeOptions(), match=rf"^cannot load .* \({model_type}\): .+")


@pytest.mark.parametrize("model_type", VLMS)
@pytest.mark.parametrize(
    "template", ["{% if %}", "{{ raise_exception('no videos here') }}", "{{ messages.nothing.x }}"]
)
def test_a_chat_template_that_fails_is_an_error_in_our_words(copied, model_type, template):
    folder = copied(model_type)
    (folder / "chat_template.jinja").write_text(template)
    encoder = open_encoder(str(folder))
    assert encoder.plan(make_clip(2, 64, 64), EncodeOptions()).total_tokens
    failure(encoder.plan, make_clip(2, 64, 64), EncodeOptions(prompt="Who?"), match="chat template")


@pytest.mark.parametrize("model_type", VLMS)
def test_a_chat_template_that_leaves_out_the_video(copied, model_type):
    """The checkpoint's fault, not the user's."""
    folder = copied(model_type)
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'][1]['text'] }}")
    encoder = open_encoder(str(folder))
    failure(encoder.plan, make_clip(2, 64, 64), EncodeOptions(prompt="Who?"), match="^cannot ")


# --------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    "name", ["size", "frame_min_pixels", "frame_max_pixels", "video_min_pixels", "video_max_pixels"]
)
@pytest.mark.parametrize("value", [0, -1])
def test_sizes_are_at_least_one(name, value):
    with pytest.raises(UsageError, match=rf"^Invalid {name} \({value}\)\. Expected an integer of at least 1\."):
        EncodeOptions(**{name: value})


@pytest.mark.parametrize("what", ["frame", "video"])
def test_limits_that_cross_are_refused(what):
    with pytest.raises(UsageError, match=rf"^Invalid {what}_min_pixels \(9\) above {what}_max_pixels \(4\)"):
        EncodeOptions(**{f"{what}_min_pixels": 9, f"{what}_max_pixels": 4})
    assert EncodeOptions(**{f"{what}_min_pixels": 4, f"{what}_max_pixels": 4}).given()


def test_what_was_given_is_told_apart_from_what_was_not():
    assert EncodeOptions().given() == ()
    assert EncodeOptions(prompt="", cap_pixels_per_frame=False).given() == ("prompt", "cap_pixels_per_frame")


def test_the_default_model_is_the_embedded_one_where_it_is_installed():
    if embedded.find_weights() is None:
        pytest.skip("the extra `embedded` is not installed")
    assert resolve_model("dinov2-small").is_embedded
    assert isinstance(resolve_model("dinov2-small").config["patch_size"], int)


def test_a_clip_counts_its_frames():
    assert Clip(4, 6, make_clip(5, 4, 6).pts_seconds, 1.0).num_frames == 5
