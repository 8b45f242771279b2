"""What the families share whose ``get_video_features`` takes flat patches and the grid they came from.

Their processors expand a video from that grid, so one call on the meta device gives size, grid and ids together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from evs_cli.core.counts import TokenGrid
from evs_cli.core.placeholders import IntArray, SequenceLayout
from evs_cli.encoders.base import Clip, EncodeOptions, EncodePlan, FloatArray, seconds
from evs_cli.encoders.loading import of_one_video, on_device, quiet_transformers, weightless_model
from evs_cli.encoders.vlm import VisionLanguageEncoder, fill_tubelets, true_times
from evs_cli.errors import EvsError, ModelError, UsageError

if TYPE_CHECKING:
    import torch

    from evs_cli.core.video_tokens import VideoTokens

FRAME_PIXELS = ("frame_min_pixels", "frame_max_pixels")
VIDEO_PIXELS = ("video_min_pixels", "video_max_pixels")


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

    @property
    def video_markup(self) -> str:
        """Start mark, one placeholder, end mark, by the tokenizer's own names."""
        config, tokenizer = self.source.config, self.processor.tokenizer
        for name in self.marks:
            if not isinstance(config.get(name), int):
                raise ModelError(f"cannot write the video markup of {self.source.name}: its config.json has no {name}.")
        start, end = tokenizer.convert_ids_to_tokens([config[name] for name in self.marks])
        return f"{start}{self.processor.video_token}{end}"

    def _video_arguments(self, options: EncodeOptions, num_frames: int) -> dict[str, Any]:
        """Keyword arguments of the video processor that settle the size of so many frames, as they are recorded."""
        video = self.processor.video_processor
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
        import torch

        # Most of these processors refuse a single frame: it is repeated to a whole tubelet, as odd ends are.
        filled = fill_tubelets(clip.pts_seconds, self.temporal_patch_size)
        pts = filled if clip.num_frames == 1 else clip.pts_seconds
        height, width = frame_size or (clip.height, clip.width)
        arguments = self._video_arguments(options, len(pts))
        pixels = torch.empty((len(pts), 3, height, width), dtype=torch.uint8, device="meta")
        with _clip_errors(self, clip), quiet_transformers():
            outputs = self._process(
                self.prompt_text(options),
                pixels,
                true_times(clip, pts),
                do_resize=frame_size is None,
                input_data_format="channels_first",
                **{**arguments, **self.call_arguments},
            )
        video = self.processor.video_processor
        grid_t, grid_h, grid_w = (int(n) for n in outputs["video_grid_thw"][0])
        merge, patch = int(video.merge_size), int(video.patch_size)
        token_grid = TokenGrid(len(filled) // self.temporal_patch_size, grid_h // merge, grid_w // merge)
        per_grid = outputs.get("second_per_grid_ts")
        seconds_per_grid = None if per_grid is None else float(per_grid[0])
        token_types = outputs.get("mm_token_type_ids")
        return EncodePlan(
            frame_size=(grid_h * patch, grid_w * patch),
            token_grid_thw=token_grid,
            model_grid_thw=(grid_t, grid_h, grid_w),
            spatial_merge_size=merge,
            temporal_patch_size=self.temporal_patch_size,
            layout=self.layout(outputs["input_ids"][0], token_grid),
            pts_seconds=clip.pts_seconds,
            prompt_seconds=self._prompt_seconds(filled, seconds_per_grid),
            seconds_per_grid=seconds_per_grid,
            token_type_ids=None if token_types is None else np.asarray(token_types[0], dtype=np.int64),
            modality=self.modality,
            token_inputs={name: np.asarray(outputs[name][0], dtype=np.int64) for name in self.token_inputs},
            processing={**self.call_arguments, **arguments},
            notes=(
                *(("one frame was repeated to fill a tubelet",) if len(pts) > clip.num_frames else ()),
                *(_limit_notes(clip, (grid_h * patch, grid_w * patch), merge * patch) if frame_size is None else ()),
            ),
        )

    @property
    def spatial_merge_size(self) -> int:
        """The video processor's own."""
        return int(self.processor.video_processor.merge_size)

    def token_type_ids(self, layout: SequenceLayout) -> IntArray:
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


def cap_argument(video_processor: Any, cap_pixels_per_frame: bool | None) -> dict[str, Any]:
    """``cap_pixels_per_frame``, always passed: unset, the processor warns, and its default is announced to change."""
    value = video_processor.cap_pixels_per_frame if cap_pixels_per_frame is None else cap_pixels_per_frame
    return {"cap_pixels_per_frame": bool(value)}


def size_argument(video_processor: Any, minimum: int | None, maximum: int | None) -> dict[str, Any]:
    """``size`` of a video processor whose two edges are pixel counts, with the user's limits put in."""
    if minimum is None and maximum is None:
        return {}
    size = video_processor.size
    low, high = minimum or int(size["shortest_edge"]), maximum or int(size["longest_edge"])
    if low > high:
        raise UsageError(f"Invalid pixel limits: at least {low}, at most {high}. Expected the least below the most.")
    return {"size": {"shortest_edge": low, "longest_edge": high}}


def _limit_notes(clip: Clip, frame_size: tuple[int, int], factor: int) -> list[str]:
    """A sentence where a pixel limit, and not rounding to whole tokens alone, settled the size."""
    natural = tuple(max(factor, round(side / factor) * factor) for side in (clip.height, clip.width))
    if natural == frame_size or min(clip.height, clip.width) < factor:
        return []
    return [
        f"a pixel limit bound: frames of {clip.width}x{clip.height} become {frame_size[1]}x{frame_size[0]}, "
        f"without it {natural[1]}x{natural[0]}"
    ]


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
