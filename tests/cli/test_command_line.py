"""Traps of a command line: what parsers take in silence is told."""

import pytest
import typer

from evs_cli.cli import app
from evs_cli.cli.command_line import takes_value

ROOT = typer.main.get_command(app.app)
COMMANDS = {name: command for name, command in ROOT.commands.items() if not hasattr(command, "commands")}
COMMANDS |= {f"cache {name}": command for name, command in ROOT.commands["cache"].commands.items()}
SINGLE = [
    (name, flag)
    for name, command in COMMANDS.items()
    for option in command.params
    if option.param_type_name == "option" and takes_value(option) and not option.multiple
    for flag in option.opts
]
FLAGS = [
    (name, flag)
    for name, command in COMMANDS.items()
    for option in command.params
    if option.param_type_name == "option" and not takes_value(option) and not option.is_eager
    for flag in (*option.opts, *option.secondary_opts)
]


@pytest.fixture
def refused(evs, tmp_path, monkeypatch):
    """The lines that a command line is refused with, before any work."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code, out, err = evs(*arguments)
        assert (code, out) == (2, ""), err
        return err.splitlines()

    return run


def test_options_of_one_value_and_flags_were_found():
    assert {("prune", "--method"), ("prune", "-o"), ("plan", "--dialect"), ("check", "--q"), ("fit", "--context")} <= {
        *SINGLE
    }
    assert len(SINGLE) > 150
    assert {("prune", "--json"), ("prune", "-v"), ("encode", "--no-reuse"), ("cache rm", "--all")} <= {*FLAGS}


@pytest.mark.parametrize("case", SINGLE, ids=" ".join)
def test_a_value_given_twice_is_refused_with_both(refused, case):
    """Every option of every command that takes one value, whatever it is."""
    command, flag = case
    (line,) = refused(*command.split(), "x", flag, "1", flag, "2")
    if flag in ("--server-cmd", "--api-key"):  # which may hold a key, or be one by mistake
        assert line == f"Error: {flag} is given twice. Expected one value."
    else:
        assert line == f"Error: {flag} is given twice: 1 and 2. Expected one value."


def test_two_names_of_one_option_are_refused(refused):
    assert refused("check", "x", "--q", "0.5", "--video-pruning-rate=0.7") == [
        "Error: --q 0.5 and --video-pruning-rate 0.7 are the same option. Expected one of them."
    ]
    assert refused("fit", "x", "--max-model-len", "1", "--context", "2")[0].startswith("Error: --max-model-len 1 and")
    assert refused("prune", "x", "-o", "a", "--output=b") == [
        "Error: -o a and --output b are the same option. Expected one of them."
    ]
    assert "exclude each other" in refused("prune", "x", "--reuse", "--no-reuse")[0]


def test_forms_of_a_value_are_seen(refused):
    assert "a and b" in refused("prune", "x", "-oa", "-ob")[0]
    assert "a and b" in refused("prune", "-foa", "x", "-o", "b")[0]
    assert "--json and x" in refused("prune", "--model", "--json", "--model", "x")[0]
    assert "'' and x" in refused("prune", "--model=", "--model", "x")[0]


def test_secrets_and_long_values_are_not_repeated(refused):
    (line,) = refused("export", "x", "--send", "http://me:word@host/?key=1", "--send", "http://host")
    assert "word" not in line
    assert "key=1" not in line
    (line,) = refused("prune", "x", "--prompt", "a" * 500, "--prompt", "b")
    assert len(line) < 120


def test_rates_may_be_given_again(evs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numbers = ("--frames", "8", "--height", "64", "--width", "64")
    several = evs("plan", *numbers, "--q", "0.5", "--q", "0.9,0.7", "--pruning-rate", "0")
    assert several == evs("plan", *numbers, "--q", "0,0.5,0.7,0.9")


@pytest.mark.parametrize("case", FLAGS, ids=" ".join)
def test_a_value_behind_a_flag_gets_a_hint(refused, case):
    command, flag = case
    for value in ("true", "False", "0.9", "2", "no"):
        error, hint = refused(*command.split(), flag, value)[-2:]  # behind a traceback, of --debug
        assert error == f"Error: {flag} takes no value, got '{value}'."
        assert hint.startswith("Hint: ")


def test_the_hint_fits_the_flag(refused):
    assert "the pruning rate is --q, with two dashes: --q 0.9" in refused("prune", "x", "-q", "0.9")[1]
    assert refused("prune", "x", "--verbose", "2")[1] == "Hint: Give --verbose again to hear more: -vv is twice."
    assert refused("prune", "x", "--json=true") == [
        "Error: --json takes no value, got 'true'.",
        "Hint: --json alone turns it on.",
    ]
    assert refused("prune", "x", "--json", "false")[1] == "Hint: Leave --json out."
    assert refused("prune", "x", "--reuse", "false")[1] == "Hint: Write --no-reuse."


@pytest.mark.parametrize("word", ["-q0.9", "-q=0.9", "-vq0.9"])
def test_a_rate_glued_to_q_gets_the_hint(refused, word):
    assert "--q 0.9" in refused("prune", "x", word)[1]


def test_a_file_of_that_name_is_a_video(evs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "true").write_text("no video")
    code, _, err = evs("prune", "--quiet", "true")
    assert code == 3
    assert err == "Error: cannot open true: it is a text file, not a video.\n"


def test_what_is_no_trap_goes_through(evs, tmp_path, monkeypatch):
    """An entry's name of digits, a video behind a flag, and all behind --."""
    monkeypatch.chdir(tmp_path)
    assert "takes no value" not in evs("cache", "rm", "--quiet", "123456789012")[2]
    assert evs("prune", "--json", "gone.mp4")[0] == 3
    assert evs("prune", "--json", "--", "true")[0] == 3
    assert evs("prune", "--q", "0.5", "--q", "2", "-o", "a", "-o", "b", "--help")[0] == 0


