"""``evs check`` against servers that decode the clip, sample it and count its ids by themselves."""

import csv
import io
import json

import pytest
from counting_servers import CannedServer, CountingServer, Habits, clip_bytes
from video_files import write_video

from evs_cli.dialects.base import RefusedByServerError
from evs_cli.dialects.requests import DEFAULT_SYSTEM
from evs_cli.errors import ServerError, UsageError
from evs_cli.jobs.check import CheckRequest, check_video

PROMPT = "What moves?"


@pytest.fixture(scope="session")
def clip(tmp_path_factory):
    """163 frames at 25 a second: an odd number of samples for vLLM, an even one for SGLang, so that they differ."""
    path = tmp_path_factory.mktemp("clips") / "a clip.mp4"
    write_video(path, numbers=range(163))
    return path


@pytest.fixture
def check(clip, tiny_model):
    """Check the clip with a server of the given habits; returns the report."""

    def run(habits=None, *, model="qwen3_vl", endpoint="auto", as_url=None, key=None, served_model=None, **plan):
        folder = tiny_model(model)
        with CountingServer(folder, habits or Habits()) as server:
            request = CheckRequest(str(clip), server.url, endpoint, served_model, api_key_variable=key, as_url=as_url)
            run.server = server
            return check_video(request, model=str(folder), **{"prompt": PROMPT, **plan})

    return run


def rows(report):
    return {row.kind: row for row in report.comparisons}


def differing(report):
    return {row.kind for row in report.comparisons if row.differs}


# ---------------------------------------------------------------------------------------------- equal


