"""A server's options as JSON and numbers, made into ``ServerOptions``."""

from __future__ import annotations

import json
import re
from typing import Any

from evs_cli.core.counts import PRUNING_METHODS, PruningMethod
from evs_cli.dialects import ALL, Dialect
from evs_cli.dialects.base import ServerOptions
from evs_cli.errors import UsageError

_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
"""Of vLLM's numbers."""
_OWNED = (
    *("media_io_kwargs", "mm_processor_kwargs", "mm_process_config", "video_kwargs", "max_num_batched_tokens"),
    "video_pruning_method",
)
"""Options that not every server has."""


def parse_server_options(
    dialect: Dialect,
    *,
    media_io_kwargs: str | None = None,
    mm_processor_kwargs: str | None = None,
    mm_process_config: str | None = None,
    video_kwargs: str | None = None,
    video_pruning_rate: float | str | None = None,
    video_pruning_method: str | None = None,
    max_model_len: int | str | None = None,
    max_num_batched_tokens: int | str | None = None,
    trusts_requests: bool | None = None,
    max_videos: int | None = None,
    takes_images: bool = True,
    unread: tuple[str, ...] = (),
    max_decoded_bytes: int | str | None = None,
    max_image_pixels: int | str | None = None,
    is_one_of_all: bool = False,
) -> ServerOptions:
    """The options of one server, from JSON and numbers as its command line takes them.

    Args:
        dialect: whose they are.
        media_io_kwargs: vLLM's JSON.
        mm_processor_kwargs: vLLM's JSON, or transformers' arguments of the processor.
        mm_process_config: SGLang's JSON.
        video_kwargs: JSON of what qwen-vl-utils, or a trainer, is told of a video.
        video_pruning_rate: share of the video tokens to drop.
        video_pruning_method: vLLM's, which chooses them.
        max_model_len: longest sequence.
        max_num_batched_tokens: vLLM's.
        trusts_requests: whether vLLM was started with ``--trust-request-mm-kwargs``; None where that is not known.
        max_videos: videos that the server takes in one request.
        takes_images: whether vLLM takes any image in one.
        unread: of a command line, what is not counted with.
        max_decoded_bytes: vLLM's, of its environment.
        max_image_pixels: the same.
        is_one_of_all: whether every dialect is asked for, so that an option of another server is that server's.

    Raises:
        UsageError: JSON that is none, a value outside its range, or an option of another server.
    """
    own = frozenset() if dialect.is_evs else dialect.rules.own_options
    jsons = (media_io_kwargs, mm_processor_kwargs, mm_process_config, video_kwargs)
    given = (*jsons, max_num_batched_tokens, video_pruning_method)
    for name, value in zip(_OWNED, given, strict=True):
        if value is not None and name not in own and not is_one_of_all:
            owner = _owner(name)
            raise UsageError(f"{flag_of(name)} has no effect on {dialect.name}. Expected it with --dialect {owner}.")
    processor, scoped = _processor_part(mm_processor_kwargs if "mm_processor_kwargs" in own else None)
    return ServerOptions(
        trusts_requests=trusts_requests,
        max_videos=max_videos,
        takes_images=takes_images,
        unread=unread,
        max_decoded_bytes=_length("max_decoded_bytes", max_decoded_bytes),
        max_image_pixels=_length("max_image_pixels", max_image_pixels),
        media_io=_video_part("media_io_kwargs", media_io_kwargs if "media_io_kwargs" in own else None),
        mm_processor=processor,
        scoped=scoped,
        mm_process=_video_part("mm_process_config", mm_process_config if "mm_process_config" in own else None),
        video_kwargs=_video_arguments(video_kwargs if "video_kwargs" in own else None),
        video_pruning_rate=None if video_pruning_rate is None else _rate(video_pruning_rate),
        video_pruning_method=_method(video_pruning_method if "video_pruning_method" in own else None),
        max_model_len=_length("max_model_len", max_model_len),
        max_num_batched_tokens=_length(
            "max_num_batched_tokens", max_num_batched_tokens if "max_num_batched_tokens" in own else None
        ),
    )


def _owner(option: str) -> str:
    """The first server that has an option; transformers, which stands before all, only where no other has it."""
    _evs, transformers, *others = ALL
    return next(dialect.server for dialect in (*others, transformers) if option in dialect.rules.own_options)


def flag_of(name: str) -> str:
    """``--media-io-kwargs`` of ``media_io_kwargs``."""
    return "--" + name.replace("_", "-")


