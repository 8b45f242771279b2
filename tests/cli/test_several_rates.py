"""``evs prune`` at several rates: one encoding, a result and a file a rate."""

import csv
import io
import json
from pathlib import Path

import pytest

import evs_cli
from evs_cli.encoders.plain import PlainFrameEncoder

CROSSING, SLIDES = "samples/crossing.mp4", "samples/slides.mp4"
FAST = ("--num-frames", "4", "--size", "56")
RATES = ("0", "0.5", "0.9")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with the samples in it."""
    (tmp_path / "samples").symlink_to(Path(__file__).resolve().parents[2] / "samples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def encodings(monkeypatch):
    """A list that grows by one with every batch that is encoded."""
    done, embed = [], PlainFrameEncoder.embed

    def counted(self, *arguments):
        done.append(1)
        return embed(self, *arguments)

    monkeypatch.setattr(PlainFrameEncoder, "embed", counted)
    return done


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_file_a_rate_the_same_bytes_as_alone_from_one_encoding(evs, folder, encodings, suffix):
    code, _, err = evs("prune", CROSSING, *FAST, "--q", "0,0.5,0.9", "-o", f"out{suffix}")
    assert code == 0, err
    assert len(encodings) == 1  # four frames are one batch
    assert {path.name for path in folder.glob("out*")} == {f"out-q{q}{suffix}" for q in RATES}
    for q in RATES:
        evs("prune", CROSSING, *FAST, "--q", q, "-o", f"alone{q}{suffix}")
        assert (folder / f"out-q{q}{suffix}").read_bytes() == (folder / f"alone{q}{suffix}").read_bytes()
        assert f"wrote out-q{q}{suffix} (" in err


@pytest.mark.parametrize("rates", [("0:0.9:0.3",), ("0", "0.3", "0.6", "0.9"), ("0.9,0", "0.3,0.6")], ids=str)
def test_ranges_and_repeats_are_rates(evs, folder, rates):
    asked = [word for rate in rates for word in ("--q", rate)]
    code, out, _ = evs("prune", CROSSING, *FAST, *asked, "--json")
    assert code == 0
    assert [record["q"] for record in json.loads(out)["videos"]] == [0, 0.3, 0.6, 0.9]


def test_one_rate_is_named_as_ever(evs, folder):
    assert evs("prune", CROSSING, *FAST, "--q", "0.5:0.5:0.1", "-o", "out.pt")[0] == 0
    assert (folder / "out.pt").exists()


@pytest.mark.parametrize("output", ["kept", "kept/", "made.v2"])
def test_a_folder_takes_the_rates_of_one_video(evs, folder, output):
    (folder / "made.v2").mkdir()
    assert evs("prune", CROSSING, *FAST, "--q", "0.5,0.9", "-o", output)[0] == 0
    assert {path.name for path in (folder / output).iterdir()} == {"crossing-q0.5.pt", "crossing-q0.9.pt"}


def test_several_videos_and_rates(evs, folder, encodings):
    code, out, err = evs("prune", CROSSING, "gone.mp4", SLIDES, *FAST, "--q", "0.5,0.9", "-o", "kept", "--json")
    assert code == 1
    assert len(encodings) == 2
    names = [f"{stem}-q{q}.pt" for stem in ("crossing", "slides") for q in ("0.5", "0.9")]
    assert {path.name for path in (folder / "kept").iterdir()} == set(names)
    records = json.loads(out)["videos"]
    assert [record["video"] for record in records] == [CROSSING, CROSSING, "gone.mp4", SLIDES, SLIDES]
    assert [record.get("output") for record in records if "output" in record] == [f"kept/{name}" for name in names]
    assert records[2]["exit_code"] == 3
    assert err.splitlines()[-1] == "Error: 1 of 3 videos failed: gone.mp4."
    for record in records:
        if "output" in record:
            assert evs_cli.load(record["output"]).retained_tokens == record["retained_tokens"]


def test_json_tells_a_record_a_rate_and_csv_a_column(evs, folder):
    _, out, _ = evs("prune", CROSSING, *FAST, "--q", "0.5,0.9", "--json")
    records = json.loads(out)["videos"]
    assert [record["q"] for record in records] == [0.5, 0.9]
    assert records[0]["retained_tokens"] > records[1]["retained_tokens"]
    assert "encode" in records[0]["timings_seconds"]
    assert "encode" not in records[1]["timings_seconds"]  # it is encoded once
    _, out, _ = evs("prune", CROSSING, *FAST, "--q", "0.5,0.9", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["q"], row["frame"]) for row in rows] == [(q, str(t)) for q in ("0.5", "0.9") for t in range(4)]


def test_a_dry_run_names_every_file_and_encodes_nothing(evs, folder, monkeypatch):
    monkeypatch.setattr(PlainFrameEncoder, "load", lambda *_: pytest.fail("weights were loaded"))
    code, out, _ = evs("prune", CROSSING, *FAST, "--q", "0.5,0.9", "-o", "out.pt", "--dry-run", "--json")
    assert code == 0
    planned = json.loads(out)["videos"]
    assert [record["output"] for record in planned] == ["out-q0.5.pt", "out-q0.9.pt"]
    assert not list(folder.glob("out*"))
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    done = json.loads(evs("prune", CROSSING, *FAST, "--q", "0.5,0.9", "--json")[1])["videos"]
    assert [record["retained_tokens"] for record in planned] == [record["retained_tokens"] for record in done]


def test_a_stored_encoding_is_read_at_every_rate(evs, folder):
    evs("encode", CROSSING, *FAST, "-o", "all.safetensors")
    assert evs("prune", "all.safetensors", "--q", "0,0.5,0.9", "-o", "read.pt")[0] == 0
    evs("prune", CROSSING, *FAST, "--q", "0,0.5,0.9", "-o", "made.pt")
    for q in RATES:
        assert (folder / f"read-q{q}.pt").read_bytes() == (folder / f"made-q{q}.pt").read_bytes()
    _, out, _ = evs("prune", "all.safetensors", "--q", "0.5,0.9", "--dry-run", "--json")
    less, least = (record["read_bytes"] for record in json.loads(out)["videos"])
    assert less > least


def test_the_cache_serves_every_rate(evs, folder, monkeypatch, encodings):
    """The cache is filled by one rate, and read for several."""
    from evs_cli.encoders import embedded

    weights = embedded.convert_once()
    monkeypatch.setenv("EVS_CACHE", str(folder / "cache"))
    model = ("--model", str(weights))
    evs("prune", CROSSING, *FAST, *model, "--q", "0.7", "--cache")
    before = len(encodings)
    assert evs("prune", CROSSING, *FAST, *model, "--q", "0,0.5,0.9", "--cache", "-o", "hit.pt")[0] == 0
    assert len(encodings) == before
    assert evs("prune", CROSSING, *FAST, *model, "--q", "0,0.5,0.9", "-o", "miss.pt")[0] == 0
    for q in RATES:
        assert (folder / f"hit-q{q}.pt").read_bytes() == (folder / f"miss-q{q}.pt").read_bytes()


def test_clashes_are_refused_before_any_work(evs, folder, monkeypatch):
    monkeypatch.setattr(PlainFrameEncoder, "load", lambda *_: pytest.fail("weights were loaded"))
    (folder / "out-q0.9.pt").write_text("mine")
    code, _, err = evs("prune", CROSSING, *FAST, "--q", "0.5,0.9", "-o", "out.pt")
    assert code == 5
    assert "out-q0.9.pt" in err
    (folder / "other").mkdir()
    (folder / "other" / "crossing.mp4").write_bytes(Path(CROSSING).read_bytes())
    code, _, err = evs("prune", CROSSING, "other/crossing.mp4", *FAST, "--q", "0.5,0.9", "-o", "kept")
    assert code == 5
    assert "both would become kept/crossing-q0.5.pt" in err
    code, _, err = evs("prune", CROSSING, *FAST, "--q", "0.5,0.9", "-o", "out.txt")
    assert code == 2
    code, _, err = evs("prune", CROSSING, SLIDES, *FAST, "--q", "0.5,0.9", "-o", "out.pt")
    assert code == 2
    assert (folder / "out-q0.9.pt").read_text() == "mine"
    assert not (folder / "kept").exists()


def test_force_overwrites_each(evs, folder):
    (folder / "out-q0.9.pt").write_text("old")
    assert evs("prune", CROSSING, *FAST, "--q", "0.5,0.9", "-o", "out.pt", "--force")[0] == 0
    assert evs_cli.load("out-q0.9.pt").q == 0.9


def test_close_rates_have_names_of_their_own(evs, folder):
    assert evs("prune", CROSSING, *FAST, "--q", "0.123456789,0.123456788", "-o", "out.pt")[0] == 0
    assert len(list(folder.glob("out-q*"))) == 2


@pytest.mark.parametrize("rates", ["0.5,1", "0.5,", "0.5:0.1:0.1", "a", "0.5,-0.1"])
def test_rates_that_are_none_are_refused(evs, rates):
    code, out, err = evs("prune", "gone.mp4", "--q", rates)
    assert (code, out) == (2, "")
    assert err.startswith("Error: Invalid ")
