"""Where results go: names from a pattern, clashes, folders that are kept, results that are there already."""

from pathlib import Path

import pytest

from evs_cli.errors import ArtifactError, UsageError
from evs_cli.jobs.outputs import OutputRequest, settle_outputs

SUFFIXES = (".pt", ".safetensors")


def paths(videos, *, rates=None, suffixes=SUFFIXES, **asked):
    """The paths in the folder ``out``, as text."""
    return [str(each.path) for each in settle_outputs(videos, OutputRequest("out/", **asked), suffixes, rates=rates)]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_folders_of_videos_are_kept():
    videos = ["a/x.mp4", "b/x.mp4", "./c/d/x y.mkv", "/e/x.mp4", "../f/x.mp4", "x.mp4", "-"]
    assert paths(videos, name="{parent}/{stem}") == [
        *("out/a/x.pt", "out/b/x.pt", "out/c/d/x y.pt", "out/e/x.pt", "out/f/x.pt", "out/x.pt", "out/stdin.pt"),
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("{name}", ["out/a.mp4.pt", "out/b.mkv.pt"]),
        ("{index:03d}-{stem}", ["out/001-a.pt", "out/002-b.pt"]),
        ("kept/{stem}.safetensors", ["out/kept/a.safetensors", "out/kept/b.safetensors"]),
        ("{{{stem}}}", ["out/{a}.pt", "out/{b}.pt"]),
        ("ü {stem} [bold]", ["out/ü a [bold].pt", "out/ü b [bold].pt"]),
    ],
)
def test_fields(name, expected):
    assert paths(["v/a.mp4", "v/b.mkv"], name=name) == expected


def test_rates_stand_behind_the_stem_or_where_the_pattern_has_them():
    assert paths(["a.mp4"], rates=[0.5, 0.75]) == ["out/a-q0.5.pt", "out/a-q0.75.pt"]
    assert paths(["a.mp4"], rates=[0, 0.75], name="q{q}/{stem}") == ["out/q0/a.pt", "out/q0.75/a.pt"]
    assert paths(["a.mp4"], rates=[0.5], name="{stem}-{q:.2f}") == ["out/a-0.50.pt"]
    assert paths(["a.mp4"], rates=[0.5]) == ["out/a.pt"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("{steam}", "{steam} is no field of it. Expected {stem}, {parent}, {name}, {index}, {q}."),
        ("{stem.__class__}", "is no field"),
        ("{}", "is no field"),
        ("{stem", "Expected a pattern such as '{parent}/{stem}'"),
        ("../{stem}", "is outside the output folder"),
        ("a/../../{stem}", "is outside the output folder"),
        ("/tmp/{stem}", "is outside the output folder"),
        ("{stem}/", "it names no file"),
        ("", "it names no file"),
        ("{index:q}", "Expected a format of the field"),
        ("{stem}-{q}", "Expected --q beside it"),
    ],
)
def test_names_that_are_refused(name, words):
    with pytest.raises(UsageError) as refused:
        paths(["a.mp4", "b.mp4"], name=name)
    assert words in refused.value.message


def test_a_job_without_rates_has_no_field_of_them():
    with pytest.raises(UsageError, match=r"Expected \{stem\}, \{parent\}, \{name\}, \{index\}\.$"):
        paths(["a.mp4", "b.mp4"], rates=(), name="{q}")


@pytest.mark.parametrize("video", ["..", "../..", "/", "a/..", "x/../../y.mp4"])
def test_no_video_leaves_the_folder(video):
    for name in ("{parent}/{stem}", "{parent}/{name}", "{stem}"):
        try:
            (path,) = paths([video], name=name)
        except UsageError:
            continue
        assert (Path.cwd() / path).resolve().is_relative_to(Path.cwd() / "out")


@pytest.mark.parametrize(
    ("first", "second", "name", "hint"),
    [
        ("a/x.mp4", "b/x.mp4", None, "--name '{parent}/{stem}' tells them apart."),
        ("a/x.mp4", "A/X.mkv", None, "--name '{parent}/{name}' tells them apart."),
        ("a/x.mp4", "a/x.mp4", None, "Give each video once, or number the results: --name '{index}-{stem}'."),
        ("a/x.mp4", "a/x.mkv", "{parent}/{stem}", "--name '{parent}/{name}' tells them apart."),
        ("../a/x.mp4", "a/x.mp4", "{parent}/{stem}", "Give each video once, or number the results: "),
    ],
)
def test_a_clash_names_both_and_a_pattern_that_helps(first, second, name, hint):
    with pytest.raises(ArtifactError) as refused:
        paths([first, second], name=name)
    assert refused.value.message.startswith(f"cannot write {first} and {second}: both would become out/")
    assert refused.value.hint.startswith(hint)
    if hint.startswith("--name"):
        assert len(set(paths([first, second], name=hint.split("'")[1]))) == 2
    else:
        assert len(set(paths([first, second], name="{index}-{stem}"))) == 2


def test_a_suffix_of_several():
    assert paths(["a.mp4", "b.mp4"], suffix=".safetensors") == ["out/a.safetensors", "out/b.safetensors"]
    assert paths(["a.mp4"], suffix="pt") == ["out/a.pt"]
    for asked in ({"suffix": ".txt"}, {"suffix": ".pt", "name": "{stem}.safetensors"}):
        with pytest.raises(UsageError, match=r"Invalid suffix '\.\w+'. Expected one of "):
            paths(["a.mp4", "b.mp4"], **asked)
    with pytest.raises(UsageError, match="it is a file"):
        settle_outputs(["a.mp4"], OutputRequest("out.pt", suffix=".pt"), SUFFIXES)


def test_what_is_there_is_skipped_only_where_that_was_asked():
    Path("out").mkdir()
    Path("out/a.pt").write_text("mine")
    settled = settle_outputs(["a.mp4", "b.mp4"], OutputRequest("out", skips_existing=True), SUFFIXES)
    assert [each.is_skipped for each in settled] == [True, False]
    with pytest.raises(ArtifactError) as refused:
        paths(["a.mp4", "b.mp4"])
    assert refused.value.hint == "--force overwrites it, --skip-existing leaves it."
    Path("out/b.pt").mkdir()
    with pytest.raises(ArtifactError, match="it is a folder"):
        paths(["a.mp4", "b.mp4"], skips_existing=True)
    for wrong in ({"path": "out", "overwrite": True, "skips_existing": True}, {"name": "{stem}"}, {"suffix": ".pt"}):
        with pytest.raises(UsageError):
            OutputRequest(**wrong)
    with pytest.raises(UsageError, match="--skip-existing has no effect without an output"):
        OutputRequest(skips_existing=True)


def test_nothing_is_named_where_nothing_is_written():
    assert [each.path for each in settle_outputs(["a.mp4"], OutputRequest(), SUFFIXES, rates=[0.5, 0.7])] == [None] * 2
