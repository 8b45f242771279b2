"""Plans a clip for a check: all ids of the prompt that the server should have, and where the video begins and ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evs_cli.dialects.served import ServedClip, ServedPlanner
from evs_cli.encoders.base import EncodeOptions, VideoEncoder
from evs_cli.pipeline.planner import Planner
from evs_cli.pipeline.request import SessionRequest
from evs_cli.pipeline.session import open_requested
from evs_cli.servers.comparison import PlannedPrompt, common_length
from evs_cli.video.info import VideoInfo, probe_video
from evs_cli.video.source import VideoSource


@dataclass(frozen=True, eq=False)
class CheckedClip:
    """A video under a dialect, with what it was planned from, so that it can be planned otherwise."""

    path: str
    """As the user named it."""
    video: VideoInfo
    session: SessionRequest
    planner: ServedPlanner
    """The model under the dialect."""
    served: ServedClip
    planned: PlannedPrompt

    @property
    def name(self) -> str:
        """The file's name."""
        return self.video.name

    @property
    def q(self) -> float:
        """The rate of the plan."""
        return self.served.q

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the file and the plan, less what is told before the request is sent."""
        told = self.served.request_note
        return (*self.video.warnings, *(note for note in self.served.notes if note != told))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, markers included."""
        return str(self.planner.encoder.plan_processor.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

    def replanned(self, session: SessionRequest) -> CheckedClip:
        """The same video by another request.

        Raises:
            UsageError: a request that the dialect has no use for.
            RefusedByServerError: a clip that its server would refuse.
        """
        return _planned(self.path, self.video, self.planner.encoder, session)


def plan_clip(path: str, source: VideoSource, session: SessionRequest) -> CheckedClip:
    """Plan a video for a check.

    Args:
        path: as the user named it.
        source: where it is read from.
        session: the request, with a prompt and a server's dialect.

    Raises:
        VideoError: a file that is no video.
        ModelError: no such model, or an unknown family.
        UsageError: a family without rules, or options without meaning.
        RefusedByServerError: a clip that the server would refuse.
    """
    encoder = open_requested(session, counts_alone=True)
    encoder.source.require_files()  # ids are compared, which figures do not tell
    return _planned(path, probe_video(source), encoder, session)


def _planned(path: str, video: VideoInfo, encoder: VideoEncoder, session: SessionRequest) -> CheckedClip:
    planner = Planner.of(session, encoder)
    served = planner.clips_of_file(video, path).plan(session.sampling, session.options).served
    assert planner.served is not None
    assert served is not None
    prompt = planned_prompt(planner.served, served, session.options)
    return CheckedClip(path, video, session, planner.served, served, prompt)


def planned_prompt(planner: ServedPlanner, served: ServedClip, options: EncodeOptions) -> PlannedPrompt:
    """The ids of the whole prompt at the server's rate, and how many of them stand around the video's part."""
    encoder, model = planner.encoder, planner.model
    tokenizer = encoder.plan_processor.tokenizer
    text = encoder.prompt_text(options)
    before, behind = text.split(encoder.video_markup, 1)
    ids = planner.client_ids(served, served.q, options)
    head = tokenizer(before, **encoder.tokenizer_arguments(text))["input_ids"]
    tail = tokenizer(behind, add_special_tokens=False)["input_ids"]
    placeholder, start, end = tokenizer.convert_tokens_to_ids([served.server.placeholder, model.start, model.end])
    return PlannedPrompt(
        input_ids=tuple(ids),
        # What the text shares with the prompt: a piece may grow together with the markup where both are one string.
        num_before=common_length(ids, head),
        num_behind=common_length(ids[::-1], tail[::-1]),
        placeholder_id=int(placeholder),
        start_id=int(start),
        end_id=int(end),
        tokens_per_frame=served.server.tokens_per_frame,
        tells_frames=bool(served.server.frame_end),
    )
