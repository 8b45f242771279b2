"""ERNIE 4.5 VL: one span of video tokens; the time of a frame is drawn into its corner.

The tower sees single frames; its resampler then makes one frame of tokens of two, so the model's own grid counts
frames where ours counts tubelets.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from evs_cli.encoders.base import Clip, EncodeOptions, EncodePlan, FloatArray
from evs_cli.encoders.frame_times import printed_seconds
from evs_cli.encoders.grid_vlm import GridVideoEncoder
from evs_cli.encoders.pixel_limits import FRAME_PIXELS
from evs_cli.errors import ModelError, UsageError

if TYPE_CHECKING:
    import torch

_FONT_SHARE = 0.1  # of a frame's short side; the stroke is this share of the font's size


class Ernie45VLMoeEncoder(GridVideoEncoder):
    """Pixel limits hold for each frame; the checkpoint's processor says whether times are drawn, and its font."""

    pixel_limits: ClassVar[tuple[str, str]] = FRAME_PIXELS
    marks: ClassVar[tuple[str, str]] = ("video_start_token_id", "video_end_token_id")
    supported_options: ClassVar[frozenset[str]] = frozenset({"prompt", *FRAME_PIXELS})
    token_inputs: ClassVar[tuple[str, ...]] = ("moe_mm_token_type_ids",)  # experts are chosen by it
    # Drawing needs pixels and changes no count: ``mark_frames`` does it, on the frames as they are decoded.
    call_arguments: ClassVar[Mapping[str, Any]] = MappingProxyType({"draw_on_frames": False})

    @property
    def _draws(self) -> bool:
        return bool(self.processor.video_processor.draw_on_frames)

    def _video_arguments(self, options: EncodeOptions, num_frames: int) -> dict[str, Any]:
        return {**super()._video_arguments(options, num_frames), "draw_on_frames": self._draws}

    def _expand(self, clip: Clip, options: EncodeOptions, frame_size: tuple[int, int] | None) -> EncodePlan:
        if self._draws and int(min(clip.height, clip.width) * _FONT_SHARE) < 1:
            raise UsageError(
                f"cannot draw times on frames of {clip.width}x{clip.height}, as {self.source.name} wants them. "
                f"Expected at least {round(1 / _FONT_SHARE)} pixels a side."
            )
        if self._draws and not Path(str(self.processor.video_processor.font)).is_file():
            raise ModelError(
                f"cannot draw times on the frames of {self.source.name}: its font "
                f"{self.processor.video_processor.font} is no file."
            )
        return super()._expand(clip, options, frame_size)

    def _prompt_seconds(self, pts_seconds: FloatArray, seconds_per_grid: float | None) -> FloatArray:
        """The first frame's time of each tubelet, to the hundredth that is drawn; unrounded where nothing is."""
        first = super()._prompt_seconds(pts_seconds, seconds_per_grid)
        return printed_seconds(first, 2) if self._draws else first

    @property
    def frames_are_independent(self) -> bool:
        """Not where times are drawn: no two frames are equal then."""
        return not self._draws

    def mark_frames(self, frames: torch.Tensor, pts_seconds: FloatArray) -> torch.Tensor:
        """See ``VideoEncoder.mark_frames``; black on white in the upper left corner, as the processor draws it."""
        if not self._draws:
            return frames
        import torch

        return torch.stack([self._draw(frame, t) for frame, t in zip(frames, pts_seconds.tolist(), strict=True)])

    def _draw(self, frame: torch.Tensor, time: float) -> torch.Tensor:
        """``(3, H, W)`` uint8 with ``time`` in its corner, as transformers' video processor draws it (tested)."""
        from PIL import ImageDraw, ImageFont
        from torchvision.transforms.functional import pil_to_tensor, to_pil_image

        image = to_pil_image(frame)
        size = int(min(image.size) * _FONT_SHARE)
        minutes, rest = divmod(round(1000 * time) / 1000, 60)
        ImageDraw.Draw(image).text(
            (0, 0),
            f"time: {int(minutes) // 60:02d}:{int(minutes) % 60:02d}:{rest:05.02f}",
            font=ImageFont.truetype(self.processor.video_processor.font, size),
            fill=(0, 0, 0),
            stroke_width=int(size * _FONT_SHARE),
            stroke_fill=(255, 255, 255),
        )
        drawn: torch.Tensor = pil_to_tensor(image)
        return drawn
