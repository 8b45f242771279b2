"""``evs export``: what it writes, prints, sends and refuses."""

import csv
import io
import json
import shlex

import pytest
from counting_servers import UNTRUSTED, CannedServer
from video_files import video

from evs_cli.errors import ServerError
from evs_cli.servers.chat_answer import CHAT_PATH, ChatAnswer, WrittenBody, send
from evs_cli.servers.http_json import DEFAULT_TIMEOUT_SECONDS, HttpJson

ANSWER = {
    "choices": [{"message": {"role": "assistant", "content": "Numbers [in] boxes."}}],
    "usage": {"prompt_tokens": 77, "completion_tokens": 4, "total_tokens": 81},
}

TRUSTING = "vllm serve X --trust-request-mm-kwargs"


@pytest.fixture
def export(evs, tiny_model, tmp_path, monkeypatch):
    """Run the command on a small clip in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, model="qwen3_vl"):
        name = str(tiny_model(model))
        return evs("export", video("normal.mp4"), "--to", "vllm-frames", "--model", name, *arguments)

    return run


def only_error(outcome, code):
    assert outcome[0] == code, outcome
    assert outcome[1] == ""
    errors = [line for line in outcome[2].splitlines() if not line.startswith(("Note: ", "Hint: "))]
    assert len(errors) == 1
    assert errors[0].startswith("Error: ")
    return outcome[2]


def test_a_summary_on_stdout_and_notes_on_stderr(export, tmp_path):
    code, out, err = export("-o", "body.json", "--num-frames", "5")
    assert code == 0
    assert "6 of 160x96, 3 whole tubelets of 2 (the last one 2 times), sampled by evs" in out
    assert "368,640 of 715,827,880 bytes, 4 a pixel" in out  # 6 frames of 160 x 96
    assert "<0.3 seconds>" in out
    assert "JPEG is lossy" in err
    assert "wrote body.json" in err
    body = json.loads((tmp_path / "body.json").read_text())
    assert len(body["media_io_kwargs"]["video"]["frames_indices"]) == 6
    assert "JPEG is lossy" not in export("-o", "body.json", "--num-frames", "5", "--force", "--quiet")[2]


def test_a_family_that_is_told_no_times_says_so(export):
    code, out, _ = export("-o", "body.json", "--num-frames", "4", model="qwen2_5_vl")
    assert code == 0
    assert "none are told; positions are 1.2 s a tubelet apart" in out  # 2.4 s in 2 tubelets


def test_the_record_and_the_row(export, tmp_path):
    code, out, _ = export("-o", "body.json", "--num-frames", "4", "--q", "0.5", "--json")
    assert code == 0
    (record,) = json.loads(out)["videos"]
    assert record["output"] == "body.json"
    assert record["body_bytes"] == (tmp_path / "body.json").stat().st_size
    assert record["video_bytes"] == video("normal.mp4").stat().st_size
    assert record["num_frames"] == 4
    assert record["decoded_bytes"] == 4 * record["frame_height"] * record["frame_width"] * 4
    assert record["q"] == 0.5
    assert record["retained_tokens"] == record["total_tokens"] // 2
    assert len(record["prompt_times"]) == len(record["prompt_seconds"]) == 2
    assert len(record["pts_seconds"]) == 4
    assert record["curl"] is None
    assert record["answer"] is None
    code, out, _ = export("-o", "body.json", "-f", "--num-frames", "4", "--q", "0.5", "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert row["body_bytes"] == str(record["body_bytes"])


def test_text_before_a_video_that_is_pruned(export, tmp_path):
    """vLLM fails where no more ids stand before it than its first time has."""

    def messages(*arguments):
        code, _, err = export("-o", "body.json", "-f", "--num-frames", "4", *arguments)
        assert code == 0
        return json.loads((tmp_path / "body.json").read_text())["messages"], err

    (system, _), err = messages("--q", "0.5")
    assert (system["role"], system["content"]) == ("system", "You are a helpful assistant.")
    assert "the system message 'You are a helpful assistant.' goes in front" in err
    (_,), err = messages("--q", "0.5", "--system", "")
    assert "fails when it prunes a video with 6 ids before it" in err
    (_,), err = messages("--q", "0")
    assert "fails when it prunes" not in err
    (system, _), err = messages("--q", "0.5", "--prompt", "Why?", "--system", "Count the boxes.")
    assert system["content"] == "Count the boxes."
    assert "fails when it prunes" not in err


def test_the_curl_line_posts_the_file(export):
    code, out, _ = export("-o", "it's a body.json", "--num-frames", "4", "--curl")
    assert code == 0
    words = shlex.split(out.splitlines()[-1])
    assert words[:2] == ["curl", "http://localhost:8000/v1/chat/completions"]
    assert words[-2:] == ["--data-binary", "@it's a body.json"]


def test_the_request_names_the_model_and_bounds_the_answer(export, tmp_path):
    export("-o", "body.json", "--num-frames", "4", "--served-model", "tiny", "--reserve", "9", "--prompt", "Why?")
    body = json.loads((tmp_path / "body.json").read_text())
    assert body["model"] == "tiny"
    assert body["max_tokens"] == 9
    assert body["messages"][0]["content"][1] == {"type": "text", "text": "Why?"}


def test_a_prompt_that_fills_the_context_is_said(export):
    _, out, _ = export("-o", "body.json", "--server-cmd", "vllm serve x --max-model-len 20 --trust-request-mm-kwargs")
    assert "of 20: the server refuses it" in out


def test_the_server_must_take_what_a_request_says(export, tmp_path):
    """A vLLM takes the number and the times of the frames only with --trust-request-mm-kwargs."""
    option = "--trust-request-mm-kwargs"
    code, out, err = export("-o", "body.json", "--num-frames", "4")
    assert (code, f"must be started with {option}" in out, option in err) == (0, True, False)
    refusal = {"error": {"message": UNTRUSTED.format("mm_processor_kwargs"), "code": 400}}
    with CannedServer({CHAT_PATH: (400, refusal)}) as server:
        code, _, err = export("--num-frames", "4", "--send", server.url)
    assert code == 1
    assert err.index(f"only if it was started with {option}") < err.index("with 400")
    assert f"Hint: Start it with {option}" in err
    line = ("-o", "other.json", "--num-frames", "4", "--server-cmd", "vllm serve x")
    assert "answers 400 to media_io_kwargs and mm_processor_kwargs" in only_error(export(*line), 6)
    assert not (tmp_path / "other.json").exists()
    code, out, _ = export(*line[:-1], f"vllm serve x {option}")
    assert (code, option in out) == (0, False)


@pytest.mark.parametrize("keeps", [True, False])
def test_sending_prints_the_answer(export, tmp_path, keeps):
    with CannedServer({CHAT_PATH: (200, ANSWER)}) as server:
        output = ("-o", "body.json") if keeps else ()
        code, out, err = export(*output, "--num-frames", "4", "--send", f"{server.url}/v1")
        assert code == 0, err
        assert "Numbers [in] boxes." in out
        assert "77 prompt tokens" in out
        ((_, path, headers, posted),) = server.requests
    assert path == "/v1/chat/completions"
    assert headers["Content-Type"] == "application/json"
    assert len(json.loads(posted)["media_io_kwargs"]["video"]["frames_indices"]) == 4
    assert (tmp_path / "body.json").exists() == keeps
    if keeps:
        assert posted == (tmp_path / "body.json").read_bytes()
    assert ("wrote" in err) == keeps


def test_the_servers_count_is_held_against_ours(export):
    _, out, _ = export("-o", "body.json", "--num-frames", "4", "--json")
    planned = json.loads(out)["videos"][0]["prompt_tokens"]
    for more, words in ((0, "as planned"), (12, "+12 to the plan"), (-1, "-1 to the plan")):
        usage = {"prompt_tokens": planned + more}
        with CannedServer({CHAT_PATH: (200, {**ANSWER, "usage": usage})}) as server:
            _, out, _ = export("--num-frames", "4", "--send", server.url)
        assert words in out


def test_a_key_goes_by_its_variable(export, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    with CannedServer({CHAT_PATH: (200, ANSWER)}) as server:
        assert export("--num-frames", "4", "--send", server.url, "--api-key", "MY_KEY")[0] == 0
        assert server.requests[0][2]["Authorization"] == "Bearer secret"
    err = only_error(export("--send", "http://localhost:1", "--api-key", "NO_KEY"), 2)
    assert "--api-key" in err
    assert "NO_KEY" not in err  # it may be the key itself


@pytest.mark.parametrize(
    ("status", "content", "words"),
    [
        (400, {"error": {"message": "frames_indices must match"}}, ("400: frames_indices must match", "keeps")),
        (401, {"error": "Unauthorized"}, ("401: Unauthorized", "--api-key")),
        (404, {"error": {"message": "The model does not exist"}}, ("404: The model", "--served-model")),
        (413, b"<html>too large</html>", ("413", "--num-frames")),
        (200, {"choices": []}, ("without a choice",)),
        (200, {"choices": ["text"]}, ("without a choice",)),
        (200, b"not JSON", ("no JSON", "keeps")),
    ],
)
def test_a_server_that_fails_is_one_line(export, status, content, words):
    with CannedServer({CHAT_PATH: (status, content)}) as server:
        err = only_error(export("--num-frames", "4", "--send", server.url), 1)
    for word in words:
        assert word in err


def test_a_server_that_is_not_there(export):
    with CannedServer({}) as server:
        url = server.url
    assert "cannot reach" in only_error(export("--num-frames", "4", "--send", url), 1)


def test_an_answer_without_counts_or_text():
    content = {"choices": [{"message": {"content": None}}], "usage": {"prompt_tokens": "many"}}
    with CannedServer({CHAT_PATH: (200, content)}) as server:
        assert send(HttpJson(server.url), video("normal.mp4")) == ChatAnswer("", None, None)
    with CannedServer({CHAT_PATH: (200, [])}) as server, pytest.raises(ServerError, match="no object"):
        send(HttpJson(server.url), video("normal.mp4"))


def test_a_written_body_is_sent_whole(tmp_path):
    path = tmp_path / "body"
    path.write_bytes(bytes(range(256)) * 3000)
    body = WrittenBody(path)
    assert b"".join(body) == path.read_bytes()
    assert len(list(body)) > 1
    assert body.size_bytes == 768_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Expected -o FILE.json, --send URL or both"),
        (("--send", "http://localhost:1", "--curl"), "--curl posts a file"),
        (("-o", "body.pt"), ".json"),
        (("-o", "body.json", "--at", "half"), "Expected planned or source"),
        (("-o", "body.json", "--quality", "0"), "Expected 1 to 100"),
        (("-o", "body.json", "--q", "1"), "Expected 0 <= q < 1"),
        (("-o", "body.json", "--reserve", "-1"), "Expected at least 1"),
        (("-o", "body.json", "--dialect", "sglang"), "Expected evs, hf or vllm"),
        (("-o", "body.json", "--dialect", "all"), "--dialect all has no effect here"),
        (("--send", "localhost:8000"), "Invalid --send"),
        (("--send", "http://localhost:1", "--timeout", "0"), "--timeout"),
    ],
)
def test_what_makes_no_sense_is_refused(export, tmp_path, arguments, words):
    assert words in only_error(export(*arguments), 2)
    assert list(tmp_path.iterdir()) == []


def test_another_target_is_refused_by_name(evs):
    outcome = evs("export", video("normal.mp4"), "--to", "sglang", "-o", "body.json")
    assert "Invalid --to 'sglang'. Expected vllm-frames." in only_error(outcome, 2)


def test_an_existing_file_is_kept(export, tmp_path):
    (tmp_path / "body.json").write_text("mine")
    assert "--force" in only_error(export("-o", "body.json"), 5)
    assert (tmp_path / "body.json").read_text() == "mine"


def test_too_many_decoded_bytes_do_not_fit(export, tmp_path, monkeypatch):
    monkeypatch.setattr("evs_cli.dialects.vllm_0_33_limits.MAX_DECODED_BYTES", 1000)
    assert "1,000 are allowed" in only_error(export("-o", "body.json"), 6)
    assert list(tmp_path.iterdir()) == []


def test_the_servers_line_settles_its_limits(export, tmp_path, monkeypatch):
    """The variable that the refusal names is read where it is set, and printed as the limit that holds."""
    monkeypatch.setattr("evs_cli.dialects.vllm_0_33_limits.MAX_DECODED_BYTES", 1000)
    command = ("--server-cmd", TRUSTING)
    assert "a higher VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES" in only_error(export("-o", "body.json", *command), 6)
    raised = ("--server-cmd", "VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES=99999999999 " + TRUSTING, "--num-frames", "4")
    code, out, err = export("-o", "body.json", *raised, "--json")
    assert code == 0, err
    (record,) = json.loads(out)["videos"]
    assert (record["decoded_bytes"], record["decoded_bytes_limit"]) == (4 * 4 * 160 * 96, 99_999_999_999)
    _, out, _ = export("-o", "body.json", "--force", *raised)
    assert "245,760 of 99,999,999,999 bytes, 4 a pixel" in out
    for name, words in [
        ("VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES", "decoded bytes, 2,000 are allowed"),
        ("VLLM_MAX_IMAGE_PIXELS", "15,360 pixels, 2,000 are allowed"),
    ]:
        lowered = ("--server-cmd", f"{name}=2000 {TRUSTING}")
        error = only_error(export("-o", "other.json", *lowered), 6)
        assert words in error
        assert name in error
    assert [path.name for path in tmp_path.iterdir()] == ["body.json"]


def test_a_video_without_a_frame_leaves_no_file(evs, tiny_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = str(tiny_model("qwen3_vl"))
    arguments = ("--to", "vllm-frames", "--model", model, "-o", "body.json")
    only_error(evs("export", video("no_frame_decodes.mp4"), *arguments), 3)
    assert list(tmp_path.iterdir()) == []


def test_the_help_names_the_time_that_the_client_waits():
    import inspect

    from evs_cli.cli.export import command

    assert inspect.signature(command).parameters["timeout"].default == DEFAULT_TIMEOUT_SECONDS
