"""What goes wrong, in words and exit codes: one line, a hint, the code of style.md's table, and never a traceback."""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch
from video_files import video

import evs_cli
from evs_cli.encoders.plain import PlainFrameEncoder
from evs_cli.errors import ArtifactError, BudgetError, EvsError, ModelError, UsageError, VideoError

ROOT = Path(__file__).resolve().parents[2]
CROSSING = str(ROOT / "samples" / "crossing.mp4")
FAST = ("--num-frames", "4", "--size", "56")
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def only_error(code, expected, out, err):
    """An error is one line, a hint at most one more, and nothing on stdout."""
    assert code == expected, err
    assert out == ""
    lines = err.splitlines()
    assert lines[0].startswith("Error: "), err
    assert lines[0].endswith((".", "!", "?", "`"))
    assert len(lines) <= 2, err
    assert all(line.startswith("Hint: ") for line in lines[1:])
    return lines[0]


@pytest.fixture(scope="module")
def pruned(tmp_path_factory):
    path = tmp_path_factory.mktemp("artifact") / "out.pt"
    evs_cli.prune_video(CROSSING, num_frames=4, size=56, output=path)
    return path


# Exit codes.


def test_every_class_has_the_code_of_the_table():
    table = {EvsError: 1, UsageError: 2, VideoError: 3, ModelError: 4, ArtifactError: 5, BudgetError: 6}
    assert {kind: kind.exit_code for kind in table} == table
    assert issubclass(UsageError, ValueError)


@pytest.mark.parametrize(
    ("kind", "code"),
    [(EvsError, 1), (UsageError, 2), (VideoError, 3), (ModelError, 4), (ArtifactError, 5), (BudgetError, 6)],
)
@pytest.mark.parametrize("hint", [None, "do this"])
def test_a_class_raised_anywhere_is_its_code_and_words(evs, monkeypatch, kind, code, hint):
    def fail(*_, **__):
        raise kind("cannot do [it] for {x} 100%", hint=hint)

    monkeypatch.setattr("evs_cli.files.artifact.load", fail)
    done = evs("show", "x.pt")
    assert only_error(done[0], code, *done[1:]) == "Error: cannot do [it] for {x} 100%."
    assert (f"Hint: {hint}" in done[2]) == (hint is not None)


def test_0_is_ok(evs, pruned):
    for arguments in (("--help",), ("-h",), ("--version",), ("models",), ("show", pruned)):
        code, out, _ = evs(*arguments)
        assert code == 0
        assert out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("empty.mp4", "empty"),
        ("text.mp4", "text file"),
        ("notes.txt", "text file"),
        ("noise.mp4", "not a media file"),
        ("no_moov.mp4", "moov"),
        ("lfs.mp4", "Git LFS"),
        ("audio_only.mp4", "no video stream"),
        ("audio_with_cover.mp4", "no video stream"),
        ("no_frame_decodes.mp4", "no frame"),
    ],
)
def test_3_is_a_video_that_cannot_be_read(evs, monkeypatch, name, words):
    monkeypatch.setattr(PlainFrameEncoder, "load", lambda *_: pytest.fail("weights were loaded"))
    for command in (("prune",), ("sweep",), ("prune", "--format", "csv"), ("prune", "--dry-run")):
        done = evs(command[0], video(name), *FAST, *command[1:])
        line = only_error(done[0], 3, *done[1:])
        assert name in line
        assert words in line


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "device"])
def test_3_is_no_file_to_read(evs, tmp_path, kind):
    """A named pipe and a device are refused, not waited for."""
    path = tmp_path / "x.mp4"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path = "/dev/zero"
    done = evs("prune", path, *FAST)
    only_error(done[0], 3, *done[1:])


def _model_folder(tmp_path, kind):
    from evs_cli.encoders import embedded

    folder = tmp_path / "model"
    if kind == "missing folder":
        return folder
    folder.mkdir()
    if kind == "empty folder":
        return folder
    for file in embedded.convert_once().iterdir():
        shutil.copy(file, folder)
    config, weights = folder / "config.json", folder / "model.safetensors"
    if kind == "no weights":
        weights.unlink()
    elif kind == "cut weights":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif kind == "broken config":
        config.write_text("{")
    elif kind == "config is a list":
        config.write_text("[]")
    elif kind == "unknown family":
        config.write_text(config.read_text().replace('"dinov2"', '"llama"'))
    elif kind == "no family":
        config.write_text(config.read_text().replace('"model_type"', '"model_kind"'))
    elif kind == "other size":
        config.write_text(config.read_text().replace("384", "192"))
    return folder


