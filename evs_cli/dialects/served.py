"""A video as one server would take it, in the terms of the rest of evs: a selection of frames and an ``EncodePlan``.

In: an encoder (for its processor and tokenizer), a file's facts or numbers, a dialect and its options. Out: a
``ServedClip``, from which a plan is reported and from which the frames are encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evs_cli.dialects import Dialect
from evs_cli.dialects.base import GlmModel, PruningRate, QwenModel, ServedModel, ServerOptions, ServerPlan, ServerSource
from evs_cli.dialects.model import served_model
from evs_cli.dialects.vllm_0_33 import option_notes
from evs_cli.encoders.base import Clip, EncodeOptions, EncodePlan, FloatArray, VideoEncoder
from evs_cli.encoders.vlm import VisionLanguageEncoder
from evs_cli.errors import UsageError
from evs_cli.video.info import VideoInfo
from evs_cli.video.sampling import FrameSelection, SamplingRequest

_MAX_RATE_DIFFERENCE = 0.01  # of the true rate; less shifts no sampled frame by a frame within a minute


@dataclass(frozen=True, eq=False)
class TrueSource:
    """The frames there really are."""

    pts_seconds: FloatArray
    """(F,) float64, when each is shown."""
    duration_seconds: float


@dataclass(frozen=True, eq=False)
class ServedClip:
    """A video under a dialect."""

    dialect: Dialect
    source: ServerSource
    """The file as the server sees it."""
    server: ServerPlan
    selection: FrameSelection
    clip: Clip
    encode: EncodePlan
    outer_tokens: int
    """Ids of the markers around the whole video."""
    notes: tuple[str, ...]

    @property
    def q(self) -> float:
        """The rate the server prunes at."""
        return self.server.pruning.q


def server_source(video: VideoInfo, server: str) -> ServerSource:
    """A file's facts as a server's loader states them.

    vLLM: OpenCV's frame count (the header's, else the container's duration times the rate), corrected where an edit
    list hides frames, and its average rate; tested against OpenCV 4.13. SGLang: the frames and the rate that
    torchcodec counts. transformers is told what evs knows. None of them makes pixels square.
    """
    height_width = video.orientation.shown_size(video.coded_width, video.coded_height)[::-1]
    if server == "vllm":
        return ServerSource(opencv_num_frames(video), video.average_fps, *height_width)
    counted = video.num_frames / video.duration_seconds if video.duration_seconds > 0 else 0.0
    return ServerSource(video.num_frames, counted if server == "sglang" else video.average_fps, *height_width)


def opencv_num_frames(video: VideoInfo) -> int:
    """Frames of a file as vLLM's OpenCV loader counts them."""
    claimed = video.header_num_frames
    if claimed is None and video.container_seconds is not None:
        claimed = int(video.container_seconds * video.average_fps + 0.5)
    if not claimed:
        return video.num_frames
    # Fewer by one are taken for a miscount of the header; a file that is cut off cannot be sought to its end.
    return video.num_frames if video.num_frames < claimed - 1 and not video.is_cut_off else claimed


