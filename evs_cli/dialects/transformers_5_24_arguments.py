"""What transformers 5.24 makes of a video processor's arguments: what is taken, dropped, or ends as an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evs_cli.dialects.base import QwenModel, RefusedByServerError, ServerOptions

Arguments = Mapping[str, Any]
"""Keyword arguments of the video processor."""
FLAT_PIXELS = frozenset(("min_pixels", "max_pixels"))
"""What Qwen2-VL's processor still takes, and Qwen3-VL's no more."""
_COMMON_KEYS = frozenset(
    (
        *("crop_size", "data_format", "default_to_square", "device", "do_center_crop", "do_convert_rgb"),
        *("do_normalize", "do_pad", "do_rescale", "do_resize", "do_sample_frames", "fps", "image_mean", "image_std"),
        *("input_data_format", "num_frames", "resample", "rescale_factor", "return_metadata", "return_tensors"),
        *("size", "video_metadata"),
    )
)
"""What ``videos_kwargs`` of any processor may hold."""
QWEN_KEYS = _COMMON_KEYS | {
    *("cap_pixels_per_frame", "max_frames", "max_video_tokens", "merge_size", "min_frames", "patch_size"),
    "temporal_patch_size",
}


def idle_bounds_notes(arguments: Arguments, instead: str) -> list[str]:
    """A sentence for each of ``min_frames`` and ``max_frames``, where the processor goes by neither."""
    return [
        f"{name} {arguments[name]} does nothing in this processor; {instead} settles the number"
        for name in ("min_frames", "max_frames")
        if arguments.get(name) is not None
    ]


def require_no_rate(model: QwenModel, arguments: Arguments) -> None:
    """Raise where a number of frames meets the checkpoint's own rate, which a call fills in unless it says none.

    Raises:
        RefusedByServerError: it does.
    """
    num_frames = arguments.get("num_frames")
    if num_frames is not None and model.fps is not None and "fps" not in arguments:
        raise RefusedByServerError(
            f"num_frames {num_frames} is refused beside the processor's own fps {model.fps:g}.",
            hint=f'Say that there is no rate: {{"num_frames": {num_frames}, "fps": null}}, fps=None in Python.',
        )


def refuse_unknown_scoped(options: ServerOptions, known: frozenset[str]) -> None:
    """Raise for a key of ``videos_kwargs`` that a processor does not take there: the call ends as a TypeError.

    Raises:
        RefusedByServerError: there is one.
    """
    unknown = [name for name in options.scoped if name not in known]
    if unknown:
        raise RefusedByServerError(
            f"videos_kwargs with {unknown[0]} ends as a TypeError in the processor.",
            hint="Bound pixels by size, with both edges; videos_kwargs takes what the video processor names alone.",
        )


INSTEAD: Mapping[str, str] = {
    "total_pixels": "size.longest_edge bounds pixels: of all frames in Qwen3-VL, of each in Qwen2.5-VL",
    "nframes": "num_frames sets the number",
    "video_fps": "fps sets the rate",
    "max_frames_num": "num_frames sets the number",
    "resized_height": "size bounds the pixels",
    "resized_width": "size bounds the pixels",
}
"""Names that other programs have for the same, and what works here."""


def unknown_argument_notes(options: ServerOptions) -> tuple[str, ...]:
    """A sentence for each argument that no processor of these families knows: it is dropped with a warning."""
    known = QWEN_KEYS | FLAT_PIXELS | {"initial_shift", "use_audio_in_video"}
    return tuple(
        f"{name} of the processor's arguments is not known and dropped; {INSTEAD.get(name, 'look for a slip in it')}"
        for name in options.mm_processor
        if name not in known
    )
