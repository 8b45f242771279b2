"""VidCom2 of vLLM 0.33: counted to the token, and never run."""

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from served_models import cases
from server_wheels import wheel_function

from evs_cli.core.counts import compute_retained_tokens_count, exact_retained_tokens_count
from evs_cli.dialects.server_command import parse_server_command
from evs_cli.errors import UsageError

WHEEL = "EVS_VLLM_WHEEL"
SIZE = ("--height", 360, "--width", 640, "--duration", 10)


@pytest.mark.parametrize(
    ("q", "per_frame", "num_frames", "evs", "vidcom2"),
    [
        (0.0, 16, 10, 160, 160),
        (0.5, 16, 10, 80, 80),
        (0.95, 16, 10, 16, 10),  # 8 tokens: a frame of 16 is the floor of one, a token of each of 10 frames the other's
        (0.95, 4, 10, 4, 10),  # more frames than tokens a frame: the other floor is the higher one
        (0.9, 1, 10, 1, 10),
        (0.8, 256, 10, 511, 511),  # the float rule is the same
    ],
)
def test_the_floor_is_a_token_of_every_frame(q, per_frame, num_frames, evs, vidcom2):
    assert compute_retained_tokens_count(per_frame, num_frames, q) == evs
    assert compute_retained_tokens_count(per_frame, num_frames, q, "vidcom2") == vidcom2
    assert exact_retained_tokens_count(256, 10, 0.8, "vidcom2") == 512


@cases(2000)
@given(
    per_frame=st.integers(1, 2000), num_frames=st.integers(1, 800), q=st.floats(0, 0.999) | st.sampled_from([0.7, 0.99])
)
def test_the_count_is_the_servers_own(per_frame, num_frames, q):
    own = wheel_function(WHEEL, "vllm/multimodal/video_prune/vidcom2.py", "compute_retained_tokens_count", {})
    assert compute_retained_tokens_count(per_frame, num_frames, q, "vidcom2") == own(per_frame, num_frames, q)


def test_a_plan_counts_by_it(evs, served_checkpoint):
    """10 frames of tokens, 11 x 20 each: 66 of 2,200 at q = 0.97, where EVS keeps a frame of 220."""
    plan = ["plan", *SIZE, "--model", served_checkpoint("qwen3_vl"), "--dialect", "vllm", "--json"]
    for q, method, kept in ((0.97, "vidcom2", 66), (0.97, "evs", 220), (0.999, "vidcom2", 10)):
        code, out, err = evs(*plan, "--q", q, "--video-pruning-method", method)
        assert code == 0, err
        (document,) = json.loads(out)["videos"]
        (rate,) = document["rates"]
        assert (rate["retained_tokens"], document["pruning"]["method"]) == (kept, method)
        text = document["unpruned_sequence_length"] - 2200
        assert rate["sequence_length"] == text + kept
        cached = next(wall["used"] for wall in rate["walls"] if wall["name"] == "encoder cache")
        assert cached == text - document["outer_tokens"] + kept  # the times are cached too when it prunes


def test_the_lines_of_fit_have_it(evs, served_checkpoint):
    """No rate of EVS gets below a frame of 220 tokens; VidCom2 does."""
    model = served_checkpoint("qwen3_vl")
    fit = ["fit", *SIZE, "--model", model, "--dialect", "vllm", "--context", 290, "--json"]
    presents = {}
    for method in ("evs", "vidcom2"):
        code, out, err = evs(*fit, "--video-pruning-method", method)
        assert code == 0, err
        presents[method] = json.loads(out)["videos"][0]["present"]
    assert presents["evs"] is None
    present = presents["vidcom2"]
    command, request = present["server"]["command"], present["server"]["request"]
    assert "--video-pruning-method vidcom2" in command
    system, message = request["messages"]
    texts = ("--prompt", message["content"][1]["text"], "--system", system["content"])
    code, out, err = evs("plan", *SIZE, "--server-cmd", command, *texts, "--json")
    assert code == 0, err
    rate = json.loads(out)["videos"][0]["rates"][-1]
    assert [rate[name] for name in ("q", "sequence_length", "retained_tokens")] == [
        present[name] for name in ("q", "sequence_length", "retained_tokens")
    ]
    words = shlex.split(present["command"])
    assert words[:3] == ["evs", "plan", "VIDEO"]  # what is counted and not run is planned
    assert words[words.index("--video-pruning-method") + 1] == "vidcom2"


@pytest.mark.parametrize("checkpoint", ["qwen2_5_vl", "nemotron_12b"])
def test_a_family_without_it_is_refused_where_the_server_does_not_start(evs, served_checkpoint, checkpoint):
    line = f"vllm serve {served_checkpoint(checkpoint)} --video-pruning-method vidcom2"
    code, _, err = evs("plan", *SIZE, "--server-cmd", f"{line} --video-pruning-rate 0.5")
    assert code == 6
    assert "vLLM does not start with --video-pruning-method vidcom2 for this family" in err
    assert evs("plan", *SIZE, "--server-cmd", line)[0] == 0  # without a rate it prunes nothing


def test_what_runs_the_model_refuses_it(evs, tiny_model):
    line = ["prune", "samples/crossing.mp4", "--model", tiny_model("qwen3_vl"), "--dialect", "vllm"]
    code, _, err = evs(*line, "--video-pruning-method", "vidcom2", "--q", 0.5)
    assert code == 2
    assert "its tokens are counted, and not chosen" in err
    code, _, err = evs("plan", *SIZE, "--dialect", "evs", "--video-pruning-method", "vidcom2")
    assert code == 2
    assert "--video-pruning-method has no effect on evs. Expected it with --dialect vllm." in err
    code, _, err = evs(*line, "--video-pruning-method", "vidcom")
    assert code == 2
    assert "Expected evs or vidcom2" in err


def test_an_option_that_no_release_has_is_told():
    with pytest.raises(UsageError, match=r"vLLM has no --video-retention-ratio.*--video-pruning-method vidcom2"):
        parse_server_command("vllm serve X --video-retention-ratio 0.3")