def json_object(name: str, text: str | None) -> dict[str, Any]:
    """The JSON object of an option; an empty one of None.

    Raises:
        UsageError: text that is none.
    """
    if text is None:
        return {}
    try:
        content = json.loads(text)
    except ValueError as error:
        raise UsageError(f"Invalid {flag_of(name)} {text!r}: {error}. Expected a JSON object.") from error
    if not isinstance(content, dict):
        raise UsageError(f"Invalid {flag_of(name)} {text!r}. Expected a JSON object.")
    return content


def _video_part(name: str, text: str | None) -> dict[str, Any]:
    """The ``video`` part of a JSON object by modality."""
    content = json_object(name, text)
    strange = [key for key in content if key not in ("video", "image", "audio")]
    video = content.get("video", {})
    if strange or not isinstance(video, dict):
        raise UsageError(f'Invalid {flag_of(name)} {text!r}. Expected {{"video": {{…}}}}, its options under it.')
    return _checked_numbers(name, video)


def _processor_part(text: str | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Flat keys and those of ``videos_kwargs`` as one, the more specific ones win; and the names of the latter."""
    content = json_object("mm_processor_kwargs", text)
    scoped = content.pop("videos_kwargs", {})
    content.pop("images_kwargs", None)
    if not isinstance(scoped, dict):
        raise UsageError(f"Invalid --mm-processor-kwargs {text!r}. Expected videos_kwargs to be an object.")
    checked = _checked_numbers("mm_processor_kwargs", {**content, **scoped})
    # Transformers' processors take a number of frames only where their own rate is set to null.
    no_rate = {"fps": None} if "fps" in {**content, **scoped} and "fps" not in checked else {}
    return {**checked, **no_rate}, tuple(scoped)


_LEAST = {
    **dict.fromkeys(("min_frames", "max_frames", "nframes", "min_pixels", "max_pixels", "total_pixels"), 1),
    **dict.fromkeys(("resized_height", "resized_width", "temporal_patch_size"), 1),
    "num_frames": -1,
}


def _checked_numbers(name: str, options: dict[str, Any]) -> dict[str, Any]:
    for key, least in _LEAST.items():
        value = options.get(key, least)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least or value == 0):
            raise UsageError(
                f"Invalid {key} ({value!r}) of {flag_of(name)}. Expected a number of at least {least}, not 0."
            )
    fps = options.get("fps")
    if fps is not None and (isinstance(fps, bool) or not isinstance(fps, (int, float)) or not (fps > 0 or fps == -1)):
        raise UsageError(f"Invalid fps ({fps!r}) of {flag_of(name)}. Expected a number above 0.")
    size = options.get("size", {})
    if not isinstance(size, dict) or not all(isinstance(edge, int) and edge > 0 for edge in size.values()):
        raise UsageError(
            f'Invalid size ({size!r}) of {flag_of(name)}. Expected {{"shortest_edge": …, "longest_edge": …}} in pixels.'
        )
    return {key: value for key, value in options.items() if value is not None}


_FREE = ("do_resize", "FORCE_QWENVL_VIDEO_READER")
"""Keys of ``--video-kwargs`` whose values are no numbers."""


def _video_arguments(text: str | None) -> dict[str, Any]:
    """What a program is told of a video; environment variables, in capitals, may be text as a shell has them."""
    arguments = {key: value for key, value in json_object("video_kwargs", text).items() if value is not None}
    for key, value in arguments.items():
        if key in _FREE:
            continue
        number = _number(value) if key.isupper() else value
        least_is_zero = key in ("video_start", "video_end")
        is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
        if not is_number or not (0 <= number < float("inf")) or (number == 0 and not least_is_zero):
            least = "of at least 0" if least_is_zero else "above 0"
            raise UsageError(f"Invalid {key} ({value!r}) of --video-kwargs. Expected a number {least}.")
        arguments[key] = number
    return arguments


def _number(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _rate(value: float | str) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise UsageError(f"Invalid video_pruning_rate ({value!r}). Expected 0 <= q < 1.") from error


def _method(value: str | None) -> PruningMethod:
    if value is None:
        return "evs"
    if value not in PRUNING_METHODS:
        raise UsageError(
            f"Invalid --video-pruning-method {value!r}. Expected {' or '.join(PRUNING_METHODS)}, as vLLM 0.33 takes."
        )
    return value


def _length(name: str, value: int | str | None) -> int | None:
    """A number, or vLLM's ``32k``, ``1M`` and ``auto``."""
    if value is None or isinstance(value, int):
        return value
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgKMG]?)", value)
    if value in ("auto", "-1"):
        return None
    if found is None:
        raise UsageError(f"Invalid {name} ({value!r}). Expected a number, such as 32768 or 32k.")
    return int(float(found[1]) * _SUFFIXES.get(found[2], 1))