@pytest.mark.parametrize(
    "kind",
    [
        "missing folder",
        "empty folder",
        "no weights",
        "cut weights",
        "broken config",
        "config is a list",
        "unknown family",
        "no family",
        "other size",
    ],
)
def test_4_is_a_model_that_cannot_be_loaded(evs, tmp_path, kind):
    folder = _model_folder(tmp_path, kind)
    done = evs("prune", CROSSING, *FAST, "--model", folder, "-o", tmp_path / "out.pt")
    line = only_error(done[0], 4, *done[1:])
    assert "model" in line
    assert not (tmp_path / "out.pt").exists()


@pytest.mark.parametrize("name", ["no-such-model", "a/b/c", "owner/no such", "../x", "m" * 300, "x\ny"])
def test_4_is_a_name_of_no_model(evs, name):
    done = evs("prune", CROSSING, *FAST, "--model", name)
    only_error(done[0], 4, *done[1:])


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps", "xpu", "hpu"])
def test_4_is_a_device_that_is_not_there(evs, monkeypatch, device):
    monkeypatch.setattr(PlainFrameEncoder, "load", lambda *_: pytest.fail("weights were loaded"))
    done = evs("prune", CROSSING, *FAST, "--device", device)
    assert device in only_error(done[0], 4, *done[1:])


def test_4_is_embeddings_that_cannot_be_ranked(evs, monkeypatch, tmp_path):
    """bfloat16 holds what float16 does not; here every value is made infinite as float16 would."""
    original = torch.nn.LayerNorm.forward
    monkeypatch.setattr(torch.nn.LayerNorm, "forward", lambda self, x: original(self, x) * float("inf"))
    done = evs("prune", CROSSING, *FAST, "-o", tmp_path / "out.pt")
    assert "frame 0" in only_error(done[0], 4, *done[1:])
    assert not list(tmp_path.iterdir())


def test_4_is_too_little_memory(evs, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB")

    monkeypatch.setattr(PlainFrameEncoder, "embed", full)
    code, out, err = evs("prune", CROSSING, *FAST, "--batch-frames", "16")
    assert code == 4
    assert out == ""
    notes = [line for line in err.splitlines() if line.startswith("Note: ")]
    assert len(notes) == 4  # 16, 8, 4, 2: each halved
    only_error(code, 4, out, "\n".join(line for line in err.splitlines() if line not in notes))
    code, out, err = evs("prune", CROSSING, *FAST, "--quiet")
    only_error(code, 4, out, err)


@pytest.mark.parametrize("name", ["missing.pt", "missing.safetensors", "folder.pt", "random.pt", "x" * 300 + ".pt", ""])
def test_5_is_a_file_that_show_cannot_read(evs, tmp_path, name):
    path = tmp_path / name
    if name == "folder.pt":
        path.mkdir()
    elif name == "random.pt":
        path.write_bytes(b"\x80\x04qwerty")
    for form in ((), ("--format", "csv")):
        done = evs("show", path, *form)
        only_error(done[0], 5, *done[1:])


@pytest.mark.parametrize("content", [b"b", b"K", b"q\x00", b"\x85", b"t", b"(lp0\n."])
def test_5_is_a_file_that_begins_as_a_pickle_might(evs, tmp_path, content):
    (tmp_path / "x.pt").write_bytes(content)
    done = evs("show", tmp_path / "x.pt")
    only_error(done[0], 5, *done[1:])


def test_5_is_an_artifact_that_was_changed(evs, tmp_path, pruned):
    record = torch.load(pruned, weights_only=True)
    record["num_tokens_per_frame"][1] += 1
    torch.save(record, tmp_path / "x.pt")
    done = evs("show", tmp_path / "x.pt")
    assert "num_tokens_per_frame" in only_error(done[0], 5, *done[1:])


def test_5_is_an_output_that_cannot_be_written(evs, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    done = evs("prune", CROSSING, *FAST, "-o", tmp_path / "file" / "out.pt")
    only_error(done[0], 5, *done[1:])
    done = evs("prune", CROSSING, *FAST, "-o", tmp_path / ("x" * 300 + ".pt"))
    only_error(done[0], 5, *done[1:])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_5_is_a_disk_that_is_full(tmp_path, suffix):
    """The system refuses files over 16 KB; what was there stays, and nothing else does."""
    code = (
        "import resource, signal, sys\n"
        "from evs_cli.cli.app import main\n"
        "from evs_cli.files.artifact import save\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    target = tmp_path / f"out{suffix}"
    target.write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, "prune", CROSSING, *FAST, "-o", str(target), "-f"],
        capture_output=True,
        text=True,
        env=ENV,
        timeout=120,
        check=False,
    )
    line = only_error(done.returncode, 5, done.stdout, done.stderr)
    assert str(target) in line
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


# Usage as Typer sees it.


def test_an_unknown_command_is_guessed(evs):
    code, out, err = evs("prun", "x.mp4")
    assert code == 2
    assert out == ""
    assert "Did you mean 'prune'?" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("prune", "--nope", "x.mp4"),
        ("prune", "x.mp4", "--q", "abc"),
        ("prune", "x.mp4", "--format"),
        ("show", "a.pt", "b.pt"),
        ("models", "extra"),
        ("--nope",),
        ("sweep", "x.mp4", "-o", "out.pt"),
        ("prune", "x.mp4", "--num-frames", "2.5"),
    ],
    ids=" ".join,
)
def test_2_is_a_command_line_that_cannot_be_read(evs, arguments):
    code, out, err = evs(*arguments)
    assert code == 2
    assert out == ""
    assert "Traceback" not in err