class ServedPlanner:
    """One checkpoint under one dialect: plans clips by its rules.

    Args:
        dialect: any but ``evs``.
        encoder: the checkpoint's, for its processor and tokenizer.
        options: how the server was started.
        sampling: what is asked first; only to be checked.
        may_configure: whether what is asked of the sampling may go into the server's own options, where its requests
            have no say (SGLang).

    Raises:
        UsageError: a family without rules, or a sampling that no server knows.
    """

    def __init__(
        self,
        dialect: Dialect,
        encoder: VideoEncoder,
        options: ServerOptions,
        sampling: SamplingRequest,
        *,
        may_configure: bool = False,
    ) -> None:
        self._rules, self.model = served_model(encoder)
        assert isinstance(encoder, VisionLanguageEncoder)
        if sampling.start_seconds is not None or sampling.end_seconds is not None:
            raise UsageError(
                f"--start and --end have no effect on {dialect.name}: a server takes the whole file. Expected a file "
                "cut before, or --dialect evs."
            )
        self.dialect, self.encoder, self._options = dialect, encoder, options
        self._may_configure = may_configure
        self._known_ids: dict[str, list[int]] = {}
        self._planner: Callable[[ServerSource, ServedModel, ServerOptions], ServerPlan] = dialect.planner(self._rules)

    def server_options(self, sampling: SamplingRequest, options: EncodeOptions) -> ServerOptions:
        """The server's options with what the user asks of the sampling and the size put in."""
        asked = {name: getattr(sampling, name) for name in ("fps", "num_frames", "max_frames")}
        request = {name: value for name, value in asked.items() if value is not None}
        pixels = _pixel_arguments(options, self.dialect.server)
        base = self._options
        if self.dialect.server != "sglang":
            return replace(base, request=request, mm_processor=_with_pixels(base.mm_processor, pixels, self.model))
        if not self._may_configure:
            return replace(base, request=request, mm_process=_with_pixels(base.mm_process, pixels, self.model))
        configured = {"nframes" if name == "num_frames" else name: value for name, value in request.items()}
        return replace(base, mm_process=_with_pixels({**base.mm_process, **configured}, pixels, self.model))

    @property
    def profiled_model(self) -> ServedModel:
        """The checkpoint with the pixel limits that the server was started with: vLLM expects images by them too."""
        given = self._options.mm_processor
        if not isinstance(self.model, QwenModel) or not given.keys() & {"size", "min_pixels", "max_pixels"}:
            return self.model
        size = given.get("size", {})
        most = given.get("max_pixels", size.get("longest_edge"))
        least = given.get("min_pixels", size.get("shortest_edge", self.model.min_pixels))
        if most is None:
            return replace(self.model, min_pixels=least)
        return replace(self.model, min_pixels=least, max_pixels=most, image_max_pixels=most)

    @property
    def pruning(self) -> PruningRate:
        """The rate the server prunes at, and who says so."""
        return self.dialect.pruning(self.model, self._options)

    def server_plan(
        self,
        source: ServerSource,
        sampling: SamplingRequest,
        options: EncodeOptions,
        held_frames: int | None = None,
    ) -> ServerPlan:
        """What the server makes of a source, of whose frames the file holds ``held_frames``; None is all of them.

        Raises:
            RefusedByServerError: it would refuse the clip, or fail on it.
        """
        self.encoder.check_options(options)
        server_options = self.server_options(sampling, options)
        plan = self._planner(source, self.model, server_options)
        if held_frames is None:
            return plan
        return self.dialect.without_unreadable(self._rules, plan, source, self.model, server_options, held_frames)

    def plan(
        self, source: ServerSource, true: TrueSource, sampling: SamplingRequest, options: EncodeOptions
    ) -> ServedClip:
        """A clip as the server takes it, its frames found among those there really are.

        Raises:
            RefusedByServerError: the server would refuse the clip, or fail on it.
        """
        server = self.server_plan(source, sampling, options, len(true.pts_seconds))
        selection = self.selection(server, true)
        clip = Clip(source.height, source.width, selection.pts_seconds, true.duration_seconds)
        counts = [server.tokens_per_frame] * server.token_grid_thw[0]
        encode = self.encoder.plan_sequence(
            clip,
            frame_size=server.resizes[-1],
            token_grid_thw=server.token_grid_thw,
            input_ids=self.sequence(server, counts, options.prompt),
            prompt_seconds=server.prompt_seconds,
            seconds_per_grid=server.seconds_per_grid,
            loader_size=server.resizes[0] if len(server.resizes) > 1 else None,
        )
        dialect_notes = () if self.dialect.note is None else (self.dialect.note,)
        asked = option_notes(self._options) if self.dialect.server == "vllm" else ()
        notes = (*dialect_notes, *source_notes(source, true), *asked, *server.notes)
        outer = sum(len(self._ids(marker)) for marker in server.outer)
        return ServedClip(self.dialect, source, server, selection, clip, encode, outer, notes)

    def selection(self, server: ServerPlan, true: TrueSource) -> FrameSelection:
        """The frames a server samples, among those there really are: one past the last is the last."""
        indices = np.minimum(server.frame_indices, len(true.pts_seconds) - 1)
        return FrameSelection(
            frame_indices=indices,
            pts_seconds=true.pts_seconds[indices],
            start_seconds=0.0,
            window_seconds=true.duration_seconds,
            rule=server.rule,
            requested_fps=None,
            requested_num_frames=None,
            max_frames_bound=False,
            notes=(),
        )

    def sequence(
        self, server: ServerPlan, counts: Sequence[int], prompt: str | None, *, placeholder: str | None = None
    ) -> list[int]:
        """``input_ids`` with ``counts[t]`` placeholders for frame t: the video's part, or the whole chat prompt.

        Args:
            server: the plan.
            counts: placeholders of each frame of tokens.
            prompt: the user's text; None for the video's part alone.
            placeholder: text of the token to repeat; None takes the plan's.
        """
        text = self.encoder.prompt_text(EncodeOptions(prompt=prompt))
        before, after = text.split(self.encoder.video_markup, 1)
        segments: list[str | int] = [before, *server.segments(counts), after]
        if not server.tokenises_pieces:
            segments = _joined(segments)
        tokenizer = self.encoder.processor.tokenizer
        placeholder_id = int(tokenizer.convert_tokens_to_ids(placeholder or server.placeholder))
        # What the tokenizer puts in front of a text, where it does so (a start token).
        ids: list[int] = list(tokenizer("", **self.encoder.tokenizer_arguments(text))["input_ids"])
        for segment in segments:
            ids += [placeholder_id] * segment if isinstance(segment, int) else self._ids(segment)
        return ids

    def sequence_length(self, server: ServerPlan, q: float, prompt: str | None) -> int:
        """L at rate q; no placeholder is written out for it."""
        without = self.sequence(server, [0] * server.token_grid_thw[0], prompt)
        return len(without) + sum(server.client_counts(q))

    def inner_separator_tokens(self, server: ServerPlan) -> int:
        """Ids between the video's outer markers that are no video token."""
        if not server.frame_end:
            return 0
        num_ends = len(server.frame_texts) * len(self._ids(server.frame_end))
        return num_ends + sum(len(self._ids(text)) for text in (*server.frame_texts, *server.told_behind))

    def client_ids(self, served: ServedClip, q: float, prompt: str | None) -> list[int]:
        """The ids a client sees at rate q: a server writes them before it knows what it keeps of each frame."""
        server = served.server
        return self.sequence(server, server.client_counts(q), prompt, placeholder=server.client_placeholder)

    def _ids(self, text: str) -> list[int]:
        """Ids of a piece of text; the markers and most times come again and again."""
        if text not in self._known_ids:
            tokenizer = self.encoder.processor.tokenizer
            self._known_ids[text] = tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
        return self._known_ids[text]


