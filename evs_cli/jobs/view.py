"""``view``: what was kept of a video, ready to be drawn.

In: a ``ViewRequest`` of files that evs wrote, or of one video and models. Out: an ``Outcome`` of a ``View``: a run for
each file or model, and the frames of the video they share. Nothing is drawn here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from evs_cli.core.counts import check_pruning_rate
from evs_cli.errors import UsageError
from evs_cli.jobs.budget import check_context
from evs_cli.jobs.runner import Input, Outcome, run_each
from evs_cli.jobs.source_frames import SourceFrames, find_video
from evs_cli.jobs.viewed_run import ViewedRun, run_of_artifact, run_of_clip, run_of_encoding
from evs_cli.pipeline.request import SessionRequest
from evs_cli.video.own_files import is_own_file

if TYPE_CHECKING:
    from evs_cli.core.methods import RetentionRule
    from evs_cli.encoders.base import VideoEncoder
    from evs_cli.files.cache.store import EncodingCache
    from evs_cli.pipeline.progress import Progress, Timings
    from evs_cli.video.source import VideoSource


@dataclass(frozen=True)
class ViewRequest:
    """What to look at.

    Raises:
        UsageError: a rate or context limit out of range, files and videos together, or several videos.
    """

    inputs: tuple[str, ...]
    """Files of ``evs prune`` or ``evs encode`` that are of one video, or that video itself."""
    sessions: tuple[SessionRequest, ...] = (SessionRequest(),)
    """One a model; of a pruned video one, whose model tells what a prompt costs."""
    q: float | None = None
    """None is the file's own, or the model's."""
    rule: RetentionRule | None = None
    """None is the file's own, or EVS."""
    video: str | None = None
    """Where the pictures of a file come from; None looks beside it."""
    context_limit: int | None = None
    """Longest sequence; None is the model's own."""
    has_model: bool = False
    """Whether the user named a model; the masks of a file need none."""
    cache: EncodingCache | None = None
    """Where encodings are kept and taken from; None for nowhere."""

    def __post_init__(self) -> None:
        check_context(self.context_limit)
        if self.q is not None:
            check_pruning_rate(self.q)
        if len({is_own_file(each) for each in self.inputs}) > 1:
            raise UsageError(
                "Invalid inputs: files of evs and videos together. Expected files alone, or one video; --video says "
                "where the pictures of a file come from."
            )
        if not self.is_of_files and len(self.inputs) > 1:
            raise UsageError(
                f"Invalid inputs: {len(self.inputs)} videos. Expected one; a loop over them, or a shell's xargs, views "
                "many."
            )
        if not self.is_of_files and self.video is not None:
            raise UsageError(f"--video has no effect on {self.inputs[0]}, which is a video itself. Leave it.")

    @property
    def is_of_files(self) -> bool:
        """Whether the inputs are files that evs wrote."""
        return is_own_file(self.inputs[0])


@dataclass(frozen=True, eq=False)
class View:
    """A video and what each run keeps of it."""

    runs: tuple[ViewedRun, ...]
    """At least one; the first is the one that is drawn where one alone is."""
    frames: SourceFrames | None
    """None where the video is not at hand: the masks alone are drawn."""
    notes: tuple[str, ...] = field(default=())
    """Sentences for the user, for the page too."""

    @property
    def source_size(self) -> tuple[int, int]:
        """(height, width) of a frame as shown; of a video that is not at hand, as the file records it."""
        if self.frames is not None:
            return self.frames.size
        recorded = self.runs[0].provenance.get("video", {})
        height, width = recorded.get("height"), recorded.get("width")
        # Beyond that a record is damaged: pictures of such a size would fill the memory.
        if isinstance(height, int) and isinstance(width, int) and 0 < height <= 1 << 16 and 0 < width <= 1 << 16:
            return height, width
        return self.runs[0].frame_size


def run_view(request: ViewRequest, progress: Progress) -> Iterator[Outcome[View]]:
    """The view, as the one outcome there is.

    Raises:
        ArtifactError, VideoError, ModelError, UsageError: what is missing, damaged or contradicts itself.
    """
    from evs_cli.jobs.inputs import opened

    label = request.inputs[0]
    with ExitStack() as stack:
        if request.is_of_files:
            work = partial(_view_files, request, progress)
            yield from run_each([(Input(label), request.inputs)], work, is_single=True)
            return
        source = stack.enter_context(opened(label))  # stdin's copy lives until the pictures are drawn
        yield from run_each([(Input(label), source)], partial(_view_video, request, progress), is_single=True)


