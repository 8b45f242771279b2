"""Releases before the newest: what their rules do otherwise."""

import json
import shlex

import pytest
from tiny_grid_models import grid_family
from video_files import video

from evs_cli.dialects import parse_dialect
from evs_cli.dialects.base import RefusedByServerError, ServerOptions
from evs_cli.errors import UsageError
from evs_cli.video.info import probe_video

LONG_HD = ("--height", "1080", "--width", "1920", "--duration", "70")


def test_vllm_0_32_has_no_limit_of_decoded_bytes(evs, hub_cache):
    """70 s of 1080p at 2 fps are 870,912,000 bytes of pixels, more than the 715,827,880 of 0.33."""
    hub_cache("qwen3-vl-8b", "qwen3_vl")
    code, _, err = evs("plan", *LONG_HD, "--model", "qwen3-vl-8b", "--dialect", "vllm@0.33")
    assert code == 6
    assert "runs into the decoded bytes of vllm@0.33" in err
    code, out, _ = evs("plan", *LONG_HD, "--model", "qwen3-vl-8b", "--dialect", "vllm@0.32")
    assert code == 0
    assert "encoder cache" in out
    assert "decoded bytes" not in out


def test_vllm_0_32_counts_no_packets():
    """live.mkv states no count and no length: 0.33 counts its 60 packets, 0.32 finds none."""
    streamed = probe_video(video("live.mkv"))
    assert parse_dialect("vllm@0.33").rules.source_of(streamed, ServerOptions()).num_frames == 60
    with pytest.raises(RefusedByServerError, match=r"states neither its frames nor its length, and vLLM 0\.32"):
        parse_dialect("vllm@0.32").rules.source_of(streamed, ServerOptions())
    whole = probe_video(video("normal.mkv"))
    assert parse_dialect("vllm@0.32").rules.source_of(whole, ServerOptions()).num_frames == 60


@pytest.mark.parametrize(("version", "frames"), [("0.5.22", 60), ("0.5.23", 20)])
def test_a_glm_request_raises_what_sglang_0_5_22_was_started_with(evs, version, frames):
    """``max_frames`` 20 at start, 64 in the request, for 30 s at 2 fps; 0.5.23 keeps to 20."""
    folder = grid_family("glm4v").folder
    clip = ("--height", "64", "--width", "64", "--duration", "30", "--max-frames", "64")
    options = ["--model-path", str(folder), "--mm-process-config", json.dumps({"video": {"max_frames": 20}})]
    server = shlex.join(["python", "-m", "sglang.launch_server", *options])
    code, out, err = evs("plan", *clip, "--server-cmd", server, "--dialect", f"sglang@{version}", "--json")
    assert code == 0, err
    (planned,) = json.loads(out)["videos"]
    assert len(planned["frames"]) == frames


def test_versions_without_rules_are_refused():
    with pytest.raises(UsageError, match=r"Expected sglang@0\.5\.22 or sglang@0\.5\.23"):
        parse_dialect("sglang@0.5.21")
