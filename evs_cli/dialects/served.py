"""Plans a video by the rules of one server, in the terms of the rest of evs: a ``FrameSelection``, an ``EncodePlan``.

In: an encoder (for its processor and tokenizer), a file's facts or numbers, a dialect and its options. Out: a
``ServedClip``, from which a plan is reported and from which the frames are encoded.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evs_cli.core.placeholders import IntArray
from evs_cli.dialects import Dialect
from evs_cli.dialects.base import Int64Array, PruningRate, RefusedByServerError, ServerOptions, ServerPlan, ServerSource
from evs_cli.dialects.model import served_model
from evs_cli.dialects.option_check import check_options
from evs_cli.dialects.requests import DEFAULT_PROMPT, only_asked
from evs_cli.encoders.base import Clip, EncodeOptions, EncodePlan, FloatArray, VideoEncoder
from evs_cli.encoders.segments import Segment, joined
from evs_cli.encoders.vlm import VisionLanguageEncoder
from evs_cli.errors import UsageError
from evs_cli.video.sampling import FrameSelection, SamplingRequest

_MAX_RATE_DIFFERENCE = 0.01  # of the true rate; less shifts no sampled frame by a frame within a minute


@dataclass(frozen=True, eq=False)
class SourceTimes:
    """The times of the frames that the file really holds; a server may believe others."""

    pts_seconds: FloatArray
    """(F,) float64, when each is shown."""
    duration_seconds: float
    reads: Int64Array | None = None
    """(G,) int64: which of them the server's reader gets for each of its indices; None numbers them as they are."""


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
    request_note: str | None = None
    """Of the notes, what a server must be started with so that it takes the request; None where nothing is needed."""

    leaves_out_lost_frames: bool = False
    """Whether the server goes on without frames that do not decode, rather than fail."""

    @property
    def q(self) -> float:
        """The rate the server prunes at."""
        return self.server.pruning.q


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
        name, self.model = served_model(encoder)
        assert isinstance(encoder, VisionLanguageEncoder)
        if sampling.start_seconds is not None or sampling.end_seconds is not None:
            raise UsageError(
                f"--start and --end have no effect on {dialect.name}: a server takes the whole file. Expected a file "
                "cut before, or --dialect evs."
            )
        self.dialect, self.encoder, self.options = dialect, encoder, options
        self._may_configure = may_configure
        self.rules, self.family = dialect.rules, dialect.family(name)

    def server_options(self, sampling: SamplingRequest, options: EncodeOptions) -> ServerOptions:
        """The server's options with what the user asks of the sampling and the size put in."""
        asked = {name: getattr(sampling, name) for name in ("fps", "num_frames", "max_frames")}
        request = {name: value for name, value in asked.items() if value is not None}
        if self._may_configure or self.rules.samples_by_request:
            started = self.rules.configured(self.options, request)
        else:
            started = replace(self.options, request=request)
        return self.rules.with_pixels(started, options, self.model)

    def request_arguments(self, sampling: SamplingRequest, options: EncodeOptions) -> dict[str, Any]:
        """What of sampling and size a request says beside its messages; the server's own options are not said again."""
        return self.rules.extra_body(only_asked(self.server_options(sampling, options), self.options))

    def request_note(self, said: Mapping[str, Any]) -> str | None:
        """A sentence on the option without which a server refuses a request that says ``said``; None needs none.

        Raises:
            RefusedByServerError: the server is known to be started without it.
        """
        option = self.rules.trust_option
        if option is None or not said or self.options.trusts_requests:
            return None
        names = " and ".join(said)
        if self.options.trusts_requests is False and not self._may_configure:
            own = [f"--{name.replace('_', '-')} {shlex.quote(json.dumps(part))}" for name, part in said.items() if part]
            instead = f", or start it with {' '.join(own)} and ask for nothing" if own else ""
            raise RefusedByServerError(
                f"a server that was started without {option} answers 400 to {names} of a request.",
                hint=f"Add {option} to its command line{instead}.",
            )
        return f"the request says {names}, which the server takes only if it was started with {option}"

    @property
    def pruning(self) -> PruningRate:
        """The rate the server prunes at, and who says so."""
        return self.rules.pruning(self.model, self.options)

    def server_plan(self, source: ServerSource, sampling: SamplingRequest, options: EncodeOptions) -> ServerPlan:
        """What the server makes of a source.

        Raises:
            RefusedByServerError: it would refuse the clip, or fail on it.
        """
        check_options(self.encoder, self.dialect, options)
        if self.options.max_videos == 0:
            raise RefusedByServerError(
                f"a server that was started with {self.rules.videos_option} '{{\"video\": 0}}' takes no video."
            )
        return self.family.plan(source, self.model, self.server_options(sampling, options))

    def plan(
        self, source: ServerSource, true: SourceTimes, sampling: SamplingRequest, options: EncodeOptions
    ) -> ServedClip:
        """A clip as the server takes it, its frames found among those there really are.

        Raises:
            RefusedByServerError: the server would refuse the clip, or fail on it.
        """
        request_note = self.request_note(self.request_arguments(sampling, options))
        server = self.server_plan(source, sampling, options)
        selection = self.selection(server, true)
        clip = Clip(source.height, source.width, selection.pts_seconds, true.duration_seconds)
        counts = [server.tokens_per_frame] * server.token_grid_thw.t
        encode = self.encoder.plan_sequence(
            clip,
            frame_size=server.resizes[-1],
            token_grid_thw=server.token_grid_thw,
            input_ids=self.sequence(server, counts, options),
            prompt_seconds=server.prompt_seconds,
            seconds_per_grid=server.seconds_per_grid,
            loader_size=server.resizes[0] if len(server.resizes) > 1 or server.loader_interpolation else None,
            loader_interpolation=server.loader_interpolation,
        )
        encode = replace(encode, pruning_method=server.pruning.method)
        dialect_notes = () if self.dialect.note is None else (self.dialect.note,)
        unread = [f"{name} of the server's command line is not counted with" for name in self.options.unread]
        option_notes = (*unread, *self.rules.option_notes(self.options))
        asked_notes = (request_note, self.text_before_note(server, server.pruning.q, options))
        request_notes = (note for note in asked_notes if note is not None)
        notes = (*dialect_notes, *source_notes(source, true), *option_notes, *server.notes, *request_notes)
        outer = sum(map(len, self.encoder.text_ids(server.outer)))
        goes_on = self.rules.leaves_out_lost_frames(self.options)
        return ServedClip(self.dialect, source, server, selection, clip, encode, outer, notes, request_note, goes_on)

    def selection(self, server: ServerPlan, true: SourceTimes) -> FrameSelection:
        """The frames a server samples, among those there really are: one past the last is the last."""
        asked = server.frame_indices if true.reads is None else true.reads[server.frame_indices]
        indices = np.minimum(asked, len(true.pts_seconds) - 1)
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
        self, server: ServerPlan, counts: Sequence[int], chat: EncodeOptions, *, placeholder: str | None = None
    ) -> IntArray:
        """(L,) int64 ids with ``counts[t]`` placeholders for frame t: of the video's part, or of the whole chat prompt.

        Args:
            server: the plan.
            counts: placeholders of each frame of tokens.
            chat: the user's text and a system message; no text for the video's part alone.
            placeholder: text of the token to repeat; None takes the plan's.
        """
        return self.request_sequence([server], [counts], chat, placeholder=placeholder)

    def request_sequence(
        self,
        servers: Sequence[ServerPlan],
        counts: Sequence[Sequence[int]],
        chat: EncodeOptions,
        *,
        placeholder: str | None = None,
    ) -> IntArray:
        """As ``sequence``, of one request with several videos: a plan and counts of each."""
        text, segments = self._segments(servers, counts, chat)
        return self.encoder.sequence_ids(text, segments, placeholder or servers[0].placeholder)

    def _segments(
        self, servers: Sequence[ServerPlan], counts: Sequence[Sequence[int]], chat: EncodeOptions
    ) -> tuple[str, list[Segment]]:
        """The prompt before expansion, and the segments that it is tokenized in."""
        text = self.encoder.prompt_text(chat, len(servers))
        before, *behind = text.split(self.encoder.video_markup)
        segments: list[Segment] = [before]
        for each, its_counts, after in zip(servers, counts, behind, strict=True):
            segments += [*each.segments(its_counts), after]
        return text, segments if servers[0].tokenises_pieces else joined(segments)

    def sequence_length(self, servers: Sequence[ServerPlan], q: float, chat: EncodeOptions) -> int:
        """L of a request at rate q; no placeholder is written out for it."""
        text, segments = self._segments(servers, [[0] * server.token_grid_thw.t for server in servers], chat)
        return self.encoder.num_text_ids(text, segments) + sum(sum(each.client_counts(q)) for each in servers)

    def inner_separator_tokens(self, server: ServerPlan) -> int:
        """Ids between the video's outer markers that are no video token."""
        if not server.frame_end:
            return 0
        ends = (server.frame_end,) * len(server.frame_texts)
        return sum(map(len, self.encoder.text_ids((*ends, *server.frame_texts, *server.told_behind))))

    def client_ids(self, served: ServedClip, q: float, chat: EncodeOptions) -> list[int]:
        """The ids a client sees at rate q: a server writes them before it knows what it keeps of each frame."""
        server = served.server
        ids: list[int] = self.sequence(
            server, server.client_counts(q), chat, placeholder=server.client_placeholder
        ).tolist()
        return ids

    def text_before_note(self, server: ServerPlan, q: float, chat: EncodeOptions) -> str | None:
        """A sentence where the server fails at rate q for want of text before the video; None where it does not.

        A plan of the video's part alone is judged as the chat of a text beside it.
        """
        chat = chat if chat.prompt is not None else replace(chat, prompt=DEFAULT_PROMPT)
        if not self.rules.needs_text_before(self.model, q) or not self.encoder.has_chat_template:
            return None
        text = self.encoder.prompt_text(chat)
        (before,) = self.encoder.text_ids([text.split(self.encoder.video_markup, 1)[0]])
        (first_time,) = self.encoder.text_ids([server.frame_texts[0].removesuffix(self.model.start)])
        if len(before) > len(first_time):
            return None
        return (
            f"{self.dialect.name} fails when it prunes a video with {len(before)} ids before it: more than the "
            f"{len(first_time)} of its first time must stand there, such as a system message (--system)"
        )


def source_notes(source: ServerSource, true: SourceTimes) -> tuple[str, ...]:
    """Sentences where the server believes another number of frames or another rate than the file has."""
    num_frames = len(true.pts_seconds)
    true_fps = num_frames / true.duration_seconds if true.duration_seconds > 0 else 0.0
    notes = []
    if source.num_frames != num_frames:
        notes.append(f"the server counts {source.num_frames:,} frames, the file holds {num_frames:,}")
    if abs(source.average_fps - true_fps) > _MAX_RATE_DIFFERENCE * true_fps:
        notes.append(f"the server believes {source.average_fps:.4g} fps, the file's frames come at {true_fps:.4g}")
    return tuple(notes)
