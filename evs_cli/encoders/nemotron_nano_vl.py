"""Nemotron Nano VL 12B v2: counted as servers take it, and never run; transformers has no model and no processor of it.

Its configuration and tokenizer are enough for the rules of vLLM and SGLang (``--dialect``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from evs_cli.encoders.base import Clip, EncodeOptions, EncodePlan
from evs_cli.encoders.loading import load_tokenizer
from evs_cli.encoders.processor_files import read_tokenizer_files
from evs_cli.encoders.vlm import VisionLanguageEncoder
from evs_cli.encoders.weights import WeightsRead
from evs_cli.errors import ModelError
from evs_cli.video.sampling import EVS_DEFAULTS, SamplingDefaults

if TYPE_CHECKING:
    import torch

    from evs_cli.core.video_tokens import VideoTokens


class NemotronNanoVLEncoder(VisionLanguageEncoder):
    """A checkpoint of which only the counts are known."""

    modality: ClassVar[str] = "image"
    supported_options: ClassVar[frozenset[str]] = frozenset({"prompt"})

    @cached_property
    def processor(self) -> Any:
        """Its tokenizer and the tokens that config.json names, in a processor's terms."""
        return self._with_tokenizer(load_tokenizer(self.source))

    @cached_property
    def plan_processor(self) -> Any:
        """The same, its tokenizer read from the file where only counts are wanted."""
        files = read_tokenizer_files(self.source) if self.counts_alone else None
        return self.processor if files is None else self._with_tokenizer(files)

    def _with_tokenizer(self, tokenizer: Any) -> SimpleNamespace:
        config = self.source.config
        return SimpleNamespace(
            tokenizer=tokenizer,
            video_processor=SimpleNamespace(),
            video_token=config.get("video_context_token", "<video>"),
            image_token=config.get("img_context_token", "<image>"),
            image_start_token=config.get("img_start_token", "<img>"),
            image_end_token=config.get("img_end_token", "</img>"),
            chat_template=tokenizer.chat_template,
            apply_chat_template=tokenizer.apply_chat_template,
        )

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """Those of evs: the checkpoint states none."""
        return EVS_DEFAULTS

    @property
    def temporal_patch_size(self) -> int:
        """1, unless ``vision_config`` says otherwise."""
        return int((self.source.config.get("vision_config") or {}).get("video_temporal_patch_size") or 1)

    @property
    def spatial_merge_size(self) -> int:
        """The inverse of ``downsample_ratio``."""
        return round(1 / float(self.source.config.get("downsample_ratio", 0.5)))

    def _expand(self, clip: Clip, options: EncodeOptions, frame_size: tuple[int, int] | None) -> EncodePlan:
        raise self._unusable("it has no processor there")

    def load(self, device: str, dtype: torch.dtype) -> WeightsRead:
        """Refused.

        Raises:
            ModelError: always.
        """
        raise self._unusable("it has no model there")

    def embed(self, inputs: Mapping[str, torch.Tensor], plan: EncodePlan) -> VideoTokens:
        """Refused, as ``load`` is."""
        raise self._unusable("it has no model there")

    def _unusable(self, reason: str) -> ModelError:
        return ModelError(
            f"cannot use {self.source.name} with transformers: {reason}.",
            hint="evs plan and evs fit count it as a server takes it: --dialect vllm or --dialect sglang.",
        )
