"""What is no encoding, or not the one that was written, is refused in a sentence: on opening, or when it is read."""

import json
import os
import sys
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch
from encodings_made import PLACEHOLDER, assert_same, make_encoded, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pruned_made import make_pruned
from safetensors import safe_open
from safetensors.torch import save_file

import evs_cli
from evs_cli.errors import ArtifactError
from evs_cli.files.encoding.container import read_header, write_header
from evs_cli.files.encoding.digests import FRONT_KEY, front_digest
from evs_cli.files.encoding.dtypes import NAMES, bytes_of
from evs_cli.files.encoding.reader import holds_encoding, open_encoding

CROSSING = Path(__file__).resolve().parents[2] / "samples" / "crossing.mp4"


def encoded():
    return make_encoded((4, 2, 3), (5, 6), token_inputs=("kind",), score_dtype=torch.bfloat16, lost_frames=1)


def parts(path):
    """Record and tensors of a file, in the order of its data."""
    with safe_open(path, framework="pt") as file:
        record = json.loads(file.metadata()["evs"])
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    return record, {name: tensors[name] for name in read_header(content[8 : 8 + size]).entries}


def is_rows(name):
    return name in ("embeddings", "deepstack_embeddings.0")


def put_together(path, record, tensors):
    """The file of a record and tensors, however wrong they are, and of the digest that evs would write of them."""
    layout = [(name, NAMES[tensor.dtype], tuple(tensor.shape)) for name, tensor in tensors.items()]
    metadata = {"evs": json.dumps(record)}
    front = [bytes_of(tensor) for name, tensor in tensors.items() if not is_rows(name)]
    with path.open("wb") as file:
        file.write(write_header({**metadata, FRONT_KEY: front_digest(metadata, layout, front)}, layout))
        for tensor in tensors.values():
            file.write(bytes_of(tensor))


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "full.safetensors"
    write(encoded(), path)
    return path


def refused(path, words, *, read=False):
    """It is refused in one line that names the file; with ``read`` only when rows are asked for."""
    if read:
        encoding = open_encoding(path)
        with pytest.raises(ArtifactError, match=words) as caught:
            encoding.at(0.0)
    else:
        with pytest.raises(ArtifactError, match=words) as caught:
            open_encoding(path)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 300
    assert path.name in caught.value.message
    assert caught.value.hint


def test_what_is_put_together_again_is_taken(good):
    """The helper of the tests below changes nothing of itself."""
    before = open_encoding(good).at(0.3)
    put_together(good, *parts(good))
    assert_same(open_encoding(good).at(0.3), before)


def value(key, new):
    return lambda record, tensors: record.__setitem__(key, new)


def nested(key, inner, new):
    return lambda record, tensors: record[key].__setitem__(inner, new)


def without(key):
    return lambda record, tensors: record.pop(key)


def tensor(name, change):
    def apply(record, tensors):
        tensors[name] = change(tensors[name].clone())

    return apply


def item(name, index, new):
    def change(old):
        old[index] = new
        return old

    return tensor(name, change)


def swapped(old):
    old[[3, 4]] = old[[4, 3]]
    return old


