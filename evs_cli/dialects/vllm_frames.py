"""Frames sent to vLLM 0.33 as JPEGs in a chat completion: what the request says of them, and what becomes of them.

In: times and size of the frames to send. Out: the request's video arguments, its body, and the server's plan of it.
vLLM decodes such frames and takes them as they are, where ``num_frames`` covers them all; it believes the rate and the
indices it is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from evs_cli.dialects.base import (
    FloatArray,
    Int64Array,
    QwenModel,
    ServedModel,
    ServerOptions,
    ServerPlan,
    ServerSource,
)
from evs_cli.dialects.requests import ServingRequest, chat_body
from evs_cli.dialects.server import FamilyRules
from evs_cli.dialects.vllm_0_33_limits import decoded_bytes, frame_pixels
from evs_cli.dialects.vllm_0_33_server import SERVER
from evs_cli.errors import BudgetError

FPS = 1000.0
"""Rate that the times are told at: an index is a millisecond, which both ways of vLLM to make a time of it keep
(index over rate; index times the whole milliseconds of an interval)."""
DATA_URL_HEAD = "data:video/jpeg;base64,"
"""What the base64 texts of the frames stand behind, with commas between them."""
DECODED_BYTES_PER_PIXEL = 4
"""What a decoded JPEG counts against the limit of a request; a frame of a video file counts 3."""


@dataclass(frozen=True, eq=False)
class SentFrames:
    """Frames as a request sends them: whole tubelets, at one size."""

    frames_indices: Int64Array
    """(n,) int64 ascending, the time of each in milliseconds."""
    total_num_frames: int
    """Milliseconds that the frames stand for; their share of it is the rate a family's positions go by."""
    height: int
    """Rows of each JPEG."""
    width: int
    """Columns of each JPEG."""
    duration_seconds: float
    """Length of the part of the video they were sampled from."""

    @property
    def num_frames(self) -> int:
        """n, JPEGs sent."""
        return len(self.frames_indices)

    @property
    def decoded_bytes(self) -> int:
        """What they count against the server's limit of a request."""
        return self.num_frames * self.frame_pixels * DECODED_BYTES_PER_PIXEL

    @property
    def frame_pixels(self) -> int:
        """Pixels of each."""
        return self.height * self.width

    def media_io(self) -> dict[str, Any]:
        """The ``video`` part of the request's ``media_io_kwargs``.

        ``num_frames`` keeps all of them (32 otherwise), and the rest is what the model is told. All are said, so that
        none of the server's own stands.
        """
        return {
            "num_frames": self.num_frames,
            "fps": FPS,
            "frames_indices": self.frames_indices.tolist(),
            "total_num_frames": self.total_num_frames,
            "duration": self.duration_seconds,
            "do_sample_frames": False,
        }

    def source(self) -> ServerSource:
        """The video as the server believes it to be."""
        return ServerSource(self.total_num_frames, FPS, self.height, self.width)


def sent_frames(
    pts_seconds: FloatArray,
    *,
    window_seconds: float,
    seconds_per_grid: float | None,
    temporal_patch_size: int,
    height: int,
    width: int,
) -> SentFrames:
    """What a request says of frames, the last one repeated to a whole tubelet.

    Args:
        pts_seconds: (S,) float64 ascending, when each is shown, S at least 1.
        window_seconds: length of the part of the video they were sampled from.
        seconds_per_grid: seconds between frames of tokens, for a family that is told its positions by it and no times;
            their indices then count from the first frame.
        temporal_patch_size: frames of a tubelet.
        height: rows of a frame as it is sent.
        width: columns of a frame as it is sent.
    """
    filled = np.concatenate([pts_seconds, np.repeat(pts_seconds[-1:], -len(pts_seconds) % temporal_patch_size)])
    if seconds_per_grid is None:
        stands_for = window_seconds
    else:
        filled = filled - filled[0]
        stands_for = seconds_per_grid * len(filled) / temporal_patch_size
    indices = np.array([round(FPS * t) for t in filled.tolist()], dtype=np.int64)
    total = max(round(FPS * stands_for), int(indices[-1]) + 1, len(indices))
    return SentFrames(indices, total, height, width, window_seconds)


def plan_sent(family: FamilyRules, model: ServedModel, sent: SentFrames, options: ServerOptions) -> ServerPlan:
    """What vLLM makes of the frames of a request.

    Args:
        family: its rules for the model, which take sent frames.
        model: the checkpoint.
        sent: the frames.
        options: the server's, with ``request_options`` put in.

    Raises:
        RefusedByServerError: it would refuse them.
    """
    rule = f"{sent.num_frames} frames sent"
    assert family.plan_frames is not None
    return family.plan_frames(sent.source(), model, options, sent.frames_indices, rule)


def processor_arguments(model: ServedModel, options: ServerOptions) -> dict[str, Any]:
    """The request's ``mm_processor_kwargs``: those of the options, and that nothing is sampled again.

    The processor of the Qwen families goes by its checkpoint's ``do_sample_frames`` otherwise; Nemotron's knows none.
    """
    keeps_all = {"do_sample_frames": False} if isinstance(model, QwenModel) else {}
    return {**options.mm_processor, **keeps_all}


def frames_body(serving: ServingRequest, sent: SentFrames, options: ServerOptions) -> dict[str, Any]:
    """The body of the request, the URL of its video without the frames.

    Args:
        serving: model, prompt and length of the answer.
        sent: the frames.
        options: ``mm_processor`` goes into the body as it is.
    """
    said = ServerOptions(request=sent.media_io(), mm_processor=options.mm_processor)
    return {**chat_body(serving, DATA_URL_HEAD), **SERVER.extra_body(said)}


def require_decodable(sent: SentFrames, name: str, options: ServerOptions) -> None:
    """Raise where the server would refuse to decode the frames of one request.

    Args:
        sent: the frames.
        name: the video's, for the error.
        options: the server's, which its limits depend on.

    Raises:
        BudgetError: a frame of too many pixels, or too many bytes in all.
    """
    pixels, size = sent.frame_pixels, f"{sent.width}x{sent.height}"
    limit = frame_pixels(options)
    if pixels > limit.most:
        raise BudgetError(
            f"{name} cannot be sent: a frame of {size} is {pixels:,} pixels, {limit.most:,} are allowed.",
            hint=f"Send it smaller (--at planned), or raise the server's {limit.option}.",
        )
    limit = decoded_bytes(options)
    if sent.decoded_bytes > limit.most:
        fitting = limit.most // (pixels * DECODED_BYTES_PER_PIXEL)
        raise BudgetError(
            f"{name} cannot be sent: {sent.num_frames} frames of {size} are {sent.decoded_bytes:,} decoded bytes, "
            f"{limit.most:,} are allowed.",
            hint=f"{fitting} frames of this size pass (--num-frames); smaller ones too (--at planned), or a higher "
            f"{limit.option}.",
        )
