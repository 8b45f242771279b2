"""The file of a whole encoding: any rate of it is a fresh prune bit for bit, and costs a read of its K rows."""

import itertools
import json
import zlib

import fsspec
import pytest
import torch
from drawn_cases import tried_on
from encodings_made import assert_same, make_encoded, write
from fsspec.implementations.local import LocalFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from evs_cli.core.counts import compute_retained_tokens_count
from evs_cli.core.methods import RetentionRule
from evs_cli.errors import ArtifactError, UsageError
from evs_cli.files.encoding import row_reads, row_spool
from evs_cli.files.encoding.reader import open_encoding

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
FRESH = itertools.count()


class CountingFileSystem(LocalFileSystem):
    """Local files under another name, which tells what was read of them and reads ranges alone."""

    protocol = "counting"
    cachable = False
    read = ()

    def cat_file(self, path, start=None, end=None, **_):
        with open(self._strip_protocol(path), "rb") as file:  # noqa: PTH123
            file.seek(start)
            data = file.read(end - start)
        type(self).read += ((start, len(data)),)
        return data

    def _open(self, path, **_):
        pytest.fail(f"{path} was opened whole")

    @classmethod
    def _strip_protocol(cls, path):
        return path.removeprefix("counting://")


fsspec.register_implementation("counting", CountingFileSystem, clobber=True)


@st.composite
def drawn_encodings(draw):
    """Encodings with everything a family may have, many with tied scores; and how they are cut into chunks."""
    encoded = make_encoded(
        grid=(draw(st.integers(1, 9)), draw(st.integers(1, 4)), draw(st.integers(1, 5))),
        dims=draw(st.sampled_from([(1,), (7,), (4, 4), (3, 3, 3)])),
        dtype=draw(st.sampled_from(DTYPES)),
        score_dtype=draw(st.sampled_from([None, None, torch.float32, torch.bfloat16])),
        num_extras=draw(st.integers(0, 3)),
        positions=draw(st.sampled_from([0, 1, 3])),
        token_inputs=draw(st.sampled_from([(), ("zebra", "ant")])),
        tubelet=draw(st.integers(1, 2)),
        lost_frames=draw(st.integers(0, 2)),
        values=draw(st.sampled_from([None, 1, 2, 3])),
        seed=draw(st.integers(0, 2**16)),
    )
    return encoded, draw(st.integers(1, 9))


@tried_on(200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=drawn_encodings(), q=st.floats(0, 0.999), is_remote=st.booleans())
def test_any_rate_is_a_fresh_prune(tmp_path, drawn, q, is_remote):
    encoded, chunk = drawn
    path = tmp_path / f"{next(FRESH)}.safetensors"
    size = write(encoded, path, chunk=chunk)
    assert size == path.stat().st_size
    with open_encoding(f"counting://{path}" if is_remote else path) as encoding:
        assert encoding.size_bytes == size
        for rate in (q, 0.0):
            assert_same(encoding.at(rate), encoded.prune(rate))
        assert encoding.video.tokens_moved_by_score_dtype(q) == encoded.tokens_moved_by_score_dtype(q)
    path.unlink()


@tried_on(200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=drawn_encodings(), q=st.floats(0, 0.999))
def test_a_rate_reads_its_rows_and_the_front(tmp_path, drawn, q):
    """Every byte in front of the rows once, then the first K rows of every level once, and nothing else."""
    encoded, chunk = drawn
    path = tmp_path / f"{next(FRESH)}.safetensors"
    write(encoded, path, chunk=chunk)
    CountingFileSystem.read = ()
    encoding = open_encoding(f"counting://{path}")
    front = CountingFileSystem.read
    assert [start for start, _ in front] == [0, 8, front[1][0] + front[1][1]]
    assert sum(size for _, size in front) == encoding.front_bytes
    CountingFileSystem.read = ()
    encoding.at(q)
    num_frames, height, width = encoded.actual.token_grid_thw
    retained = compute_retained_tokens_count(height * width, num_frames, q)
    start, expected = encoding.front_bytes, []
    for level in encoded.levels:
        row_bytes = level.shape[-1] * level.element_size()
        expected.append((start, retained * row_bytes))
        start += num_frames * height * width * row_bytes
    assert list(CountingFileSystem.read) == expected
    assert start == path.stat().st_size
    path.unlink()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=drawn_encodings(), q=st.floats(0, 0.99), floor=st.floats(0, 1), seed=st.integers(0, 9))
def test_other_rules_are_a_fresh_prune_too(tmp_path, drawn, q, floor, seed):
    encoded, chunk = drawn
    path = tmp_path / f"{next(FRESH)}.safetensors"
    write(encoded, path, chunk=chunk)
    with open_encoding(path) as encoding:
        for rule in (
            RetentionRule(min_dissimilarity=floor),
            RetentionRule("uniform-frames"),
            RetentionRule("random", seed=seed),
        ):
            assert_same(encoding.at(q, rule), encoded.prune(q, rule))
    path.unlink()


