"""The data that dialects share: a video as a server sees it, the served model, the options, and the resulting plan.

In: a video's facts as a server sees them, a served model and the server's options. Out: a ``ServerPlan``. Nothing here
opens a file, reads a weight or imports a server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from evs_cli.core.counts import PRUNING_METHODS, PruningMethod, TokenGrid, check_pruning_rate, tokens_per_frame
from evs_cli.errors import RefusedByServerError as RefusedByServerError  # the rules raise it
from evs_cli.errors import UsageError

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ServerSource:
    """A video as a server's loader sees it: header counts and an average rate, no times of frames."""

    num_frames: int
    """Frames it believes the file to have."""
    average_fps: float
    """Frames a second; 0 where unknown."""
    height: int
    """Rows of a decoded frame, turned upright; pixels that are not square stay as they are."""
    width: int
    """Columns of a decoded frame."""
    lost: frozenset[int] = frozenset()
    """Of these, the frames that its reader leaves out: past the end of the file, or not to be decoded."""

    def read(self, indices: Int64Array) -> tuple[Int64Array, list[str]]:
        """What its reader gets of (S,) ascending frames that are asked for, and a sentence where that is fewer.

        Raises:
            RefusedByServerError: none of them is left.
        """
        if self.lost.isdisjoint(indices.tolist()):
            return indices, []
        kept = np.array([index for index in indices.tolist() if index not in self.lost], dtype=np.int64)
        if not len(kept):
            raise RefusedByServerError("none of the frames that the server asks for is in the file.")
        where = "past the end of the file" if min(self.lost) > kept[-1] else "not to be decoded"
        return kept, [f"{len(indices) - len(kept)} of its {len(indices)} frames are {where}, and it leaves them out"]

    @property
    def duration_seconds(self) -> float:
        """Frames over rate; 0 where the rate is unknown."""
        return self.num_frames / self.average_fps if self.average_fps > 0 else 0.0


LIMIT_OPTIONS = ("max_model_len", "max_num_batched_tokens", "max_decoded_bytes", "max_image_pixels")
"""Fields of ``ServerOptions`` that only say which videos pass: no frame, size or time depends on them."""

PRUNING_OPTIONS = ("video_pruning_rate", "video_pruning_method")
"""Fields of ``ServerOptions`` that settle how many tokens are kept, and no frame, size or time."""

NOTED_OPTIONS = ("trusts_requests", "max_videos", "takes_images", "unread", "scoped")
"""Fields of ``ServerOptions`` that only settle what is said of a plan, or whether there is one."""


@dataclass(frozen=True)
class ServerOptions:
    """How the server was started, and what a request says of its video.

    Raises:
        UsageError: a rate outside [0, 1), a method that is not known, or a length below 1.
    """

    media_io: Mapping[str, Any] = field(default_factory=dict)
    """The ``video`` part of vLLM's ``--media-io-kwargs``."""
    mm_processor: Mapping[str, Any] = field(default_factory=dict)
    """vLLM's ``--mm-processor-kwargs``, flat keys and those of ``videos_kwargs`` as one; for ``hf`` the processor's."""
    scoped: tuple[str, ...] = ()
    """Of those, the names that were given inside ``videos_kwargs``."""
    mm_process: Mapping[str, Any] = field(default_factory=dict)
    """The ``video`` part of SGLang's ``--mm-process-config``."""
    video_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """What qwen-vl-utils, or a trainer, is told of a video; environment variables in capitals."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """What a request asks of the sampling: ``fps``, ``num_frames``, ``max_frames``."""
    video_pruning_rate: float | None = None
    """vLLM's ``--video-pruning-rate``; for SGLang and transformers, as if config.json said so."""
    video_pruning_method: PruningMethod = "evs"
    """vLLM's ``--video-pruning-method``."""
    max_model_len: int | None = None
    """Longest sequence, the answer included; None is the model's own."""
    max_num_batched_tokens: int | None = None
    """vLLM's ``--max-num-batched-tokens``; None is its default on a GPU of 80 GB."""
    max_decoded_bytes: int | None = None
    """vLLM's ``VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES``; None is its default."""
    max_image_pixels: int | None = None
    """vLLM's ``VLLM_MAX_IMAGE_PIXELS``; None is its default."""
    max_videos: int | None = None
    """Videos that one request may hold, of vLLM's ``--limit-mm-per-prompt`` or SGLang's
    ``--limit-mm-data-per-request``; None is as many as fit."""
    takes_images: bool = True
    """Whether vLLM's ``--limit-mm-per-prompt`` leaves room for images: its encoder cache is sized by them too."""
    unread: tuple[str, ...] = ()
    """What of its command line is not counted with, though a prompt or a limit may depend on it."""
    trusts_requests: bool | None = None
    """Whether the server was started with ``--trust-request-mm-kwargs``; None where its command line is not known."""

    def __post_init__(self) -> None:
        if self.video_pruning_rate is not None:
            check_pruning_rate(self.video_pruning_rate)
        if self.video_pruning_method not in PRUNING_METHODS:
            known = " or ".join(PRUNING_METHODS)
            raise UsageError(f"Invalid video_pruning_method ({self.video_pruning_method!r}). Expected {known}.")
        for name in LIMIT_OPTIONS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"Invalid {name} ({value}). Expected at least 1.")

    @property
    def changes_plans(self) -> bool:
        """Whether anything here changes frames, sizes or times."""
        unchanging = (*PRUNING_OPTIONS, *NOTED_OPTIONS, *LIMIT_OPTIONS)
        return any(value for name, value in vars(self).items() if name not in unchanging)


