"""SmolVLM: a span a frame behind its time, placeholders of the image token; the frame count stands in words.

A frame is never split into tiles, as the family's images are: its video processor makes each one square instead.
"""

from __future__ import annotations

import importlib.util
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from evs_cli.encoders.base import Clip, FloatArray, seconds
from evs_cli.encoders.frame_vlm import FrameVideoEncoder
from evs_cli.encoders.loading import load_processor, of_one_video
from evs_cli.errors import ModelError
from evs_cli.video.sampling import DEFAULT_FPS, DEFAULT_MAX_FRAMES, SamplingDefaults

if TYPE_CHECKING:
    import torch


class SmolVLMEncoder(FrameVideoEncoder):
    """A video goes in as the images of its frames, each behind its time in minutes and seconds."""

    modality: ClassVar[str] = "image"
    pixel_name: ClassVar[str] = "pixel_values"

    @cached_property
    def processor(self) -> Any:
        """The checkpoint's processor, which spells the number of frames with ``num2words``."""
        if importlib.util.find_spec("num2words") is None:
            raise ModelError(
                f"cannot load {self.source.name}: its processor needs the package num2words.",
                hint="pip install num2words",
            )
        return load_processor(self.source)

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """The video processor's rate up to its ``num_frames``, which is a limit here and no wish."""
        video = self.processor.video_processor
        return SamplingDefaults(
            fps=float(video.fps or DEFAULT_FPS), max_frames=int(video.num_frames or DEFAULT_MAX_FRAMES)
        )

    @property
    def merge_size(self) -> int:
        """The side of the pixel shuffle, ``scale_factor``."""
        return int(self.config.scale_factor)

    def _prompt_seconds(self, clip: Clip) -> FloatArray:
        """Whole seconds, cut off after the time was rounded to the millisecond."""
        return seconds(np.floor(np.round(1000 * clip.pts_seconds) / 1000))

    def features(self, pixels: torch.Tensor) -> torch.Tensor:
        """``(t * h * w, D)``, or ``(t, h * w, D)`` before transformers 5.20.2."""
        return of_one_video(self._model.get_image_features(pixels).pooler_output)