@pytest.mark.parametrize("model", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("q", [None, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("prompt", [None, PROMPT, "Qu'est-ce qui bouge ?\n日本"])
def test_the_plan_is_what_a_vllm_server_makes_of_the_clip(check, model, q, prompt):
    report = check(Habits(q=q or 0.0), model=model, prompt=prompt, video_pruning_rate=q)
    assert not report.differs
    assert report.parting is None
    assert report.suggestions == ()
    assert (report.asked.endpoint, report.asked.dialect, report.asked.q) == ("tokenize", "vllm@0.33", q or 0.0)
    assert rows(report)["video tokens"].served > 1
    (body,) = check.server.bodies("/tokenize")
    *system, message = body["messages"]
    assert message["content"][1]["text"] == (prompt or "Describe the video.")
    # As many ids as the first time has, and more, must stand before a video that is pruned (the next test).
    assert [part["role"] for part in system] == (["system"] if q and model == "qwen3_vl" else [])


def test_text_goes_before_a_video_that_a_vllm_would_die_of(check, command):
    """Pruning, vLLM rewrites positions from the first time's length before the video: it fails where less is there."""
    report = check(Habits(q=0.7), video_pruning_rate=0.7)
    (system, _) = check.server.bodies("/tokenize")[0]["messages"]
    assert system == {"role": "system", "content": DEFAULT_SYSTEM}
    assert not report.differs
    report = check(Habits(q=0.7), video_pruning_rate=0.7, system="")
    assert len(check.server.bodies("/tokenize")[0]["messages"]) == 1
    assert not report.differs
    (note,) = [note for note in report.notes if "fails when it prunes" in note]
    assert "with 6 ids before it: more than the 13 of its first time" in note  # a letter an id
    own = "Be exact, and brief."
    assert not check(Habits(q=0.7), video_pruning_rate=0.7, system=own).differs
    assert check.server.bodies("/tokenize")[0]["messages"][0]["content"] == own
    check(Habits(q=0.7), video_pruning_rate=0.7, model="qwen2_5_vl")
    assert len(check.server.bodies("/tokenize")[0]["messages"]) == 1  # it tells no times
    _, _, err = command(Habits(q=0.7), "--q", 0.7)
    assert f"the system message '{DEFAULT_SYSTEM}' goes in front" in err
    assert "goes in front" not in command(Habits())[2]


def test_nemotrons_frames_are_compared_with_the_times_in_front_of_them(check):
    assert not check(model="nemotron_h_omni").differs
    report = check(Habits(times_factor=0.5), model="nemotron_h_omni")
    assert differing(report) == {"prompt tokens", "separators"}
    detail = rows(report)["separators"].detail
    served, planned = detail.removeprefix("frame 1: ").split(" instead of ")
    assert served.startswith("'Frame 1 sampled at 0.00 seconds and frame 2 sampled at")
    assert served != planned


@pytest.mark.parametrize("model", ["qwen2_5_vl", "qwen3_vl"])
def test_the_plan_is_what_an_sglang_server_counts(check, model):
    report = check(Habits(owner="sglang", version="0.5.23", tells_video_tokens=True), model=model)
    assert not report.differs
    assert (report.asked.endpoint, report.asked.dialect, report.asked.version) == ("usage", "sglang@0.5.23", "0.5.23")
    assert any("for the video; planned are" in note for note in report.notes)
    paths = [path for _, path, _, _ in check.server.requests]
    assert paths == ["/v1/models", "/server_info", "/v1/chat/completions"]  # its /tokenize knows no video


@pytest.mark.parametrize("fps", [1.0, 4.0])
def test_what_is_asked_of_the_sampling_goes_into_the_request(check, fps):
    report = check(Habits(trusts_requests=True), fps=fps)
    assert not report.differs
    assert check.server.bodies("/tokenize")[0]["media_io_kwargs"] == {"video": {"fps": fps}}


def test_what_is_asked_of_the_size_goes_into_the_request(check):
    report = check(Habits(trusts_requests=True), video_max_pixels=32 * 32 * 40, video_min_pixels=32 * 32)
    assert not report.differs
    body = check.server.bodies("/tokenize")[0]
    assert body["mm_processor_kwargs"] == {"size": {"longest_edge": 32 * 32 * 40, "shortest_edge": 32 * 32}}
    assert rows(report)["video tokens"].planned < rows(check())["video tokens"].planned


def test_the_servers_own_options_are_planned_and_not_sent(check):
    report = check(Habits(fps=1.0), media_io_kwargs='{"video": {"fps": 1}}')
    assert not report.differs
    assert "media_io_kwargs" not in check.server.bodies("/tokenize")[0]
    report = check(
        Habits(fps=1.0, max_model_len=2048), server_cmd="vllm serve m --media-io-kwargs.video.fps 1 --max-model-len 2k"
    )
    assert differing(report) == {"longest sequence"}  # 2k is 2,000


@pytest.mark.parametrize("as_url", ["file", "{uri}"])
def test_a_server_that_reads_the_clip_itself(check, clip, as_url):
    assert not check(as_url=as_url.format(uri=clip.as_uri())).differs
    (body,) = check.server.bodies("/tokenize")
    assert body["messages"][0]["content"][0]["video_url"] == {"url": clip.as_uri()}


def test_the_clip_arrives_whole(check, clip):
    check()
    url = check.server.bodies("/tokenize")[0]["messages"][0]["content"][0]["video_url"]["url"]
    assert clip_bytes(url) == clip.read_bytes()


def test_a_server_without_a_tokenize_tells_a_number(check):
    report = check(Habits(has_tokenize=False))
    assert not report.differs
    assert report.asked.endpoint == "usage"
    assert [row.kind for row in report.comparisons] == ["prompt tokens", "longest sequence"]
    assert not check(endpoint="usage").differs


def test_the_model_is_the_servers_own_where_none_is_named(clip, tiny_model):
    folder = tiny_model("qwen3_vl")
    with CountingServer(folder) as server:
        report = check_video(CheckRequest(str(clip), server.url))
    assert not report.differs
    assert report.asked.model == str(folder)
    with (
        CannedServer({"/v1/models": (200, {"data": [{"id": "m"}]})}) as server,
        pytest.raises(UsageError, match=r"does not say which model it serves\. Expected --model"),
    ):
        check_video(CheckRequest(str(clip), server.url))


def test_a_server_does_not_choose_what_code_is_run(clip, tiny_model):
    with (
        CountingServer(tiny_model("qwen3_vl")) as server,
        pytest.raises(UsageError, match=r"without --model the server names it\. Expected both"),
    ):
        check_video(CheckRequest(str(clip), server.url), trust_remote_code=True)


def test_the_key_is_sent_and_never_told(check, monkeypatch):
    monkeypatch.setenv("MY_KEY", "s3cret")
    report = check(Habits(key="s3cret"), key="MY_KEY")
    assert not report.differs
    assert "s3cret" not in repr(report)
    monkeypatch.setenv("MY_KEY", "wr0ng")
    with pytest.raises(ServerError, match="answers GET /v1/models with 401: Unauthorized") as error:
        check(Habits(key="s3cret"), key="MY_KEY")
    assert "wr0ng" not in error.value.message + error.value.hint


# ---------------------------------------------------------------------------------------------- different


def test_frames_more(check):
    report = check(Habits(more_frames=1))
    # 14 frames in pairs are as many as 13, at other times.
    assert differing(report) - {"prompt tokens"} == {"separators"}
    report = check(Habits(more_frames=2))
    assert differing(report) == {"prompt tokens", "frames of tokens", "video tokens", "separators"}
    assert (rows(report)["frames of tokens"].planned, rows(report)["frames of tokens"].served) == (7, 8)


@pytest.mark.parametrize("model", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize(("planned", "served"), [(None, 0.7), (0.7, 0.0), (0.5, 0.75)])
def test_another_rate_is_named(check, model, planned, served):
    report = check(Habits(q=served), model=model, video_pruning_rate=planned)
    assert differing(report) == {"prompt tokens", "video tokens"}
    name, _, rates = report.suggestions[0].removesuffix(" writes the same ids").partition(" at q = ")
    first, _, last = rates.partition(" to ")  # of a small clip several rates keep as many
    assert name == "vllm@0.33"
    assert float(first) <= served <= float(last or first)


def test_other_times(check):
    report = check(Habits(times_factor=0.5))
    assert "separators" in differing(report)
    assert not differing(report) & {"text before", "text behind", "video tokens", "frames of tokens"}
    assert rows(report)["separators"].detail.startswith("frame 1: ")
    assert report.parting.planned != report.parting.served


def test_another_text(check):
    report = check(Habits(system="Be brief."))
    assert differing(report) == {"prompt tokens", "text before"}
    assert "Be brief." in rows(report)["text before"].detail
    assert report.parting.position == 1
    assert report.suggestions == ()  # the video is as planned


def test_what_a_request_asks_and_a_server_does_not_heed(check):
    report = check(Habits(heeds_requests=False, trusts_requests=True), fps=4.0)
    assert report.suggestions[0] == ("vllm@0.33 without what the request asks of sampling and size writes the same ids")


def test_options_that_the_server_was_not_started_with(check):
    report = check(media_io_kwargs='{"video": {"fps": 4}}')
    assert report.suggestions[0] == "vllm@0.33 without the server's options writes the same ids"


def test_another_rate_of_frames(check):
    assert check(Habits(fps=4.0)).suggestions[0] == "vllm@0.33 at 4 fps writes the same ids"
    report = check(Habits(owner="sglang", fps=4.0))
    assert "sglang@0.5.23 at 4 fps counts the same" in report.suggestions


def test_another_server_is_named(check):
    report = check(Habits(owner="sglang"), dialect="vllm")
    assert report.differs
    assert "sglang@0.5.23 counts the same" in report.suggestions
    assert "the server calls itself sglang, and the plan is vllm@0.33's" in report.notes


def test_a_number_that_differs_by_whole_frames(check):
    """Another sampling than any known: the number still tells how many frames it would be."""
    report = check(Habits(more_frames=2, has_tokenize=False))
    more = rows(report)["prompt tokens"].served - rows(report)["prompt tokens"].planned
    ids = check(Habits(more_frames=2))
    tokens = rows(ids)["video tokens"].served // rows(ids)["frames of tokens"].served
    assert report.suggestions == (f"1 frame of {tokens} tokens and {more - tokens} separators more would be +{more}",)


def test_the_longest_sequence(check):
    assert not check(Habits(max_model_len=300)).differs  # the plan's is the model's own, which nobody asked for
    report = check(Habits(max_model_len=300), max_model_len=400)
    assert differing(report) == {"longest sequence"}
    report = check(Habits(max_model_len=50))
    assert "the server takes 50 tokens with the answer, so it will refuse this prompt" in report.notes


@pytest.mark.parametrize(("server", "margin"), [("vllm", 1), ("sglang", 7)])
def test_a_prompt_is_too_long_by_the_servers_own_margin(check, server, margin):
    """vLLM keeps one id of the context for the answer, SGLang seven."""
    length = rows(check(Habits(server)))["prompt tokens"].served
    for spare, is_refused in ((margin, False), (margin - 1, True)):
        notes = check(Habits(server, max_model_len=length + spare)).notes
        assert any("it will refuse this prompt" in note for note in notes) == is_refused


def test_a_version_that_is_not_known(check):
    report = check(Habits(version="0.31.2"))
    assert "the rules of vllm 0.31.2 are not known: those of 0.33 are used" in report.notes
    assert not any("rules of" in note for note in check(Habits(version="0.33.1")).notes)


def test_a_server_is_planned_by_its_own_version(check):
    report = check(Habits(version="0.32.0"))
    assert report.asked.dialect == "vllm@0.32"
    assert not report.differs
    note = "the server is vllm 0.32.0, and the plan is vllm@0.33's"
    assert note not in report.notes
    assert note in check(Habits(version="0.32.0"), dialect="vllm").notes


# ---------------------------------------------------------------------------------------------- what it cannot tell


def test_a_server_that_does_not_say_what_it_is(check):
    assert check(Habits(owner="mine")).asked.dialect == "vllm@0.33"  # it tells ids as vLLM does
    for habits in (Habits(owner="mine", has_tokenize=False), Habits(owner="mine", expands=False)):
        with pytest.raises(UsageError, match=r"does not say which server it is.*Expected --dialect"):
            check(habits)
        assert not check(habits, dialect="vllm").differs
    with pytest.raises(UsageError, match="does not say which server it is"):
        check(Habits(owner="mine"), endpoint="usage")
    assert "/v1/chat/completions" not in [path for _, path, _, _ in check.server.requests]


def test_ids_without_the_video_are_none(check):
    """A vLLM's /tokenize writes the video out; one that does not is said, and no other count is taken for it."""
    for endpoint in ("auto", "tokenize"):
        with pytest.raises(ServerError, match="leaves the video out of its ids") as error:
            check(Habits(expands=False), endpoint=endpoint)
        assert "--endpoint usage" in error.value.hint
    assert check(Habits(expands=False), endpoint="usage").asked.endpoint == "usage"
    with pytest.raises(ServerError, match="POST /tokenize with 404: Not Found"):
        check(Habits(has_tokenize=False), endpoint="tokenize")


def test_a_server_that_fails_at_the_clip(clip, tiny_model):
    card = {"id": "m", "owned_by": "vllm"}
    refusal = {"error": {"message": "Video exceeds 16 MB.", "code": 400}}
    with CannedServer({"/v1/models": (200, {"data": [card]}), "/tokenize": (400, refusal)}) as server:
        with pytest.raises(ServerError, match=r"POST /tokenize with 400: Video exceeds 16 MB") as error:
            check_video(CheckRequest(str(clip), server.url), model=str(tiny_model("qwen3_vl")))
        assert error.value.exit_code == 1


def test_a_server_that_takes_no_arguments_of_a_request(check, command):
    """vLLM takes a request's own sampling and size only with --trust-request-mm-kwargs: said before and after."""
    code, _, err = command(Habits(), "--fps", 1)
    assert code == 1
    told, refused = err.index("only if it was started with --trust-request-mm-kwargs"), err.index("with 400")
    assert told < refused
    assert "Hint: Start it with --trust-request-mm-kwargs" in err
    code, _, err = command(Habits(trusts_requests=True), "--fps", 1)
    assert (code, err.count("--trust-request-mm-kwargs")) == (0, 1)
    with pytest.raises(RefusedByServerError, match="started without --trust-request-mm-kwargs answers 400") as error:
        check(server_cmd="vllm serve m", fps=1.0)
    assert error.value.hint.endswith(
        """start it with --media-io-kwargs '{"video": {"fps": 1.0}}' and ask for nothing."""
    )
    assert check.server.bodies("/tokenize") == []
    line = "vllm serve m --trust-request-mm-kwargs"
    report = check(Habits(trusts_requests=True), server_cmd=line, fps=1.0)
    assert not report.differs
    assert not [note for note in report.notes if "trust" in note]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"endpoint": "count"}, "Invalid --endpoint 'count'. Expected one of auto, tokenize, usage"),
        ({"as_url": "clip.mp4"}, "Invalid --as-url 'clip.mp4'"),
        ({"as_url": "data:video/mp4;base64,AAAA"}, "Invalid --as-url"),
        ({"as_url": "http://"}, "Invalid --as-url"),
        ({"video": "-", "as_url": "file"}, "the video is standard input"),
    ],
)
def test_requests_that_cannot_be(arguments, message):
    with pytest.raises(UsageError, match=message):
        CheckRequest(**{"video": "a.mp4", "url": "http://host", **arguments})


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"dialect": "evs"}, "--dialect evs is no server's"),
        ({"dialect": "all"}, "--dialect all has no effect here"),
        ({"dialect": "ollama"}, "Invalid dialect 'ollama'"),
        ({"prompt": "  "}, "Invalid --prompt: it is empty"),
        ({"video_pruning_rate": 1.0}, "Invalid pruning rate"),
        ({"max_model_len": 0}, r"Invalid max_model_len \(0\)"),
    ],
)
def test_plans_that_cannot_be_are_refused_before_anyone_is_asked(plan, message):
    with CannedServer({}) as server:
        with pytest.raises(UsageError, match=message):
            check_video(CheckRequest("a.mp4", server.url), **plan)
        assert server.requests == []


