"""Artifacts that anybody may have made or damaged: told in a line, before much time or memory is spent."""

import dataclasses
import os
import resource
import zipfile

import numpy as np
import pytest
import torch
from pruned_made import make_pruned

import evs_cli
from evs_cli.errors import ArtifactError
from evs_cli.files import artifact

FLIPS = 400


def nested(depth, width):
    """Lists in lists: few bytes, as each is written once, and ``width ** depth`` values."""
    value = 1
    for _ in range(depth):
        value = [value] * width
    return value


def deep(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def jagged():
    return torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(1, 3)])


HOSTILE = {
    "one number for terabytes": {"embeddings": torch.zeros(1).expand(1 << 20, 1 << 20)},
    "columns of one number": {"embeddings": torch.zeros(12, 1).expand(12, 1 << 36)},
    "rows that overlap": {"embeddings": torch.zeros(100).as_strided((12, 50), (1, 1))},
    "lists a thousandfold": {"planned": {"x": nested(9, 1000)}},
    "lists a thousandfold where no one looks": {"unknown": nested(9, 1000)},
    "lists nested deep": {"provenance": {"x": deep(400)}},
    "sparse": {"embeddings": torch.eye(12).to_sparse()},
    "meta": {"embeddings": torch.zeros(12, 4, device="meta")},
    "nested": {"embeddings": jagged()},
    "8 bits": {"embeddings": torch.zeros(12, 4).to(torch.float8_e4m3fn)},
    "complex": {"embeddings": torch.zeros(12, 4, dtype=torch.complex64)},
    "400 digits": {"q": 10**400},
    "400 digits of a token": {"placeholder_token_id": 10**400},
    "5,000 digits in a record": {"planned": {"x": 10**5000}},
    "a schema of 5,000 digits": {"schema_version": 10**5000},
    "keys that are numbers": {"provenance": {1: 2}},
    "a key that is a pair": {"provenance": {(1, 2): 2}},
    "bytes": {"provenance": {"x": b"x"}},
    "norms that overflow": {"embeddings": torch.full((12, 4), 1e300, dtype=torch.float64)},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_values_are_refused_in_a_line_and_cost_nothing(tmp_path, name):
    path = tmp_path / "bad.pt"
    torch.save({**artifact.to_record(make_pruned()), **HOSTILE[name]}, path)
    assert path.stat().st_size < 1 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ArtifactError) as caught:
        evs_cli.load(path)
    assert len(caught.value.message) < 300
    assert "\n" not in caught.value.message
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KB; they ask for up to 4 TB


def test_a_deflated_archive_is_refused_before_it_is_opened(tmp_path):
    big = make_pruned()
    evs_cli.save(big, tmp_path / "good.pt")
    with (
        zipfile.ZipFile(tmp_path / "good.pt") as good,
        zipfile.ZipFile(tmp_path / "bad.pt", "w", zipfile.ZIP_DEFLATED) as bad,
    ):
        for part in good.infolist():
            bad.writestr(part.filename, good.read(part))
    with pytest.raises(ArtifactError, match="damaged or no file that evs wrote"):
        evs_cli.load(tmp_path / "bad.pt")


def test_norms_that_overflow_float32_are_numbers_all_the_same(tmp_path):
    made = make_pruned()
    large = torch.full_like(made.embeddings, 3e38)
    norms = dataclasses.replace(made, embeddings=large).embedding_norms()
    expected = 3e38 * made.embeddings.shape[1] ** 0.5
    assert torch.allclose(norms, torch.full_like(norms, expected), rtol=1e-6)  # 3e38 has 24 bits in float32


@pytest.mark.parametrize("suffix", artifact.SUFFIXES)
def test_a_flipped_bit_is_told_or_changes_nothing(tmp_path, suffix):
    """Of the padding of an archive a bit may flip unseen; of what is read none may."""
    made = make_pruned()
    evs_cli.save(made, tmp_path / f"good{suffix}")
    data = (tmp_path / f"good{suffix}").read_bytes()
    path, random, refused = tmp_path / f"bad{suffix}", np.random.default_rng(18), 0
    for place, bit in zip(random.integers(0, len(data), FLIPS), random.integers(0, 8, FLIPS), strict=True):
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(bit)
        path.write_bytes(damaged)
        try:
            loaded = evs_cli.load(path)
        except ArtifactError:
            refused += 1
            continue
        assert artifact.to_record(loaded)["checksums"] == artifact.to_record(made)["checksums"], (place, bit)
    assert refused > FLIPS / 2


def test_a_file_of_schema_1_is_read_with_a_note(tmp_path):
    record = artifact.to_record(make_pruned())
    del record["checksums"]
    torch.save({**record, "schema_version": 1}, tmp_path / "old.pt")
    notes = []
    old = artifact.load(tmp_path / "old.pt", notes.append)
    assert torch.equal(old.embeddings, make_pruned().embeddings)
    assert notes == ["old.pt is of schema 1, which has no checksums: damage in its embeddings would not be seen."]
    with pytest.warns(UserWarning, match="schema 1"):
        evs_cli.load(tmp_path / "old.pt")


@pytest.mark.parametrize("suffix", artifact.SUFFIXES)
def test_a_pipe_is_refused_and_not_waited_for(evs, tmp_path, suffix):
    os.mkfifo(tmp_path / f"pipe{suffix}")
    for line in (("show",), ("view", "-o", tmp_path / "x.html"), ("prune",)):
        code, out, err = evs(line[0], tmp_path / f"pipe{suffix}", *line[1:])
        assert (code, out) == (5, ""), err
        assert err.startswith("Error: cannot")
