"""What every model family is to the rest of evs: a plan without weights, and an encoder with them.

In: the facts of a clip (size, times), then frames ``(t, 3, H, W) uint8`` in chunks. Out: an ``EncodePlan`` and
embeddings ``(t, h, w, D)`` a level. An encoder knows its model, layout and positions; it knows no video file and
no rate. Importing this module imports no torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from evs_cli.core.counts import PruningMethod, TokenGrid
from evs_cli.core.pixel_region import WHOLE_FRAME, PixelRegion
from evs_cli.core.placeholders import SequenceLayout
from evs_cli.encoders.source import ModelSource
from evs_cli.encoders.weights import WeightsRead
from evs_cli.errors import ModelError, UsageError
from evs_cli.video.sampling import SamplingDefaults

if TYPE_CHECKING:
    import torch

    from evs_cli.core.video_tokens import VideoTokens

FloatArray = npt.NDArray[np.float64]

NO_MODALITY = "none"
"""Of features that no language model takes."""


@dataclass(frozen=True, eq=False)
class Clip:
    """What a model family must know of a sampled clip before any pixel is decoded."""

    height: int
    """Rows of a frame as shown, in pixels."""
    width: int
    """Columns of a frame as shown, in pixels."""
    pts_seconds: FloatArray
    """(S,) float64, the presentation time of each sampled frame, S at least 1."""
    window_seconds: float
    """Length of the part of the video the frames were sampled from."""

    @property
    def num_frames(self) -> int:
        """S, the number of sampled frames."""
        return len(self.pts_seconds)


PIXEL_OPTIONS = ("frame_min_pixels", "frame_max_pixels", "video_min_pixels", "video_max_pixels")
"""Fields of ``EncodeOptions`` that bound the pixels of a frame, or of all frames together."""


@dataclass(frozen=True)
class EncodeOptions:
    """What a user may ask of a family; None leaves the model's own value.

    A family refuses what it has no use for: an option that does nothing is an error, never silent.
    """

    prompt: str | None = None
    """Text beside the video; the sequence is then the whole chat prompt, else the video's part alone."""
    system: str | None = None
    """Text of a system message in front of it; None leaves it to what asks, an empty one is no message."""
    size: int | None = None
    """Short side of the frame in pixels, plain encoders only."""
    frame_min_pixels: int | None = None
    """Least pixels of a resized frame."""
    frame_max_pixels: int | None = None
    """Most pixels of a resized frame."""
    video_min_pixels: int | None = None
    """Least pixels of all resized frames together."""
    video_max_pixels: int | None = None
    """Most pixels of all resized frames together."""
    cap_pixels_per_frame: bool | None = None
    """Whether the processor bounds each frame by its share of the whole video's budget."""

    def __post_init__(self) -> None:
        for name in ("prompt", "system"):
            if getattr(self, name) is not None:
                _check_text(name, getattr(self, name))
        if self.system and self.prompt is None:
            raise UsageError("--system has no effect without --prompt: the sequence is the video's part alone.")
        for name in ("size", *PIXEL_OPTIONS):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise UsageError(f"Invalid {name} ({value}). Expected an integer of at least 1.")
        for limit in ("frame", "video"):
            low, high = getattr(self, f"{limit}_min_pixels"), getattr(self, f"{limit}_max_pixels")
            if low is not None and high is not None and low > high:
                raise UsageError(f"Invalid {limit}_min_pixels ({low}) above {limit}_max_pixels ({high}).")

    def given(self) -> tuple[str, ...]:
        """Names of the options that were set, in the order above."""
        return tuple(name for name, value in vars(self).items() if value is not None)