@pytest.mark.parametrize("command", [(), ("prune",), ("sweep",), ("show",)], ids=lambda c: " ".join(c) or "evs")
def test_no_arguments_is_help_and_2(evs, command):
    code, out, err = evs(*command)
    assert code == 2
    assert "Usage: evs" in out + err


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize(
    "command", [(), ("prune",), ("sweep",), ("show",), ("models",)], ids=lambda c: " ".join(c) or "evs"
)
def test_help_everywhere(evs, command, flag):
    code, out, err = evs(*command, flag)
    assert code == 0
    assert err == ""
    assert "Usage: evs" in out
    if command:
        assert "Examples" in out
        assert f"evs {command[0]}" in out
    else:
        assert "130 interrupted" in " ".join(out.split())


def test_help_tells_environment_and_defaults(evs, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    _, out, _ = evs("prune", "--help-all")
    text = " ".join(out.split())
    for words in (
        "EVS_MODEL",
        "EVS_DEVICE",
        "dinov2-small",
        "0 <= q < 1",
        "--video-pruning-rate",
        "Pruning",
        "Runtime",
    ):
        assert words in text, words


def test_short_flags_are_the_five(evs):
    """-q is quiet, never the rate."""
    done = evs("prune", CROSSING, "-q", "0.5", "--dry-run")
    assert only_error(done[0], 2, *done[1:]) == "Error: -q takes no value, got '0.5'."
    assert "--q 0.5" in done[2]


def test_a_loud_command_leaves_the_next_one_quiet(evs):
    evs("prune", CROSSING, *FAST, "-vv")
    assert evs("prune", CROSSING, *FAST)[2] == ""


# The unexpected.


def crash(*_, **__):
    raise ZeroDivisionError("of [red]evs[/red]\nand a second line")


def test_an_unexpected_error_is_one_line_and_how_to_report_it(evs, monkeypatch):
    monkeypatch.setattr("evs_cli.jobs.cached_session.open_session", crash)
    done = evs("prune", CROSSING)
    line = only_error(done[0], 1, *done[1:])
    assert line == "Error: unexpected ZeroDivisionError: of [red]evs[/red]."
    assert "--debug" in done[2]


def test_an_unexpected_error_names_the_versions_behind_it(evs, monkeypatch):
    """Of evs, of Python, and first of the library whose code raised it."""
    monkeypatch.setattr("evs_cli.jobs.cached_session.open_session", lambda *_, **__: np.linspace(0, 1, -1))
    code, _, err = evs("prune", CROSSING)
    assert code == 1
    assert "unexpected ValueError" in err
    assert f"evs {evs_cli.__version__}, Python {platform.python_version()}, numpy {np.__version__}, " in err
    assert f"torch {version('torch')}" in err


def test_an_error_without_words(evs, monkeypatch):
    def fail(*_, **__):
        raise AssertionError

    monkeypatch.setattr("evs_cli.jobs.cached_session.open_session", fail)
    done = evs("prune", CROSSING)
    assert "AssertionError" in only_error(done[0], 1, *done[1:])


@pytest.mark.parametrize("how", ["option", "1", "true"])
def test_debug_shows_the_traceback(evs, monkeypatch, how):
    monkeypatch.setattr("evs_cli.jobs.cached_session.open_session", crash)
    if how != "option":
        monkeypatch.setenv("EVS_DEBUG", how)
    code, out, err = evs("prune", CROSSING, *(["--debug"] if how == "option" else []))
    assert code == 1
    assert out == ""
    assert "Traceback (most recent call last)" in err
    assert "in crash" in err


@pytest.mark.parametrize("value", ["", "0", "false"])
def test_debug_can_be_off(evs, monkeypatch, value):
    monkeypatch.setattr("evs_cli.jobs.cached_session.open_session", crash)
    monkeypatch.setenv("EVS_DEBUG", value)
    done = evs("prune", CROSSING)
    only_error(done[0], 1, *done[1:])


def test_debug_is_of_one_call_alone(evs, monkeypatch):
    monkeypatch.setattr("evs_cli.jobs.cached_session.open_session", crash)
    assert "Traceback" in evs("prune", CROSSING, "--debug")[2]
    done = evs("prune", CROSSING)
    only_error(done[0], 1, *done[1:])


def test_debug_shows_expected_errors_too(evs):
    code, _, err = evs("prune", "missing.mp4", "--debug")
    assert code == 3
    assert "Traceback" in err
    assert err.splitlines()[-1] == "Error: cannot open missing.mp4: no such file."


def test_a_value_error_of_a_library_is_no_usage_error(evs, monkeypatch):
    def fail(*_, **__):
        raise ValueError("bug")

    monkeypatch.setattr("evs_cli.jobs.cached_session.open_session", fail)
    done = evs("prune", CROSSING)
    assert "unexpected ValueError" in only_error(done[0], 1, *done[1:])


# Ctrl-C.


@pytest.mark.parametrize(
    "place", ["evs_cli.encoders.plain.PlainFrameEncoder.embed", "evs_cli.files.artifact._write_pt"]
)
@pytest.mark.parametrize("videos", [(CROSSING,), (CROSSING, CROSSING.replace("crossing", "slides"))])
def test_ctrl_c_is_130_and_leaves_nothing(evs, tmp_path, monkeypatch, place, videos):
    def interrupt(*arguments, **_):
        if "write" in place:
            arguments[1].write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupt)
    output = tmp_path / ("out.pt" if len(videos) == 1 else "out")
    code, out, err = evs("prune", *videos, *FAST, "-o", output)
    assert code == 130
    assert out == ""
    assert err == "Interrupted.\n"
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


