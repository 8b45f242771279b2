"""``evs sweep``, ``evs show`` and ``evs models`` from their arguments to stdout, stderr and exit codes."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
import torch

import evs_cli
from evs_cli.encoders.registry import FAMILIES
from evs_cli.encoders.source import SHORT_NAMES
from evs_cli.files.artifact_checksums import with_checksums

ROOT = Path(__file__).resolve().parents[2]
CROSSING = str(ROOT / "samples" / "crossing.mp4")
FAST = ("--num-frames", "4", "--size", "56")


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """The same pruned video in both formats."""
    folder = tmp_path_factory.mktemp("artifacts")
    pruned = evs_cli.prune_video(CROSSING, q=0.7, num_frames=4, size=56)
    for suffix in (".pt", ".safetensors"):
        evs_cli.save(pruned, folder / f"out{suffix}")
    return folder, pruned


# sweep.


def swept(evs, *arguments):
    """The rows of a sweep of one video."""
    (record,) = json.loads(evs(*arguments, "--json")[1])["videos"]
    return record["rows"]


def test_sweep_as_json(evs):
    code, out, err = evs("sweep", CROSSING, *FAST, "--q", "0:0.9:0.3", "--json")
    assert code == 0
    assert err == ""
    assert out.count("\n") == 1
    (document,) = json.loads(out)["videos"]
    assert set(document) == {"video", "model", "rows"}
    assert (document["video"], document["model"]) == (CROSSING, "dinov2-small")
    assert [row["q"] for row in document["rows"]] == [0.0, 0.3, 0.6, 0.9]
    assert [row["retained_tokens"] for row in document["rows"]] == [112, 78, 44, 28]
    for row in document["rows"]:
        assert row["sequence_length"] == row["retained_tokens"] + 8
        assert row["retained_share"] == row["retained_tokens"] / 112
        assert 0 <= row["dissimilarity_kept"] <= 1
        assert row["noise_tokens"] == 0
    assert [row["empty_frames"] for row in document["rows"]] == [0, 0, 0, 3]
    assert document["rows"][0]["dissimilarity_kept"] == 1
    assert document["rows"][-1]["dissimilarity_kept"] == 0


def test_sweep_as_csv_and_table_say_the_same(evs):
    arguments = ("sweep", CROSSING, *FAST, "--q", "0.1,0.5")
    records = swept(evs, *arguments)
    rows = list(csv.DictReader(io.StringIO(evs(*arguments, "--format", "csv")[1])))
    # JSON nests the quality, which was not asked for; CSV writes True and False as words, and nothing for null.
    assert [{key: value for key, value in row.items() if value != ""} for row in rows] == [
        {key: str(value) for key, value in row.items() if value is not None} for row in records
    ]
    code, out, _ = evs(*arguments)
    assert code == 0
    title, heading, *body = out.splitlines()
    assert title == f"{CROSSING}  (dinov2-small)"
    assert heading.split()[:3] == ["q", "tokens", "share"]
    for line, record in zip(body, records, strict=True):
        assert line.split()[:4] == [
            f"{record['q']:g}",
            f"{record['retained_tokens']:,}",
            f"{record['retained_share']:.1%}",
            f"{record['sequence_length']:,}",
        ]
    shares = [f"{record['retained_share']:.1%}" for record in records]
    ends = {line.index(share) + len(share) for line, share in zip(body, shares, strict=True)}
    assert ends == {heading.index("share") + len("share")}, "columns do not line up"


def test_sweep_agrees_with_prune(evs):
    rows = swept(evs, "sweep", CROSSING, *FAST, "--q", "0.3,0.8")
    for row in rows:
        record = json.loads(evs("prune", CROSSING, *FAST, "--q", row["q"], "--json")[1])["videos"][0]
        for key in set(row) & set(record):
            assert row[key] == record[key], key


def test_sweep_without_rates_is_ten(evs):
    rows = swept(evs, "sweep", CROSSING, *FAST)
    assert [row["q"] for row in rows] == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]


@pytest.mark.parametrize(
    "rates",
    ["", "1", "0.5,", "a", "0.1:0.9", "0.1:0.9:0", "0.9:0.1:0.1", "0:1:0.1", "0:0.9:1e-9", "0:0.9:5e-324"],
)
def test_sweep_refuses_rates_before_any_work(evs, monkeypatch, rates):
    monkeypatch.setattr("evs_cli.pipeline.session.open_encoder", lambda *_, **__: pytest.fail("a model was opened"))
    code, out, err = evs("sweep", CROSSING, f"--q={rates}")
    assert code == 2, err
    assert out == ""
    assert err.startswith("Error: Invalid")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("columns", ["20", "80", "1000"])
def test_sweep_breaks_no_row_off_a_terminal(evs, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    _, out, _ = evs("sweep", CROSSING, *FAST, "--q", "0:0.9:0.1")
    assert len(out.splitlines()) == 12
    assert all(re.match(r" *0(\.\d)? +[\d,]+ +[\d.]+% ", line) for line in out.splitlines()[2:])


# show.


@pytest.mark.parametrize("name", ["out.pt", "out.safetensors"])
def test_show_as_json(evs, artifacts, name):
    folder, pruned = artifacts
    code, out, err = evs("show", folder / name, "--json")
    assert (code, err) == (0, "")
    (record,) = json.loads(out)["videos"]
    assert record["file"] == str(folder / name)
    assert (record["video"], record["model"], record["q"]) == ("crossing.mp4", "dinov2-small", 0.7)
    assert record["retained_tokens"] == pruned.retained_tokens == 33
    assert record["num_tokens_per_frame"] == pruned.num_tokens_per_frame.tolist()
    assert record["provenance"] == json.loads(json.dumps(dict(pruned.provenance)))
    assert "embeddings" not in record


def test_show_says_the_same_of_both_formats(evs, artifacts):
    folder, _ = artifacts
    for form in ((), ("--format", "csv")):
        one, two = (evs("show", folder / f"out{suffix}", *form)[1] for suffix in (".pt", ".safetensors"))
        assert one.replace(".pt", "") == two.replace(".safetensors", "")
    one, two = (
        json.loads(evs("show", folder / f"out{suffix}", "--json")[1])["videos"][0] for suffix in (".pt", ".safetensors")
    )
    assert {**one, "file": ""} == {**two, "file": ""}


def test_show_says_what_prune_said(evs, tmp_path):
    path = tmp_path / "out.pt"
    _, pruned, _ = evs("prune", CROSSING, *FAST, "-o", path)
    _, shown, _ = evs("show", path)
    strip = [line.rstrip() for line in pruned.splitlines() if not line.startswith(("time", "rate", CROSSING))]
    assert strip == [line.rstrip() for line in shown.splitlines() if not line.startswith(("rate", str(path)))]
    assert shown.startswith(f"{path}  (crossing.mp4, dinov2-small)")
    _, pruned, _ = evs("prune", CROSSING, *FAST, "--format", "csv")
    _, shown, _ = evs("show", path, "--format", "csv")
    assert pruned.replace(CROSSING, "crossing.mp4") == shown


@pytest.mark.parametrize("form", [("--json",), ()], ids=["json", "without a format"])
def test_show_prints_parts_whole(evs, artifacts, form):
    folder, pruned = artifacts
    _, out, _ = evs("show", folder / "out.pt", *form, "--print", "embeddings,ids")
    (record,) = json.loads(out)["videos"]
    assert torch.equal(torch.tensor(record["embeddings"]), pruned.embeddings)
    assert record["input_ids"] == pruned.input_ids.tolist()


def test_show_needs_no_model_and_no_transformers(artifacts, tmp_path):
    import subprocess
    import sys

    code = (
        "import sys; from evs_cli.cli.app import main; code = main(sys.argv[1:]);"
        "assert not {'transformers', 'decord', 'av'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "show", str(artifacts[0] / "out.pt")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("change", [{"model": "x"}, {"model": None}, {"video": []}, {"video": {"name": 3}}, {}])
def test_show_of_odd_provenance_is_no_bug(evs, tmp_path, artifacts, change):
    """Taken or refused, but in words."""
    record = torch.load(artifacts[0] / "out.pt", weights_only=True)
    record["provenance"] = {**record["provenance"], **change} if change else {}
    torch.save(with_checksums(record), tmp_path / "odd.pt")
    for form in ((), ("--json",), ("--format", "csv")):
        code, _, err = evs("show", tmp_path / "odd.pt", *form)
        assert code in (0, 5), err


def test_show_of_values_that_json_lacks(evs, tmp_path, artifacts):
    """NaN is no JSON; a file that holds it is refused, or shown with null."""
    record = torch.load(artifacts[0] / "out.pt", weights_only=True)
    for name in ("embeddings", "pts_seconds", "prompt_seconds"):
        changed = {**record, name: record[name].clone()}
        changed[name].view(-1)[0] = float("nan")
        torch.save(with_checksums(changed), tmp_path / "odd.pt")
        code, out, err = evs("show", tmp_path / "odd.pt", "--json", "--print", "embeddings")
        assert code in (0, 5), (name, err)
        json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


# models.


def test_models_in_every_form(evs):
    code, out, err = evs("models", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert (document["schema_version"], document["command"]) == (2, "models")
    assert [family["model_type"] for family in document["families"]] == list(FAMILIES)
    assert document["short_names"] == dict(SHORT_NAMES)
    code, out, _ = evs("models", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["model_type"] for row in rows] == list(FAMILIES)
    assert [set(row) for row in rows] == [set(family) for family in document["families"]]
    code, out, err = evs("models")
    assert code == 0
    for name in SHORT_NAMES:
        assert name in out.splitlines()[-1]
    assert "--model" in err
    assert evs("models", "--quiet")[2] == ""


@pytest.mark.parametrize("columns", ["20", "80", "300"])
def test_models_breaks_no_row_off_a_terminal(evs, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    _, out, _ = evs("models")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == list(FAMILIES)
    assert lines[-1].startswith("Short names: ")


def test_every_short_name_is_of_a_family_and_every_example_is_reachable():
    for family in FAMILIES.values():
        assert family.example == "-" or family.example in SHORT_NAMES or family.example.count("/") == 1


def test_a_dry_sweep_of_standard_input_reads_it_once_for_all_models(tiny_model):
    """The second model would find the pipe empty; and --context is told of, as in a plan."""
    import subprocess
    import sys

    models = ("--model", str(tiny_model("qwen3_vl")), "--model", "dinov2-small")
    with (ROOT / "samples" / "crossing.mp4").open("rb") as video:
        done = subprocess.run(
            [sys.executable, "-m", "evs_cli", "sweep", "-", *models, "--dry-run", "--context", "4096", "--json"],
            stdin=video,
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)["videos"]
    assert (first["video"], second["video"]) == ("-", "-")
    assert first["model"] != second["model"]
    assert first["context_limit"] == second["context_limit"] == 4096


def test_a_sweep_with_a_context_below_one_is_a_usage_error(evs):
    code, out, err = evs("sweep", ROOT / "samples" / "crossing.mp4", "--context", "0")
    assert (code, out) == (2, "")
    assert "Invalid context (0). Expected at least 1." in err
