"""The published figures come out of ``evs plan`` to the token: what each server counts, and where its limits are."""

import json

import pytest

SIZES = {"10 s": (1080, 1920, 10), "61 s": (720, 1280, 61), "451 frames": (720, 1280, 451 / 30)}
QWEN25 = {
    "10 s": (403_650, 26_910, 7_200),
    "61 s": (1_094_340, 72_956, 43_920),
    "451 frames": (270_296, 17_940, 10_800),
}
QWEN3 = {"10 s": (11_960, 11_960, 5_760), "61 s": (10_980, 10_980, 11_590), "451 frames": (11_970, 11_970, 8_640)}
CAPPED = {"10 s": 7_200, "61 s": 10_980, "451 frames": 10_800}


@pytest.fixture
def plans(evs, served_checkpoint):
    """``plans("qwen3_vl", 1080, 1920, 10, "--dialect", "all")``: the documents of the plan, by dialect."""

    def run(checkpoint, height, width, seconds, *arguments):
        size = ["--height", height, "--width", width, "--duration", seconds]
        line = ["plan", *size, "--model", served_checkpoint(checkpoint), "--json", *arguments]
        _, out, _ = evs(*line)
        return {document["dialect"]: document for document in json.loads(out)["videos"]}

    return run


@pytest.mark.parametrize("clip", SIZES)
@pytest.mark.parametrize(("checkpoint", "expected"), [("qwen2_5_vl", QWEN25), ("qwen3_vl", QWEN3)])
def test_one_clip_three_counts(plans, checkpoint, expected, clip):
    found = plans(checkpoint, *SIZES[clip], "--dialect", "all")
    counts = tuple(found[name]["total_tokens"] for name in ("hf@5.24", "vllm@0.33", "sglang@0.5.23"))
    assert counts == expected[clip]


@pytest.mark.parametrize("clip", SIZES)
def test_the_cap_a_frame(plans, clip):
    found = plans("qwen3_vl", *SIZES[clip], "--dialect", "hf", "--cap-pixels-per-frame")
    assert found["hf@5.24"]["total_tokens"] == CAPPED[clip]


def test_nemotron_12b_of_61_seconds(plans):
    (vllm,) = plans("nemotron_12b", 720, 1280, 61, "--dialect", "vllm").values()
    assert (len(vllm["frames"]), vllm["total_tokens"], vllm["pruning"]["q"]) == (32, 8_192, 0)
    recipe = '{"video": {"fps": 2, "num_frames": 128}}'
    (asked,) = plans("nemotron_12b", 720, 1280, 61, "--dialect", "vllm", "--media-io-kwargs", recipe).values()
    assert (len(asked["frames"]), asked["total_tokens"]) == (122, 31_232)
    (sglang,) = plans("nemotron_12b", 720, 1280, 61, "--dialect", "sglang").values()
    assert (len(sglang["frames"]), sglang["rates"][-1]["retained_tokens"]) == (122, 9_369)
    assert sglang["pruning"] == {"q": 0.7, "source": "config.json", "can_prune": True, "method": "evs"}


@pytest.mark.parametrize(("seconds", "tokens"), [(1, 456), (10, 2_280)])
def test_measured_on_a_live_vllm(plans, seconds, tokens):
    """360p at 30 fps to Qwen3-VL: a time of 6 ids, a start and an end around each of 220 tokens."""
    (found,) = plans("qwen3_vl", 360, 640, seconds, "--dialect", "vllm").values()
    assert found["unpruned_sequence_length"] - found["outer_tokens"] == tokens


def test_measured_on_transformers(plans):
    limit = ["--video-max-pixels", 469_762_048]
    (found,) = plans("qwen3_vl", 1080, 1920, 90, "--dialect", "hf", *limit).values()
    assert (len(found["frames"]), found["total_tokens"]) == (180, 183_600)


def limits_of(document):
    return {limit["name"]: limit for limit in document["rates"][-1]["walls"]}


@pytest.mark.parametrize(("height", "width", "frames", "least"), [(1080, 1920, 115, 57.5), (720, 1280, 258, 129.0)])
def test_decoded_bytes_end_a_clip(plans, evs, served_checkpoint, height, width, frames, least):
    (found,) = plans("qwen3_vl", height, width, 10, "--dialect", "vllm").values()
    limit = limits_of(found)["decoded bytes"]
    assert limit["limit"] == 715_827_880
    assert limit["used"] == 20 * height * width * 3
    assert limit["longest_seconds"] >= least
    (longest,) = plans("qwen3_vl", height, width, limit["longest_seconds"], "--dialect", "vllm").values()
    assert len(longest["frames"]) == frames
    assert limits_of(longest)["decoded bytes"]["passes"]
    size = ["--height", height, "--width", width, "--duration", limit["longest_seconds"] + 1 / 30]
    code, _, err = evs("plan", *size, "--model", served_checkpoint("qwen3_vl"), "--dialect", "vllm")
    assert code == 6
    assert "runs into the decoded bytes of vllm@0.33" in err
    assert "Raise VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES" in err