def test_blocks_and_gaps_of_reads_do_not_show(tmp_path, monkeypatch):
    """Rows come in several reads where there are many, or where they lie far apart."""
    encoded = make_encoded((40, 4, 5), (6, 6))
    path = tmp_path / "full.safetensors"
    for block in (1, 100, 1000):
        monkeypatch.setattr(row_spool, "_BLOCK_BYTES", block)
        monkeypatch.setattr(row_reads, "_BLOCK_BYTES", block)
        for gap in (1, 60, 1 << 16):
            monkeypatch.setattr(row_reads, "_GAP_BYTES", gap)
            write(encoded, path)
            with open_encoding(f"counting://{path}") as encoding:
                CountingFileSystem.read = ()
                for rule in (RetentionRule(), RetentionRule("random")):
                    assert_same(encoding.at(0.7, rule), encoded.prune(0.7, rule))
                reads = CountingFileSystem.read
                assert len(reads) > 4
                assert all(size <= max(block, 24) for _, size in reads)


def test_rows_may_be_asked_for_twice_and_in_any_order(tmp_path):
    encoded = make_encoded((6, 2, 3), (5, 5))
    write(encoded, tmp_path / "full.safetensors")
    with open_encoding(tmp_path / "full.safetensors") as encoding:
        for tokens in ([3, 3, 3], [35, 0, 7, 0], [0, 2, 2], list(range(36)), []):
            index = torch.tensor(tokens, dtype=torch.int64)
            for level in (0, 1):
                assert torch.equal(encoding.video.rows_of(index, level), encoded.levels[level].reshape(36, 5)[index])


def test_rows_outlive_the_file(tmp_path):
    encoded = make_encoded()
    path = tmp_path / "full.safetensors"
    write(encoded, path)
    with open_encoding(path) as encoding:
        pruned = encoding.at(0.5)
    path.write_bytes(b"")
    assert_same(pruned, encoded.prune(0.5))


# The file itself.


def test_it_is_a_safetensors_file_with_rows_in_rank_order(tmp_path):
    encoded = make_encoded((5, 2, 3), (5, 7), dtype=torch.bfloat16, token_inputs=("kind",))
    path = tmp_path / "full.safetensors"
    write(encoded, path)
    with safe_open(path, framework="pt") as file:
        assert set(file.metadata()) == {"evs", "evs_front_sha256"}
        record = json.loads(file.metadata()["evs"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
    assert list(record) == sorted(record)
    assert list(record["provenance"]) == sorted(record["provenance"])
    order = encoded.ranking.dissimilarity.flatten().argsort(descending=True, stable=True)
    assert torch.equal(tensors["token_index"].long(), order)
    assert torch.equal(tensors["embeddings"], encoded.levels[0].reshape(30, 5)[order])
    assert torch.equal(tensors["deepstack_embeddings.0"], encoded.levels[1].reshape(30, 7)[order])
    sums = [zlib.crc32(row.view(torch.uint8).numpy().tobytes()) for row in tensors["embeddings"]]
    assert [number % 2**32 for number in tensors["embeddings.crc32"].tolist()] == sums
    assert torch.equal(tensors["dissimilarity"], encoded.ranking.dissimilarity.float())
    assert torch.equal(tensors["extra_embeddings"], encoded.extra_embeddings)
    assert (record["kind"], record["schema_version"]) == ("encoding", 1)
    assert record["provenance"] == encoded.provenance


def test_every_tensor_lies_at_a_multiple_of_its_items(tmp_path):
    """Odd counts everywhere: what is mapped into memory must be aligned."""
    for dtype, store in itertools.product(DTYPES, (None, torch.int8, torch.float8_e4m3fn, torch.float16)):
        encoded = make_encoded((3, 1, 1), (3, 5), dtype=dtype, num_extras=1, positions=1)
        path = tmp_path / "full.safetensors"
        write(encoded, path, store_dtype=store)
        content = path.read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        assert start % 8 == 0
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                assert (start + header[name]["data_offsets"][0]) % file.get_tensor(name).element_size() == 0


def test_the_same_input_is_the_same_bytes(tmp_path):
    """However the rows were cut into blocks on the way; and no folder of anyone's is told."""
    (tmp_path / "other").mkdir()
    paths = tmp_path / "a.safetensors", tmp_path / "other" / "b.safetensors"
    for path in paths:
        write(make_encoded((20, 2, 2), (8, 8)), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert b"/home/someone" not in paths[0].read_bytes()
    assert str(tmp_path).encode() not in paths[0].read_bytes()


def test_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "new" / "full.safetensors"
    write(make_encoded(), path)
    assert [entry.name for entry in path.parent.iterdir()] == ["full.safetensors"]
    with row_spool.RowSpool(path) as spool:  # a run that stops before its end
        spool.add(make_encoded().levels, make_encoded().ranking.dissimilarity)
    assert [entry.name for entry in path.parent.iterdir()] == ["full.safetensors"]


def test_a_disk_that_is_too_small_is_told_at_the_first_rows(tmp_path):
    levels = (torch.ones(1, 100, 100, 1000),)
    with (
        pytest.raises(ArtifactError, match=r"rows need [\d,]+\.\d MB on the way, [\d,]+\.\d MB are free"),
        row_spool.RowSpool(tmp_path / "full.safetensors").expecting(10**7) as spool,
    ):
        spool.add(levels, torch.ones(1, 100, 100))
    assert list(tmp_path.iterdir()) == []


def test_a_rate_outside_its_range(tmp_path):
    write(make_encoded(), tmp_path / "full.safetensors")
    with open_encoding(tmp_path / "full.safetensors") as encoding:
        for q in (1, -0.1, float("nan")):
            with pytest.raises(UsageError, match="Expected 0 <= q < 1"):
                encoding.at(q)
