"""What is held against servers: families with the options a server is started with, and those of a request."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MAX_MODEL_LEN = "131072"


@dataclass(frozen=True)
class Case:
    """One server, and how it is asked."""

    family: str
    """Of ``checkpoints.SAVERS``."""
    started: tuple[str, ...] = ()
    """Options of the server's command line that change a count."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of ``evs check`` that go into the request."""

    @property
    def name(self) -> str:
        """Its options as a user writes them."""
        asked = [f"--{name.replace('_', '-')} {value}" for name, value in self.asked.items()]
        return f"{shlex.join(self.started) or '(none)'}{' | request: ' if asked else ''}{' '.join(asked)}"


def _media(**options: Any) -> tuple[str, str]:
    return "--media-io-kwargs", json.dumps({"video": options})


def _size(shortest: int, longest: int) -> tuple[str, str]:
    return "--mm-processor-kwargs", json.dumps({"size": {"shortest_edge": shortest, "longest_edge": longest}})


def _q(rate: str) -> tuple[str, str]:
    return "--video-pruning-rate", rate


VLLM_CASES = (
    Case("qwen2_5_vl"),
    Case("qwen2_5_vl", (*_q("0.7"), *_media(fps=5))),
    Case("qwen2_5_vl", _size(3136, 100_352)),
    Case("qwen2_5_vl", (), {"fps": 1.0}),
    Case("qwen3_vl"),
    Case("qwen3_vl", _q("0.5")),
    Case("qwen3_vl", (*_q("0.8"), *_media(fps=60, max_frames=24))),
    Case("qwen3_vl", (), {"fps": 1.0, "video_max_pixels": 1_000_000}),
    Case("qwen3_5"),
    Case("qwen3_5", (*_q("0.7"), *_size(4096, 2_000_000))),
    Case("internvl"),
    Case("internvl", _media(num_frames=8)),
    Case("internvl", (), {"fps": 1.0}),
    Case("glm4v"),
    Case("glm4v", _media(fps=1)),
    Case("glm46v"),
    Case("glm46v", (), {"max_frames": 12}),
    Case("glm46v_anew"),
    Case("glm46v_anew", _media(num_frames=10)),
)
"""Six families; those with a request of their own share the server of the same options."""


def _process(**options: Any) -> tuple[str, str]:
    return "--mm-process-config", json.dumps({"video": options})


SGLANG_CASES = (
    Case("qwen2_5_vl"),
    Case("qwen2_5_vl", _process(fps=5, max_frames=40)),
    Case("qwen3_vl"),
    Case("qwen3_vl", _process(fps=1, max_pixels=200_704)),
    Case("qwen3_5"),
    Case("glm4v"),
    Case("glm4v", _process(fps=1, max_frames=20)),
    Case("glm46v"),
)
"""Families that the processors of SGLang's wheel take."""


def vllm_words(checkpoint: Path, started: tuple[str, ...]) -> list[str]:
    """The words behind ``vllm serve`` that start a server of this case; nothing but the counting is of use here."""
    return [
        str(checkpoint),
        *("--dtype", "float32", "--enforce-eager", "--allowed-local-media-path", "/"),
        *("--max-model-len", _MAX_MODEL_LEN, "--trust-request-mm-kwargs"),
        *started,
    ]


def sglang_words(checkpoint: Path, started: tuple[str, ...]) -> list[str]:
    """The words behind ``python -m sglang.launch_server`` of this case."""
    return ["--model-path", str(checkpoint), "--context-length", _MAX_MODEL_LEN, *started]
