"""What the families share whose ``get_video_features`` takes flat patches and the grid they came from.

Their processors expand a video from that grid, so one call on the meta device gives size, grid and ids together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from evs_cli.core.counts import TokenGrid
from evs_cli.core.placeholders import IntArray, SequenceLayout
from evs_cli.encoders.base import Clip, EncodeOptions, EncodePlan, FloatArray, seconds
from evs_cli.encoders.frame_size import Size
from evs_cli.encoders.frame_times import fill_tubelets, true_times
from evs_cli.encoders.loading import of_one_video, on_device, quiet_transformers, weightless_model
from evs_cli.encoders.pixel_limits import (
    VIDEO_PIXELS,
    cap_argument,
    limit_notes,
    processor_frame_size,
    size_argument,
)
from evs_cli.encoders.processor_files import ProcessorFiles
from evs_cli.encoders.segments import Segment, joined
from evs_cli.encoders.vlm import VisionLanguageEncoder
from evs_cli.errors import EvsError, ModelError, RefusedByServerError, UsageError

if TYPE_CHECKING:
    import torch

    from evs_cli.core.video_tokens import VideoTokens


@dataclass(frozen=True, eq=False)
class Expansion:
    """What a processor makes of a clip: its grid, and the prompt with the video written out."""

    model_grid_thw: tuple[int, int, int]
    """Patches in time, height, width."""
    input_ids: IntArray
    """(L,) int64."""
    seconds_per_grid: float | None = None
    token_types: IntArray | None = None
    """(L,) int64 modality of each id; None are those of ``GridVideoEncoder.token_type_ids``."""
    token_inputs: Mapping[str, IntArray] = field(default_factory=dict)


class GridVideoEncoder(VisionLanguageEncoder):
    """A checkpoint that encodes flat patches, merges them into squares, and counts positions along three axes."""

    pixel_limits: ClassVar[tuple[str, str]]
    """Options that the two edges of the video processor's ``size``, pixel counts both, bound: least and most."""
    marks: ClassVar[tuple[str, str]] = ("vision_start_token_id", "vision_end_token_id")
    """Names, in the configuration, of the tokens around a video."""
    call_arguments: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Keyword arguments of every call of the video processor, whatever its configuration says."""
    loader_interpolation: ClassVar[str] = "bilinear"
    """Of a server's resize before the processor's own: SGLang's, unless the plan names another."""
    token_inputs: ClassVar[tuple[str, ...]] = ()
    """Outputs of the processor, one value an id, that the language model takes beside the ids."""

    @cached_property
    def video_markup(self) -> str:
        """Start mark, one placeholder, end mark, by the tokenizer's own names."""
        config, tokenizer = self.source.config, self.plan_processor.tokenizer
        for name in self.marks:
            if not isinstance(config.get(name), int):
                raise ModelError(f"cannot write the video markup of {self.source.name}: its config.json has no {name}.")
        start, end = tokenizer.convert_ids_to_tokens([config[name] for name in self.marks])
        return f"{start}{self.plan_processor.video_token}{end}"

    def _video_arguments(self, options: EncodeOptions, num_frames: int) -> dict[str, Any]:
        """Keyword arguments of the video processor that settle the size of so many frames, as they are recorded."""
        video = self.plan_processor.video_processor
        arguments = size_argument(video, *(getattr(options, name) for name in self.pixel_limits))
        if "cap_pixels_per_frame" in self.supported_options:
            arguments |= cap_argument(video, options.cap_pixels_per_frame)
        return arguments

    def _prompt_seconds(self, pts_seconds: FloatArray, seconds_per_grid: float | None) -> FloatArray:
        """(T,) the time of each frame of tokens as the model is told it; its first frame's where it is told none.

        Args:
            pts_seconds: (T * temporal_patch_size,) float64, presentation times, tubelets filled.
            seconds_per_grid: seconds between frames of tokens, where the positions depend on them.
        """
        return seconds(pts_seconds[:: self.temporal_patch_size])

    def _process(self, text: str, pixels: torch.Tensor, times: dict[str, Any], **arguments: Any) -> Mapping[str, Any]:
        """The processor's outputs for ``pixels`` (S, 3, H, W) of the meta device: ids and grid among them."""
        outputs: Mapping[str, Any] = self.processor(
            text=[text],
            videos=[pixels],
            video_metadata=[times],
            do_sample_frames=False,
            **self.tokenizer_arguments(text),
            **arguments,
        )
        return outputs

    def _expand(self, clip: Clip, options: EncodeOptions, frame_size: tuple[int, int] | None) -> EncodePlan:
        # Most of these processors refuse a single frame: it is repeated to a whole tubelet, as odd ends are.
        filled = fill_tubelets(clip.pts_seconds, self.temporal_patch_size)
        pts = filled if clip.num_frames == 1 else clip.pts_seconds
        arguments = self._video_arguments(options, len(pts))
        text = self.prompt_text(options)
        expansion = None
        if isinstance(self.plan_processor, ProcessorFiles):
            expansion = self._written(clip, pts, text, frame_size, arguments)
        if expansion is None:
            expansion = self._processed(clip, pts, text, frame_size, arguments)
        video = self.plan_processor.video_processor
        merge, patch = int(video.merge_size), int(video.patch_size)
        _, grid_h, grid_w = expansion.model_grid_thw
        token_grid = TokenGrid(len(filled) // self.temporal_patch_size, grid_h // merge, grid_w // merge)
        layout = self.layout(expansion.input_ids, token_grid)
        return EncodePlan(
            frame_size=(grid_h * patch, grid_w * patch),
            token_grid_thw=token_grid,
            model_grid_thw=expansion.model_grid_thw,
            spatial_merge_size=merge,
            temporal_patch_size=self.temporal_patch_size,
            layout=layout,
            pts_seconds=clip.pts_seconds,
            prompt_seconds=self._prompt_seconds(filled, expansion.seconds_per_grid),
            seconds_per_grid=expansion.seconds_per_grid,
            token_type_ids=self.token_type_ids(layout) if expansion.token_types is None else expansion.token_types,
            modality=self.modality,
            token_inputs=expansion.token_inputs,
            processing={**self.call_arguments, **arguments},
            notes=(
                *(("one frame was repeated to fill a tubelet",) if len(pts) > clip.num_frames else ()),
                *(limit_notes(clip, (grid_h * patch, grid_w * patch), merge * patch) if frame_size is None else ()),
            ),
        )

    def _processed(
        self, clip: Clip, pts: FloatArray, text: str, frame_size: Size | None, arguments: Mapping[str, Any]
    ) -> Expansion:
        """What the processor itself makes of frames without pixels, shown at ``pts``."""
        import torch

        height, width = frame_size or (clip.height, clip.width)
        pixels = torch.empty((len(pts), 3, height, width), dtype=torch.uint8, device="meta")
        with _clip_errors(self, clip), quiet_transformers():
            outputs = self._process(
                text,
                pixels,
                true_times(clip, pts),
                do_resize=frame_size is None,
                input_data_format="channels_first",
                **{**arguments, **self.call_arguments},
            )
        grid_t, grid_h, grid_w = (int(n) for n in outputs["video_grid_thw"][0])
        per_grid, token_types = outputs.get("second_per_grid_ts"), outputs.get("mm_token_type_ids")
        return Expansion(
            model_grid_thw=(grid_t, grid_h, grid_w),
            input_ids=np.asarray(outputs["input_ids"][0], dtype=np.int64),
            seconds_per_grid=None if per_grid is None else float(per_grid[0]),
            token_types=None if token_types is None else np.asarray(token_types[0], dtype=np.int64),
            token_inputs={name: np.asarray(outputs[name][0], dtype=np.int64) for name in self.token_inputs},
        )

    def _written(
        self, clip: Clip, pts: FloatArray, text: str, frame_size: Size | None, arguments: Mapping[str, Any]
    ) -> Expansion | None:
        """The same by the processor's rules, from its files; None for a clip that it would refuse, as it then says."""
        files = self.plan_processor
        try:
            height, width = frame_size or processor_frame_size(
                files.video_processor, clip, len(pts), arguments, holds_for_video=self.pixel_limits == VIDEO_PIXELS
            )
        except RefusedByServerError as error:
            if self.source.is_published:
                raise UsageError(
                    f"cannot plan {clip.num_frames} frames of {clip.width}x{clip.height} for {self.source.name}: "
                    f"{error.message}"
                ) from error
            return None
        video = files.video_processor
        merge, patch = int(video.merge_size), int(video.patch_size)
        num_frames = -(-len(pts) // self.temporal_patch_size)
        grid = TokenGrid(num_frames, height // patch // merge, width // patch // merge)
        before, behind = text.split(str(files.video_token), 1)
        filled = fill_tubelets(pts, self.temporal_patch_size)
        segments = joined([before, *self._video_segments(filled, grid), behind])
        return Expansion(
            model_grid_thw=(num_frames, height // patch, width // patch),
            input_ids=self.sequence_ids(text, segments, self.placeholder_token),
            seconds_per_grid=self._seconds_per_grid(clip, len(pts)),
        )

    def _video_segments(self, pts_seconds: FloatArray, token_grid_thw: TokenGrid) -> list[Segment]:
        """What the processor puts for the video's token: one span, as here, or one a frame, by the families' own.

        Args:
            pts_seconds: (T * temporal_patch_size,) float64, presentation times, tubelets filled.
            token_grid_thw: tokens in time, height, width.
        """
        return [token_grid_thw.num_tokens]

    def _seconds_per_grid(self, clip: Clip, num_frames: int) -> float | None:
        """Seconds between frames of tokens of ``num_frames`` sampled ones, where the processor tells them."""
        return None

    @property
    def spatial_merge_size(self) -> int:
        """The video processor's own."""
        return int(self.plan_processor.video_processor.merge_size)

    def token_type_ids(self, layout: SequenceLayout) -> IntArray | None:
        """2 where a video token stands, as these families' processors mark it."""
        types: IntArray = np.where(layout.input_ids == layout.placeholder_token_id, 2, 0).astype(np.int64)
        return types

    @property
    def frames_are_independent(self) -> bool:
        """True: the tower attends inside a tubelet alone, and its positions count rows and columns."""
        return True

    def preprocess(self, frames: torch.Tensor, plan: EncodePlan) -> dict[str, torch.Tensor]:
        """See ``VideoEncoder.preprocess``."""
        from torchvision.transforms.v2 import functional as tvf

        video = self.processor.video_processor
        # The size depends on the whole clip, so the plan's is used and the processor resizes nothing itself.
        if plan.loader_size is not None:
            frames = self._loaded(frames, plan.loader_size, plan.loader_interpolation)
        resized = tvf.resize(frames, list(plan.frame_size), interpolation=int(video.resample), antialias=True)
        with quiet_transformers():
            inputs = video(
                videos=[resized],
                do_sample_frames=False,
                do_resize=False,
                input_data_format="channels_first",
                return_tensors="pt",
                **self.call_arguments,
            )
        return {name: inputs[name] for name in (_PIXELS, *_GRIDS) if name in inputs}

    def _loaded(self, frames: torch.Tensor, size: tuple[int, int], interpolation: str | None) -> torch.Tensor:
        """(t, 3, H, W) uint8 frames as a server's loader resizes them to ``size``."""
        from torchvision.transforms.v2 import InterpolationMode
        from torchvision.transforms.v2 import functional as tvf

        chosen = InterpolationMode(interpolation or self.loader_interpolation)
        if interpolation is None:
            resized: torch.Tensor = tvf.resize(frames, list(size), interpolation=chosen, antialias=True)
            return resized
        # Through floats, as torchvision's first transforms do, which qwen-vl-utils calls: uint8 rounds otherwise.
        floats: torch.Tensor = tvf.resize(frames.float(), list(size), interpolation=chosen, antialias=True)
        return floats.round_().clamp_(0, 255).byte()

    def embed(self, inputs: Mapping[str, torch.Tensor], plan: EncodePlan) -> VideoTokens:
        """See ``VideoEncoder.embed``."""
        import torch

        from evs_cli.core.video_tokens import VideoTokens

        model = self._model
        with quiet_transformers(), torch.inference_mode():
            grids = {name: inputs[name].to(model.device) for name in _GRIDS if name in inputs}
            pixels = on_device(inputs[_PIXELS], model)
            features = model.get_video_features(pixel_values_videos=pixels, **grids)
        levels = [features.pooler_output, *(getattr(features, "deepstack_features", None) or [])]
        return VideoTokens(tuple(self.to_grid(of_one_video(level), plan) for level in levels))

    def position_ids(self, plan: EncodePlan) -> torch.Tensor | None:
        """``(3, L)`` mrope positions, from the model's own ``get_rope_index`` over the unpruned ids.

        That takes its configuration alone, so weights need not be loaded.
        """
        import torch

        model = self._model or weightless_model(self.source, unused_configs=self.unused_configs)

        arguments: dict[str, Any] = {}
        if plan.seconds_per_grid is not None:
            arguments["second_per_grid_ts"] = torch.tensor([plan.seconds_per_grid])
        try:
            positions, _ = model.get_rope_index(
                torch.from_numpy(plan.layout.input_ids)[None],
                torch.from_numpy(plan.token_type_ids)[None],
                video_grid_thw=torch.tensor([plan.model_grid_thw]),
                **arguments,
            )
        except (TypeError, ValueError, RuntimeError, StopIteration) as error:  # marks that a chat template left out
            raise ModelError(
                f"cannot place the video of {self.source.name}: its own get_rope_index does not follow the prompt.",
                hint="Its chat template may leave out the marks around a video; try without --prompt.",
            ) from error
        ids: torch.Tensor = positions[:, 0].long()
        return ids


_PIXELS = "pixel_values_videos"
_GRIDS = ("video_grid_thw", "video_merge_sizes")  # what the families take beside the patches


@contextlib.contextmanager
def _clip_errors(encoder: GridVideoEncoder, clip: Clip) -> Iterator[None]:
    """Turn the processor's ``ValueError`` on a clip it cannot take (an extreme aspect) into a ``UsageError``."""
    try:
        yield
    except EvsError:
        raise
    except ValueError as error:
        raise UsageError(
            f"cannot plan {clip.num_frames} frames of {clip.width}x{clip.height} for {encoder.source.name}: {error}"
        ) from error
