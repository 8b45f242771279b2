"""The endpoints of a running server: models, ids, usage, and answers that are not what they should be."""

import pytest
from counting_servers import CannedServer

from evs_cli.errors import ServerError, UsageError
from evs_cli.servers.client import PromptUsage, ServedName, ServerClient, TokenizedPrompt, choose_served_name
from evs_cli.servers.http_json import HttpJson, HttpStatusError
from evs_cli.servers.inline_video import RequestBody

BODY = RequestBody({})
VLLM_CARD = {"id": "qwen", "object": "model", "owned_by": "vllm", "root": "/models/q", "parent": None}
SGLANG_CARD = {"id": "qwen", "object": "model", "owned_by": "sglang", "root": "qwen", "max_model_len": 4096}


def asked(answers, ask):
    with CannedServer(answers) as server:
        return ask(ServerClient(HttpJson(server.url)))


def usage_of(usage):
    return asked({"/v1/chat/completions": (200, {"usage": usage})}, lambda client: client.usage(BODY))


def test_the_models_that_are_listed():
    adapter = {"id": "adapter", "owned_by": "vllm", "root": "/adapters/a", "parent": "qwen"}
    answers = {"/v1/models": (200, {"data": [{**VLLM_CARD, "max_model_len": 32768}, adapter, {"id": "bare"}]})}
    assert asked(answers, ServerClient.served_names) == [
        ServedName("qwen", "/models/q", "vllm", 32768),
        ServedName("adapter", "/adapters/a", "vllm", is_base=False),
        ServedName("bare"),
    ]


def test_a_server_without_a_list_lists_nothing():
    assert asked({}, ServerClient.served_names) == []
    assert asked({"/v1/models": (405, {})}, ServerClient.served_names) == []
    with pytest.raises(HttpStatusError, match="401"):
        asked({"/v1/models": (401, {})}, ServerClient.served_names)


@pytest.mark.parametrize(
    "content", [{}, {"data": None}, {"data": "qwen"}, {"data": ["qwen"]}, {"data": [{"name": "q"}]}]
)
def test_a_list_that_is_none(content):
    with pytest.raises(ServerError, match="no list of models with an id"):
        asked({"/v1/models": (200, content)}, ServerClient.served_names)


def test_the_version_is_where_each_server_tells_it():
    answers = {"/version": (200, {"version": "0.33.1"}), "/server_info": (200, {"version": "0.5.23", "tp_size": 1})}
    assert asked(answers, lambda client: client.version("vllm")) == "0.33.1"
    assert asked(answers, lambda client: client.version("sglang")) == "0.5.23"
    assert asked(answers, lambda client: client.version("other")) is None
    for answer in ((404, {}), (200, {}), (200, {"version": 5}), (200, b"no"), (200, {"version": "\x1b[31m"})):
        assert asked({"/version": answer}, lambda client: client.version("vllm")) is None


def test_ids_are_taken_as_they_come():
    answers = {"/tokenize": (200, {"count": 3, "max_model_len": 99, "tokens": [5, 0, 7], "token_strs": None})}
    assert asked(answers, lambda client: client.tokenize(BODY)) == TokenizedPrompt((5, 0, 7), 99)
    del answers["/tokenize"][1]["max_model_len"]
    assert asked(answers, lambda client: client.tokenize(BODY)) == TokenizedPrompt((5, 0, 7), None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "no list of ids"),
        ({"count": 1, "tokens": "a"}, "no list of ids"),
        ({"count": 2, "tokens": [1, "2"]}, "no list of ids"),
        ({"count": 2, "tokens": [1, True]}, "no list of ids"),
        ({"count": 2, "tokens": [1, -2]}, "no list of ids"),
        ({"count": [2], "tokens": [[1, 2]]}, "no list of ids"),
        ({"count": 3, "tokens": [1, 2]}, "2 ids and a count of 3"),
        ({"tokens": [1, 2]}, "2 ids and a count of None"),
    ],
)
def test_ids_that_are_none(content, message):
    with pytest.raises(ServerError, match=f"answers POST /tokenize with {message}"):
        asked({"/tokenize": (200, content)}, lambda client: client.tokenize(BODY))


def test_usage_with_what_a_server_says_of_the_video():
    assert usage_of({"prompt_tokens": 250, "total_tokens": 251}) == PromptUsage(250, None)
    assert usage_of({"prompt_tokens": 250, "prompt_tokens_details": None}) == PromptUsage(250, None)
    assert usage_of({"prompt_tokens": 250, "prompt_tokens_details": {"cached_tokens": 5}}) == PromptUsage(250, None)
    sglang = {"prompt_tokens": 250, "prompt_tokens_details": {"video_tokens": 60}}
    vllm = {"prompt_tokens": 250, "prompt_tokens_details": {"multimodal_tokens": {"video": 212}}}
    assert usage_of(sglang) == PromptUsage(250, 60)
    assert usage_of(vllm) == PromptUsage(250, 212)


@pytest.mark.parametrize(
    "usage", [None, {}, [], {"prompt_tokens": None}, {"prompt_tokens": "9"}, {"prompt_tokens": -1}]
)
def test_usage_that_is_none(usage):
    with pytest.raises(ServerError, match=r"answers POST /v1/chat/completions with no usage\.prompt_tokens"):
        usage_of(usage)


def test_the_name_in_a_request():
    base, other = ServedName("qwen", "/models/q"), ServedName("other", "/models/o")
    adapter = ServedName("adapter", "/models/q", is_base=False)
    assert choose_served_name([base, adapter], None, "elsewhere") is base
    assert choose_served_name([other, base], None, "/models/q") is base
    assert choose_served_name([other, base], None, "qwen") is base
    assert choose_served_name([base, ServedName("alias", "/models/q")], None, "/models/q") is base
    assert choose_served_name([base, adapter], "adapter", "x") is adapter
    assert choose_served_name([], "mine", "x") == ServedName("mine")
    for names, asked_for, message in (
        ([base, other], None, "several models. Expected --served-model qwen or other"),
        ([base, other], "mine", "Invalid --served-model 'mine'. Expected qwen or other"),
        ([], None, "lists no model. Expected its name as --served-model"),
    ):
        with pytest.raises(UsageError, match=message):
            choose_served_name(names, asked_for, "x")
