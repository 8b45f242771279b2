"""The planned frames as a request body for vLLM: JPEGs in one data URL, and what the model is told of them.

In: an opened model, a video and a file to write. Out: a ``FramesExport``, with the server's own count of that request.
Frames are decoded, encoded and written one at a time, so memory does not grow with the clip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evs_cli.core.counts import check_pruning_rate
from evs_cli.dialects import parse_dialect
from evs_cli.dialects.base import FloatArray, RefusedByServerError, ServerOptions, ServerPlan
from evs_cli.dialects.model import RULES
from evs_cli.dialects.option_check import check_options
from evs_cli.dialects.requests import DEFAULT_PROMPT, DEFAULT_SYSTEM, ServingRequest
from evs_cli.dialects.resize import Size
from evs_cli.dialects.served import ServedPlanner
from evs_cli.dialects.vllm_0_33_limits import decoded_bytes
from evs_cli.dialects.vllm_frames import (
    DATA_URL_HEAD,
    SentFrames,
    frames_body,
    plan_sent,
    processor_arguments,
    require_decodable,
    sent_frames,
)
from evs_cli.errors import UsageError
from evs_cli.files.output_file import check_output_file, replacing
from evs_cli.jobs.budget import model_context_limit
from evs_cli.pipeline.clip_plan import ClipPlan
from evs_cli.pipeline.session import Session
from evs_cli.servers.jpeg_body import JpegBodyWriter, jpeg_of
from evs_cli.video.sampling import SamplingRequest
from evs_cli.video.source import VideoSource

if TYPE_CHECKING:
    import torch

SENT_SIZES = ("planned", "source")
"""Whether frames are resized before they are sent, or by the server."""
TARGET = "vllm"
"""The server that the requests are to."""
SUFFIX = ".json"
DEFAULT_QUALITY = 95


@dataclass(frozen=True)
class ExportRequest:
    """What a user asks of an export, beside the video and the model.

    Raises:
        UsageError: a value outside its range.
    """

    at: str = "planned"
    """One of ``SENT_SIZES``."""
    quality: int = DEFAULT_QUALITY
    """Of the JPEGs, 1 to 100; colours are kept at full resolution (4:4:4)."""
    q: float | None = None
    """The rate the server prunes at, to count what it keeps; None is that of the server's options, else 0."""
    served_model_name: str | None = None
    """What the request calls the model; None is its folder or hub id."""
    max_tokens: int | None = None
    """Length of the answer; None leaves it to the server."""

    def __post_init__(self) -> None:
        if self.at not in SENT_SIZES:
            raise UsageError(f"Invalid --at {self.at!r}. Expected {' or '.join(SENT_SIZES)}.")
        if not 1 <= self.quality <= 100:
            raise UsageError(f"Invalid quality ({self.quality}). Expected 1 to 100.")
        if self.q is not None:
            check_pruning_rate(self.q)
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UsageError(f"Invalid max_tokens ({self.max_tokens}). Expected at least 1.")


@dataclass(frozen=True, eq=False)
class FramesExport:
    """A request body that was written, and what the server will make of it."""

    video: str
    video_bytes: int
    """Of the file itself."""
    model: str
    sampled_by: str
    """The dialect whose frames these are."""
    served_by: str
    """The dialect whose rules count them: vLLM's."""
    output: Path | None
    """The file; None of a body that was only sent."""
    body_bytes: int
    jpeg_bytes: int
    """Of all frames, before they become text."""
    quality: int
    sent: SentFrames
    decoded_bytes_limit: int
    """The most bytes of decoded frames that the server takes."""
    pts_seconds: FloatArray
    """(S,) float64, when each frame is shown in the video; a frame that fills a tubelet is not counted again."""
    temporal_patch_size: int
    plan: ServerPlan
    """What the server makes of the frames."""
    q: float
    retained_tokens: int
    """K, video tokens the server keeps at q."""
    prompt_tokens: int | None
    """Length of the whole prompt at q; None for a checkpoint without a chat template."""
    context_limit: int | None
    """Longest sequence of the server or the model, the answer included; None where none is known."""
    told: tuple[str, ...]
    """(T,) the words that tell the times of each frame of tokens; empty where none are told."""
    notes: tuple[str, ...] = ()
    server_option: str | None = None
    """What the server must be started with to take the request; None where its command line has it."""

    @property
    def num_repeated(self) -> int:
        """Frames sent again to fill the last tubelet."""
        return self.sent.num_frames - len(self.pts_seconds)