SLOW = {
    "encoded": """
from evs_cli.encoders.plain import PlainFrameEncoder
def slow(*_):
    print("begun", flush=True)
    time.sleep(60)
PlainFrameEncoder.embed = slow
""",
    "preprocessed": """
from evs_cli.encoders.plain import PlainFrameEncoder
def slow(*_):
    print("begun", flush=True)
    time.sleep(60)
PlainFrameEncoder.preprocess = slow
""",
    "decoded": """
from evs_cli.video import reader
decoded = reader._decoded_frames
def endless(*arguments):
    print("begun", flush=True)
    while not arguments[-1].is_cancelled.is_set():
        time.sleep(0.001)
    yield from decoded(*arguments)
reader._decoded_frames = endless
""",
}


@pytest.mark.parametrize("step", SLOW)
def test_a_real_ctrl_c(tmp_path, step):
    """SIGINT while frames are decoded, preprocessed or encoded ends the program without a word more and without a file.

    Preprocessing runs in a thread of its own, where nothing can interrupt a step of a library; it is not waited for.
    """
    code = f"import sys, time\n{SLOW[step]}\nfrom evs_cli.__main__ import main\nsys.exit(main())\n"
    child = subprocess.Popen(
        [sys.executable, "-c", code, "prune", CROSSING, *FAST, "-o", str(tmp_path / "out.pt")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENV,
    )
    assert child.stdout.readline() == "begun\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)  # a second on a quiet machine; sixty is what the slow step takes
    assert (child.returncode, out, err) == (130, "", "Interrupted.\n")
    assert not list(tmp_path.iterdir())


# Streams that end.


def shell(command, *arguments):
    """Run a line of bash with ``$EVS`` for the program; the status is the program's."""
    script = f'EVS="{sys.executable} -m evs_cli"; {command}'
    return subprocess.run(
        ["bash", "-c", script, "bash", *arguments], capture_output=True, text=True, env=ENV, timeout=120, check=False
    )


def test_a_reader_that_leaves_early_is_no_error(pruned):
    """The embeddings as JSON are more than a pipe holds."""
    done = shell('$EVS show "$1" --json --print embeddings | head -c 1; echo "${PIPESTATUS[0]}"', str(pruned))
    assert done.stderr == ""
    assert done.stdout.startswith("{")
    assert int(done.stdout[1:]) in (0, 1, 141)


@pytest.mark.parametrize("command", ["models", "models --json", "--help", "prune --help", "--version"])
def test_a_reader_that_is_gone_is_no_error(command):
    done = shell(f"$EVS {command} --quiet 2>&3 | true; :" if "models" in command else f"$EVS {command} | true; :")
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["models", "models --json"])
@pytest.mark.parametrize("environment", ["", "PYTHONUNBUFFERED=1"])
def test_a_full_disk_under_stdout_is_no_bug_of_evs(command, environment):
    done = shell(f"{environment} $EVS {command} > /dev/full")
    assert done.returncode == 1
    assert "no space left" in done.stderr.lower()
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr


