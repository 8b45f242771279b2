"""The help fits a screen, at any width, and the words of the output are explained."""

import textwrap

import pytest
import typer

from evs_cli.cli import app
from evs_cli.cli.command_line import takes_value
from evs_cli.cli.topics import ALIASES, TOPICS

ROOT = typer.main.get_command(app.app)
COMMANDS = {name: command for name, command in ROOT.commands.items() if not hasattr(command, "commands")}
COMMANDS |= {f"cache {name}": command for name, command in ROOT.commands["cache"].commands.items()}
MOST_LINES = 30


def options_of(command):
    return [param for param in command.params if param.param_type_name == "option" and not param.hidden]


def long_name(option):
    return next(flag for flag in option.opts if flag.startswith("--"))


@pytest.fixture
def page(evs, monkeypatch):
    """The text of a help page."""

    def read(*arguments, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        code, out, err = evs(*arguments)
        assert (code, err) == (0, "")
        return out

    return read


@pytest.mark.parametrize("command", ["", *COMMANDS, "cache"])
def test_the_help_fits_a_screen(page, command):
    assert len(page(*command.split(), "--help").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("flag", ["--help", "--help-all"])
@pytest.mark.parametrize("columns", [40, 60, 80, 120])
@pytest.mark.parametrize("command", ["", *COMMANDS, "cache"])
def test_no_line_is_too_long_and_no_word_is_broken(page, command, columns, flag):
    """The words at this width are those of a page that never has to break a line."""
    narrow = page(*command.split(), flag, columns=columns)
    for line in narrow.splitlines():
        assert len(line) <= columns or len(line.split()) <= 3, line  # an option and its value stay together
    wide = page(*command.split(), flag, columns=100)
    if flag == "--help-all":  # a short page tells more defaults where there is room
        assert [word for word in narrow.split() if word != "\\"] == [word for word in wide.split() if word != "\\"]
    assert narrow.isascii()


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_whole_on_one_of_the_pages(page, command, columns):
    short = page(*command.split(), "--help", columns=columns).split()
    whole = page(*command.split(), "--help-all", columns=columns).split()
    for option in options_of(COMMANDS[command]):
        assert long_name(option) in whole or f"{long_name(option)}," in whole, option.name
    for name in COMMANDS[command].everyday:
        assert name in short, name


@pytest.mark.parametrize("command", COMMANDS)
def test_everyday_options_are_options_of_the_command(command):
    names = {long_name(option) for option in options_of(COMMANDS[command])}
    assert set(COMMANDS[command].everyday) <= names
    assert len(set(COMMANDS[command].everyday)) == len(COMMANDS[command].everyday)


@pytest.mark.parametrize("command", COMMANDS)
def test_values_have_a_name_and_flags_have_none(page, command):
    out = page(*command.split(), "--help-all")
    for words in ("<bool>", "True", "False", "<str>", "None"):
        assert words not in out
    for option in options_of(COMMANDS[command]):
        assert bool(option.metavar) == takes_value(option), option.name


@pytest.mark.parametrize("command", COMMANDS)
def test_the_short_page_says_where_the_rest_is(page, command):
    out = page(*command.split(), "--help")
    left = len(options_of(COMMANDS[command])) - len(COMMANDS[command].everyday)
    assert (f"{left} more options: evs {command} --help-all" in " ".join(out.split())) == (left > 0)


def test_examples_can_be_copied_from_a_narrow_page(page):
    out = page("export", "--help", columns=60)
    shown = out[out.index("Examples:") :].replace("\\\n", " ")
    for line in COMMANDS["export"].examples:
        assert line in " ".join(shown.split())


# evs help


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_is_its_help(page, command):
    assert page("help", *command.split()) == page(*command.split(), "--help")


def test_help_alone_is_the_programs_help(page):
    assert page("help") == page("--help")


def test_V_is_the_version(page):
    assert page("-V") == page("--version")


@pytest.mark.parametrize("topic", [*TOPICS, *ALIASES])
def test_a_topic_is_explained(page, topic):
    out = page("help", *topic.split()) if not topic.startswith("-") else page("help", "--", topic)
    if topic != "topic":
        assert out.splitlines()[0] == ALIASES.get(topic, topic)
        assert " ".join(out.split()[len(ALIASES.get(topic, topic).split()) :]) == TOPICS[ALIASES.get(topic, topic)]
    assert max(len(line) for line in out.splitlines()) <= 80


def test_topics_are_listed(page):
    out = " ".join(page("help", "topics").split())
    for topic in TOPICS:
        assert topic in out, topic


def test_names_are_read_kindly(page):
    assert page("help", "Change", "kept") == page("help", "change-kept") == page("help", "CHANGE_KEPT")


def test_aliases_lead_to_topics():
    assert set(ALIASES.values()) - {"topics"} <= set(TOPICS)
    assert not set(ALIASES) & set(TOPICS)
    assert not set(TOPICS) & set(COMMANDS) - {"encode"}  # a command's name shows the command


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("kneee", "knee"), ("told time", "told"), ("prun", "prune"), ("nois", "noise"), ("topcis", "topics")],
)
def test_a_typo_gets_a_suggestion(evs, typo, meant):
    code, out, err = evs("help", *typo.split())
    assert (code, out) == (2, "")
    assert f"Did you mean '{meant}'?" in err
    assert "Hint: evs help topics" in err