class FramesExporter:
    """Writes the frames of videos as requests to vLLM, for one model.

    Args:
        session: the opened model, with the dialect whose frames are sent.
        request: what the user asks for.

    Raises:
        UsageError: a family of which it is not known how vLLM takes its frames, or frames of another server.
        RefusedByServerError: a server that is known to refuse what the request says.
    """

    def __init__(self, session: Session, request: ExportRequest) -> None:
        dialect, source = session.request.dialect, session.encoder.source
        if not dialect.is_evs and dialect.rules.resizes_frames_itself:
            raise UsageError(
                f"--dialect {dialect.name} has no effect here: the request is one to vLLM, which would resize the "
                "frames by its own rules. Expected evs, hf or vllm."
            )
        target = dialect if dialect.server == TARGET else parse_dialect(TARGET)
        known = [name for name, family in target.rules.families.items() if family.takes_sent_frames]
        families = [model_type for model_type, name in RULES.items() if name in known]
        if source.model_type not in families:
            raise UsageError(
                f"cannot write a request for {source.name} ({source.model_type}): how vLLM takes its frames is not "
                f"written down. Expected one of {', '.join(families)}."
            )
        check_options(session.encoder, target, session.request.options)
        self.session, self.request = session, request
        options = session.request.server
        if request.q is not None:
            options = replace(options, video_pruning_rate=request.q)
        self._planner = ServedPlanner(target, session.encoder, options, SamplingRequest())
        self._chat = session.request.options
        if self._chat.prompt is None and self._planner.encoder.has_chat_template:
            self._chat = replace(self._chat, prompt=DEFAULT_PROMPT)
        asked = self._planner.server_options(SamplingRequest(), session.request.options)
        self.dialect, self.model = target, self._planner.model
        self.options: ServerOptions = replace(asked, mm_processor=processor_arguments(self.model, asked))
        # The number and the times of the frames are always said, so the server must take what a request says.
        said = ("media_io_kwargs", *(("mm_processor_kwargs",) if self.options.mm_processor else ()))
        self.request_note = self._planner.request_note({name: {} for name in said})

    def export(self, video: VideoSource, name: str, output: Path, *, overwrite: bool = False) -> FramesExport:
        """Write one request.

        Args:
            video: a path or a seekable binary file object.
            name: the video as the user named it.
            output: a ``.json`` file.
            overwrite: whether it may exist already.

        Raises:
            BudgetError: the frames exceed what the server decodes of one request; nothing is written.
            ArtifactError: an output that exists or cannot be written.
            VideoError: the video cannot be opened, or no frame of it decodes.
        """
        check_output_file(output, (SUFFIX,), overwrite=overwrite)
        plan = self.session.plan_and_report(video)
        (height, width), notes = self._size(plan)
        planned = self._sent(plan, plan.clip.pts_seconds, height, width)
        notes += self._settle_text(planned)
        require_decodable(planned, plan.video.name, self.options)
        with replacing(output, overwrite=overwrite) as file:
            writer = JpegBodyWriter(file, self._body(planned))
            pts = plan.clip.pts_seconds[self._write_frames(plan, writer, height, width)]
            sent = self._sent(plan, pts, height, width)
            writer.finish(self._body(sent), sent.num_frames)
        if len(pts) < plan.clip.num_frames:
            lost = plan.clip.num_frames - len(pts)
            notes.append(f"{lost} of {plan.clip.num_frames} sampled frames do not decode and are left out")
        return self._counted(plan, name, output, writer, sent, pts, notes)

    def _counted(
        self,
        plan: ClipPlan,
        name: str,
        output: Path,
        writer: JpegBodyWriter,
        sent: SentFrames,
        pts_seconds: FloatArray,
        notes: list[str],
    ) -> FramesExport:
        """The result: what was written, and how the server counts it."""
        served = self._plan_sent(sent)
        q = served.pruning.q
        chat = self._chat
        if served.total_tokens != plan.encode.total_tokens:
            notes.append(f"{served.total_tokens:,} video tokens come of it, {plan.encode.total_tokens:,} were planned")
        return FramesExport(
            video=name,
            video_bytes=plan.video.size_bytes,
            model=self.session.request.model,
            sampled_by=plan.dialect,
            served_by=self.dialect.name,
            output=output,
            body_bytes=writer.num_bytes,
            jpeg_bytes=writer.jpeg_bytes,
            quality=self.request.quality,
            sent=sent,
            decoded_bytes_limit=decoded_bytes(self.options).most,
            pts_seconds=pts_seconds,
            temporal_patch_size=self.model.temporal_patch_size,
            plan=served,
            q=q,
            retained_tokens=sum(served.client_counts(q)),
            prompt_tokens=None if chat.prompt is None else self._planner.sequence_length([served], q, chat),
            context_limit=self.options.max_model_len or model_context_limit(self.session.encoder),
            told=tuple(text.removesuffix(self.model.start).strip() for text in served.frame_texts if text),
            notes=tuple(note for note in (*notes, *served.notes) if note not in plan.notes),
            server_option=None if self.request_note is None else self.dialect.rules.trust_option,
        )

    def _settle_text(self, sent: SentFrames) -> list[str]:
        """Put a system message in front where the server would fail without, and say so.

        One of the user's stands as it is, an empty one too: then it is said alone.
        """
        served = self._plan_sent(sent)
        note = self._planner.text_before_note(served, served.pruning.q, self._chat)
        if note is None or self._chat.system is not None:
            return [] if note is None else [note]
        self._chat = replace(self._chat, system=DEFAULT_SYSTEM)
        return [f"the system message {DEFAULT_SYSTEM!r} goes in front. {note}; '' sends none"]

    def _size(self, plan: ClipPlan) -> tuple[Size, list[str]]:
        """(height, width) of the JPEGs, and sentences where it is not as asked.

        The planned size goes only where the server leaves it as it is; else it would resize a second time.
        """
        own, planned = (plan.video.height, plan.video.width), plan.encode.frame_size
        if self.request.at == "source" or planned == own:
            return own, []
        try:
            (*_, resized) = self._plan_sent(self._sent(plan, plan.clip.pts_seconds, *planned)).resizes
            fate = f"resize the planned {_size_text(planned)} to {_size_text(resized)}"
        except RefusedByServerError:
            resized, fate = None, f"refuse the planned {_size_text(planned)}"
        if resized != planned:
            return own, [f"frames go at the source's size: the server would {fate}"]
        if planned[0] * planned[1] > own[0] * own[1]:
            return planned, [f"the planned {_size_text(planned)} is more than the source has: --at source sends less"]
        return planned, []

    def _sent(self, plan: ClipPlan, pts_seconds: FloatArray, height: int, width: int) -> SentFrames:
        return sent_frames(
            pts_seconds,
            window_seconds=plan.clip.window_seconds,
            seconds_per_grid=plan.encode.seconds_per_grid,
            temporal_patch_size=self.model.temporal_patch_size,
            height=height,
            width=width,
        )

    def _plan_sent(self, sent: SentFrames) -> ServerPlan:
        return plan_sent(self._planner.family, self.model, sent, self.options)

    def _body(self, sent: SentFrames) -> Mapping[str, Any]:
        serving = ServingRequest(
            model=self.request.served_model_name or self.session.encoder.source.served_location,
            q=0.0,
            own_rate=0.0,
            context=None,
            videos=(DATA_URL_HEAD,),
            prompt=self._chat.prompt,
            max_tokens=self.request.max_tokens,
            system=self._chat.system,
        )
        return frames_body(serving, sent, self.options)

    def _write_frames(self, plan: ClipPlan, writer: JpegBodyWriter, height: int, width: int) -> list[int]:
        """Write every frame that decodes; which of the sampled ones these are."""
        from evs_cli.video.reader import read_frames

        progress, positions = self.session.progress, []
        indices = plan.selection.frame_indices
        progress.stage("export", len(indices))
        with read_frames(plan.video, indices, chunk_frames=1, decoder=self.session.settings.decoder) as stream:
            for batch in stream:
                positions += batch.positions.tolist()
                writer.add(jpeg_of(self._resized(batch.frames, height, width)[0], self.request.quality))
                progress.advance(len(batch.positions))
            for warning in stream.warnings:
                progress.notice(warning)
        return positions

    def _resized(self, frames: torch.Tensor, height: int, width: int) -> torch.Tensor:
        """(t, 3, height, width) uint8, by the filter of the checkpoint's processor; bicubic where it names none."""
        from torchvision.transforms.v2 import InterpolationMode
        from torchvision.transforms.v2 import functional as tvf

        if frames.shape[-2:] == (height, width):
            return frames
        own = getattr(self._planner.encoder.processor.video_processor, "resample", None)
        interpolation = InterpolationMode.BICUBIC if own is None else int(own)
        resized: torch.Tensor = tvf.resize(frames, [height, width], interpolation=interpolation, antialias=True)
        return resized


def _size_text(size: Size) -> str:
    return f"{size[1]}x{size[0]}"
