"""Plain frame encoders: vision transformers that turn one frame into a grid of patch tokens.

DINOv2, DINOv3, SigLIP, SigLIP 2 and CLIP. They need no language model and no tokenizer, so the sequence they get is a
generic one: for each frame ``1``, its placeholders ``0``, then ``2``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from evs_cli.core.counts import TokenGrid
from evs_cli.core.placeholders import SequenceLayout
from evs_cli.encoders import embedded
from evs_cli.encoders.base import NO_MODALITY, Clip, EncodeOptions, EncodePlan, VideoEncoder, seconds
from evs_cli.encoders.loading import loading_errors, on_device, quiet_transformers, refuse_missing
from evs_cli.encoders.source import ModelSource, checkpoint_file, read_json
from evs_cli.encoders.weights import WeightsRead
from evs_cli.errors import ModelError, UsageError
from evs_cli.video.sampling import EVS_DEFAULTS, SamplingDefaults

if TYPE_CHECKING:
    import torch

    from evs_cli.core.video_tokens import VideoTokens

PLACEHOLDER_ID, FRAME_START_ID, FRAME_END_ID = 0, 1, 2
DEFAULT_SIZE = 224
_IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


@dataclass(frozen=True)
class _Tower:
    """How one kind of vision transformer is loaded and read."""

    class_name: str
    """Class of transformers that holds the vision tower alone."""
    class_tokens: int
    """Tokens in front of the patches: the class token, without registers."""
    interpolates_by_argument: bool
    """Whether other sizes than the trained one must be asked for in the call."""
    patch_size: int
    """What a configuration means that leaves it out."""
    register_tokens: int = 0
    """What a configuration means that leaves them out."""
    takes_flat_patches: bool = False
    """Whether it takes patches written out one by one, beside their grid, in place of pixels."""


# The tower of an image-text model is a part of its checkpoint; its class reads that part alone.
_SIGLIP, _CLIP = _Tower("SiglipVisionModel", 0, True, 16), _Tower("CLIPVisionModel", 1, True, 32)
_SIGLIP2 = _Tower("Siglip2VisionModel", 0, False, 16, takes_flat_patches=True)
_TOWERS = {
    "dinov2": _Tower("Dinov2Model", 1, False, 14),
    "dinov2_with_registers": _Tower("Dinov2WithRegistersModel", 1, False, 16, register_tokens=4),
    "dinov3_vit": _Tower("DINOv3ViTModel", 1, False, 16),
    "siglip": _SIGLIP,
    "siglip_vision_model": _SIGLIP,
    "siglip2": _SIGLIP2,
    "siglip2_vision_model": _SIGLIP2,
    "clip": _CLIP,
    "clip_vision_model": _CLIP,
}


class PlainFrameEncoder(VideoEncoder):
    """A vision transformer applied to each frame alone.

    The whole frame is seen: short side ``--size`` (224), aspect kept, both sides rounded to the patch size and
    nothing cropped, where the published image processors cut out the middle.
    """

    supported_options: ClassVar[frozenset[str]] = frozenset({"size"})
    has_language_model: ClassVar[bool] = False
    _model: Any = None

    @cached_property
    def _tower(self) -> _Tower:
        return _TOWERS[self.source.model_type]

    @cached_property
    def _vision_config(self) -> dict[str, Any]:
        return dict(self.source.config.get("vision_config") or self.source.config)

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """2 fps, at most 128 frames: image models have no rule of their own."""
        return EVS_DEFAULTS

    def plan(self, clip: Clip, options: EncodeOptions, *, frame_size: tuple[int, int] | None = None) -> EncodePlan:
        """See ``VideoEncoder.plan``; needs no torch."""
        self.check_options(options)
        patch = self._patch_size
        height, width = frame_size or fit_short_side(clip.height, clip.width, options.size or DEFAULT_SIZE, patch)
        grid = TokenGrid(clip.num_frames, height // patch, width // patch)
        return EncodePlan(
            frame_size=(height, width),
            token_grid_thw=grid,
            model_grid_thw=(grid.t, grid.h, grid.w),
            spatial_merge_size=1,
            temporal_patch_size=1,
            layout=generic_layout(grid.t, grid.tokens_per_frame),
            pts_seconds=clip.pts_seconds,
            prompt_seconds=seconds(clip.pts_seconds),
            modality=NO_MODALITY,
        )

    @property
    def _patch_size(self) -> int:
        size = self._vision_config.get("patch_size", self._tower.patch_size)
        if not isinstance(size, int) or size < 1:
            raise ModelError(f"cannot use {self.source.name}: its patch_size is {size!r}. Expected an integer above 0.")
        return size

    def load(self, device: str, dtype: torch.dtype) -> WeightsRead:
        """See ``VideoEncoder.load``."""
        import transformers

        location = embedded.convert_once() if self.source.is_embedded else self.source.location
        with loading_errors(self.source), quiet_transformers():
            tower = getattr(transformers, self._tower.class_name)
            model, info = tower.from_pretrained(
                location, dtype=dtype, output_loading_info=True, **self.source.pretrained_arguments()
            )
            refuse_missing(self.source, info["missing_keys"])
            self._mean_std = _read_mean_std(self.source)
            self._model = model.to(device).eval()
        # safetensors maps the file, so that what the tower does not take is not read.
        file = checkpoint_file(self.source, "model.safetensors")
        read = sum(parameter.nbytes for parameter in model.parameters())
        return WeightsRead(read, max(read, file.stat().st_size if file is not None else 0), 1, 1)

    @property
    def frames_are_independent(self) -> bool:
        """True: each frame is an image of its own."""
        return True

    def preprocess(self, frames: torch.Tensor, plan: EncodePlan) -> dict[str, torch.Tensor]:
        """See ``VideoEncoder.preprocess``."""
        return {"pixels": self._pixels(frames, plan)}

    def embed(self, inputs: Mapping[str, torch.Tensor], plan: EncodePlan) -> VideoTokens:
        """See ``VideoEncoder.embed``."""
        import torch

        from evs_cli.core.video_tokens import VideoTokens

        with torch.inference_mode():
            pixels = on_device(inputs["pixels"], self._model)
            hidden = self._model(**self._arguments(pixels)).last_hidden_state
        skip = self._tower.class_tokens + int(
            self._vision_config.get("num_register_tokens", self._tower.register_tokens)
        )
        _, height, width = plan.token_grid_thw
        if hidden.shape[1] - skip != height * width:
            raise ModelError(
                f"cannot place the tokens of {self.source.name}: {hidden.shape[1]} a frame. "
                f"Expected {height * width} patches after {skip} tokens in front."
            )
        return VideoTokens((hidden[:, skip:].reshape(hidden.shape[0], height, width, -1),))

    def _pixels(self, frames: torch.Tensor, plan: EncodePlan) -> torch.Tensor:
        """(t, 3, h, w) float32 normalised pixels, resized with antialiasing."""
        import torch
        from torchvision.transforms.v2 import functional as tvf

        resized = tvf.resize(frames, list(plan.frame_size), interpolation=tvf.InterpolationMode.BICUBIC, antialias=True)
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in self._mean_std)
        pixels: torch.Tensor = resized.float().div_(255).sub_(mean).div_(std)  # in place: batches wait side by side
        return pixels

    def _arguments(self, pixels: torch.Tensor) -> dict[str, Any]:
        """What the tower is called with: the pixels as they are, or as patches and their grid."""
        if self._tower.takes_flat_patches:
            return flat_patches(pixels, self._patch_size)
        if self._tower.interpolates_by_argument:
            return {"pixel_values": pixels, "interpolate_pos_encoding": True}
        return {"pixel_values": pixels}


def fit_short_side(height: int, width: int, size: int, patch_size: int) -> tuple[int, int]:
    """The (height, width) whose short side is ``size``, aspect kept, both rounded to the patch (at least one)."""
    scale = size / min(height, width)
    fitted = tuple(max(1, round(side * scale / patch_size)) * patch_size for side in (height, width))
    if max(fitted) // patch_size > 4096:
        raise UsageError(
            f"cannot fit frames of {width}x{height} to a short side of {size}: the long side would be {max(fitted)}. "
            f"Expected at most {4096 * patch_size}."
        )
    return fitted[0], fitted[1]


def flat_patches(pixels: torch.Tensor, patch_size: int) -> dict[str, torch.Tensor]:
    """What SigLIP 2 (NaFlex) takes for frames of one size, where nothing is padded.

    Args:
        pixels: ``(t, 3, h * p, w * p)``, p the patch size.
        patch_size: p, in pixels.

    Returns:
        ``pixel_values (t, h * w, p * p * 3)``, each patch row by row and colours last;
        ``pixel_attention_mask (t, h * w)``, all 1; ``spatial_shapes (t, 2)``, h and w.
    """
    import torch

    num_frames, channels, height, width = pixels.shape
    height, width = height // patch_size, width // patch_size
    patches = pixels.reshape(num_frames, channels, height, patch_size, width, patch_size)
    return {
        "pixel_values": patches.permute(0, 2, 4, 3, 5, 1).reshape(num_frames, height * width, -1),
        "pixel_attention_mask": torch.ones((num_frames, height * width), dtype=torch.int64, device=pixels.device),
        "spatial_shapes": torch.tensor([[height, width]], device=pixels.device).repeat(num_frames, 1),
    }


def generic_layout(num_frames: int, tokens_per_frame: int) -> SequenceLayout:
    """The sequence of a model without a tokenizer: 1, then 0 for each token, then 2, for every frame."""
    frame = np.full(tokens_per_frame + 2, PLACEHOLDER_ID, dtype=np.int64)
    frame[0], frame[-1] = FRAME_START_ID, FRAME_END_ID
    ids = np.tile(frame, num_frames)
    return SequenceLayout(
        input_ids=ids,
        token_positions=np.flatnonzero(ids == PLACEHOLDER_ID).astype(np.int64),
        extra_positions=np.empty(0, dtype=np.int64),
        num_frames=num_frames,
        placeholder_token_id=PLACEHOLDER_ID,
    )


def _read_mean_std(source: ModelSource) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of the checkpoint's image processor; ImageNet's where it names none."""
    path = checkpoint_file(source, "preprocessor_config.json")
    if path is None:
        return _IMAGENET
    config = read_json(path)
    values = (config.get("image_mean", _IMAGENET[0]), config.get("image_std", _IMAGENET[1]))
    for value in values:
        if not isinstance(value, list) or len(value) != 3 or not all(isinstance(v, (int, float)) for v in value):
            raise ModelError(f"cannot use {source.name}: image_mean or image_std is {value!r}. Expected three numbers.")
    return values
