"""The pictures of ``evs view`` from arguments to files, stdout, stderr and exit codes."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
from fresh_python import run_evs
from PIL import Image
from video_files import damaged_clip

import evs_cli
from evs_cli.jobs.view import ViewRequest, run_view
from evs_cli.pipeline.progress import SilentProgress
from evs_cli.pipeline.request import make_request
from evs_cli.report.pictures.overlay import PLAIN_GREY
from evs_cli.report.view import draw_outputs, settle_view_outputs

ROOT = Path(__file__).resolve().parents[2]
CROSSING = ROOT / "samples" / "crossing.mp4"
ALL = ("sheet.png", "film.mp4", "strip.svg", "strip.pdf", "frames/")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a pruned video and its video."""
    folder = tmp_path_factory.mktemp("pictures")
    shutil.copy(CROSSING, folder / "crossing.mp4")
    evs_cli.prune_video(CROSSING, q=0.5, output=folder / "crossing.pt", num_frames=4, size=56)
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def options(*outputs):
    return [word for output in outputs for word in ("-o", output)]


def assert_refused(answer, code, *words):
    """One line and a hint on stderr, nothing on stdout."""
    assert (answer[0], answer[1]) == (code, "")
    assert answer[2].startswith("Error: ")
    assert "Traceback" not in answer[2]
    for word in words:
        assert word in answer[2]


def test_all_outputs_in_one_pass(evs, here, made):
    code, out, err = evs("view", made / "crossing.pt", *options(*ALL))
    assert code == 0, err
    assert "q = 0.5 keeps 56 of 112 tokens" in out
    assert sorted(path.name for path in here.iterdir()) == [
        *("film.mp4", "frames", "sheet.png", "strip.csv", "strip.pdf", "strip.svg")
    ]
    assert sorted(path.name for path in (here / "frames").iterdir()) == [
        *(f"crossing_{frame:04d}.png" for frame in range(4)),
        "crossing_sheet.png",
    ]
    assert "wrote 5 pictures into frames, " in err
    assert "wrote sheet.png, " in err
    assert err.count("strip.csv") == 1
    with av.open("film.mp4") as container:
        assert sum(1 for _ in container.decode(video=0)) == 4
    # The sheet of the folder is the sheet.
    assert (here / "frames" / "crossing_sheet.png").read_bytes() == (here / "sheet.png").read_bytes()


def test_json_names_every_file(evs, here, made):
    code, out, _ = evs("view", made / "crossing.pt", *options("frames", "strip.svg"), "--json")
    assert code == 0
    outputs = json.loads(out)["videos"][0]["outputs"]
    assert outputs[:2] == ["frames/crossing_0000.png", "frames/crossing_0001.png"]
    assert outputs[-2:] == ["strip.svg", "strip.csv"]


def test_pictures_are_the_same_again(evs, here, made):
    for name in ("a", "b"):
        assert evs("view", made / "crossing.pt", *options(*(f"{name}/{each}" for each in ALL)))[0] == 0
    files = [path.relative_to("a") for path in Path("a").rglob("*.*") if path.suffix != ".mp4"]
    assert len(files) == 9
    for file in files:
        assert ("a" / file).read_bytes() == ("b" / file).read_bytes(), file


def test_without_the_video_masks_alone_are_drawn(evs, here, made):
    shutil.copy(made / "crossing.pt", here)
    code, _, err = evs("view", "crossing.pt", *options(*ALL))
    assert code == 0
    assert "The masks alone are drawn" in err
    picture = np.asarray(Image.open("frames/crossing_0000.png"))
    assert picture.shape == (256, 448, 3)
    assert (picture == PLAIN_GREY).all()  # frame 0 is kept whole
    assert "<image " not in Path("strip.svg").read_text()