def test_a_key_is_named_and_not_given(monkeypatch):
    with pytest.raises(UsageError, match="no environment variable of this name") as error:
        CheckRequest("a.mp4", "http://host", api_key_variable="sk-1234").client()
    assert "sk-1234" not in error.value.message


# ---------------------------------------------------------------------------------------------- the command


@pytest.fixture
def command(evs, clip, tiny_model):
    """Run ``evs check`` on the clip against a server of the given habits."""

    def run(habits, *arguments):
        folder = tiny_model("qwen3_vl")
        with CountingServer(folder, habits) as server:
            return evs("check", clip, "--url", server.url, "--model", folder, "--prompt", PROMPT, *arguments)

    return run


def test_the_table_of_equal_counts(command):
    code, out, err = command(Habits())
    assert (code, "Error" in err) == (0, False)
    lines = [line.split() for line in out.splitlines()]
    assert ["equal", "to", "the", "id"] in lines
    assert ["text", "before", "6", "6"] in lines


def test_a_difference_is_exit_code_6_and_shown(command):
    code, out, err = command(Habits(q=0.7))
    assert code == 6
    assert "vllm@0.33 at q = 0.7 to 0.71 writes the same ids" in out
    assert "they part" in out
    assert "prompt tokens for a clip.mp4, vllm@0.33 plans" in err
    assert "Hint: Perhaps the server is started or asked otherwise: vllm@0.33 at q = 0.7" in err
    assert command(Habits(q=0.7), "--q", "0.7")[0] == command(Habits(q=0.7), "--video-pruning-rate", "0.7")[0] == 0


