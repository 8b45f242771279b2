"""VideoLLaMA 3: a span a frame behind its time, tubelets of one frame, positions along one axis.

Its processor drops tokens whose pixels hardly change (``use_token_compression``), before a model has seen them and
whatever the rate: that is turned off, so that EVS ranks every token.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from evs_cli.encoders.base import EncodePlan, FloatArray, VideoEncoder
from evs_cli.encoders.frame_times import printed_seconds
from evs_cli.encoders.grid_vlm import GridVideoEncoder

if TYPE_CHECKING:
    import torch

    from evs_cli.core.placeholders import SequenceLayout


class VideoLlama3Encoder(GridVideoEncoder):
    """The least pixels hold for each frame, the most for all frames together."""

    pixel_limits: ClassVar[tuple[str, str]] = ("frame_min_pixels", "video_max_pixels")
    supported_options: ClassVar[frozenset[str]] = frozenset({"prompt", "frame_min_pixels", "video_max_pixels"})
    call_arguments: ClassVar[Mapping[str, Any]] = MappingProxyType({"use_token_compression": False})

    @property
    def video_markup(self) -> str:
        """One placeholder, without marks."""
        return self.placeholder_token

    def _process(self, text: str, pixels: torch.Tensor, times: dict[str, Any], **arguments: Any) -> Mapping[str, Any]:
        """As the processor does it, which needs a compression mask that can be read: here one that keeps everything."""
        import torch

        video = self.processor.video_processor
        inputs = video(
            videos=[pixels], video_metadata=[times], do_sample_frames=False, return_metadata=True, **arguments
        )
        num_tokens = int(inputs["video_grid_thw"][0].prod()) // int(video.merge_size) ** 2
        inputs["video_compression_mask"] = torch.ones(num_tokens, dtype=torch.bool)
        expanded = self.processor.replace_video_token(inputs, 0)
        return {"input_ids": [self.expanded_ids(text, expanded)], **inputs}

    def _prompt_seconds(self, pts_seconds: FloatArray, seconds_per_grid: float | None) -> FloatArray:
        """Each frame's time in whole milliseconds, to the tenth the prompt prints."""
        return printed_seconds(pts_seconds, 1)

    def token_type_ids(self, layout: SequenceLayout) -> None:
        """None: neither its processor nor its positions tell videos from text."""
        return

    def position_ids(self, plan: EncodePlan) -> torch.Tensor | None:
        """``(L,)``: its language model counts ids, unlike the other families of grids."""
        return VideoEncoder.position_ids(self, plan)
