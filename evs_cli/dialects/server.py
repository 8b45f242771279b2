"""The ``Server`` protocol: the rules of one server at one version.

Each server and version is one object, in a file named after both; ``dialects/__init__`` finds it by name. The defaults
here are what transformers does without any server, so a server states only where it differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from evs_cli.core.counts import TokenGrid
from evs_cli.dialects.base import (
    Int64Array,
    NemotronModel,
    PruningRate,
    ServedModel,
    ServerOptions,
    ServerPlan,
    ServerSource,
)
from evs_cli.dialects.pixels import processor_pixels, with_pixels
from evs_cli.dialects.requests import ServerRecipe, ServingRequest
from evs_cli.encoders.base import EncodeOptions
from evs_cli.video.info import StreamChoice, VideoInfo
from evs_cli.video.sampling import SamplingRequest

# The model is the family's own, such as a ``QwenModel``.
Planner = Callable[[ServerSource, Any, ServerOptions], ServerPlan]
"""Plans a source."""
FramePlanner = Callable[[ServerSource, Any, ServerOptions, Int64Array, str], ServerPlan]
"""Plans (S,) int64 frames of a source that are chosen already, by the rule told in words."""


@dataclass(frozen=True)
class FamilyRules:
    """How a server plans the videos of one model family."""

    plan: Planner
    plan_frames: FramePlanner | None = None
    """None where no frames can be given."""
    takes_sent_frames: bool = False
    """Whether it is written down what becomes of frames that a request sends as pictures."""


class ClipUse(Protocol):
    """How much of what a server limits one request uses, of one clip or of several."""

    @property
    def num_videos(self) -> int:
        """Clips of the request."""

    @property
    def sequence_length(self) -> int:
        """L, ids of the prompt after pruning."""

    @property
    def cached_tokens(self) -> int:
        """Tokens that the encoder cache must hold at once: of the largest clip, as each has its own entry."""

    @property
    def decoded_bytes(self) -> int:
        """Bytes of all sampled frames, as the server decodes them."""

    @property
    def frame_pixels(self) -> int:
        """Pixels of one decoded frame."""


@dataclass(frozen=True)
class Limit:
    """One limit of a server: the most that passes, and what raises it."""

    name: str
    """Such as ``context``."""
    most: int
    unit: str
    """``tokens``, ``bytes``, ``pixels`` or ``videos``."""
    option: str
    """The option or environment variable that raises it."""
    used: Callable[[ClipUse], int]
    grows: bool = True
    """Whether a longer clip uses more."""


def videos_limit(option: str | None, most: int | None) -> Limit | None:
    """The limit of videos in one request; None where there is no such number or option."""
    if option is None or most is None:
        return None
    return Limit("number of videos", most, "videos", option, lambda use: use.num_videos)


class Server(Protocol):
    """The rules of one server and version."""

    families: ClassVar[Mapping[str, FamilyRules]]
    """By the names that ``served_model`` gives."""
    own_options: ClassVar[frozenset[str]]
    """Of the options of ``evs`` that not every server has, those it has a use for."""
    missing_family: ClassVar[str] = "the server has no model of its own for this family's format"
    """Why it takes no family beside these."""
    limit_variables: ClassVar[Mapping[str, str]] = {}
    """Environment variables that change a limit: the field of ``ServerOptions`` each one settles."""
    context_option: ClassVar[str] = "the model's own"
    """What raises the longest sequence."""
    context_margin: ClassVar[int] = 1
    """Ids of the context that no prompt gets: one for the answer."""
    videos_option: ClassVar[str | None] = None
    """The option that bounds the videos of one request; None where it has none."""
    owner: ClassVar[str | None] = None
    """What it calls itself as the owner of its models in ``/v1/models``; None where it gives no name of its own."""
    version_path: ClassVar[str | None] = None
    """The endpoint whose answer has its ``version``; None where it has none."""
    trust_option: ClassVar[str | None] = None
    """The option without which it refuses a request that says how its video is sampled or resized; None needs none."""
    samples_by_request: ClassVar[bool] = True
    """Whether a request says how its video is sampled; else the options at start do."""
    resizes_frames_itself: ClassVar[bool] = False
    """Whether its loader resizes frames before the processor does, so that no other server makes the same of them."""
    bounds_frames_alone: ClassVar[bool] = False
    """Whether it has limits for a frame's pixels and none for those of a video."""
    bounds_any_pixels: ClassVar[bool] = False
    """Whether it bounds the pixels of a frame and of all frames, whichever of the two the family's processor does."""
    tokenizes_videos: ClassVar[bool] = True
    """Whether its ``/tokenize`` writes a video out, token by token."""

    def pruning(self, model: ServedModel, options: ServerOptions) -> PruningRate:
        """The rate it prunes a checkpoint's videos at."""

    def stream_choice(self, options: ServerOptions) -> StreamChoice:
        """Which video stream of a file with several it takes."""
        return "best"

    def leaves_out_lost_frames(self, options: ServerOptions) -> bool:
        """Whether its reader goes on without frames that do not decode, so that ``reads_of`` tells them."""
        return False

    def reads_of(self, video: VideoInfo, options: ServerOptions) -> Int64Array | None:
        """Which frame of the file its reader gets for each of its indices, -1 for none, by decoding the whole file.

        None where its reader knows frames by their time, and fails on one that does not decode.
        """
        return None

    def source_of(self, video: VideoInfo, options: ServerOptions, reads: Int64Array | None = None) -> ServerSource:
        """A file's facts as its loader states them; no server makes pixels square.

        Args:
            video: the file, probed.
            options: the server's.
            reads: see ``reads_of``; None takes every frame that the file holds for one that decodes.

        Raises:
            RefusedByServerError: a file that it cannot decode.
        """
        height_width = video.orientation.shown_size(video.coded_width, video.coded_height)[::-1]
        return ServerSource(video.num_frames, video.average_fps, *height_width)

    def configured(self, options: ServerOptions, asked: Mapping[str, Any]) -> ServerOptions:
        """The options with ``fps``, ``num_frames`` and ``max_frames`` put where they settle the sampling."""
        return replace(options, request=asked)

    def needs_text_before(self, model: ServedModel, q: float) -> bool:
        """Whether it fails where no more ids stand before a video than its first time has, when it prunes at q."""
        return False

    def together_fault(self, model: ServedModel, grids: Sequence[TokenGrid]) -> str | None:
        """Why it fails on videos of these grids in one request; None where it takes them.

        Transformers' ``NemotronHOmniVideoProcessor`` stacks the videos of one call.
        """
        if isinstance(model, NemotronModel) and len(set(grids)) > 1:
            return "takes videos in one call only where they have one number of frames and one size"
        return None

    def with_pixels(self, options: ServerOptions, asked: EncodeOptions, model: ServedModel) -> ServerOptions:
        """The options with the pixel limits asked for: both kinds are the edges of the processor's ``size``."""
        return replace(options, mm_processor=with_pixels(options.mm_processor, processor_pixels(asked), model))

    def fewer_frames(self, model: ServedModel, num_frames: int, duration_seconds: float) -> SamplingRequest | None:
        """The request for so many frames: a rate where the family goes by one; None where nothing can be asked."""
        if isinstance(model, NemotronModel):
            return SamplingRequest(num_frames=num_frames)
        return SamplingRequest(fps=float(f"{num_frames / duration_seconds:.4g}")) if duration_seconds else None

    def option_notes(self, options: ServerOptions) -> tuple[str, ...]:
        """Sentences on options that are not counted with."""
        return ()

    def limits(self, model: ServedModel, options: ServerOptions, context: int | None) -> Iterator[Limit]:
        """Its limits besides the longest sequence, which is ``context``; None is not known."""
        yield from ()

    def video_limit(self, model: ServedModel, options: ServerOptions) -> Limit | None:
        """How many videos one request may hold; None where only the longest sequence bounds them."""
        return videos_limit(self.videos_option, options.max_videos)

    def extra_body(self, options: ServerOptions) -> dict[str, Any]:
        """What of sampling and size a request says beside its messages."""
        return {}

    def recipe(self, serving: ServingRequest, options: ServerOptions, started: ServerOptions) -> ServerRecipe:
        """The line that starts it and the request to it. What a request may say is there, the rest in the line.

        Args:
            serving: model, rate, video and text.
            options: what holds for this video, the server's and the request's.
            started: what the server was started with, without the request's.
        """
