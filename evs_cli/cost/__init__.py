"""What a video costs a model: cache, prefill, vision, disk. Arithmetic on ``config.json``; imports no torch."""

from evs_cli.cost.language_model import LanguageModel, read_language_model
from evs_cli.cost.report import (
    CostReport,
    PrefillFlops,
    PromptCost,
    cost_report,
    embedding_bytes,
    kv_cache_bytes,
    prefill_flops,
    prompts_in_budget,
    recurrent_state_bytes,
)
from evs_cli.cost.vision import VisionFlops, VisionTower, read_vision_tower

__all__ = [
    "CostReport",
    "LanguageModel",
    "PrefillFlops",
    "PromptCost",
    "VisionFlops",
    "VisionTower",
    "cost_report",
    "embedding_bytes",
    "kv_cache_bytes",
    "prefill_flops",
    "prompts_in_budget",
    "read_language_model",
    "read_vision_tower",
    "recurrent_state_bytes",
]
