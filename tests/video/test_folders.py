"""A folder in place of a video is told with the patterns of the videos in it."""

import subprocess

import pytest

from evs_cli.errors import VideoError
from evs_cli.video.folders import folder_hint
from evs_cli.video.info import probe_video


def fill(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_the_patterns_name_the_videos_that_are_there(tmp_path):
    fill(tmp_path, "a.mp4", "b.mp4", "c.MOV", "notes.txt", "d.jpg", "deep/e.webm")
    hint = folder_hint(tmp_path)
    assert hint == f"Name the videos in it: {tmp_path}/*.mp4 {tmp_path}/*.MOV"
    (tmp_path / "f.mkv").mkdir()
    assert ".mkv" not in folder_hint(tmp_path)


def test_folders_in_it_are_looked_into(tmp_path):
    fill(tmp_path, "one/a.mp4", "two/b.webm", "two/c.webm", "notes.txt")
    assert folder_hint(tmp_path) == f"Name the videos in it: {tmp_path}/*/*.webm {tmp_path}/*/*.mp4"


def test_a_folder_without_videos_says_so(tmp_path):
    assert folder_hint(tmp_path) == "Give video files; there is none in it."


def test_a_shell_expands_the_patterns(tmp_path):
    """Whatever the folder is called."""
    folder = tmp_path / "my clips; $(x)"
    fill(folder, "a.mp4", "b.mp4", "c.mov")
    patterns = folder_hint(folder).removeprefix("Name the videos in it: ")
    done = subprocess.run(["bash", "-c", f"ls -1 {patterns}"], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 3


def test_probing_a_folder_tells_it(tmp_path):
    fill(tmp_path, "a.mp4")
    with pytest.raises(VideoError, match="it is a folder, not a file") as raised:
        probe_video(tmp_path)
    assert raised.value.hint == f"Name the videos in it: {tmp_path}/*.mp4"


@pytest.mark.parametrize("command", ["plan", "prune", "sweep", "bench"])
def test_commands_hint_at_it(evs, tmp_path, command):
    fill(tmp_path, "a.mp4")
    code, out, err = evs(command, tmp_path)
    assert (code, out) == (3, "")
    assert err.splitlines()[-1] == f"Hint: Name the videos in it: {tmp_path}/*.mp4"
