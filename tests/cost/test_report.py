"""The report's own arithmetic: ratios, edges, errors, what it imports. Published models are in test_cost_published."""

import json
import os
import subprocess
import sys
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_configs import NEMOTRON_OMNI_30B, PUBLISHED, QWEN3_VL_8B

from evs_cli.core.counts import compute_retained_tokens_count
from evs_cli.cost import (
    cost_report,
    embedding_bytes,
    kv_cache_bytes,
    prefill_flops,
    prompts_in_budget,
    read_language_model,
)
from evs_cli.cost.fields import dtype_bytes
from evs_cli.errors import UsageError

DINO = {"model_type": "dinov2", "hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "patch_size": 14}


def report_at(config, q, *, frames=32, per_frame=256, text=40, **more):
    kept = compute_retained_tokens_count(per_frame, frames, q)
    whole = frames * per_frame + text
    return cost_report(config, unpruned_tokens=whole, pruned_tokens=kept + text, retained_video_tokens=kept, **more)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(PUBLISHED)),
    q=st.floats(0, 0.999),
    frames=st.integers(1, 60),
    per_frame=st.integers(1, 400),
    text=st.integers(0, 500),
)
def test_pruning_never_costs_more(name, q, frames, per_frame, text):
    report = report_at(PUBLISHED[name], q, frames=frames, per_frame=per_frame, text=text, kv_budget_bytes=2**36)
    assert report.pruned.sequence_tokens - report.pruned.video_tokens == text
    assert report.unpruned.video_tokens == frames * per_frame
    share = report.pruned.sequence_tokens / report.unpruned.sequence_tokens
    assert 0 < report.prefill_attention_ratio <= share <= 1
    # The head is paid once and does not shrink, so the linear part shrinks less than the sequence.
    assert share <= report.prefill_linear_ratio <= 1
    assert 0 < report.prefill_flops_ratio <= 1
    assert report.kv_cache_ratio == pytest.approx(share)
    assert report.pruned.prompts_in_kv_budget >= report.unpruned.prompts_in_kv_budget
    assert report.pruned.recurrent_state_bytes == report.unpruned.recurrent_state_bytes
    assert report.embedding_bytes <= report.unpruned_embedding_bytes
    json.dumps(asdict(report), allow_nan=False)


@pytest.mark.parametrize("name", PUBLISHED)
def test_at_q_0_nothing_changes(name):
    report = report_at(PUBLISHED[name], 0.0, patch_grid_thw=(32, 32, 32))
    assert report.pruned == report.unpruned
    assert report.prefill_flops_ratio == report.prefill_attention_ratio == report.kv_cache_ratio == 1.0
    assert report.embedding_bytes == report.unpruned_embedding_bytes


def test_q_does_not_change_vision():
    reports = [report_at(QWEN3_VL_8B, q, patch_grid_thw=(32, 32, 32)) for q in (0.0, 0.3, 0.7, 0.99)]
    assert len({r.vision_flops for r in reports}) == 1
    assert reports[0].vision_flops > 0
    assert len({r.pruned.prefill_flops for r in reports}) == 4


def test_near_q_1_the_first_frame_is_left():
    report = report_at(QWEN3_VL_8B, 0.9999, text=0)
    assert (report.pruned.sequence_tokens, report.pruned.video_tokens) == (256, 256)
    assert report.kv_cache_ratio == 256 / 8192


def test_lengths_of_0_and_1():
    model = read_language_model(QWEN3_VL_8B)
    nothing, one = prefill_flops(model, 0), prefill_flops(model, 1)
    assert (nothing.prefill_flops, kv_cache_bytes(model, 0)) == (0, 0)
    # 36 layers of one pair, 4 x 32 x 128; two FLOPs a parameter, with the head's 151936 x 4096.
    assert one.prefill_attention_flops == 36 * 4 * 32 * 128
    assert one.prefill_linear_flops == 2 * (6_945_767_424 + 622_329_856)
    empty = cost_report(QWEN3_VL_8B, unpruned_tokens=0, pruned_tokens=0, retained_video_tokens=0, kv_budget_bytes=10)
    assert empty.unpruned.prompts_in_kv_budget is None
    assert empty.kv_cache_ratio is empty.prefill_flops_ratio is empty.prefill_attention_ratio is None
    assert empty.embedding_bytes == 0
    json.dumps(asdict(empty), allow_nan=False)