def test_the_encoder_cache_refuses_what_was_refused(evs, served_checkpoint):
    """74,717 embeddings were refused by a cache of 45,536: separators count once the server prunes."""
    model = served_checkpoint("qwen2_5_vl")
    size = ["--height", 720, "--width", 1280, "--duration", 61]
    line = ["plan", *size, "--model", model, "--dialect", "vllm", "--max-model-len", 45_536]
    code, out, err = evs(*line, "--max-num-batched-tokens", 45_536, "--json")
    assert code == 6
    limit = limits_of(json.loads(out)["videos"][0])["encoder cache"]
    assert (limit["used"], limit["limit"], limit["margin"]) == (72_956, 45_536, -27_420)
    assert "runs into the context" in err  # the first limit it hits


def test_profiled_items_raise_the_cache(plans):
    """Of 128,000 positions Qwen2.5-VL expects 14 frames of the largest image; Qwen3-VL an image of 16,384."""
    (found,) = plans("qwen2_5_vl", 360, 640, 10, "--dialect", "vllm").values()
    assert limits_of(found)["encoder cache"]["limit"] == 7 * 16_384
    (found,) = plans("qwen3_vl", 360, 640, 10, "--dialect", "vllm").values()
    assert limits_of(found)["encoder cache"]["limit"] == 16_384


def test_the_cache_goes_by_the_pixel_limits_the_server_was_started_with(plans):
    """vLLM profiles images and videos by them too: 768 tokens each, 14 frames of them at most."""
    small = ["--mm-processor-kwargs", '{"max_pixels": 602112}']
    (found,) = plans("qwen2_5_vl", 1080, 1920, 50, "--dialect", "vllm", *small).values()
    assert limits_of(found)["encoder cache"]["limit"] == 8192
    large = ["--mm-processor-kwargs", '{"size": {"shortest_edge": 4096, "longest_edge": 234881024}}']
    (found,) = plans("qwen3_vl", 1080, 1920, 10, "--dialect", "vllm", *large).values()
    assert limits_of(found)["encoder cache"]["limit"] == 229_376


def test_sglang_keeps_seven_ids_of_the_context(plans):
    (found,) = plans("qwen3_vl", 360, 640, 10, "--dialect", "sglang", "--context", 2_289).values()
    limit = limits_of(found)["context"]
    assert (limit["used"], limit["limit"]) == (2_282, 2_282)


def test_pixels_of_a_frame(plans):
    (found,) = plans("qwen2_5_vl", 14_000, 14_000, 2, "--dialect", "vllm").values()
    limit = limits_of(found)["frame pixels"]
    assert (limit["limit"], limit["passes"], limit["longest_seconds"]) == (178_956_970, False, 0.0)


def test_limits_are_those_of_the_servers_line(evs, served_checkpoint):
    """What evs says to raise is read where it is raised, and stands in the line that fit prints."""
    model = served_checkpoint("qwen2_5_vl")
    variables = "VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES=2000000000 VLLM_MAX_IMAGE_PIXELS=200000000"
    video = ["--height", 14_000, "--width", 14_000, "--duration", 1, "--context", 128_000]
    line = f"{variables} vllm serve {model}"
    code, out, err = evs("plan", *video, "--server-cmd", line, "--json")
    assert code == 6
    assert "Raise VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES" in err
    limits = limits_of(json.loads(out)["videos"][0])
    assert (limits["decoded bytes"]["limit"], limits["frame pixels"]["limit"]) == (2_000_000_000, 200_000_000)
    code, out, err = evs("fit", *video, "--server-cmd", line.replace("2000000000", "4000000000"), "--json")
    assert code == 0, err
    command = json.loads(out)["videos"][0]["present"]["server"]["command"]
    assert command.startswith(f"{variables.replace('2000000000', '4000000000')} vllm serve {model} ")
    code, _, err = evs("plan", *video, "--server-cmd", command)
    assert code == 0, err


def test_a_clip_of_one_frame_is_refused(evs, served_checkpoint):
    size = ["--height", 360, "--width", 640, "--duration", 1 / 30]
    for dialect in ("hf", "vllm", "sglang"):
        code, _, err = evs("plan", *size, "--model", served_checkpoint("qwen3_vl"), "--dialect", dialect)
        assert code == 6, err
        assert "frame" in err
