"""The keywords of a run, typed: what the command line and the Python calls hand to ``make_request``.

Checkers see a wrong name or type in ``evs_cli.prune_video(video, num_frame=4)``. This module imports no model code, so
the command line can name the types without waiting for torch.
"""

from __future__ import annotations

from typing import TypedDict

from evs_cli.video.decoder import Decoder


class EncodeKeywords(TypedDict, total=False):
    """Keywords of every run; each one left out has the default of the command line's option."""

    model: str
    """A folder, a Hugging Face id, or a short name."""
    revision: str | None
    trust_remote_code: bool
    device: str
    dtype: str
    score_dtype: str | None
    batch_frames: int | None
    """Sampled frames a batch; None is auto."""
    reuse: bool
    decoder: Decoder

    fps: float | None
    num_frames: int | None
    max_frames: int | None
    start_seconds: float | None
    end_seconds: float | None

    prompt: str | None
    system: str | None
    size: int | None
    frame_min_pixels: int | None
    frame_max_pixels: int | None
    video_min_pixels: int | None
    video_max_pixels: int | None
    cap_pixels_per_frame: bool | None

    dialect: str | None
    server_cmd: str | None
    media_io_kwargs: str | None
    mm_processor_kwargs: str | None
    mm_process_config: str | None
    video_kwargs: str | None
    video_pruning_rate: float | str | None
    video_pruning_method: str | None
    max_model_len: int | str | None
    max_num_batched_tokens: int | str | None
    decodes_first: bool
    """Whether a file is decoded before it is planned, where the server leaves out what does not decode."""


class RequestKeywords(EncodeKeywords, total=False):
    """Keywords of a run that chooses tokens."""

    method: str
    min_dissimilarity: float | None
    seed: int
