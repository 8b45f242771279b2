"""Options of vLLM 0.33 that do nothing, or less than they say, each with what works instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evs_cli.dialects.base import ServerOptions
from evs_cli.dialects.transformers_5_24_arguments import INSTEAD

MAX_FPS = 30.0
MAX_FRAMES = 768
_LOADER_KEYS = frozenset(
    (
        *("fps", "num_frames", "min_frames", "max_frames", "max_duration", "temporal_patch_size", "frame_recovery"),
        *("backend", "video_backend", "num_ffmpeg_threads", "seek_mode", "device", "hw_decoders"),
        *("max_width", "max_height", "pool_size", "timeout_sec"),
    )
)
_PROCESSOR_KEYS = frozenset(
    (
        *("fps", "num_frames", "min_frames", "max_frames", "do_sample_frames", "size", "min_pixels", "max_pixels"),
        *("cap_pixels_per_frame", "max_video_tokens", "device", "use_audio_in_video", "max_num_tiles"),
    )
)


def option_notes(options: ServerOptions) -> tuple[str, ...]:
    """Sentences on options that are not counted with: unknown ones, and another loader than the model's."""
    parts = (
        ("media_io_kwargs", options.media_io, _LOADER_KEYS),
        ("mm_processor_kwargs", options.mm_processor, _PROCESSOR_KEYS),
    )
    notes = [
        f"{key} of {name} is not known and not counted with: {INSTEAD.get(key, 'look for a slip in its name')}"
        for name, given, known in parts
        for key in given
        if key not in known
    ]
    if "video_backend" in options.media_io:
        notes.append(
            f"video_backend {options.media_io['video_backend']} may sample by another rule than the model's own "
            "loader, which is counted: leave it out, or set backend to choose the decoder alone"
        )
    return tuple(notes)


def by_rate_notes(loader: Mapping[str, Any]) -> list[str]:
    """What of the loader's arguments does nothing in the Qwen families, or is cut down."""
    notes = []
    if "num_frames" in loader:
        notes.append(
            f"num_frames {loader['num_frames']} of media_io_kwargs does nothing for this model; max_frames bounds the "
            "number, fps sets the rate"
        )
    if loader.get("max_frames", 0) > MAX_FRAMES:
        notes.append(
            f"max_frames {loader['max_frames']} of media_io_kwargs is cut to {MAX_FRAMES}, the most this loader takes; "
            "frames sent as JPEGs may be more (evs export)"
        )
    if loader.get("fps", 0) > MAX_FPS:
        notes.append(f"fps {loader['fps']:g} of media_io_kwargs is cut to {MAX_FPS:g}, the most this loader takes")
    return notes


def by_number_notes(loader: Mapping[str, Any]) -> list[str]:
    """What of the loader's arguments does nothing in the families that go by a number of frames."""
    return [
        f"{name} of media_io_kwargs does nothing for this model; num_frames bounds the number, fps sets the rate"
        for name in ("min_frames", "max_frames")
        if name in loader
    ]


def idle_processor_notes(given: Mapping[str, Any], bound: str, works: Sequence[str] = ()) -> list[str]:
    """A sentence for each argument of the processor's sampling that does nothing, as the loader has sampled.

    Args:
        given: ``mm_processor_kwargs``.
        bound: the loader's argument that bounds the number of frames.
        works: those that do something, where the processor samples once more.
    """
    instead = {"fps": "fps", "min_frames": "min_frames" if bound == "max_frames" else bound}
    notes = []
    for name in ("fps", "num_frames", "min_frames", "max_frames"):
        if given.get(name) is None or name in works:
            continue
        works_there = f'{{"video": {{"{instead.get(name, bound)}": {given[name]}}}}}'
        notes.append(
            f"{name} {given[name]} of mm_processor_kwargs does nothing: the loader samples; "
            f"--media-io-kwargs '{works_there}' does"
        )
    return notes