def test_the_servers_words_are_no_markup(command):
    _, out, err = command(Habits(system="[bold]x[/bold] \x1b[31m"))
    assert "[bold]x[/bold]" in out
    assert "\x1b" not in out + err


def test_json_and_csv_hold_what_the_table_shows(command):
    code, out, _ = command(Habits(q=0.7), "--json")
    (document,) = json.loads(out)["videos"]
    assert code == 6
    assert (document["equal"], document["dialect"], document["endpoint"]) == (False, "vllm@0.33", "tokenize")
    assert document["comparisons"][0]["kind"] == "prompt tokens"
    assert document["parting"]["position"] > 0
    code, out, _ = command(Habits(q=0.7), "--format", "csv")
    table = list(csv.DictReader(io.StringIO(out)))
    assert code == 6
    for row, comparison in zip(table, document["comparisons"], strict=True):
        assert row["kind"] == comparison["kind"]
        assert (int(row["planned"]), int(row["served"])) == (comparison["planned"], comparison["served"])
        assert row["differs"] == str(comparison["differs"])


def test_a_hint_does_not_ask_for_what_was_given(command):
    """A server that differs in a way that no plan explains."""
    habits = Habits(times_factor=0.5)
    _, _, err = command(habits)
    assert "Give the options the server was started with: --server-cmd" in err
    _, _, err = command(habits, "--server-cmd", "vllm serve m --port 8000")
    assert "--server-cmd" not in err
    assert "The options given do not explain it." in err