@dataclass(frozen=True)
class QwenModel:
    """What the rules need of a Qwen2.5-VL, Qwen3-VL or Qwen3.5 checkpoint: its config and its processor's values."""

    patch_size: int
    merge_size: int
    temporal_patch_size: int
    min_pixels: int
    """``shortest_edge`` of the video processor's ``size``: of a frame, or of all of them, as the family has it."""
    max_pixels: int
    """``longest_edge`` of the same."""
    image_max_pixels: int
    """``longest_edge`` of the image processor's ``size``."""
    fps: float | None
    """The video processor's own rate."""
    min_frames: int
    max_frames: int
    do_sample_frames: bool
    """Whether transformers samples unless told otherwise."""
    cap_pixels_per_frame: bool
    max_video_tokens: int
    tells_times: bool
    """Whether each frame's time is written before it and pixel limits hold for all frames together (Qwen3-VL)."""
    start: str
    """Text of the token in front of a video."""
    end: str
    """Text of the token behind it."""
    placeholder: str
    """Text of the token that stands for one video token."""

    @property
    def factor(self) -> int:
        """Pixels along a side of one token."""
        return self.patch_size * self.merge_size


@dataclass(frozen=True)
class NemotronModel:
    """What the rules need of a Nemotron Nano VL (12B v2) or Nemotron Omni checkpoint."""

    patch_size: int
    merge_size: int
    image_size: int
    """Side in pixels of the square every frame becomes, where there is no target of patches."""
    temporal_patch_size: int
    """Sampled frames of one tubelet; 1 for 12B v2."""
    target_num_patches: int | None
    """Patches a frame should have; None for one fixed size."""
    keeps_aspect: bool
    config_pruning_rate: float
    """``video_pruning_rate`` of config.json; 0 where it has none."""
    start: str
    end: str
    placeholder: str


@dataclass(frozen=True)
class GlmModel:
    """What the rules need of a GLM-4.1V, 4.5V or 4.6V checkpoint."""

    architecture: str
    """The first of ``architectures`` in config.json: servers choose their own model by it, if they have one."""
    patch_size: int
    merge_size: int
    temporal_patch_size: int
    min_pixels: int
    """``shortest_edge`` of the video processor's ``size``: of all frames together."""
    max_pixels: int
    """``longest_edge`` of the same."""
    image_max_pixels: int
    """``longest_edge`` of the image processor's ``size``: of an image, taken twice to fill its tubelet."""
    fps: float
    """The video processor's own rate; not read where the length of the clip settles it."""
    max_seconds: float
    """Longest clip that is sampled at a rate; longer ones get as many frames as this."""
    samples_by_length: bool
    """Whether the processor is GLM-4.6V's: the rate falls with the clip's length, and tenths of seconds are told."""
    vllm_loader: Literal["fps", "length", "uniform"]
    """How vLLM's loader samples: by the video processor that it finds named, which need not be the one that runs."""
    do_sample_frames: bool
    """Whether transformers samples unless told otherwise."""
    max_time_tokens: int
    """Most ids of a time below 300 s, such as ``299.0 seconds``."""
    start: str
    """Text of the token in front of a video."""
    end: str
    """Text of the token behind it."""
    frame_start: str
    """Text of the token in front of each frame of tokens; its time stands behind the other one."""
    frame_end: str
    placeholder: str
    """Text of the token that stands for one video token: an image's."""

    @property
    def factor(self) -> int:
        """Pixels along a side of one token."""
        return self.patch_size * self.merge_size