def test_two_formats_are_refused(refused):
    assert "exclude each other" in refused("models", "--json", "--format", "csv")[0]


ALL_DIALECTS = (
    "evs, hf@5.24, qwen-vl-utils@0.0.14, llamafactory@0.9.5, ms-swift@4.6, verl@0.9, vllm@0.33, sglang@0.5.23 or all"
)


@pytest.mark.parametrize(
    ("arguments", "known"),
    [
        (("plan", "x.mp4", "--dialect", "vllm@banana"), "vllm@0.33"),
        (("plan", "x.mp4", "--dialect", "vllm@9.9"), "vllm@0.33"),
        (("plan", "x.mp4", "--dialect", "sglang@"), "sglang@0.5.23"),
        (("fit", "x.mp4", "--context", "1k", "--dialect", "hf@"), "hf@5.24"),
        (("prune", "x.mp4", "--dialect", "evs@1"), ALL_DIALECTS),
        (("sweep", "x.mp4", "--dialect", "trt"), ALL_DIALECTS),
        (("prune", "x.mp4", "--method", "nope"), "evs, uniform-frames, random"),
        (("prune", "x.mp4", "--decoder", "nope"), "pyav, decord"),
        (("prune", "x.mp4", "--dtype", "nope"), "auto, float32, bfloat16, float16"),
        (("prune", "x.mp4", "--score-dtype", "nope"), "float32, bfloat16, float16"),
        (("prune", "x.mp4", "--device", "nope"), "auto, cpu, cuda, cuda:0, mps"),
        (("prune", "x.mp4", "--format", "nope"), "table, json, csv"),
        (("prune", "x.mp4", "--print", "nope"), "ids or embeddings"),
        (("sweep", "x.mp4", "--plot", "x.bmp"), ".png, .svg, .pdf"),
        (("encode", "x.mp4", "-o", "x.safetensors", "--levels", "nope"), "all, main"),
        (("encode", "x.mp4", "-o", "x.safetensors", "--store-dtype", "nope"), "bfloat16, float16, int8, fp8"),
        (("check", "x.mp4", "--url", "http://localhost:1", "--endpoint", "nope"), "auto, tokenize, usage"),
        (("export", "x.mp4", "--to", "nope", "-o", "x.json"), "vllm-frames"),
        (("export", "x.mp4", "--to", "vllm-frames", "--at", "nope", "-o", "x.json"), "planned or source"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_name_that_is_not_known_is_refused_with_the_known_ones(refused, arguments, known):
    assert known in refused(*arguments)[0]


def test_a_line_that_cannot_be_parsed_is_one_line_and_a_hint(refused):
    assert refused("prune", "x", "--modle", "y") == [
        "Error: No such option: --modle Did you mean --model?",
        "Hint: evs prune --help",
    ] or refused("prune", "x", "--modle", "y")[0].startswith("Error: No such option: --modle")
    assert refused("models", "banana")[-1] == "Hint: evs models --help"
    assert refused("encode", "x")[0].startswith("Error: Missing option '-")
    assert refused("prun")[0] == "Error: No such command 'prun'. Did you mean 'prune'?"


@pytest.mark.parametrize("flag", ["output", "model", "json", "quiet", "fps", "force"])
def test_a_long_name_behind_one_dash_is_refused(refused, flag):
    """``-output x.pt`` was ``-o utput`` and a video ``x.pt``."""
    for word in (f"-{flag}", f"-{flag}=1"):
        assert refused("prune", "x", word, "y") == [
            f"Error: No such option: -{flag}.",
            f"Hint: Write --{flag}, with two dashes.",
        ]


def test_what_is_empty_is_refused(refused):
    """A path of no letters is the working folder."""
    assert refused("plan", "")[0] == "Error: One of the names is empty (''). Expected a name."
    assert refused("view", "x.pt", "", "-o", "r.html")[0].startswith("Error: One of the names is empty")
    for flag in ("--model", "-o", "--q", "--manifest", "--cache-dir", "--fps"):
        if ("prune", flag) in SINGLE:
            (line,) = refused("prune", "x", flag, "")
            assert line.startswith(f"Error: Invalid {flag}: an empty value. Expected ")


def test_an_empty_prompt_is_a_prompt(evs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "empty" not in evs("plan", "gone.mp4", "--prompt", "")[2]
    assert "requires an argument" in evs("plan", "gone.mp4", "--context")[2]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("plan", "x", "--fps", "fast"), "Invalid --fps 'fast'. Expected a number."),
        (("plan", "x", "--num-frames", "2.5"), "Invalid --num-frames '2.5'. Expected a whole number."),
        (
            ("view", "x", "--max-frames", "many", "-o", "r.html"),
            "Invalid --max-frames 'many'. Expected a whole number.",
        ),
    ],
)
def test_a_word_in_place_of_a_number_is_told(refused, arguments, line):
    assert refused(*arguments) == [f"Error: {line}"]


@pytest.mark.parametrize("arguments", [("--q", "70"), ("--q", "70%"), ("--keep", "30"), ("--q", "0,5")])
def test_percent_gets_a_hint(refused, arguments):
    assert "percent" in refused("prune", "x", *arguments)[1]


@pytest.mark.parametrize("rates", ["0.5", "0.5,0.7"])
def test_results_do_not_go_into_a_folder_called_dash(refused, tmp_path, rates):
    assert refused("prune", "x.mp4", "--q", rates, "-o", "-")[0].startswith("Error: Invalid output -: ")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_video_is_told_with_where_it_was_looked_for(evs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clips").mkdir()
    for name, hint in [
        ("clips/gone.mp4", "It was looked for in clips."),
        ("clip/gone.mp4", "There is no folder clip."),
        ("clips/*.mp4", "A shell makes names of a pattern, unless it is in quotes or no file matches it."),
    ]:
        code, _, err = evs("plan", name)
        assert code == 3
        assert err.splitlines() == [f"Error: cannot open {name.split('/')[1]}: no such file.", f"Hint: {hint}"]
    assert evs("plan", "gone.mp4")[2].splitlines() == ["Error: cannot open gone.mp4: no such file."]
