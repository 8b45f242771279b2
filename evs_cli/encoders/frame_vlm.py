"""What the vision-language families share whose video goes in frame by frame, each frame at one size of pixels.

Their processors resize every frame to the checkpoint's own size, so a frame's tokens are as many in every clip. The
video processor runs on tensors of the meta device, and the processor's own ``replace_video_token`` writes the video's
part of the prompt. A family's own file says how patches become tokens and how its features come.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from evs_cli.core.counts import TokenGrid
from evs_cli.core.pixel_region import PixelRegion, cropped_region
from evs_cli.core.placeholders import IntArray
from evs_cli.encoders.base import Clip, EncodeOptions, EncodePlan, FloatArray, require_same_count, seconds
from evs_cli.encoders.frame_times import true_times
from evs_cli.encoders.loading import loading_errors, on_device, quiet_transformers
from evs_cli.encoders.processor_files import ProcessorFiles
from evs_cli.encoders.vlm import VisionLanguageEncoder

if TYPE_CHECKING:
    import torch

    from evs_cli.core.video_tokens import VideoTokens


class FrameVideoEncoder(VisionLanguageEncoder):
    """A checkpoint that takes each frame alone, at the size its processor gives to all of them."""

    supported_options: ClassVar[frozenset[str]] = frozenset({"prompt"})
    pixel_name: ClassVar[str] = "pixel_values_videos"
    """Key of the pixels in what the video processor returns."""
    features_are_batched: ClassVar[bool] = True

    @cached_property
    def config(self) -> Any:
        """The whole configuration, with the class's own values where ``config.json`` leaves them out."""
        if isinstance(self.plan_processor, ProcessorFiles):
            return self.plan_processor.config
        from transformers import AutoConfig

        with loading_errors(self.source), quiet_transformers():
            return AutoConfig.from_pretrained(self.source.location, **self.source.pretrained_arguments())

    @property
    def temporal_patch_size(self) -> int:
        """1: a sampled frame is a frame of tokens."""
        return 1

    @property
    @abstractmethod
    def merge_size(self) -> int:
        """Side of the square of patches that becomes one token; 1 where none does."""

    @property
    def spatial_merge_size(self) -> int:
        """``merge_size``."""
        return self.merge_size

    def patch_sides(self, height: int, width: int) -> tuple[int, int]:
        """(rows, columns) of patches in a frame of ``height`` x ``width`` pixels."""
        patch_rows, patch_columns = _two_sides(self.config.vision_config.patch_size)
        return height // patch_rows, width // patch_columns

    def token_sides(self, rows: int, columns: int) -> tuple[int, int]:
        """(h, w) tokens of a frame of ``rows`` x ``columns`` patches."""
        return rows // self.merge_size, columns // self.merge_size

    def covered_patches(self, rows: int, columns: int) -> tuple[int, int]:
        """(rows, columns) of patches that tokens are made of; a last one that fills no merged square is left out."""
        height, width = self.token_sides(rows, columns)
        return height * self.merge_size, width * self.merge_size

    @abstractmethod
    def features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Rows of a chunk, ``(..., D)``, frame by frame, without those behind the video.

        Args:
            pixels: ``(1, t, 3, H, W)`` as the video processor gives them.
        """

    def _prompt_seconds(self, clip: Clip) -> FloatArray:
        """(T,) the time of each frame as the prompt tells it; the true times where it tells none."""
        return seconds(clip.pts_seconds)

    def _expand(self, clip: Clip, options: EncodeOptions, frame_size: tuple[int, int] | None) -> EncodePlan:
        # frame_size is what the processor would choose again: it does not depend on the clip.
        text = self.prompt_text(options)
        if isinstance(self.plan_processor, ProcessorFiles):
            ids, (height, width) = self._written(clip, text)
        else:
            expanded, (height, width) = self._expand_video(clip)
            ids = np.asarray(self.expanded_ids(text, expanded))
        patches = self.patch_sides(height, width)
        grid = TokenGrid(clip.num_frames, *self.token_sides(*patches))
        return EncodePlan(
            frame_size=(height, width),
            token_grid_thw=grid,
            model_grid_thw=(clip.num_frames, *patches),
            spatial_merge_size=self.merge_size,
            temporal_patch_size=1,
            layout=self.layout(ids, grid),
            pts_seconds=clip.pts_seconds,
            prompt_seconds=self._prompt_seconds(clip),
            pixel_region=self._pixel_region(clip, (height, width)),
            modality=self.modality,
            features_are_batched=self.features_are_batched,
            notes=_crop_notes(self.plan_processor.video_processor, clip),
        )

    def _pixel_region(self, clip: Clip, frame_size: tuple[int, int]) -> PixelRegion:
        """The part of each frame that the processor leaves, and that its patches cover."""
        video = self.plan_processor.video_processor
        resized = frame_size
        if video.do_center_crop:
            import torch

            with quiet_transformers():
                uncropped = video(
                    videos=[torch.empty((1, 3, clip.height, clip.width), dtype=torch.uint8, device="meta")],
                    do_sample_frames=False,
                    do_center_crop=False,
                    input_data_format="channels_first",
                    return_tensors="pt",
                )
            height, width = uncropped[self.pixel_name].shape[-2:]
            resized = (int(height), int(width))
        rows, columns = self.covered_patches(*self.patch_sides(*frame_size))
        patch_rows, patch_columns = _two_sides(self.config.vision_config.patch_size)
        return cropped_region(resized, frame_size, (rows * patch_rows, columns * patch_columns))

    def _written(self, clip: Clip, text: str) -> tuple[IntArray, tuple[int, int]]:
        """(L,) ids and (height, width) of every frame by the processor's rules, of a family that is read from files."""
        raise NotImplementedError

    def _expand_video(self, clip: Clip) -> tuple[str, tuple[int, int]]:
        """The text that replaces the video's markup, and the (height, width) in pixels of every frame."""
        import torch

        with quiet_transformers():
            outputs = self.processor.video_processor(
                videos=[torch.empty((clip.num_frames, 3, clip.height, clip.width), dtype=torch.uint8, device="meta")],
                video_metadata=[true_times(clip, clip.pts_seconds)],
                do_sample_frames=False,
                input_data_format="channels_first",
                return_tensors="pt",
                return_metadata=True,
            )
            shape = tuple(outputs[self.pixel_name].shape)  # (1, T, 3, H, W)
            # Some processors ask numpy for the shape, which takes no meta tensor; a view of one zero is as small.
            outputs[self.pixel_name] = np.broadcast_to(np.zeros((), dtype=np.uint8), shape)
            return str(self.processor.replace_video_token(outputs, 0)), (shape[-2], shape[-1])

    @property
    def frames_are_independent(self) -> bool:
        """True: each frame is resized and seen alone."""
        return True

    def preprocess(self, frames: torch.Tensor, plan: EncodePlan) -> dict[str, torch.Tensor]:
        """See ``VideoEncoder.preprocess``; every frame is resized alone, so chunks agree."""
        with quiet_transformers():
            inputs = self.processor.video_processor(
                videos=[frames], do_sample_frames=False, input_data_format="channels_first", return_tensors="pt"
            )
        return {self.pixel_name: inputs[self.pixel_name]}

    def embed(self, inputs: Mapping[str, torch.Tensor], plan: EncodePlan) -> VideoTokens:
        """See ``VideoEncoder.embed``."""
        import torch

        from evs_cli.core.video_tokens import VideoTokens

        pixels = inputs[self.pixel_name]  # (1, t, 3, H, W)
        num_frames = pixels.shape[1]
        with quiet_transformers(), torch.inference_mode():
            rows = self.features(on_device(pixels, self._model))
        rows = rows.reshape(-1, rows.shape[-1])
        _, height, width = plan.token_grid_thw
        per_frame = self.rows_before_frame + height * width
        require_same_count(rows.shape[0], num_frames * per_frame, self.source, "rows of features")
        by_frame = rows.reshape(num_frames, per_frame, -1)
        tokens = by_frame[:, self.rows_before_frame :].reshape(num_frames, height, width, -1)
        extra = by_frame[:, : self.rows_before_frame].flatten(0, 1) if self.rows_before_frame else None
        return VideoTokens((tokens,), extra)


def _two_sides(patch_size: int | list[int] | tuple[int, int]) -> tuple[int, int]:
    """(rows, columns) in pixels of a patch, which some configurations give as one number."""
    return (patch_size, patch_size) if isinstance(patch_size, int) else (patch_size[0], patch_size[1])


def _crop_notes(video_processor: Any, clip: Clip) -> tuple[str, ...]:
    """A sentence where the processor cuts the frame's edges off."""
    crop = video_processor.crop_size if video_processor.do_center_crop else None
    if not crop or clip.height * crop["width"] == clip.width * crop["height"]:
        return ()
    return ("The model's processor cuts out the middle of each frame: its edges are not seen.",)
