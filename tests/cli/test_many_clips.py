"""``evs plan`` and ``evs fit`` of several videos: a row a clip at any width, sorted, streamed; the one rate for all."""

import csv
import io
import json
import re
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from video_files import video

from evs_cli.cli.app import main
from evs_cli.cli.options import values
from evs_cli.report import budget, clip_rows, fit
from evs_cli.report.clip_table import cut_in_the_middle
from evs_cli.report.signs import ASCII, UNICODE

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
COMMANDS = {"plan": (), "fit": ("--context", "3k")}
STRANGE = (
    "a b/slides.mp4",
    "other/slides.mp4",
    "ü/[bold]漢字漢字漢字漢字漢字漢字漢字漢字 of a long name.mp4",
    "empty.mp4",
)


@pytest.fixture
def clips(tmp_path, monkeypatch):
    """Clips of one stem, with spaces, markup and letters beyond ASCII, and an empty file."""
    monkeypatch.chdir(tmp_path)
    for name, sample in zip(STRANGE, ("slides.mp4", "still.mp4", "pan.mp4", None), strict=True):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(b"" if sample is None else (SAMPLES / sample).read_bytes())
    return STRANGE


class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True


@pytest.fixture
def on_terminal(monkeypatch):
    """Run a command line on a terminal of so many columns: exit code, lines of stdout."""

    def run(columns, encoding, *arguments):
        with monkeypatch.context() as patch:
            streams = [Terminal(io.BytesIO(), encoding=encoding) for _ in range(2)]
            patch.setattr(sys, "stdout", streams[0])
            patch.setattr(sys, "stderr", streams[1])
            patch.setenv("COLUMNS", str(columns))
            patch.setenv("TERM", "xterm")
            code = main([*map(str, arguments), "--no-color", "-q"])
            streams[0].flush()
            text = streams[0].buffer.getvalue().decode(encoding)
            return code, re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()

    return run


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("columns", [60, 80, 120, 300])
def test_a_row_a_clip_fits_any_terminal(on_terminal, clips, command, encoding, columns):
    code, lines = on_terminal(columns, encoding, command, *clips, *COMMANDS[command])
    assert code == 1
    heading = next(index for index, line in enumerate(lines) if line.lstrip(" |").startswith("clip "))
    assert all(cell_len(line) <= columns for line in lines[: heading + 6]), lines
    first, second, third, empty = [line.strip(" |") for line in lines[heading + 2 : heading + 6]]
    assert first.startswith("a b/slides.mp4 ")
    assert second.startswith("other/slides.mp4 ")
    assert re.split(r"  | *\|", third)[0].endswith("name.mp4")
    assert (UNICODE.ellipsis in third, ASCII.ellipsis in third) == (
        (columns < 300, False) if encoding == "utf-8" else (False, columns < 300)
    )
    assert empty.startswith("empty.mp4 ")
    assert empty.endswith("failed")
    assert ("size" in lines[heading], "grid" in lines[heading]) == (columns >= 120, columns >= 120)


def test_names_are_cut_in_the_middle_by_the_sign_of_the_terminal():
    assert cut_in_the_middle("samples/crossing.mp4", 12, UNICODE) == "sam…sing.mp4"
    assert cut_in_the_middle("samples/crossing.mp4", 12, ASCII) == "sam...ng.mp4"
    assert cut_in_the_middle("samples/crossing.mp4", 20, UNICODE) == "samples/crossing.mp4"
    for width in range(1, 30):
        for signs in (ASCII, UNICODE):
            assert cell_len(cut_in_the_middle("漢字漢字ab漢字漢字漢字.mp4", width, signs)) <= width


@pytest.mark.parametrize("command", COMMANDS)
def test_one_file_prints_as_ever_and_details_prints_that_of_each(evs, command):
    two = [SAMPLES / "slides.mp4", SAMPLES / "still.mp4"]
    alone = [evs(command, each, *COMMANDS[command])[1] for each in two]
    assert [text.splitlines()[0] for text in alone] == ["slides.mp4  (dinov2-small)", "still.mp4  (dinov2-small)"]
    code, out, _ = evs(command, *two, *COMMANDS[command], "--details")
    assert code == 0
    assert out.startswith("".join(alone))


