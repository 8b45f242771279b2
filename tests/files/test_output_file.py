"""Outputs take their place whole, over nothing that was not given up, and no temporary file stays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evs_cli.errors import ArtifactError
from evs_cli.files.draft_file import draft_beside
from evs_cli.files.output_file import check_output_file, replacing

KILLED = """
import os, signal, sys
from pathlib import Path
from evs_cli.files.output_file import replacing
with replacing(Path(sys.argv[1]), overwrite=True) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write(target, data, *, overwrite, meanwhile=lambda: None):
    with replacing(target, overwrite=overwrite) as file:
        file.write(data)
        meanwhile()


@pytest.mark.parametrize("has_links", [True, False], ids=["", "no hard links"])
def test_what_was_made_meanwhile_is_kept(tmp_path, monkeypatch, has_links):
    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    if not has_links:
        monkeypatch.setattr(os, "link", refused)
    target = tmp_path / "out.pt"
    with pytest.raises(ArtifactError, match=r"out.pt: it was made by another program meanwhile") as caught:
        write(target, b"mine", overwrite=False, meanwhile=lambda: target.write_bytes(b"theirs"))
    assert caught.value.exit_code == 5
    assert (target.read_bytes(), names(tmp_path)) == (b"theirs", ["out.pt"])
    write(target, b"mine", overwrite=True)
    assert (target.read_bytes(), names(tmp_path)) == (b"mine", ["out.pt"])
    write(tmp_path / "new.pt", b"new", overwrite=False)
    assert ((tmp_path / "new.pt").read_bytes(), names(tmp_path)) == (b"new", ["new.pt", "out.pt"])


def test_a_link_to_nothing_is_a_name_that_is_taken(tmp_path):
    target, elsewhere = tmp_path / "out.pt", tmp_path / "elsewhere.pt"
    target.symlink_to(elsewhere)
    with pytest.raises(ArtifactError, match="exists already"):
        check_output_file(target, (".pt",), overwrite=False)
    with pytest.raises(ArtifactError, match="made by another program"):
        write(target, b"mine", overwrite=False)
    assert target.is_symlink()
    write(target, b"mine", overwrite=True)
    assert (target.read_bytes(), names(tmp_path)) == (b"mine", ["out.pt"])


def test_what_a_killed_program_left_goes_with_the_next_run(tmp_path):
    target = tmp_path / "out.pt"
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", KILLED, str(target)], check=False)
        assert done.returncode == -9
        assert len(names(tmp_path)) == 1  # of two killed programs one is left: the second removed the first's
    (tmp_path / ".out.pt").write_bytes(b"a user's own")
    (tmp_path / ".out.0.evs-draft").write_bytes(b"of another name")
    write(target, b"whole", overwrite=False)
    assert names(tmp_path) == [".out.0.evs-draft", ".out.pt", "out.pt"]


def test_two_writers_of_one_file_do_not_take_each_others_draft(tmp_path):
    target = tmp_path / "out.pt"
    write(target, b"first", overwrite=True, meanwhile=lambda: write(target, b"second", overwrite=True))
    assert (target.read_bytes(), names(tmp_path)) == (b"first", ["out.pt"])
    target.unlink()
    with pytest.raises(ArtifactError, match="meanwhile"):
        write(target, b"first", overwrite=False, meanwhile=lambda: write(target, b"second", overwrite=False))
    assert (target.read_bytes(), names(tmp_path)) == (b"second", ["out.pt"])


def test_a_draft_that_took_its_place_does_not_remove_the_next_ones(tmp_path):
    target = tmp_path / "out.pt"
    with draft_beside(target) as (first, _):
        first.replace(target)
        with draft_beside(target) as (second, _):
            assert second == first
        with draft_beside(target) as (second, _):
            pass
        second.write_bytes(b"another program's")
    assert second.read_bytes() == b"another program's"


def test_a_draft_that_somebody_planted_is_not_written_to(tmp_path):
    target, precious = tmp_path / "out.pt", tmp_path / "precious"
    precious.write_bytes(b"precious")
    with draft_beside(target) as (draft, _):
        pass
    draft.symlink_to(precious)
    write(target, b"mine", overwrite=False)
    assert (target.read_bytes(), precious.read_bytes()) == (b"mine", b"precious")
    draft.unlink()
    os.link(precious, draft)
    write(target, b"again", overwrite=True)
    assert (target.read_bytes(), precious.read_bytes()) == (b"again", b"precious")


def test_nothing_stays_of_what_fails(tmp_path):
    def fail():
        raise OSError(28, "No space left on device")

    with pytest.raises(ArtifactError, match="no space left"):
        write(tmp_path / "out.pt", b"mine", overwrite=False, meanwhile=fail)
    assert names(tmp_path) == []


def test_long_names_have_drafts_too(tmp_path):
    for letter in ("x", "日"):
        target = tmp_path / (letter * (250 // len(letter.encode())) + ".pt")
        write(target, b"mine", overwrite=False)
        assert Path(target).read_bytes() == b"mine"
