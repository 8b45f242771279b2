"""Units of tokens and memory."""

import json

import pytest

from evs_cli.cli.values import byte_count, token_count
from evs_cli.errors import UsageError


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("32768", 32768), ("32k", 32768), ("128K", 131072), ("1M", 1048576), ("1.5k", 1536), ("0", 0), (" 8 k ", 8192)],
)
def test_tokens_take_units_of_1024(text, tokens):
    assert token_count("--context", text) == tokens


@pytest.mark.parametrize("text", ["", "k", "32kb", "32 000", "1.5", "0.0001k", "1e3", "32g", "nan", "-", "32,768"])
def test_what_is_no_number_of_tokens_is_refused(text):
    with pytest.raises(UsageError, match=r"Invalid --context .*Expected tokens such as 32768, 32k \(k = 1024\) or 1M"):
        token_count("--context", text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *[("24", 24 * 2**30), ("1.5", 3 * 2**29), ("24GiB", 24 * 2**30), ("80GB", 80 * 10**9), ("512MiB", 2**29)],
        *[("24G", 24 * 2**30), ("1 tb", 10**12), ("0.5", 2**29)],
    ],
)
def test_sizes_take_units(text, size):
    assert byte_count("--kv-budget", text) == size


@pytest.mark.parametrize("text", ["0", "-1", "", "GiB", "24 bytes", "inf", "nan", "1e9"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UsageError, match=r"Invalid --kv-budget .*Expected more than 0"):
        byte_count("--kv-budget", text)


def test_none_stays_none():
    assert token_count("--context", None) is None
    assert byte_count("--kv-budget", None) is None


@pytest.mark.parametrize("option", ["--context", "--max-model-len", "--context-length"])
def test_every_name_of_the_context_takes_a_unit(evs, tiny_model, option):
    numbers = ("--frames", "8", "--height", "64", "--width", "64", "--model", tiny_model("qwen3_vl"), "--json")
    limits = [
        json.loads(evs("plan", *numbers, option, text)[1])["videos"][0]["context_limit"] for text in ("2k", "2048")
    ]
    assert limits == [2048, 2048]


def test_every_option_of_tokens_takes_a_unit(evs, tiny_model):
    numbers = ("--frames", "8", "--height", "64", "--width", "64", "--model", tiny_model("qwen3_vl"))
    clip = ("--duration", "4", *numbers[2:])  # a server samples it itself
    pairs = [
        (
            ("fit", *numbers, "--context", "4k", "--reserve", "1k"),
            ("fit", *numbers, "--context", "4096", "--reserve", "1024"),
        ),
        (("fit", *numbers, "--max-tokens", "1k"), ("fit", *numbers, "--max-tokens", "1024")),
        (
            ("plan", *clip, "--dialect", "vllm", "--max-num-batched-tokens", "8k"),
            ("plan", *clip, "--dialect", "vllm", "--max-num-batched-tokens", "8192"),
        ),
        (("plan", *numbers, "--kv-budget", "2GiB"), ("plan", *numbers, "--kv-budget", "2")),
    ]
    for short, long in pairs:
        assert evs(*short) == evs(*long)
        assert evs(*short)[0] == 0, evs(*short)
    for option in ("--context", "--reserve", "--kv-budget"):
        code, _, err = evs("plan", *numbers, option, "lots")
        assert code == 2
        assert f"Invalid {option} 'lots'" in err