def test_the_numbers_are_those_of_json(evs, clips):
    _, out, _ = evs("plan", *clips, "--q", "0,0.5,0.9", "--context", "6k")
    _, text, _ = evs("plan", *clips, "--q", "0,0.5,0.9", "--context", "6k", "--json")
    document = json.loads(text)
    rows = [line for line in out.splitlines() if ".mp4" in line]
    for row, record in zip(rows[:3], document["videos"][:3], strict=True):
        lengths = [f"{rate['sequence_length']:,}" for rate in record["rates"]]
        share = f"{record['rates'][-1]['context_share']:.1%}"
        assert row.split()[-7:] == [f"{record['total_tokens']:,}", *lengths, share, "q", "=", "0.5"][-7:]
        assert "x".join(str(n) for n in record["token_grid_thw"]) in row
    assert "error" in document["videos"][3]
    (sums,) = [line for line in out.splitlines() if line.startswith("all 3")]
    assert sums.split()[-3:] == [f"{total['sequence_length']:,}" for total in document["totals"]]


def test_the_one_rate_fits_all_and_a_step_less_does_not(evs, tmp_path):
    videos = [SAMPLES / "slides.mp4", SAMPLES / "cuts.mp4"]
    options = ("--context", "3k", "--end", "6")
    code, out, _ = evs("fit", *videos, *options, "--json")
    document = json.loads(out)
    needed = {record["video"]: record["present"]["q"] for record in document["videos"]}
    common = document["fits_all"]
    assert (code, common["num_videos"], common["q"]) == (0, 2, max(needed.values()))
    assert needed[common["binding_video"]] == common["q"]
    asked = ("plan", *videos, *options)
    assert evs(*asked, "--q", common["q"])[0] == 0
    assert evs(*asked, "--q", f"{common['q'] - 0.01:.2f}")[0] == 6
    assert (
        f"q = {common['q']:g} fits all 2 clips; {common['binding_video']} needs it." in evs("fit", *videos, *options)[1]
    )


def test_what_no_rate_makes_fit_ends_with_6(evs, clips):
    line = ("fit", *clips[:2], "--context", "400", "--num-frames", "2")
    code, out, _ = evs(*line, "--json")
    assert json.loads(out)["fits_all"] == {"q": None, "binding_video": clips[0], "num_videos": 2}
    assert code == 0  # fewer frames do
    code, out, _ = evs(*line)
    assert f"No one rate up to 0.95 fits all: {clips[0]} does not fit at its present sampling." in out
    assert [row.split()[-1] for row in out.splitlines() if " -  " in row] == ["resampled"] * 2
    code, out, err = evs("fit", *clips, "--context", "20")
    assert code == 6
    assert [row.split()[-1] for row in out.splitlines() if " -  " in row] == ["no", "no", "no", "failed"]
    assert err.splitlines()[-1].startswith(f"Error: 3 of 4 videos do not fit: {clips[0]}, ")
    assert err.splitlines()[-1].endswith("; 1 failed: empty.mp4.")
    assert evs("plan", *clips[:2], "--context", "2k")[0] == 6


@pytest.mark.parametrize("command", COMMANDS)
def test_all_failed(evs, clips, command):
    code, out, err = evs(command, "empty.mp4", "gone.mp4", *COMMANDS[command])
    assert code == 1
    assert [line.split() for line in out.splitlines() if ".mp4" in line] == [
        [name, *["-"] * (line.count(" - ")), "failed"]
        for name, line in zip(
            ("empty.mp4", "gone.mp4"), [line for line in out.splitlines() if ".mp4" in line], strict=True
        )
    ]
    assert err.splitlines()[-1] == "Error: 2 of 2 videos failed: empty.mp4, gone.mp4."


def durations(evs, command, *options):
    _, out, _ = evs(command, "--sort", *options, "--json")
    return [record.get("source", {}).get("duration_seconds") for record in json.loads(out)["videos"]]