CHANGES = {
    "grid of other T": (value("token_grid_thw", [5, 2, 3]), r"not 30 rows"),
    "grid turned": (value("token_grid_thw", [4, 3, 2]), "dissimilarity"),
    "grid of floats": (value("token_grid_thw", [4.0, 2, 3]), "token_grid_thw"),
    "no grid": (without("token_grid_thw"), "token_grid_thw is missing"),
    "frame size of one": (value("frame_size", [28]), "frame_size"),
    "frame size of text": (value("frame_size", "big"), "frame_size"),
    "merge of 0": (value("spatial_merge_size", 0), "spatial_merge_size"),
    "tubelets of 2": (value("temporal_patch_size", 2), "do not fill the grid"),
    "another placeholder": (value("placeholder_token_id", 8), "placeholders"),
    "modality of 1": (value("modality", 1), "modality"),
    "batched of 1": (value("features_are_batched", 1), "features_are_batched"),
    "scores in int8": (value("score_dtype", "int8"), "score_dtype"),
    "scores that are finer": (item("dissimilarity", (1, 0, 0), 0.1234567), "dissimilarity is no bfloat16"),
    "zero frame outside": (value("zero_frames", [4]), "zero_frames"),
    "zero frames down": (value("zero_frames", [2, 1]), "zero_frames"),
    "no provenance": (without("provenance"), "provenance is missing"),
    "provenance of a list": (value("provenance", []), "provenance"),
    "model of text": (nested("provenance", "model", "x"), r"provenance\.model"),
    "no configuration": (nested("model", "config", None), r"model\.config"),
    "model with a rate of 1": (nested("model", "default_pruning_rate", 1), "default_pruning_rate"),
    "model that tells nothing": (value("model", {}), r"model\.default_pruning_rate"),
    "no word of the model's rate": (lambda record, tensors: record["model"].pop("default_pruning_rate"), "_rate"),
    "a placeholder that no id is": (value("placeholder_token_id", 10**30), "placeholder"),
    "frames that repeat, in words": (nested("provenance", "reused_frames", "x"), r"provenance\.reused_frames"),
    "fewer frames that repeat than none": (nested("provenance", "reused_frames", -1), r"provenance\.reused_frames"),
    "checksums of another length": (tensor("embeddings.crc32", lambda old: old[1:]), r"embeddings\.crc32"),
    "planned fewer frames": (nested("planned", "token_grid_thw", [3, 2, 3]), "planned"),
    "planned other places": (nested("planned", "token_grid_thw", [4, 2, 4]), "planned"),
    "planned fewer ids": (nested("planned", "sequence_length", 3), "planned"),
    "planned text": (nested("planned", "num_sampled_frames", "many"), "planned"),
    "planned of nothing": (value("planned", {}), "planned"),
    "store of nothing": (value("store", {}), "store"),
    "store of other sizes": (nested("store", "dims", [5, 7]), "not 24 rows"),
    "store of one level": (nested("store", "dims", [5]), "store"),
    "store of three": (nested("store", "num_model_levels", 1), "store"),
    "store of another dtype": (nested("store", "dtype", "bfloat16"), "is not bfloat16"),
    "encoded in int8": (nested("store", "embedding_dtype", "int8"), "embedding_dtype"),
    "encoded in bfloat16": (nested("store", "embedding_dtype", "bfloat16"), "extra_embeddings"),
    "errors of text": (nested("store", "errors", ["a", "b"]), r"store\.errors"),
    "ids moved": (item("input_ids", 0, PLACEHOLDER), "placeholders of input_ids"),
    "an id in a span": (item("input_ids", 4, 1), "placeholders of input_ids"),
    "a position outside": (item("token_positions", -1, 999), "token_positions"),
    "positions down": (tensor("token_positions", lambda old: old.flip(0)), "token_positions"),
    "an extra on a token": (item("extra_positions", 0, 4), "extra row|extra_positions"),
    "an extra below 0": (item("extra_positions", 0, -1), "extra_positions"),
    "ids of int32": (tensor("input_ids", lambda old: old.int()), "input_ids"),
    "ids without a dimension": (tensor("input_ids", lambda old: old[0].clone()), r"input_ids is \(\) int64"),
    "an id less": (tensor("input_ids", lambda old: old[:-1]), "position_ids|token_inputs|input_ids"),
    "positions of two rows": (tensor("position_ids", lambda old: old[:2]), "position_ids"),
    "inputs of another length": (tensor("token_inputs.kind", lambda old: old[1:]), "token_inputs"),
    "times down": (tensor("pts_seconds", lambda old: old.flip(0)), "pts_seconds descend"),
    "a time that is nan": (item("prompt_seconds", 0, float("nan")), "prompt_seconds"),
    "frames below 0": (item("frame_indices", 0, -1), "frame_indices"),
    "frame 0 with a score": (item("dissimilarity", (0, 0, 0), 1.0), "frame 0"),
    "a score that is nan": (item("dissimilarity", (1, 0, 0), float("nan")), "dissimilarity"),
    "an own score that is infinite": (item("own_dissimilarity", (1, 0, 0), float("inf")), "own_dissimilarity"),
    "two tokens swapped": (tensor("token_index", swapped), "token_index"),
    "a token twice": (item("token_index", 3, 0), "token_index"),
    "a token outside": (item("token_index", 3, 24), "token_index"),
    "a token below 0": (item("token_index", 3, -1), "token_index"),
    "extra rows that are nan": (item("extra_embeddings", (0, 0), float("nan")), "extra_embeddings"),
    "something else": (lambda record, tensors: tensors.update({"a": torch.zeros(1)}), "the rows do not come last"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_file_that_contradicts_itself(good, name):
    change, words = CHANGES[name]
    record, tensors = parts(good)
    change(record, tensors)
    put_together(good, record, tensors)
    refused(good, words)


@pytest.mark.parametrize("name", ["embeddings", "deepstack_embeddings.0", "dissimilarity", "input_ids", "token_index"])
def test_a_tensor_less(good, name):
    record, tensors = parts(good)
    del tensors[name]
    put_together(good, record, tensors)
    refused(good, name.split(".")[0])


def test_a_tensor_that_no_encoding_holds(good):
    record, tensors = parts(good)
    put_together(good, record, {"a": torch.zeros(2, dtype=torch.int64), **tensors})
    refused(good, "a is nothing that an encoding holds")


def test_rows_that_are_damaged_are_told_when_they_are_read(good):
    """Rows are not read before, so a file with a bad end serves the rates in front of it."""
    record, tensors = parts(good)
    tensors["embeddings"][-1, 0] += 1
    put_together(good, record, tensors)
    refused(good, "rows of embeddings are not those that were written", read=True)
    with open_encoding(good) as encoding:
        assert_same(encoding.at(0.5), encoded().prune(0.5))


@pytest.mark.parametrize("store_dtype", [None, torch.bfloat16, torch.int8, torch.float8_e4m3fn])
def test_a_single_bit_anywhere_is_told(tmp_path, store_dtype):
    """Of a row when it is read, of everything else when the file is opened."""
    good = tmp_path / "good.safetensors"
    write(encoded(), good, store_dtype=store_dtype)
    content = good.read_bytes()
    _, tensors = parts(good)
    rows_start = len(content) - sum(tensor.nbytes for name, tensor in tensors.items() if is_rows(name))
    generator = np.random.default_rng(0)
    places = [*range(8, rows_start, 7), *range(rows_start, len(content), 5)]
    for place in places:
        bad = bytearray(content)
        bad[place] ^= 1 << int(generator.integers(8))
        good.write_bytes(bad)
        if place < rows_start:
            with pytest.raises(ArtifactError):
                open_encoding(good)
        else:
            refused(good, "are not those that were written", read=True)


def test_a_newer_schema(good):
    record, tensors = parts(good)
    put_together(good, {**record, "schema_version": 2}, tensors)
    refused(good, "schema_version 2. Expected 1")


@pytest.mark.parametrize("change", [lambda content: content[:-1], lambda content: content + b"\0"])
def test_a_file_that_was_cut_or_added_to(good, change):
    size = good.stat().st_size
    good.write_bytes(change(good.read_bytes()))
    refused(good, rf"bytes long, {size:,} were written")


FOREIGN = {
    "empty": lambda path: path.write_bytes(b""),
    "short": lambda path: path.write_bytes(b"\x10\0\0"),
    "text": lambda path: path.write_text("not a file of evs\n" * 100),
    "noise": lambda path: path.write_bytes(np.random.default_rng(0).bytes(5000)),
    "video": lambda path: path.write_bytes(CROSSING.read_bytes()),
    "weights": lambda path: save_file({"weight": torch.zeros(3, 4)}, path),
    "other metadata": lambda path: save_file({"weight": torch.zeros(3, 4)}, path, metadata={"evs": "[]"}),
    "no json": lambda path: save_file({"weight": torch.zeros(3, 4)}, path, metadata={"evs": "{"}),
    "kind alone": lambda path: save_file({"a": torch.zeros(1)}, path, metadata={"evs": '{"kind": "encoding"}'}),
    "schema alone": lambda path: save_file(
        {"a": torch.zeros(1)}, path, metadata={"evs": '{"kind": "encoding", "schema_version": 1}'}
    ),
    "deep": lambda path: path.write_bytes((200_000).to_bytes(8, "little") + b"[" * 200_000),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_that_is_no_encoding(tmp_path, name):
    path = tmp_path / f"{name}.safetensors"
    FOREIGN[name](path)
    refused(path, "cannot (read|use)")
    assert holds_encoding(str(path)) == ("alone" in name)


def test_a_file_that_is_not_there(tmp_path):
    for path in (tmp_path / "none.safetensors", "memory://none.safetensors", f"file://{tmp_path}/none.safetensors"):
        with pytest.raises(ArtifactError, match=r"cannot read .*none\.safetensors: no such file"):
            open_encoding(path)
    with pytest.raises(ArtifactError, match="is a directory"):
        open_encoding(tmp_path)


def test_a_pruned_video_and_an_encoding_are_told_apart(good, tmp_path):
    for suffix in (".pt", ".safetensors"):
        evs_cli.save(make_pruned(), tmp_path / f"pruned{suffix}")
        refused(tmp_path / f"pruned{suffix}", r"as an encoding: .*a pruned video, which `evs prune` wrote")
    with pytest.raises(ArtifactError, match=r"as a pruned video: it is a whole encoding, which `evs encode` wrote"):
        evs_cli.load(good)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_anywhere_is_refused_in_words_or_harmless(tmp_path, data):
    """Bytes changed, cut out or put in: ArtifactError, or the video that was encoded; never another error."""
    good = tmp_path / "good.safetensors"
    if not good.exists():
        write(encoded(), good)
    content = bytearray(good.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place : place + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=40))
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(content)
    try:
        with open_encoding(bad) as encoding:
            pruned = encoding.at(0.5)
    except ArtifactError as error:
        assert "\n" not in error.message  # noqa: PT017 - it need not be raised
        return
    assert_same(pruned, encoded().prune(0.5))


# Files elsewhere.


def test_without_fsspec_a_url_is_refused_and_a_file_is_read(good, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(
        ArtifactError, match=r"cannot read s3://bucket/full\.safetensors: fsspec is not installed"
    ) as no:
        open_encoding("s3://bucket/full.safetensors")
    assert "pip install fsspec" in no.value.hint
    assert open_encoding(good).at(0.5).retained_tokens == 12


def test_a_scheme_that_is_not_known_or_not_installed():
    for url, words in (("nosuch://a/full.safetensors", "nosuch"), ("s3://bucket/full.safetensors", "s3fs")):
        with pytest.raises(ArtifactError, match=words) as caught:
            open_encoding(url)
        assert "\n" not in caught.value.message


def test_a_file_that_is_cut_while_it_is_open(good):
    """Touching what is gone from under a memory map would end the program."""
    with open_encoding(good) as encoding:
        os.truncate(good, good.stat().st_size - 5000)
        with pytest.raises(ArtifactError, match=r"full\.safetensors: it was cut while it was open"):
            encoding.at(0.0)


def test_a_server_that_does_not_answer_is_told_from_a_file_that_is_not_there():
    class Silent(fsspec.AbstractFileSystem):
        protocol = "silent"

        def info(self, path, **_):
            raise FileNotFoundError(path) from ConnectionError("nobody listens there")

    fsspec.register_implementation("silent", Silent, clobber=True)
    with pytest.raises(ArtifactError, match=r"no such file \(nobody listens there\)"):
        open_encoding("silent://full.safetensors")


def test_a_file_that_breaks_off_on_the_way(good):
    """A server that gives less than was asked for is no file that is short."""
    files = fsspec.filesystem("memory")
    files.pipe_file("/full.safetensors", good.read_bytes())
    encoding = open_encoding("memory://full.safetensors")
    assert_same(encoding.at(0.0), encoded().prune(0.0))
    files.pipe_file("/full.safetensors", good.read_bytes()[:-100])
    with pytest.raises(ArtifactError, match=r"cannot read full\.safetensors: \d+ bytes were asked for, \d+ came"):
        encoding.at(0.0)