@pytest.mark.parametrize("environment", ["", "PYTHONUNBUFFERED=1"])
def test_a_result_that_a_disk_takes_a_part_of_is_an_error(pruned, tmp_path, environment):
    """The system takes what fits in a single call, and says so by its count alone; unbuffered Python overlooks it."""
    out = tmp_path / "out.json"
    limited = f'ulimit -f 8; {environment} $EVS show "$1" --json --print embeddings > "$2"'
    done = shell(limited, str(pruned), str(out))
    assert done.returncode == 1
    assert "cannot write the result: file too large" in done.stderr
    assert 0 < out.stat().st_size <= 8 * 1024


def test_no_room_for_a_piped_video_is_told_with_the_place(tmp_path):
    done = shell('export TMPDIR="$1"; (ulimit -f 8; $EVS plan - --json) < "$2"', str(tmp_path), CROSSING)
    assert done.returncode == 1
    assert f"Error: cannot keep a copy of stdin in {tmp_path}: file too large.\nHint: Set TMPDIR" in done.stderr
    assert json.loads(done.stdout)["videos"][0]["exit_code"] == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("OSError(28, 'No space left on device', '/x/y')", "Error: no space is left on the disk of /x/y.\n"),
        ("MemoryError()", "Error: out of memory.\nHint: Fewer frames a batch take less: --batch-frames 1."),
    ],
)
def test_what_any_part_may_run_out_of_is_no_bug(error, words):
    program = (
        "import sys\nimport evs_cli.cli.app as app\n"
        f"def fail(*_): raise {error}\napp._run = fail\nsys.exit(app.main([]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=ENV)
    assert done.returncode == 1
    assert words in done.stderr
    assert "bug" not in done.stderr


@pytest.mark.parametrize("redirect", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_crash(redirect):
    done = shell(f"$EVS models {redirect}")
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1)


def test_the_sink_is_the_only_printer(evs, tmp_path, monkeypatch):
    """Nothing of decoders and libraries reaches either stream: a damaged video says one note."""
    code, _, err = evs("prune", video("corrupt.mp4"), "--num-frames", "60", "--size", "28", "-o", tmp_path / "out.pt")
    assert code == 0
    kinds = {line.split(":")[0] for line in err.splitlines()}
    assert kinds <= {"Note", "Hint", f"wrote {tmp_path / 'out.pt'} ({artifact_size(tmp_path / 'out.pt')})"}
    assert "sampled frames do not decode" in err


def artifact_size(path):
    from evs_cli.report.render import size_text

    return size_text(path.stat().st_size)


def test_c_libraries_are_quiet_too():
    """As a process, where libav and decord would write to the real stderr."""
    for decoder in ("pyav", "decord"):
        done = shell(
            '$EVS prune "$1" --num-frames 60 --size 28 --quiet --decoder "$2"', str(video("corrupt.mp4")), decoder
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        done = shell('$EVS prune "$1" --decoder "$2"', str(video("noise.mp4")), decoder)
        only_error(done.returncode, 3, done.stdout, done.stderr)


def test_ctrl_c_is_quiet_while_the_program_is_still_imported():
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'typer':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from evs_cli.__main__ import main\n"
        "sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")