@dataclass(frozen=True, eq=False)
class EncodePlan:
    """Every count of an encoding, exact before a weight is read or a pixel decoded."""

    frame_size: tuple[int, int]
    """(height, width) in pixels each frame is resized to before patching."""
    token_grid_thw: TokenGrid
    """Tokens in time, height, width, after merge or pooling."""
    model_grid_thw: tuple[int, int, int]
    """The family's own grid (patches, where it counts patches)."""
    spatial_merge_size: int
    """Side of the square of patches that becomes one token; 1 where a family does not merge."""
    temporal_patch_size: int
    """Sampled frames that become one frame of tokens; the last is repeated to fill it."""
    layout: SequenceLayout
    """The unpruned sequence and where the video's tokens stand in it."""
    pts_seconds: FloatArray
    """(S,) float64, presentation times of the sampled frames."""
    prompt_seconds: FloatArray
    """(T,) float64, the time of each frame of tokens as the model is told it."""
    seconds_per_grid: float | None = None
    """Seconds between frames of tokens, for families whose positions depend on it."""
    token_type_ids: npt.NDArray[np.int64] | None = None
    """(L,) int64 modality of each unpruned id (0 text, 2 video), for families whose positions depend on it."""
    loader_size: tuple[int, int] | None = None
    """(height, width) in pixels a server's loader resizes frames to before the processor does; None where none does."""
    loader_interpolation: str | None = None
    """How that loader interpolates, torchvision's name of it, in floats; None is the family's usual one."""
    pixel_region: PixelRegion = WHOLE_FRAME
    """The part of each frame, as shown, over which the token grid lies evenly."""
    modality: str = "video"
    """Key of these features in the model's ``mm_encoder_outputs``: ``image`` where a video goes in as images, or
    ``NO_MODALITY``."""
    features_are_batched: bool = False
    """Whether the model takes the features as ``(1, rows, D)``; else as a sequence of one ``(rows, D)`` a video."""
    token_inputs: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    """(L,) int64 further inputs of the language model by their names, one value an unpruned id."""
    processing: Mapping[str, Any] = field(default_factory=dict)
    """What was passed to the processor beside its own configuration; recorded in the artifact."""
    notes: tuple[str, ...] = ()
    """Sentences for the user: what bound, what was repeated."""
    pruning_method: PruningMethod = "evs"
    """By whose count K is settled; another than ``evs`` is planned and never run."""

    @property
    def frame_pts_seconds(self) -> FloatArray:
        """(T,) float64, presentation time of the first sampled frame in each frame of tokens."""
        return self.pts_seconds[:: self.temporal_patch_size]

    @property
    def video_grid_thw(self) -> tuple[int, int, int]:
        """``(T, h * m, w * m)``, m the spatial merge."""
        num_frames, height, width = self.token_grid_thw
        return num_frames, height * self.spatial_merge_size, width * self.spatial_merge_size

    @property
    def tokens_per_frame(self) -> int:
        """``h * w``, tokens of one frame before pruning."""
        return self.token_grid_thw.tokens_per_frame

    @property
    def total_tokens(self) -> int:
        """N, video tokens before pruning."""
        return self.token_grid_thw.num_tokens

    def retained_tokens(self, q: float) -> int:
        """K, video tokens kept at rate q."""
        return self.token_grid_thw.retained_tokens(q, self.pruning_method)

    def sequence_length(self, q: float = 0.0) -> int:
        """Length of ``input_ids`` at rate q."""
        return self.length_with(self.retained_tokens(q))

    def length_with(self, retained_tokens: int) -> int:
        """Length of ``input_ids`` with so many video tokens kept."""
        return self.layout.sequence_length - self.total_tokens + retained_tokens


