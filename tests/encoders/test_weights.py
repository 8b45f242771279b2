"""The vision part's tensors alone are read, from the shards that hold them; what is missing is never made up."""

import json

import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file
from tiny_models import DrawnClip, make_clip

from evs_cli.encoders.base import EncodeOptions
from evs_cli.encoders.registry import open_encoder
from evs_cli.encoders.weights import is_vision_tensor
from evs_cli.errors import ModelError

VLMS = sorted(tiny_models.VLM_BUILDERS)
PLAIN = sorted(tiny_models.PLAIN_BUILDERS)

VISION = [
    "visual.blocks.0.attn.qkv.weight",
    "model.visual.merger.mlp.0.weight",
    "model.visual.deepstack_merger_list.0.linear_fc1.weight",
    "vision_tower.vision_model.encoder.layers.0.self_attn.k_proj.weight",
    "model.vision_tower.encoder.layer.0.attention.q_proj.weight",
    "vision_model.radio_model.model.blocks.0.attn.qkv.weight",
    "multi_modal_projector.linear_1.weight",
    "model.connector.modality_projection.proj.weight",
    "mlp1.0.weight",
    "image_newline",
    "model.image_newline",
    "model.resampler_model.spatial_linear.0.weight",
    "model.video_tower.vision_model.pre_layrnorm.weight",
]
NOT_VISION = [
    "lm_head.weight",
    "model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
    "model.language_model.layers.35.self_attn.q_proj.weight",
    "model.layers.0.mlp.gate_proj.weight",
    "language_model.model.layers.3.input_layernorm.weight",
    "language_model.backbone.layers.1.mixer.in_proj.weight",
    "language_model.backbone.embeddings.weight",
    "language_model.lm_head.weight",
    "model.norm.weight",
    "model.language_model.norm.weight",
    "language_model.model.norm.weight",
    "language_model.backbone.norm_f.weight",
    "mtp.layers.0.self_attn.q_proj.weight",
    "sound_encoder.encoder.layers.0.conv.weight",
    "audio_tower.layers.0.fc1.weight",
]


@pytest.mark.parametrize("name", VISION)
def test_vision_tensors_by_name(name):
    assert is_vision_tensor(name)


@pytest.mark.parametrize("name", NOT_VISION)
def test_other_tensors_by_name(name):
    assert not is_vision_tensor(name)


# ------------------------------------------------------------------------------------------------- what is read


@pytest.fixture
def copied(tiny_model, tmp_path):
    """``copied("qwen3_vl")``: a copy of a tiny checkpoint that a test may damage."""

    def copy(model_type):
        for file in tiny_model(model_type).iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        return tmp_path

    return copy


def rewrite(folder, change):
    """Write the weights again as ``change`` makes them of a state dict."""
    tensors = change(load_file(folder / "model.safetensors"))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def shard(folder, shards):
    """Split the weights into files by ``shards``: a name of a file to a test on a tensor's name."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {name: next(file for file, holds in shards.items() if holds(name)) for name in tensors}
    for file in shards:
        part = {name: tensor for name, tensor in tensors.items() if weight_map[name] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return tensors


def is_text(name):
    """Whether a tensor of a tiny checkpoint is the language model's, its last norm among them."""
    text = ("lm_head", "language_model", "model.language_model", "model.layers", "model.embed_tokens", "model.norm")
    return name.startswith(text)


@pytest.mark.parametrize("model_type", VLMS)
def test_shards_without_vision_are_not_even_opened(tiny_family, copied, model_type):
    """A checkpoint whose language shard is missing gives the same features; the account tells the bytes."""
    folder, family = copied(model_type), tiny_family(model_type)
    tensors = shard(folder, {"a.safetensors": is_text, "b.safetensors": lambda _: True})
    (folder / "a.safetensors").unlink()
    encoder = open_encoder(str(folder))
    account = encoder.load("cpu", torch.float32)
    drawn = DrawnClip(make_clip(3, 90, 120), 1)
    plan = encoder.plan(drawn.clip, EncodeOptions())
    levels, expected = (e.encode(drawn.frames(), plan).levels for e in (encoder, family.encoder))
    for level, whole in zip(levels, expected, strict=True):
        assert torch.equal(level, whole)
    vision = sum(tensor.nbytes for name, tensor in tensors.items() if not is_text(name))
    assert (account.files_read, account.files_total) == (1, 2)
    assert account.bytes_read == vision
    assert account.bytes_total == sum(tensor.nbytes for tensor in tensors.values())
    assert 0 < vision < account.bytes_total