def test_sorts(evs, clips, tmp_path):
    videos = (clips[0], "gone.mp4", video("normal.mp4"))  # 10 s, failed, 2.4 s
    for command, more in COMMANDS.items():
        assert durations(evs, command, "tokens", *videos[::-1], *more) == [10.0, pytest.approx(2.4, abs=0.2), None]
        assert durations(evs, command, "duration", *videos, *more)[::2] == [10.0, None]
        _, out, _ = evs(command, "--sort", "name", *videos, *more, "--format", "csv")
        names = [row["video"] for row in csv.DictReader(io.StringIO(out))]
        assert names == [*sorted(names[:-1]), "gone.mp4"]
        code, out, err = evs(command, *videos, *more, "--sort", "colour")
        assert (code, out) == (2, "")
        assert "Invalid --sort 'colour'. Expected one of name, duration" in err


def test_the_orders_that_shells_complete_are_those_there_are():
    assert tuple(clip_rows.PLAN_SORTS) == values.PLAN_SORTS
    assert tuple(clip_rows.FIT_SORTS) == values.FIT_SORTS


@pytest.mark.parametrize(("command", "columns"), [("plan", budget.COLUMNS), ("fit", fit.COLUMNS)])
def test_csv_has_a_file_its_size_and_grid_and_why_it_failed(evs, clips, command, columns):
    code, out, _ = evs(command, "empty.mp4", *clips[:2], *COMMANDS[command], "--format", "csv")
    assert code == 1
    rows = list(csv.DictReader(io.StringIO(out)))
    assert tuple(rows[0]) == columns
    assert {row["video"] for row in rows} == {"empty.mp4", *clips[:2]}
    assert rows[0]["error"]
    assert not any(value for name, value in rows[0].items() if name not in ("video", "path", "error"))
    good = rows[1]
    assert (good["path"], good["duration_seconds"], good["size"], good["grid"]) == (
        *(clips[0], "10.0", "448x256", "20x16x28"),
    )
    assert len([line for line in out.splitlines() if line.startswith("video,")]) == 1
    assert (
        tuple(next(csv.reader(io.StringIO(evs(command, clips[0], *COMMANDS[command], "--format", "csv")[1]))))
        == columns
    )


@pytest.mark.parametrize("form", ["json", "csv"])
def test_rows_are_printed_as_each_clip_is_done(evs, clips, form, monkeypatch, capsys):
    """When the third clip is scanned, the first two are printed."""
    from evs_cli.jobs import plan

    probe, seen = plan.probe_named, []

    def probe_and_look(name):
        seen.append(capsys.readouterr().out)
        return probe(name)

    monkeypatch.setattr(plan.BudgetJob.__init__, "__defaults__", (probe_and_look, None, None))
    assert main(["plan", *clips[:3], "--format", form]) == 0
    whole = "".join(seen) + capsys.readouterr().out
    assert (clips[0] in seen[1], clips[1] in seen[2]) == (True, True)
    if form == "json":
        assert [record["video"] for record in json.loads(whole)["videos"]] == list(clips[:3])


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError("a bug")])
def test_a_document_that_was_begun_is_closed_whatever_ends_it(clips, monkeypatch, capsys, error):
    from evs_cli.jobs import plan

    probe = plan.probe_named

    def fail(name):
        if name == clips[1]:
            raise error
        return probe(name)

    monkeypatch.setattr(plan.BudgetJob.__init__, "__defaults__", (fail, None, None))
    code = main(["plan", *clips[:3], "--json"])
    document = json.loads(capsys.readouterr().out)
    said = "interrupted" if error is KeyboardInterrupt else "unexpected RuntimeError: a bug"
    assert code == (130 if error is KeyboardInterrupt else 1)
    assert [record.get("error") for record in document["videos"]] == [None, said, said]
    assert [record["video"] for record in document["videos"]] == list(clips[:3])


def test_options_without_an_effect_are_refused(evs, served_checkpoint):
    for option in (("--sort", "tokens"), ("--details",)):
        line = ("plan", SAMPLES / "slides.mp4", "--model", served_checkpoint("qwen3_vl"), "--dialect", "all", *option)
        code, _, err = evs(*line)
        assert code == 2
        assert f"{option[0]} has no effect with several dialects" in err


def test_a_note_of_many_clips_is_told_once(evs, clips):
    _, _, err = evs("plan", *clips[:3], "--max-frames", "3")
    notes = [line for line in err.splitlines() if "max_frames 3 bound" in line]
    assert len(notes) == 1
    assert notes[0].startswith(f"Note: {clips[0]} and 2 more: ")
