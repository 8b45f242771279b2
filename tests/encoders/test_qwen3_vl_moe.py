"""Qwen3-VL with experts: the encoder of ``qwen3_vl`` (test_qwen_vl.py) on a language model that mixes them."""

from grid_checks import GridChecks, Qwen3Prompt


class TestQwen3VLMoe(Qwen3Prompt, GridChecks):
    model_type = "qwen3_vl_moe"
    levels = 3