def test_frames_of_a_damaged_video_that_do_not_decode(evs, tmp_path):
    """The others are drawn as ever, and every mask is."""
    path = damaged_clip(tmp_path)
    request = make_request(fps=10.0, size=56)
    view = next(run_view(ViewRequest((str(path),), (request,), q=0.5), SilentProgress())).result
    run = view.runs[0]
    assert run.token_grid_thw[0] == 15
    # As if they had decoded when the mask was made: frames 3 to 17, of which 8 to 12 are noise.
    view = replace(view, runs=(replace(run, frame_indices=np.arange(3, 18), pts_seconds=np.arange(3, 18) / 10),))
    outputs = settle_view_outputs(
        [str(tmp_path / name) for name in ALL[:3]] + [f"{tmp_path}/frames/"], num_runs=1, overwrite=False
    )
    written = draw_outputs(view, outputs, SilentProgress())
    assert len([path for path in written if path.parent.name == "frames"]) == 16
    with av.open(str(tmp_path / "film.mp4")) as container:
        assert sum(1 for _ in container.decode(video=0)) == 15
    for frame in range(15):
        picture = np.asarray(Image.open(tmp_path / "frames" / f"damaged_{frame:04d}.png"))
        is_grey = (picture == picture[..., :1]).all()
        kept = run.retention.num_tokens_per_frame[frame] > 0
        assert is_grey == (8 <= frame + 3 <= 12 or not kept), frame


@pytest.mark.parametrize("name", ["sheet.png", "film.mp4", "strip.svg"])
def test_what_exists_is_refused_before_any_work(evs, here, name):
    Path(name).write_text("mine")
    # The file to view is not even there: the output is looked at first.
    assert_refused(evs("view", "missing.pt", "-o", name), 5, f"cannot write {name}: it exists already", "--force")
    assert Path(name).read_text() == "mine"


def test_the_csv_of_a_strip_is_not_lost(evs, here, made):
    Path("strip.csv").write_text("mine")
    assert_refused(evs("view", made / "crossing.pt", "-o", "strip.pdf"), 5, "cannot write strip.csv")
    assert not Path("strip.pdf").exists()


def test_a_folder_that_holds_something_is_refused(evs, here, made):
    Path("frames").mkdir()
    assert evs("view", made / "crossing.pt", "-o", "frames")[0] == 0  # an empty one is filled
    Path("frames/mine.txt").write_text("mine")
    assert_refused(evs("view", "missing.pt", "-o", "frames/"), 5, "it is a folder that is not empty", "--force")
    Path("frames/crossing_0000.png").write_text("old")
    assert evs("view", made / "crossing.pt", "-o", "frames/", "--force")[0] == 0
    assert Path("frames/mine.txt").read_text() == "mine"
    Image.open("frames/crossing_0000.png").load()


@pytest.mark.parametrize(
    ("output", "code", "words"),
    [
        ("film.avi", 2, "suffix '.avi'. Expected one of .html, .mp4, .png, .svg, .pdf, or a folder."),
        ("-", 2, "pictures do not go to stdout"),
        ("file/frames", 5, "file is not a folder"),
        ("file", 5, "cannot write file: it is a file"),
        ("file/sheet.png", 5, "file is not a folder"),
        ("x" * 300 + ".png", 5, "too long"),
        ("x" * 300, 5, "too long"),
        ("folder.png", 0, ""),
    ],
)
def test_names_of_outputs(evs, here, made, output, code, words):
    Path("file").write_text("mine")
    Path("folder.png").mkdir()
    answer = evs("view", made / "crossing.pt", "-o", output)
    if code:
        assert_refused(answer, code, words)
    else:
        assert answer[0] == 0, answer[2]  # a folder is one, whatever its name
        assert Path("folder.png/crossing_sheet.png").exists()


def test_pictures_draw_one_run(evs, here, made):
    shutil.copy(made / "crossing.pt", "other.pt")
    answer = evs("view", made / "crossing.pt", "other.pt", "-o", "sheet.png")
    assert_refused(answer, 2, "a contact sheet draws one run, 2 are given. Expected .html.")