def test_what_is_no_word_at_all_gets_the_list(evs):
    assert evs("help", "xyzzy")[2] == "Error: There is no help on 'xyzzy'.\nHint: evs help topics\n"


HEADINGS = {
    "prune": ("frames", "tokens", "sequence", "embeddings", "time"),
    "check": ("prompt tokens", "text before", "frames of tokens", "separators", "text behind", "longest sequence"),
    "bench": ("pass", "plain mask", "encoder busy"),
    "fit": ("q", "keep", "frames", "size", "video tokens", "sequence", "present sampling"),
    "plan": ("count", "as served", "told", "separators", "vision", "kv cache", "prefill", "first limit hit", "grid"),
    "output": ("exit codes", "empty frames", "in a row", "repeat the one before", "rounding", "perhaps", "id x length"),
}


@pytest.mark.parametrize("word", sorted({word for words in HEADINGS.values() for word in words}))
def test_words_of_the_output_are_topics(page, word):
    assert page("help", *word.split())


def test_every_heading_of_a_sweep_is_a_topic(evs, tiny_model, page):
    _, out, _ = evs(
        "sweep", "samples/crossing.mp4", "--model", tiny_model("qwen3_vl"), "--quality", "--num-frames", "4"
    )
    (line,) = [line for line in out.splitlines() if line.split()[:2] == ["q", "tokens"]]
    headings = [heading for heading in line.strip().split("  ") if heading.strip()]
    assert len(headings) >= 13
    for heading in headings:
        assert page("help", *heading.split()), heading


@pytest.mark.parametrize("line", [("plan", "--q", "0,0.7", "--context", "4k"), ("fit", "--context", "4k")])
def test_every_heading_of_a_row_a_clip_is_a_topic(evs, page, line):
    _, out, _ = evs(*line, "samples/pan.mp4", "samples/cuts.mp4")
    headings = out.splitlines()[1].replace("q = ", "").split()
    assert len(headings) == 10
    for heading in headings:
        assert heading in ("0", "0.7") or page("help", heading), heading


def test_every_heading_of_plans_and_fits_is_a_topic(evs, tiny_model, page):
    numbers = ("--frames", "8", "--height", "64", "--width", "64", "--model", tiny_model("qwen3_vl"))
    for arguments in (("plan", *numbers, "--dialect", "all"), ("fit", *numbers, "--context", "4k")):
        _, out, _ = evs(*arguments)
        line = next(line for line in out.splitlines() if "video tokens" in line and "sequence" in line and "  " in line)
        for heading in textwrap.dedent(line).split("  "):
            if heading.strip():
                assert page("help", *heading.split()), heading