@pytest.mark.parametrize("model_type", VLMS)
def test_the_account_of_a_single_file(tiny_model, model_type):
    folder = tiny_model(model_type)
    account = open_encoder(str(folder)).load("cpu", torch.float32)
    tensors = load_file(folder / "model.safetensors")
    assert account.bytes_read == sum(tensor.nbytes for name, tensor in tensors.items() if not is_text(name))
    assert (account.files_read, account.files_total) == (1, 1)
    assert account.bytes_read < account.bytes_total <= (folder / "model.safetensors").stat().st_size


def test_a_missing_vision_shard_is_named(copied):
    folder = copied("qwen3_vl")
    shard(folder, {"a.safetensors": is_text, "b.safetensors": lambda _: True})
    (folder / "b.safetensors").unlink()
    with pytest.raises(ModelError, match=r"^cannot load .*b\.safetensors is missing") as error:
        open_encoder(str(folder)).load("cpu", torch.float32)
    assert error.value.exit_code == 4


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"weight_map": []}'])
def test_a_broken_index_is_an_error_in_our_words(copied, text):
    folder = copied("qwen3_vl")
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ModelError, match=r"^cannot load"):
        open_encoder(str(folder)).load("cpu", torch.float32)


@pytest.mark.parametrize("shard", ["../../x.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", 3, None, ["a"]])
def test_a_shard_outside_of_its_folder_is_not_read(copied, shard):
    folder = copied("qwen3_vl")
    index = {"weight_map": {"model.visual.patch_embed.proj.weight": shard}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"^cannot load .*which is no file's name"):
        open_encoder(str(folder)).load("cpu", torch.float32)


# ------------------------------------------------------------------------------------------ nothing is made up


def vision_matrix(tensors):
    """Name of a matrix of the vision tower's attention."""
    return next(
        name
        for name, tensor in tensors.items()
        if tensor.ndim == 2 and ("attn" in name or "attention" in name) and not is_text(name) and "text" not in name
    )


@pytest.mark.parametrize("model_type", VLMS + PLAIN)
def test_a_missing_vision_tensor_is_refused(copied, model_type):
    """transformers would draw it at random and only warn, and evs keeps warnings off the terminal."""
    folder = copied(model_type)
    rewrite(folder, lambda tensors: {n: t for n, t in tensors.items() if n != vision_matrix(tensors)})
    with pytest.raises(ModelError, match="missing") as error:
        open_encoder(str(folder)).load("cpu", torch.float32)
    assert error.value.exit_code == 4


@pytest.mark.parametrize("model_type", VLMS + PLAIN)
def test_weights_of_another_model_are_refused(copied, model_type):
    """No tensor by a name that fits: a folder with the wrong weights in it."""
    folder = copied(model_type)
    rewrite(folder, lambda _: {"encoder.weight": torch.zeros(3, 3)})
    with pytest.raises(ModelError, match="missing"):
        open_encoder(str(folder)).load("cpu", torch.float32)


@pytest.mark.parametrize("model_type", VLMS + PLAIN)
def test_a_tensor_of_another_shape_is_refused(copied, model_type):
    folder = copied(model_type)

    def cut(tensors):
        name = vision_matrix(tensors)
        return {**tensors, name: tensors[name][:-1].clone()}

    rewrite(folder, cut)
    with pytest.raises(ModelError, match=r"^cannot load") as error:
        open_encoder(str(folder)).load("cpu", torch.float32)
    assert error.value.exit_code == 4


@pytest.mark.parametrize("model_type", VLMS + PLAIN)
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "no safetensors"])
def test_a_damaged_weights_file_is_an_error_in_our_words(copied, model_type, damage):
    weights = copied(model_type) / "model.safetensors"
    content = weights.read_bytes()
    if damage == "missing":
        weights.unlink()
    else:
        weights.write_bytes({"empty": b"", "cut": content[: len(content) // 2], "no safetensors": b"PK" * 99}[damage])
    with pytest.raises(ModelError, match=r"^cannot load") as error:
        open_encoder(str(weights.parent)).load("cpu", torch.float32)
    assert error.value.exit_code == 4


@pytest.mark.parametrize("model_type", VLMS)
def test_language_weights_may_be_missing(copied, model_type):
    """They are not read, so a checkpoint of the vision part alone will do."""
    folder = copied(model_type)
    rewrite(folder, lambda tensors: {n: t for n, t in tensors.items() if not is_text(n)})
    encoder = open_encoder(str(folder))
    encoder.load("cpu", torch.float32)
    clip = make_clip(2, 64, 64)
    assert encoder.encode(DrawnClip(clip, 0).frames(), encoder.plan(clip, EncodeOptions())).levels[0].isfinite().all()