def test_one_file_by_two_names_is_refused(evs, here, made):
    assert_refused(evs("view", made / "crossing.pt", *options("a.png", "./a.png")), 2, "one is given twice")


@pytest.mark.parametrize("suffix", ["svg", "pdf"])
def test_a_strip_needs_matplotlib_and_says_so_first(evs, here, monkeypatch, suffix):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else real(name, *rest)
    )
    answer = evs("view", "missing.pt", "-o", f"strip.{suffix}")
    assert_refused(
        answer, 2, f"strip.{suffix} needs matplotlib, which is not installed.", "pip install 'evs-cli[plot]'"
    )


def test_another_video_is_refused(evs, here, made):
    answer = evs("view", made / "crossing.pt", "--video", ROOT / "samples" / "pan.mp4", "-o", "sheet.png")
    assert_refused(answer, 3, "by its SHA-256")
    assert not list(here.iterdir())


def test_max_frames(evs, here, made):
    assert evs("view", made / "crossing.pt", "--max-frames", 2, *options("frames/", "film.mp4"))[0] == 0
    assert sorted(path.name for path in Path("frames").iterdir()) == [
        *("crossing_0000.png", "crossing_0002.png", "crossing_sheet.png")
    ]
    with av.open("film.mp4") as container:
        assert [frame.time for frame in container.decode(video=0)] == pytest.approx([0, 6.6], abs=1e-3)


@pytest.mark.parametrize("name", ["crossing.mp4", "link.mp4"])
def test_the_video_itself_is_never_overwritten(evs, here, made, name):
    """Found beside the file it was typed by nobody, and --force is what a message on an existing file advises."""
    shutil.copy(made / "crossing.pt", here)
    shutil.copy(CROSSING, here)
    (here / "link.mp4").symlink_to(here / "crossing.mp4")
    for words in ("crossing.pt", "crossing.pt --video crossing.mp4", "crossing.mp4 --num-frames 2"):
        answer = evs("view", *words.split(), *options(name), "--force")
        assert_refused(answer, 2, f"Invalid output {name}: it is the input crossing.mp4 itself")
    assert (here / "crossing.mp4").read_bytes() == CROSSING.read_bytes()


def test_a_bad_output_is_refused_before_libraries_are_loaded(tmp_path):
    done, modules = run_evs(tmp_path, "view", "crossing.pt", "-o", "sheet.jpg")
    assert done.returncode == 2
    assert "suffix '.jpg'" in done.stderr
    assert "torch" not in modules


def test_an_interrupted_run_leaves_nothing(here, made):
    """The process ends at once then: what its destructors would remove stays."""
    (outcome,) = run_view(ViewRequest((str(made / "crossing.pt"),)), SilentProgress())
    view = outcome.result

    class Interrupted:
        size = view.frames.size

        def read(self, indices):
            yield next(iter(view.frames.read(indices)))
            assert len(list(here.glob(".frames.*/*.png"))) == 1  # it has begun
            raise KeyboardInterrupt

    outputs = settle_view_outputs([*ALL, "page.html"], num_runs=1, overwrite=False)
    with pytest.raises(KeyboardInterrupt) as caught:
        draw_outputs(replace(view, frames=Interrupted()), outputs, SilentProgress())
    assert caught.tb is not None  # which holds every writer
    assert list(here.iterdir()) == []


def test_a_name_that_is_no_utf8(evs, here):
    name = os.fsdecode(b"a\xff.mp4")
    try:
        shutil.copy(CROSSING, here / name)
    except OSError:  # macOS has no such names
        pytest.skip("this file system holds UTF-8 names alone")
    code, _, err = evs("view", name, "--num-frames", "2", "--size", "56", *options(*ALL, "report.html"))
    assert code == 0, err
    assert (here / "frames" / "a__0000.png").is_file()
