"""Nemotron H Omni: a span a tubelet behind a text of its frames' times, placeholders of the image token.

Its language model takes no positions, so there are none to keep. Its processor cannot be run without pixels;
the size is computed here and the text comes from the processor's own ``replace_video_token``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from evs_cli.core.counts import TokenGrid
from evs_cli.core.placeholders import IntArray
from evs_cli.encoders.base import Clip, EncodeOptions, EncodePlan
from evs_cli.encoders.frame_times import fill_tubelets, printed_seconds, true_times
from evs_cli.encoders.loading import of_one_video, quiet_transformers
from evs_cli.encoders.processor_files import ProcessorFiles
from evs_cli.encoders.segments import Segment, joined
from evs_cli.encoders.vlm import VisionLanguageEncoder
from evs_cli.errors import ModelError

if TYPE_CHECKING:
    import torch

    from evs_cli.core.video_tokens import VideoTokens


class NemotronHOmniEncoder(VisionLanguageEncoder):
    """Frames resized to about ``video_target_num_patches`` patches, aspect kept, tubelets of two."""

    unused_configs: ClassVar[tuple[str, ...]] = ("audio_config",)
    supported_options: ClassVar[frozenset[str]] = frozenset({"prompt"})
    # Videos are written with the image's token. Under "image", `generate` finds the rows of each chunk of a chunked
    # prefill by that token, and forward does not prune them once more; under "video" it looks for an id that no
    # sequence has, and every chunk goes without rows, in silence (transformers 5.24).
    modality: ClassVar[str] = "image"

    @property
    def temporal_patch_size(self) -> int:
        """The processor's ``video_temporal_patch_dim``, which it hands to its video processor."""
        return int(self.plan_processor.video_temporal_patch_dim)

    def _expand(self, clip: Clip, options: EncodeOptions, frame_size: tuple[int, int] | None) -> EncodePlan:
        patch, merge = int(self.plan_processor.video_processor.patch_size), self.spatial_merge_size
        rows, columns = self._own_patches(clip.height, clip.width)
        height, width = frame_size or (rows * patch, columns * patch)
        num_tubelets = -(-clip.num_frames // self.temporal_patch_size)
        grid = TokenGrid(num_tubelets, height // patch // merge, width // patch // merge)
        text = self.prompt_text(options)
        if isinstance(self.plan_processor, ProcessorFiles):
            ids = self._written_ids(clip, text, grid)
        else:
            ids = np.asarray(self.expanded_ids(text, self._expanded(clip, num_tubelets, (height, width))))
        pts = fill_tubelets(clip.pts_seconds, self.temporal_patch_size)
        return EncodePlan(
            frame_size=(height, width),
            token_grid_thw=grid,
            model_grid_thw=(num_tubelets, height // patch, width // patch),
            spatial_merge_size=merge,
            temporal_patch_size=self.temporal_patch_size,
            layout=self.layout(ids, grid),
            modality=self.modality,
            pts_seconds=clip.pts_seconds,
            # Both times of a tubelet are written; the first one stands for it, to the hundredth that is printed.
            prompt_seconds=printed_seconds(pts[:: self.temporal_patch_size], 2),
        )

    def _expanded(self, clip: Clip, num_tubelets: int, frame_size: tuple[int, int]) -> str:
        """What the processor itself puts for the video's token."""
        import torch

        shape = (1, num_tubelets, 3 * self.temporal_patch_size, *frame_size)
        return str(
            self.processor.replace_video_token(
                {
                    "num_frames": [clip.num_frames],
                    "video_metadata": [SimpleNamespace(**true_times(clip, clip.pts_seconds))],
                    "pixel_values_videos": torch.empty(shape, device="meta"),
                },
                0,
            )
        )

    def _written_ids(self, clip: Clip, text: str, grid: TokenGrid) -> IntArray:
        """(L,) the same by the processor's rules: each tubelet behind the times of its frames."""
        files, tubelet = self.plan_processor, self.temporal_patch_size
        times = [round(1000 * t) / 1000 for t in clip.pts_seconds.tolist()]
        before, behind = text.split(self.video_markup, 1)
        segments: list[Segment] = [before]
        for start in range(0, len(times), tubelet):
            told = " and ".join(
                f"{'Frame' if number == start + 1 else 'frame'} {number} sampled at {time:.2f} seconds"
                for number, time in enumerate(times[start : start + tubelet], start + 1)
            )
            newline = "\n" if start else ""
            segments += [f"{newline}{told}: {files.image_start_token}", grid.tokens_per_frame, files.image_end_token]
        return self.sequence_ids(text, joined([*segments, behind]), self.placeholder_token)

    def _own_patches(self, height: int, width: int) -> tuple[int, int]:
        """(rows, columns) of patches that the processor makes of a frame of ``height`` x ``width`` pixels."""
        video = self.plan_processor.video_processor
        return target_patches(
            height,
            width,
            target_num_patches=int(video.video_target_num_patches),
            merge_size=self.spatial_merge_size,
            keeps_aspect=bool(video.video_maintain_aspect_ratio),
        )

    @property
    def spatial_merge_size(self) -> int:
        """The inverse of the video processor's ``downsample_ratio``."""
        return round(1 / float(self.plan_processor.video_processor.downsample_ratio))

    @property
    def frames_are_independent(self) -> bool:
        """True: the tower takes each tubelet as an image of its own."""
        return True

    def preprocess(self, frames: torch.Tensor, plan: EncodePlan) -> dict[str, torch.Tensor]:
        """See ``VideoEncoder.preprocess``; the processor's size depends on the frame's alone, so chunks agree.

        Raises:
            ModelError: a plan of another size, as SGLang has one: the processor knows its own alone.
        """
        own, patch = self._own_patches(*frames.shape[-2:]), int(self.processor.video_processor.patch_size)
        if plan.frame_size != (own[0] * patch, own[1] * patch):
            height, width = plan.frame_size
            raise ModelError(
                f"cannot encode {self.source.name} with frames of {width}x{height}: its processor makes them "
                f"{own[1] * patch}x{own[0] * patch}.",
                hint="evs plan and evs fit count it; to encode, take --dialect evs, hf or vllm.",
            )
        with quiet_transformers():
            inputs = self.processor.video_processor(
                videos=[frames],
                do_sample_frames=False,
                temporal_patch_size=self.temporal_patch_size,
                input_data_format="channels_first",
                return_tensors="pt",
            )
        return {"pixel_values_videos": inputs["pixel_values_videos"]}

    def embed(self, inputs: Mapping[str, torch.Tensor], plan: EncodePlan) -> VideoTokens:
        """See ``VideoEncoder.embed``."""
        import torch

        from evs_cli.core.video_tokens import VideoTokens

        with quiet_transformers(), torch.inference_mode():
            pixels = inputs["pixel_values_videos"].to(self._model.device, non_blocking=True)
            features = self._model.get_video_features(pixels)
        return VideoTokens((self.to_grid(of_one_video(features.pooler_output), plan),))

    def position_ids(self, plan: EncodePlan) -> None:
        """None: the model takes no positions."""
        return


def target_patches(
    height: int, width: int, *, target_num_patches: int, merge_size: int, keeps_aspect: bool
) -> tuple[int, int]:
    """(rows, columns) of patches a frame is resized to: near the target, both sides a multiple of the merge.

    transformers' NemotronH_Omni_Reasoning_V3VideoProcessor; tested against it.
    """
    if not keeps_aspect:
        side = max(merge_size, math.isqrt(target_num_patches) // merge_size * merge_size)
        return side, side
    aspect = width / max(height, 1)
    rows = max(round(math.sqrt(target_num_patches / aspect)), 1)
    columns = max(round(math.sqrt(target_num_patches * aspect)), 1)
    up = [-(-n // merge_size) * merge_size for n in (rows, columns)]
    if up[0] * up[1] <= target_num_patches:
        return up[0], up[1]
    down = [max(merge_size, n // merge_size * merge_size) for n in (rows, columns)]
    return down[0], down[1]