def test_hints_go_by_what_differs(command):
    assert "chat template, or a system prompt" in command(Habits(system="Be brief."))[2]
    assert "--server-cmd" in command(Habits(more_frames=2))[2]
    assert "Plan with the server's own: --max-model-len" in command(Habits(), "--max-model-len", "2048")[2]


def test_exit_codes_of_what_goes_wrong(evs, clip, tmp_path, tiny_model):
    folder = tiny_model("qwen3_vl")
    with CountingServer(folder) as server:
        line = ["--url", server.url, "--model", folder]
        assert evs("check", tmp_path / "gone.mp4", *line)[0] == 3
        assert evs("check", clip, "--url", server.url, "--model", tmp_path)[0] == 4
        assert evs("check", clip, *line, "--timeout", "0")[0] == 2
        assert evs("check", clip)[0] == 2
    code, _, err = evs("check", clip, *line)
    assert code == 1
    assert "connection refused" in err
    assert "Hint: Start the server" in err


def test_a_video_on_standard_input(clip, tiny_model, monkeypatch, evs):
    class Piped:
        buffer = io.BytesIO(clip.read_bytes())
        closed = False

        def isatty(self):
            return False

    monkeypatch.setattr("sys.stdin", Piped())
    with CountingServer(tiny_model("qwen3_vl")) as server:
        code, out, err = evs("check", "-", "--url", server.url, "--model", tiny_model("qwen3_vl"))
    assert code == 0, err
    assert "equal" in out


def test_the_timeout_of_the_command_is_that_of_the_client():
    import inspect

    from evs_cli.cli.check import command
    from evs_cli.servers.http_json import DEFAULT_TIMEOUT_SECONDS

    assert inspect.signature(command).parameters["timeout"].default == DEFAULT_TIMEOUT_SECONDS