def test_plain_encoder():
    report = report_at(DINO, 0.7, patch_grid_thw=(32, 16, 16))
    assert report.unpruned is report.pruned is report.language_model_type is report.context_limit_tokens is None
    assert report.kv_cache_ratio is report.prefill_flops_ratio is None
    assert (report.embedding_size, report.embedding_levels, report.embedding_dtype) == (384, 1, "float32")
    assert report.embedding_bytes == 2457 * 384 * 4
    # 32 frames x 2 x (256 x 3 x 14 x 14 x 384 + 257 x 12 x (4 x 384^2 + 2 x 384 x 1536)), 4 x 384 x 32 x 12 x 257^2
    assert report.vision_linear_flops == 32 * 2 * (256 * 225_792 + 257 * 12 * 1_769_472)
    assert report.vision_attention_flops == 4 * 384 * 32 * 12 * 66_049
    assert report.vision_projector_flops == 0
    json.dumps(asdict(report), allow_nan=False)


def test_what_is_not_known_is_none():
    report = report_at(PUBLISHED["nemotron_nano_12b_v2"], 0.7, patch_grid_thw=(32, 32, 32))
    assert report.vision_flops is report.vision_linear_flops is None
    assert report.embedding_bytes == 2457 * 5120 * 2
    assert report_at(QWEN3_VL_8B, 0.7).vision_flops is None
    assert report_at(QWEN3_VL_8B, 0.7).pruned.prompts_in_kv_budget is None


def test_budget_counts_whole_prompts():
    tight = report_at(NEMOTRON_OMNI_30B, 0.0, kv_budget_bytes=0)
    assert tight.unpruned.prompts_in_kv_budget == 0
    need = tight.unpruned.kv_cache_bytes + tight.unpruned.recurrent_state_bytes
    for budget, fits in ((need - 1, 0), (need, 1), (2 * need - 1, 1), (2 * need, 2)):
        assert report_at(NEMOTRON_OMNI_30B, 0.0, kv_budget_bytes=budget).unpruned.prompts_in_kv_budget == fits
    assert prompts_in_budget(10, 0) is None


@pytest.mark.parametrize(
    ("name", "size"),
    [("bfloat16", 2), ("torch.float16", 2), ("half", 2), ("bf16", 2), ("fp16", 2), ("float32", 4), ("fp32", 4)]
    + [(name, 1) for name in ("fp8", "fp8_e4m3", "float8_e5m2", "float8_e4m3fn", "float8", "int8")],
)
def test_dtype_bytes(name, size):
    assert dtype_bytes(name) == size


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dtype_bytes("fp4"), r"Invalid dtype \(fp4\). Expected one of: float32, bfloat16"),
        (lambda: report_at(QWEN3_VL_8B, 0.7, kv_dtype="nvfp4"), r"Invalid dtype \(nvfp4\)"),
        (lambda: report_at(QWEN3_VL_8B, 0.7, kv_budget_bytes=-1), r"Invalid cache budget \(-1 bytes\)"),
        (lambda: kv_cache_bytes(read_language_model(QWEN3_VL_8B), -1), r"Invalid length of a prompt \(-1 tokens\)"),
        (lambda: prefill_flops(read_language_model(QWEN3_VL_8B), -1), r"Invalid length of a prompt \(-1 tokens\)"),
        (lambda: prefill_flops(read_language_model(QWEN3_VL_8B), 5, 6), r"Invalid video tokens \(6\). Expected 0 to 5"),
        (lambda: embedding_bytes(-1, 4096, 1, "bf16"), "Invalid embeddings"),
        (
            lambda: cost_report(QWEN3_VL_8B, unpruned_tokens=10, pruned_tokens=20, retained_video_tokens=5),
            "Invalid lengths: 5 video tokens kept, 20 tokens pruned, 10 unpruned. Expected them in rising order",
        ),
        (
            lambda: cost_report(QWEN3_VL_8B, unpruned_tokens=10, pruned_tokens=4, retained_video_tokens=5),
            "Invalid lengths",
        ),
        (
            lambda: cost_report(QWEN3_VL_8B, unpruned_tokens=10, pruned_tokens=4, retained_video_tokens=-1),
            "Invalid lengths",
        ),
    ],
)
def test_arguments_that_make_no_sense(call, message):
    with pytest.raises(UsageError, match=message):
        call()


def test_nothing_heavy_is_imported():
    code = (
        "import json, sys; import evs_cli.cost; "
        "print(json.dumps([m for m in ('torch', 'transformers', 'numpy', 'huggingface_hub') if m in sys.modules]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "COVERAGE_RUN": ""}
    )
    assert json.loads(run.stdout) == []
