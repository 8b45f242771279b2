"""How fast each step of an encoding runs on this machine, and how well they run side by side.

In: a video and a model, as ``evs prune`` takes them. Out: an ``Outcome`` of a ``BenchResult``: its measurements each
tell what was measured, how much, and the seconds of every repeat. All of it is local: nothing is sent anywhere.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from evs_cli._version import __version__
from evs_cli.encoders.runtime import Runtime, synchronise
from evs_cli.errors import UsageError
from evs_cli.jobs.inputs import opened
from evs_cli.jobs.runner import Input, Outcome, run_each
from evs_cli.pipeline.machine import peak_memory_bytes, processor_name
from evs_cli.pipeline.progress import DeduplicatedProgress, Progress, SilentProgress, Timings
from evs_cli.pipeline.request import SessionRequest
from evs_cli.pipeline.row_selection import RowsAtRates
from evs_cli.pipeline.session import Session
from evs_cli.video.cores import core_count
from evs_cli.video.source import VideoSource, source_name

if TYPE_CHECKING:
    import torch

    from evs_cli.core.counts import TokenGrid
    from evs_cli.pipeline.clip_plan import ClipPlan
    from evs_cli.pipeline.encoded_video import RetainedVideo

DRAWN_SECONDS = 16
"""Length of the clip that is drawn where none is given."""
_MASK_BYTES = 2**28  # embeddings to rank: enough to leave the caches; the plain formula takes three times as much


@dataclass(frozen=True)
class Measurement:
    """One step, run several times."""

    step: str
    what: str
    """What was run, in a few words."""
    unit: str
    """``frames`` or ``tokens``."""
    amount: int
    """How many of them one run takes."""
    seconds: tuple[float, ...]
    """One a repeat, in order; a run before them was not counted."""

    @property
    def median_seconds(self) -> float:
        """Of one run."""
        return statistics.median(self.seconds)

    @property
    def per_second(self) -> float:
        """Frames or tokens a second, at the median."""
        return self.amount / self.median_seconds


@dataclass(frozen=True)
class BenchResult:
    """All measurements of one video and model."""

    video: str
    model: str
    machine: Mapping[str, Any]
    device: str
    dtype: str
    batch_frames: int
    """Frames a batch of the passes, and of preprocessing and encoding alone where the clip has as many."""
    num_sampled_frames: int
    token_grid_thw: TokenGrid
    reused_frames: int
    """Frames of a pass that repeat the one before and were not encoded again."""
    measurements: tuple[Measurement, ...]
    busy_shares: tuple[float, ...]
    """Of each pass, in order: seconds the encoder worked over all seconds, from the end of the plan on."""
    peak_memory_bytes: int | None
    """The most this process had, libraries and weights with it, up to the end of the passes."""
    peak_device_bytes: int | None
    """The most that was allocated on a CUDA device during the passes; None for others."""

    @property
    def busy_share(self) -> float:
        """The median of ``busy_shares``."""
        return statistics.median(self.busy_shares)

    @property
    def mask_speedup(self) -> float:
        """Seconds of the plain formula over ours, on the same embeddings."""
        return self["plain mask"].median_seconds / self["mask"].median_seconds

    @property
    def mask_share(self) -> float:
        """Seconds of the mask over seconds of encoding, for the same tokens."""
        frames_of_tokens = self["mask"].amount / self.token_grid_thw.tokens_per_frame
        sampled = frames_of_tokens * self.num_sampled_frames / self.token_grid_thw.t
        return self["mask"].median_seconds * self["encode"].per_second / sampled

    def __getitem__(self, step: str) -> Measurement:
        return next(each for each in self.measurements if each.step == step)


def run_bench(
    video: str | None, request: SessionRequest, *, repeats: int, progress: Progress
) -> Iterator[Outcome[BenchResult]]:
    """Measure one video as named on the command line; None draws one. See ``bench``."""

    def work(named: Input, _: Timings) -> BenchResult:
        return bench(video, request, repeats=repeats, progress=progress)

    from evs_cli.video.drawn import NAME

    named = Input(NAME if video is None else video, model=request.model)
    return run_each([(named, named)], work, is_single=True)


def bench(
    video: VideoSource | None, request: SessionRequest, *, repeats: int = 3, progress: Progress | None = None
) -> BenchResult:
    """Measure the steps alone, then together.

    Args:
        video: a path or a seekable binary file object; None draws a moving clip of ``DRAWN_SECONDS``.
        request: the model, and how frames are sampled and encoded.
        repeats: runs of each step that are counted, at least 1.
        progress: who watches.

    Raises:
        UsageError: repeats below 1, or a bad request.
        VideoError, ModelError: the video or the model fails.
    """
    if repeats < 1:
        raise UsageError(f"Invalid repeats ({repeats}). Expected at least 1.")
    session = Session(request, DeduplicatedProgress(progress or SilentProgress()))
    with _opened_or_drawn(video, session.progress) as source:
        return _measure(source, session, repeats)


@contextmanager
def _opened_or_drawn(video: VideoSource | None, progress: Progress) -> Iterator[VideoSource]:
    if video is None:
        from evs_cli.video.drawn import draw_clip

        progress.stage("draw a clip")
        yield draw_clip(DRAWN_SECONDS)
    elif isinstance(video, str):
        with opened(video) as source:
            yield source
    else:
        yield video


def _measure(video: VideoSource, session: Session, repeats: int) -> BenchResult:
    runtime = session.settings.runtime
    together, busy_shares, retained = _measure_passes(video, session, repeats)
    peaks = peak_memory_bytes(), _peak_device_bytes(runtime)
    plan = session.plan(video)
    batch_frames = int(retained.provenance["batch_frames"])
    session.progress.stage("measure the steps alone")
    alone, levels = _measure_steps(plan, session, batch_frames, repeats)
    session.progress.stage("measure the mask")
    masks = _measure_masks(levels, plan.encode.token_grid_thw.t, session.pruning_rates(None)[0][0], runtime, repeats)
    return BenchResult(
        video=source_name(video),
        model=session.encoder.source.name,
        machine=machine_facts(runtime),
        device=runtime.device,
        dtype=runtime.dtype_name,
        batch_frames=batch_frames,
        num_sampled_frames=len(plan.selection.frame_indices),
        token_grid_thw=plan.encode.token_grid_thw,
        reused_frames=int(retained.provenance["reused_frames"]),
        measurements=(*alone, *masks, together),
        busy_shares=busy_shares,
        peak_memory_bytes=peaks[0],
        peak_device_bytes=peaks[1],
    )


def machine_facts(runtime: Runtime) -> dict[str, Any]:
    """What the figures depend on beside the model: processor, accelerator, versions."""
    import torch

    is_cuda = runtime.device.startswith("cuda")
    return {
        "processor": processor_name(),
        "cores": core_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name(runtime.device) if is_cuda else None,
        "system": platform.system(),
        "evs": __version__,
        **{name: str(version(name)) for name in ("torch", "transformers", "av")},
    }


def _measure_passes(
    video: VideoSource, session: Session, repeats: int
) -> tuple[Measurement, tuple[float, ...], RetainedVideo]:
    """Whole passes as ``evs prune`` makes them, the share of each in which the encoder worked, and the last one."""
    import torch

    rate, _ = session.pruning_rates(None)[0]
    runtime = session.settings.runtime
    passes: list[RetainedVideo] = []
    steps: list[Mapping[str, float]] = []

    def one_pass() -> None:
        passes[:-1] = []  # the rows of one are enough
        passes.append(session.encode(video, RowsAtRates([rate], session.rule)))
        steps.append(passes[-1].timings_seconds)

    if runtime.device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(runtime.device)
    seconds = _time(one_pass, repeats, runtime)
    retained = passes[-1]
    shares = tuple(
        step["encode"] / (whole - step["probe"] - step["plan"]) for step, whole in zip(steps[1:], seconds, strict=True)
    )
    what = "probe, decode, preprocess, encode and rank side by side, weights loaded"
    return Measurement("pass", what, "frames", len(retained.frame_indices), seconds), shares, retained


def _measure_steps(
    plan: ClipPlan, session: Session, batch_frames: int, repeats: int
) -> tuple[list[Measurement], tuple[torch.Tensor, ...]]:
    """Decoding, preprocessing and encoding, each alone, and the levels ``(t, h, w, D)`` of one batch."""
    from evs_cli.video.reader import read_frames

    encoder, runtime = session.encoder, session.settings.runtime
    indices = plan.selection.frame_indices

    def decode() -> None:
        with read_frames(plan.video, indices, chunk_frames=batch_frames, decoder=session.settings.decoder) as stream:
            for _ in stream:
                pass

    decoded = Measurement(
        "decode", "all sampled frames, from the file to RGB", "frames", len(indices), _time(decode, repeats, runtime)
    )
    with read_frames(plan.video, indices, chunk_frames=batch_frames, decoder=session.settings.decoder) as stream:
        batch = next(stream)
    frames = encoder.mark_frames(batch.frames, plan.clip.pts_seconds[batch.positions])
    inputs = encoder.preprocess(frames, plan.encode)
    preprocessed = Measurement(
        "preprocess",
        "one batch, from RGB to the model's input",
        "frames",
        len(frames),
        _time(lambda: encoder.preprocess(frames, plan.encode), repeats, runtime),
    )
    encoded = Measurement(
        "encode",
        "one batch, from the model's input to embeddings",
        "frames",
        len(frames),
        _time(lambda: encoder.embed(inputs, plan.encode), repeats, runtime),
    )
    return [decoded, preprocessed, encoded], encoder.embed(inputs, plan.encode).levels


def _measure_masks(
    levels: Sequence[torch.Tensor], num_frames: int, q: float, runtime: Runtime, repeats: int
) -> list[Measurement]:
    """Our mask and the plain formula's, on the embeddings of a batch repeated to ``num_frames``, or what fits."""
    from evs_cli.core.dissimilarity import compute_dissimilarity
    from evs_cli.core.retention import Ranking

    frame_bytes = sum(level[0].nbytes for level in levels)
    num_frames = max(2, min(num_frames, _MASK_BYTES // frame_bytes))
    times = -(-num_frames // levels[0].shape[0])
    video = [level.repeat(times, 1, 1, 1)[:num_frames] for level in levels]
    amount = video[0].shape[:3].numel()
    ours = _time(lambda: Ranking(compute_dissimilarity(video).cpu()).at(q), repeats, runtime)
    plain = _time(lambda: plain_mask(video, q), repeats, runtime)
    return [
        Measurement("mask", f"embeddings of {num_frames} frames to the mask at q = {q:g}", "tokens", amount, ours),
        Measurement("plain mask", "the same embeddings by the plain formula", "tokens", amount, plain),
    ]


def plain_mask(levels: Sequence[torch.Tensor], q: float) -> torch.Tensor:
    """``(T, h, w)`` bool: the published formula on all embeddings at once and a stable sort, as servers compute it.

    Args:
        levels: ``(T, h, w, D)`` a level, compared side by side.
        q: pruning rate, ``0 <= q < 1``.
    """
    import torch
    import torch.nn.functional as F

    from evs_cli.core.counts import compute_retained_tokens_count

    embeddings = levels[0] if len(levels) == 1 else torch.cat(list(levels), dim=-1)
    num_frames, height, width = embeddings.shape[:3]
    similarity = F.cosine_similarity(embeddings[1:], embeddings[:-1], dim=-1)
    scores = torch.cat([torch.full_like(similarity[:1], 255), 1 - similarity]).flatten()
    order = torch.argsort(scores, descending=True, stable=True)
    mask = torch.zeros_like(scores, dtype=torch.bool)
    mask[order[: compute_retained_tokens_count(height * width, num_frames, q)]] = True
    return mask.view(num_frames, height, width)


def _time(call: Callable[[], object], repeats: int, runtime: Runtime) -> tuple[float, ...]:
    """Seconds of ``repeats`` calls after one that is not counted; the device is idle as each clock starts and stops."""
    seconds = []
    for _ in range(repeats + 1):
        synchronise(runtime.device)
        start = time.perf_counter()
        call()
        synchronise(runtime.device)
        seconds.append(time.perf_counter() - start)
    return tuple(seconds[1:])


def _peak_device_bytes(runtime: Runtime) -> int | None:
    import torch

    return torch.cuda.max_memory_allocated(runtime.device) if runtime.device.startswith("cuda") else None