@dataclass(frozen=True)
class InternVLModel:
    """What the rules need of an InternVL checkpoint in transformers' format."""

    patch_size: tuple[int, int]
    """(rows, columns) in pixels."""
    merge_size: int
    frame_size: tuple[int, int]
    """(height, width) in pixels that the video processor gives every frame, untiled."""
    image_size: tuple[int, int]
    """(height, width) in pixels of an image's tile."""
    image_tiles: int
    """Most tiles of an image, the thumbnail included."""
    tokens_per_tile: int
    """``image_seq_length``: the placeholders that the processor writes for a tile or a frame."""
    num_frames: int | None
    """The video processor's own number of frames; None where it has none."""
    fps: float | None
    """The video processor's own rate."""
    initial_shift: bool | float
    """Frames before the first sampled one; True for half a step."""
    do_sample_frames: bool
    """Whether transformers samples unless told otherwise."""
    start: str
    """Text of the token in front of each frame."""
    end: str
    """Text of the token behind it."""
    placeholder: str
    """Text of the token that stands for one video token in transformers: an image's."""
    video: str
    """Text of the token that stands for a video before it is written out."""

    @property
    def temporal_patch_size(self) -> int:
        """1: a sampled frame is a frame of tokens."""
        return 1


ClientSplit = Literal["first", "even"]
"""All retained tokens under the first frame's time, or ``K // T`` a frame and the remainder on the last."""

ServedModel = QwenModel | NemotronModel | GlmModel | InternVLModel


@dataclass(frozen=True)
class PruningRate:
    """The rate a server prunes at, and who says so."""

    q: float
    source: str
    """In a few words: ``--video-pruning-rate``, ``config.json``, why none."""
    can_prune: bool
    """Whether the server prunes this family at all."""
    method: PruningMethod = "evs"
    """What chooses the tokens that are kept."""


@dataclass(frozen=True, eq=False)
class ServerPlan:
    """What a server makes of a video, before it is asked."""

    frame_indices: Int64Array
    """(S,) int64: sampled frames, as the server counts the file's frames."""
    resizes: tuple[tuple[int, int], ...]
    """(height, width) in pixels of each resize in turn; the last one is cut into patches."""
    token_grid_thw: TokenGrid
    """Tokens in time, height, width."""
    frame_texts: tuple[str, ...]
    """T texts in front of each frame's tokens, markers included; empty ones where nothing stands between frames."""
    frame_end: str
    """The marker behind each frame's tokens."""
    outer: tuple[str, str]
    """The markers around the whole video."""
    placeholder: str
    """Text of the token that stands for one video token."""
    prompt_seconds: FloatArray
    """(T,) float64: the time of each frame of tokens as the model is told it."""
    pruning: PruningRate
    told_behind: tuple[str, ...] = ()
    """T texts behind each frame's end marker; none where what is told of a frame stands in front of it."""
    client_placeholder: str | None = None
    """Text of the token that a client sees for one video token; None where it is ``placeholder``."""
    seconds_per_grid: float | None = None
    """Seconds between frames of tokens, for families whose positions depend on it."""
    client_split: ClientSplit = "even"
    """Where the ids that a client sees hold the retained tokens."""
    caches_separators: Literal["always", "when pruning", "never"] = "never"
    """When separators count in the server's encoder cache."""
    loader_interpolation: str | None = None
    """How the first of ``resizes`` interpolates, torchvision's name of it; None is the family's loader, or none."""
    tokenises_pieces: bool = False
    """Whether each text and marker is tokenised alone; else the whole prompt is one string."""
    rule: str = ""
    """What settled the sampled frames, in words."""
    notes: tuple[str, ...] = ()
    """What bound, what does nothing, what falls short, each with what works instead."""

    def with_notes(self, notes: Sequence[str]) -> ServerPlan:
        """The same with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    @property
    def tokens_per_frame(self) -> int:
        """``h * w``."""
        return self.token_grid_thw.tokens_per_frame

    @property
    def total_tokens(self) -> int:
        """N, video tokens before pruning."""
        return self.token_grid_thw.num_tokens

    def retained_tokens(self, q: float) -> int:
        """K, video tokens kept at rate q."""
        return self.token_grid_thw.retained_tokens(q, self.pruning.method)

    def segments(self, counts: Sequence[int]) -> list[str | int]:
        """The video's part in texts and runs of placeholders, ``counts[t]`` of them for frame t."""
        if not self.frame_end:  # one span: frames are not told apart
            return [self.outer[0], sum(counts), self.outer[1]]
        inner: list[str | int] = []
        told_behind = self.told_behind or ("",) * len(self.frame_texts)
        for text, count, behind in zip(self.frame_texts, counts, told_behind, strict=True):
            inner += [text, count, self.frame_end + behind]
        return [self.outer[0], *inner, self.outer[1]]

    def client_counts(self, q: float) -> list[int]:
        """The tokens of each frame in the ids that a client sees at rate q; their sum is K."""
        num_frames = self.token_grid_thw.t
        retained = self.retained_tokens(q)
        if self.client_split == "first" and q > 0:
            return [retained] + [0] * (num_frames - 1)
        return tokens_per_frame(q=q, num_frames=num_frames, frame_num_tokens=self.tokens_per_frame)

    def counts_separators_in_cache(self, q: float) -> bool:
        """Whether separators count in the encoder cache at rate q."""
        return self.caches_separators == "always" or (self.caches_separators == "when pruning" and q > 0)