def _view_video(request: ViewRequest, progress: Progress, source: VideoSource, _: Timings) -> View:
    from evs_cli.core.methods import RetentionRule
    from evs_cli.jobs.encoded_input import open_inputs

    runs = []
    for session in request.sessions:
        asked = None if request.q is None else [request.q]
        inputs = open_inputs([source], session, asked, progress, request.cache)
        with inputs.opened(source) as video:
            (q, _source), *_more = video.rates
            run = run_of_clip(
                video.encode(with_rows=False),
                q=q,
                rule=request.rule or RetentionRule(),
                model=video.model,
                context_limit=request.context_limit,
            )
        runs.append(run)
    return _view(runs, SourceFrames.of(source, request.sessions[0].decoder), [])


def _view_files(request: ViewRequest, progress: Progress, files: Sequence[str], _: Timings) -> View:
    progress.stage("read")
    model = _named_model(request) if request.has_model else None
    runs = [_run_of_file(file, request, model, progress.notice) for file in files]
    _check_one_video(runs)
    frames, reason = find_video(files[0], runs[0].provenance, request.video)
    return _view(runs, frames, [] if reason is None else [reason])


def _view(runs: Sequence[ViewedRun], frames: SourceFrames | None, notes: Sequence[str]) -> View:
    own = [note for run in runs for note in run.notes]
    return View(tuple(_with_labels_apart(runs)), frames, (*notes, *own))


def _named_model(request: ViewRequest) -> VideoEncoder:
    """The model whose configuration tells what a prompt costs; no weights are read."""
    from evs_cli.pipeline.session import open_requested

    if len(request.sessions) > 1:
        raise UsageError("--model is given more than once for files of evs. Expected the one model they are of.")
    return open_requested(request.sessions[0], counts_alone=True)


def _run_of_file(
    file: str, request: ViewRequest, model: VideoEncoder | None, notice: Callable[[str], None]
) -> ViewedRun:
    from evs_cli.files.artifact import load
    from evs_cli.files.encoding.reader import holds_encoding, open_encoding

    if not holds_encoding(file):
        run = run_of_artifact(
            load(file, notice),
            file,
            q=request.q,
            rule=request.rule,
            model=model,
            context_limit=request.context_limit,
        )
        if model is not None:
            _check_model(run, model)
        return run
    if model is not None:
        raise UsageError(f"--model has no effect on {file}, a whole encoding, which tells its model. Leave it.")
    with open_encoding(file) as encoding:
        return run_of_encoding(encoding, file, q=request.q, rule=request.rule, context_limit=request.context_limit)


def _check_model(run: ViewedRun, model: VideoEncoder) -> None:
    """Raise ``UsageError`` for a model of another configuration than the file's: its costs would be another's."""
    from evs_cli.pipeline.provenance import model_record

    recorded = run.provenance.get("model", {}).get("config_sha256")
    if recorded != model_record(model.source)["config_sha256"]:
        raise UsageError(
            f"Invalid model {model.source.name}: {run.label} was made with {run.model}, of another configuration. "
            "Expected that model, or none."
        )


def _check_one_video(runs: Sequence[ViewedRun]) -> None:
    digests = [run.provenance.get("video", {}).get("sha256") for run in runs]
    for run, digest in zip(runs[1:], digests[1:], strict=True):
        if digest != digests[0]:
            raise UsageError(
                f"Invalid inputs: {runs[0].label} is of {runs[0].video_name}, {run.label} of {run.video_name}, another "
                "file by its SHA-256. Expected files of one video."
            )


def _with_labels_apart(runs: Sequence[ViewedRun]) -> list[ViewedRun]:
    """The runs, equal labels numbered: a page names them side by side."""
    taken: dict[str, int] = {}
    apart = []
    for run in runs:
        taken[run.label] = number = taken.get(run.label, 0) + 1
        apart.append(run if number == 1 else replace(run, label=f"{run.label} ({number})"))
    return apart
