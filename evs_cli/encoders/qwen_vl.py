"""What the Qwen VL families share: patches merged two by two, tubelets of two frames, mrope positions.

Their processors expand a video from a grid, so one call on the meta device gives size, grid and ids together.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from evs_cli.encoders.base import Clip, EncodeOptions, EncodePlan, FloatArray, seconds
from evs_cli.encoders.loading import quiet_transformers
from evs_cli.encoders.vlm import VisionLanguageEncoder, fill_tubelets, true_times
from evs_cli.errors import EvsError, UsageError

if TYPE_CHECKING:
    import torch

    from evs_cli.core.video_tokens import VideoTokens


class QwenVideoEncoder(VisionLanguageEncoder):
    """A checkpoint whose ``get_video_features`` takes flat patches and their grid."""

    @property
    def video_markup(self) -> str:
        """``<|vision_start|><|video_pad|><|vision_end|>``, by the tokenizer's own names."""
        tokenizer = self.processor.tokenizer
        config = self.source.config
        start, end = tokenizer.convert_ids_to_tokens([config["vision_start_token_id"], config["vision_end_token_id"]])
        return f"{start}{self.placeholder_token}{end}"

    @property
    def placeholder_token(self) -> str:
        """``<|video_pad|>``."""
        return str(self.processor.video_token)

    @abstractmethod
    def _video_arguments(self, options: EncodeOptions) -> dict[str, Any]:
        """Keyword arguments of the video processor that settle the size."""

    @abstractmethod
    def _prompt_seconds(self, pts_seconds: FloatArray, seconds_per_grid: float | None) -> FloatArray:
        """(T,) the time of each frame of tokens as the prompt or the positions tell it."""

    def _expand(self, clip: Clip, options: EncodeOptions, frame_size: tuple[int, int] | None) -> EncodePlan:
        import torch

        # A single frame is refused by these processors: it is repeated to a whole tubelet, as odd ends are.
        pts = fill_tubelets(clip.pts_seconds, self.temporal_patch_size) if clip.num_frames == 1 else clip.pts_seconds
        height, width = frame_size or (clip.height, clip.width)
        arguments = self._video_arguments(options)
        pixels = torch.empty((len(pts), 3, height, width), dtype=torch.uint8, device="meta")
        with _clip_errors(self, clip), quiet_transformers():
            outputs = self.processor(
                text=[self.prompt_text(options)],
                videos=[pixels],
                video_metadata=[true_times(clip, pts)],
                do_sample_frames=False,
                do_resize=frame_size is None,
                input_data_format="channels_first",
                **arguments,
            )
        video = self.processor.video_processor
        grid_t, grid_h, grid_w = (int(n) for n in outputs["video_grid_thw"][0])
        merge, patch = int(video.merge_size), int(video.patch_size)
        token_grid = (grid_t, grid_h // merge, grid_w // merge)
        per_grid = outputs.get("second_per_grid_ts")
        seconds_per_grid = None if per_grid is None else float(per_grid[0])
        return EncodePlan(
            frame_size=(grid_h * patch, grid_w * patch),
            token_grid_thw=token_grid,
            model_grid_thw=(grid_t, grid_h, grid_w),
            spatial_merge_size=merge,
            temporal_patch_size=self.temporal_patch_size,
            layout=self.layout(outputs["input_ids"][0], grid_t, int(np.prod(token_grid))),
            pts_seconds=clip.pts_seconds,
            prompt_seconds=self._prompt_seconds(fill_tubelets(pts, self.temporal_patch_size), seconds_per_grid),
            seconds_per_grid=seconds_per_grid,
            token_type_ids=np.asarray(outputs["mm_token_type_ids"][0], dtype=np.int64),
            processing=arguments,
            notes=("One frame was repeated to fill a tubelet.",) if clip.num_frames == 1 else (),
        )

    def encode(self, frames: torch.Tensor, plan: EncodePlan) -> VideoTokens:
        """See ``VideoEncoder.encode``."""
        import torch
        from torchvision.transforms.v2 import functional as tvf

        from evs_cli.core.video_tokens import VideoTokens

        video = self.processor.video_processor
        # The size depends on the whole clip, so the plan's is used and the processor resizes nothing itself.
        resized = tvf.resize(frames, list(plan.frame_size), interpolation=int(video.resample), antialias=True)
        with quiet_transformers(), torch.inference_mode():
            inputs = video(
                videos=[resized],
                do_sample_frames=False,
                do_resize=False,
                input_data_format="channels_first",
                return_tensors="pt",
            )
            features = self._model.get_video_features(
                inputs["pixel_values_videos"].to(self._model.device, self._model.dtype),
                inputs["video_grid_thw"].to(self._model.device),
            )
        rows = [features.pooler_output[0], *(level[0] for level in self._further_levels(features))]
        return VideoTokens(tuple(self.to_grid(level, plan) for level in rows))

    def _further_levels(self, features: Any) -> list[Any]:
        """Levels beside the main one, each a sequence of one tensor a video."""
        return list(getattr(features, "deepstack_features", None) or [])

    def position_ids(self, plan: EncodePlan) -> torch.Tensor:
        """``(3, L)`` mrope positions, from the model's own ``get_rope_index`` over the unpruned ids."""
        import torch

        arguments: dict[str, Any] = {}
        if plan.seconds_per_grid is not None:
            arguments["second_per_grid_ts"] = torch.tensor([plan.seconds_per_grid])
        positions, _ = self._model.get_rope_index(
            torch.from_numpy(plan.layout.input_ids)[None],
            torch.from_numpy(plan.token_type_ids)[None],
            video_grid_thw=torch.tensor([plan.model_grid_thw]),
            **arguments,
        )
        ids: torch.Tensor = positions[:, 0].long()
        return ids


def cap_argument(video_processor: Any, cap_pixels_per_frame: bool | None) -> dict[str, bool]:
    """``cap_pixels_per_frame``, always passed: unset, the processor warns, and its default is announced to change."""
    value = video_processor.cap_pixels_per_frame if cap_pixels_per_frame is None else cap_pixels_per_frame
    return {"cap_pixels_per_frame": bool(value)}


def size_argument(video_processor: Any, minimum: int | None, maximum: int | None) -> dict[str, Any]:
    """``size`` of a Qwen video processor, whose two edges are pixel counts, with the user's limits put in."""
    if minimum is None and maximum is None:
        return {}
    size = video_processor.size
    low, high = minimum or int(size["shortest_edge"]), maximum or int(size["longest_edge"])
    if low > high:
        raise UsageError(f"Invalid pixel limits: at least {low}, at most {high}. Expected the least below the most.")
    return {"size": {"shortest_edge": low, "longest_edge": high}}


@contextlib.contextmanager
def _clip_errors(encoder: QwenVideoEncoder, clip: Clip) -> Iterator[None]:
    """Turn the processor's ``ValueError`` on a clip it cannot take (an extreme aspect) into a ``UsageError``."""
    try:
        yield
    except EvsError:
        raise
    except ValueError as error:
        raise UsageError(
            f"cannot plan {clip.num_frames} frames of {clip.width}x{clip.height} for {encoder.source.name}: {error}"
        ) from error


def grid_times(num_grids: int, seconds_per_grid: float) -> FloatArray:
    """(T,) times of evenly spaced frames of tokens."""
    return seconds(np.arange(num_grids) * seconds_per_grid)