def source_notes(source: ServerSource, true: TrueSource) -> tuple[str, ...]:
    """Sentences where the server believes another number of frames or another rate than the file has."""
    num_frames = len(true.pts_seconds)
    true_fps = num_frames / true.duration_seconds if true.duration_seconds > 0 else 0.0
    notes = []
    if source.num_frames != num_frames:
        notes.append(f"the server counts {source.num_frames:,} frames, the file holds {num_frames:,}")
    if abs(source.average_fps - true_fps) > _MAX_RATE_DIFFERENCE * true_fps:
        notes.append(f"the server believes {source.average_fps:.4g} fps, the file's frames come at {true_fps:.4g}")
    return tuple(notes)


def _with_pixels(given: Mapping[str, Any], pixels: Mapping[str, Any], model: ServedModel) -> dict[str, Any]:
    """A server's arguments with the pixel limits asked for put in."""
    merged = {**given, **pixels}
    if pixels.get("size") and isinstance(model, (QwenModel, GlmModel)):  # their processors take both edges or none
        own = {"shortest_edge": model.min_pixels, "longest_edge": model.max_pixels}
        merged["size"] = {**own, **given.get("size", {}), **pixels["size"]}
    return merged


def _joined(segments: Sequence[str | int]) -> list[str | int]:
    """Adjacent texts as one; runs of placeholders keep them apart, as the tokenizer itself does at special tokens."""
    joined: list[str | int] = []
    for segment in segments:
        if isinstance(segment, str) and joined and isinstance(joined[-1], str):
            joined[-1] += segment
        else:
            joined.append(segment)
    return joined


def _pixel_arguments(options: EncodeOptions, server: str) -> dict[str, Any]:
    """The pixel limits asked for, as the server's arguments; a family takes those of a frame or those of a video.

    transformers' processors take both as the edges of ``size``; SGLang's own resize has the limits of a frame.
    """
    least, most = options.frame_min_pixels, options.frame_max_pixels
    given: dict[str, Any] = {"cap_pixels_per_frame": options.cap_pixels_per_frame}
    if server == "sglang":
        given |= {"min_pixels": least, "max_pixels": most}
        least = most = None
    edges = {"shortest_edge": least or options.video_min_pixels, "longest_edge": most or options.video_max_pixels}
    given["size"] = {name: value for name, value in edges.items() if value is not None} or None
    return {name: value for name, value in given.items() if value is not None}
