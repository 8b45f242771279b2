"""``evs sweep --method`` with several names: one encoding, a row a rate and method, one picture."""

import csv
import io
import json
from pathlib import Path

import pytest
from made_sweeps import ALL

from evs_cli.encoders.plain import PlainFrameEncoder

ROOT = Path(__file__).resolve().parents[2]
CROSSING, SLIDES = "samples/crossing.mp4", "samples/slides.mp4"
FAST = ("--num-frames", "4", "--size", "56")
RATES = ("--q", "0,0.5,0.7")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with the samples in it."""
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows_of(evs, *arguments):
    (record,) = json.loads(evs("sweep", *arguments, "--json")[1])["videos"]
    return record["rows"]


@pytest.mark.parametrize(
    "form", [("--method", ",".join(ALL)), ("--method", "evs, uniform-frames", "--method", "random")]
)
def test_methods_are_swept_from_one_encoding(evs, folder, monkeypatch, form):
    alone = {method: rows_of(evs, CROSSING, *FAST, *RATES, "--quality", "--method", method) for method in ALL}
    batches, embed = [], PlainFrameEncoder.embed
    monkeypatch.setattr(PlainFrameEncoder, "embed", lambda self, *rest: batches.append(1) or embed(self, *rest))
    rows = rows_of(evs, CROSSING, *FAST, *RATES, "--quality", *form)
    assert len(batches) == 1  # four frames are one batch
    assert [(row["q"], row["method"]) for row in rows] == [(q, method) for q in (0, 0.5, 0.7) for method in ALL]
    for method in ALL:
        assert [row for row in rows if row["method"] == method] == alone[method]
    kept = {row["method"]: row["dissimilarity_kept"] for row in rows if row["q"] == 0.5}
    assert kept["evs"] > kept["random"]
    assert kept["evs"] > kept["uniform-frames"]


def test_rows_say_their_method_in_every_form(evs, folder):
    arguments = (CROSSING, *FAST, *RATES, "--method", "random,evs")
    records = rows_of(evs, *arguments)
    assert [row["method"] for row in records] == ["random", "evs"] * 3
    rows = list(csv.DictReader(io.StringIO(evs("sweep", *arguments, "--format", "csv")[1])))
    assert [(row["q"], row["method"]) for row in rows] == [(str(row["q"]), row["method"]) for row in records]
    _, heading, *body = evs("sweep", *arguments)[1].splitlines()
    assert heading.split()[:3] == ["q", "method", "tokens"]
    assert [line.split()[:3] for line in body] == [
        [f"{row['q']:g}", row["method"], f"{row['retained_tokens']:,}"] for row in records
    ]
    assert {row["method"] for row in rows_of(evs, CROSSING, *FAST, *RATES)} == {"evs"}
    assert "method" not in evs("sweep", CROSSING, *FAST, *RATES)[1]
    assert " random " in evs("sweep", CROSSING, *FAST, *RATES, "--method", "random")[1]  # a control is never unnamed


def test_the_summary_of_videos_keeps_methods_apart(evs, folder):
    document = json.loads(evs("sweep", CROSSING, SLIDES, *FAST, *RATES, "--method", "evs,random", "--json")[1])
    assert [(row["q"], row["method"], row["num_videos"]) for row in document["summary"]] == [
        (q, method, 2) for q in (0, 0.5, 0.7) for method in ("evs", "random")
    ]
    for row in document["summary"]:
        same = [each for video in document["videos"] for each in video["rows"]]
        same = [each for each in same if (each["q"], each["method"]) == (row["q"], row["method"])]
        assert row["retained_tokens"] == sum(each["retained_tokens"] for each in same)
        assert row["dissimilarity_kept"] == pytest.approx(sum(each["dissimilarity_kept"] for each in same) / 2)


def test_an_encoding_is_compared_too(evs, folder):
    evs("encode", CROSSING, *FAST, "-o", "full.safetensors")
    from_file = rows_of(evs, "full.safetensors", *RATES, "--method", ",".join(ALL))
    assert from_file == rows_of(evs, CROSSING, *FAST, *RATES, "--method", ",".join(ALL))


def test_a_share_of_the_prompt_is_that_of_the_unpruned_one(evs, folder):
    rows = rows_of(evs, CROSSING, *FAST, *RATES)
    assert [row["sequence_share"] for row in rows] == [
        row["sequence_length"] / rows[0]["sequence_length"] for row in rows
    ]


def test_the_picture_has_its_numbers_beside_it(evs, folder):
    code, _, err = evs("sweep", CROSSING, SLIDES, *FAST, *RATES, "--method", "evs,random", "--plot", "a.svg")
    assert code == 0
    assert "wrote a.svg and a.csv" in err
    rows = list(csv.DictReader(io.StringIO((folder / "a.csv").read_text())))
    assert [(row["video"], row["q"], row["method"]) for row in rows] == [
        (video, q, method)
        for video in (CROSSING, SLIDES)
        for q in ("0.0", "0.5", "0.7")
        for method in ("evs", "random")
    ]
    first = (folder / "a.svg").read_bytes()
    assert evs("sweep", CROSSING, SLIDES, *FAST, *RATES, "--method", "evs,random", "--plot", "a.svg")[0] == 5
    evs("sweep", CROSSING, SLIDES, *FAST, *RATES, "--method", "evs,random", "--plot", "a.svg", "--force")
    assert (folder / "a.svg").read_bytes() == first


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--method", "evs,evs"), "--method names evs twice. Expected each method once."),
        (("--method", "evs", "--method", "random,evs"), "--method names evs twice"),
        (("--method", "evs,uniform"), "Invalid method 'uniform'. Expected one of evs, uniform-frames, random, or"),
        (("--method", "evs,"), "Invalid method ''"),
        (("--method", ""), "Invalid method ''"),
        (
            ("--method", "evs,random", "--min-dissimilarity", "0.1"),
            "min_dissimilarity has no effect on the method random",
        ),
    ],
)
def test_what_is_no_list_of_methods_is_refused_before_any_work(evs, folder, monkeypatch, options, words):
    monkeypatch.setattr("evs_cli.pipeline.session.open_encoder", lambda *_, **__: pytest.fail("a model was opened"))
    for dry in ((), ("--dry-run",)) if "--min-dissimilarity" not in options else ((),):
        code, out, err = evs("sweep", CROSSING, *options, *dry)
        assert (code, out) == (2, "")
        assert words in err


@pytest.mark.parametrize("command", ["prune", "view"])
def test_other_commands_take_one(evs, folder, command):
    code, _, err = evs(command, CROSSING, "--method", "evs,random", "-o", "out.html" if command == "view" else "out.pt")
    assert code == 2
    assert "Invalid method 'evs,random'" in err
    code, _, err = evs(command, CROSSING, "--method", "evs", "--method", "random", "-o", "out.html")
    assert code == 2
    assert "--method is given twice" in err


def test_a_floor_is_swept_by_evs_alone(evs, folder):
    rows = rows_of(evs, CROSSING, *FAST, *RATES, "--min-dissimilarity", "0.9")
    assert rows[0]["retained_tokens"] < rows_of(evs, CROSSING, *FAST, *RATES)[0]["retained_tokens"]