class VideoEncoder(ABC):
    """One checkpoint of one family. Cheap to make; weights are read by ``load`` alone.

    A family is one subclass in one file, and one line in ``registry.py``.
    """

    supported_options: ClassVar[frozenset[str]]
    """Fields of ``EncodeOptions`` that mean something to the family."""
    has_language_model: ClassVar[bool] = True
    """Whether its tokens go into a language model, with a context limit and a prompt."""

    counts_alone: bool = False
    """Whether it only plans, so that what a plan needs may be read from the files without the model's own code."""

    def __init__(self, source: ModelSource) -> None:
        self.source = source

    @property
    @abstractmethod
    def sampling_defaults(self) -> SamplingDefaults:
        """How the checkpoint's own processor samples, or 2 fps up to 128 frames where it has no rule."""

    @property
    def default_pruning_rate(self) -> float | None:
        """The checkpoint's own ``video_pruning_rate`` where it has one above 0, else None."""
        rate = self.source.config.get("video_pruning_rate")
        return float(rate) if isinstance(rate, (int, float)) and 0 < rate < 1 else None

    @property
    def temporal_patch_size(self) -> int:
        """Sampled frames that become one frame of tokens; chunks of frames are a multiple of it."""
        return 1

    @abstractmethod
    def plan(self, clip: Clip, options: EncodeOptions, *, frame_size: tuple[int, int] | None = None) -> EncodePlan:
        """Everything countable of encoding ``clip``, without weights.

        Args:
            clip: size and times of the sampled frames.
            options: the user's options; see ``check_options``.
            frame_size: (height, width) to resize to, where it is settled already: a damaged file that lost
                frames keeps the size planned for all of them.

        Raises:
            UsageError: an option without meaning for this family, or a clip it cannot take.
            ModelError: a processor or tokenizer that cannot be loaded.
        """

    @abstractmethod
    def load(self, device: str, dtype: torch.dtype) -> WeightsRead:
        """Read the weights of the vision part onto ``device`` in ``dtype``, and say how many bytes that was.

        Raises:
            ModelError: weights that are missing or do not fit.
        """

    def mark_frames(self, frames: torch.Tensor, pts_seconds: FloatArray) -> torch.Tensor:
        """``(t, 3, H, W)`` decoded frames with their times ``(t,)`` drawn in, for a family that is told them so."""
        return frames

    @property
    def frames_are_independent(self) -> bool:
        """Whether equal frames (tubelets, where there are) get equal tokens wherever they stand, so that one that
        repeats the one before need not be encoded again. A family says so of itself.
        """
        return False

    def encode(self, frames: torch.Tensor, plan: EncodePlan) -> VideoTokens:
        """Embeddings of the next frames: ``preprocess``, then ``embed``."""
        return self.embed(self.preprocess(frames, plan), plan)

    def preprocess(self, frames: torch.Tensor, plan: EncodePlan) -> dict[str, torch.Tensor]:
        """What the model takes of the next frames, on the CPU; it may run in another thread, beside ``embed``.

        Args:
            frames: ``(t, 3, H, W)`` uint8 RGB as shown, t a multiple of ``temporal_patch_size`` but at the end.
            plan: the plan of the whole clip, which settles the size.

        Returns:
            Tensors by name, for ``embed`` alone; in a family that says no more, the ``frames`` as they are.
        """
        return {"frames": frames}

    @abstractmethod
    def embed(self, inputs: Mapping[str, torch.Tensor], plan: EncodePlan) -> VideoTokens:
        """``ceil(t / temporal_patch_size)`` frames of tokens, from what ``preprocess`` gave for t frames."""

    def closing_rows(self) -> torch.Tensor | None:
        """``(E, D)`` extra rows behind the last frame (a newline); None, as here, for most families."""
        return None

    def position_ids(self, plan: EncodePlan) -> torch.Tensor | None:
        """Positions of the *unpruned* sequence, ``(3, L)`` or ``(L,)`` int64; None for a model that takes none.

        The pruned sequence's positions are a selection of these. Families without positions of their own count ids.
        """
        import torch

        return torch.arange(plan.layout.sequence_length)

    @property
    def outer_tokens(self) -> int:
        """Ids of the markers around a whole video; not those of its frames."""
        return 0

    def text_tokens(self, options: EncodeOptions, num_videos: int = 1) -> int:
        """Ids around the parts of so many videos of one prompt; 0 where the parts stand alone."""
        return 0

    def request_length(self, parts: Sequence[Sequence[int]], options: EncodeOptions) -> int:
        """Ids of one prompt with several videos.

        Args:
            parts: ids of each video's part, as it stands alone.
            options: the user's text.
        """
        return sum(map(len, parts))

    def check_options(self, options: EncodeOptions) -> None:
        """Raise ``UsageError`` for an option this family has no use for."""
        for name in options.given():
            if name not in self.supported_options and not (name == "system" and "prompt" in self.supported_options):
                flag, *allowed = ("--" + o.replace("_", "-") for o in (name, *sorted(self.supported_options)))
                raise UsageError(
                    f"{flag} has no effect on {self.source.name} ({self.source.model_type}). "
                    f"Expected one of its own options: {', '.join(allowed)}."
                )


def _check_text(name: str, text: object) -> None:
    """Raise ``UsageError`` for a prompt that is no text, or holds bytes that were none (surrogates)."""
    if not isinstance(text, str):
        raise UsageError(f"Invalid {name} ({type(text).__name__}). Expected text.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(f"Invalid {name}: it is not UTF-8. Expected text.") from error


def require_same_count(found: int, expected: int, source: ModelSource, what: str) -> None:
    """Raise ``ModelError`` where a model's count differs from the plan's: evs would place tokens wrongly."""
    if found != expected:
        raise ModelError(
            f"cannot place the video tokens of {source.name}: {found} {what}, {expected} planned.",
            hint="Please report this with the model's name and the transformers version (`evs --version` for ours).",
        )


def seconds(values: npt.ArrayLike) -> FloatArray:
    """``values`` as a float64 array."""
    return np.asarray(values, dtype=np.float64)
