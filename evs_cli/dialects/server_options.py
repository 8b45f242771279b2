"""A server's options as they stand on its command line, made into ``ServerOptions``."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evs_cli.dialects import ALL, EVS_DIALECT, Dialect, parse_dialect, parse_dialects
from evs_cli.dialects.base import ServerOptions
from evs_cli.errors import UsageError

_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
"""Of vLLM's numbers."""
_FLAGS = (
    "trust-remote-code",
    "trust-request-mm-kwargs",
    "enforce-eager",
    "enable-prefix-caching",
    "no-enable-prefix-caching",
)
"""Options without a value that people put in front of a model."""
_JSON_OPTIONS = ("media-io-kwargs", "mm-processor-kwargs", "mm-process-config")
_OWNED = ("media_io_kwargs", "mm_processor_kwargs", "mm_process_config", "max_num_batched_tokens")
"""Options that not every server has."""


@dataclass(frozen=True)
class ServerCommand:
    """What a server's command line says of videos."""

    dialect: Dialect
    model: str | None
    options: Mapping[str, Any]
    """By the names of ``parse_server_options``."""


@dataclass(frozen=True)
class ServerRequest:
    """The server as the user names it: a dialect and its options one by one, or a whole command line."""

    dialect: str | None = None
    """A name, ``all``, or None for ``evs`` or the server of ``server_cmd``."""
    server_cmd: str | None = None
    """``vllm serve …`` or ``python -m sglang.launch_server …``."""
    media_io_kwargs: str | None = None
    mm_processor_kwargs: str | None = None
    mm_process_config: str | None = None
    video_pruning_rate: float | str | None = None
    max_model_len: int | str | None = None
    max_num_batched_tokens: int | str | None = None

    def command(self) -> ServerCommand | None:
        """The command line read, or None where there is none.

        Raises:
            UsageError: a line that cannot be read, or options beside it.
        """
        if self.server_cmd is None:
            return None
        beside = [name for name in vars(self) if name != "server_cmd" and getattr(self, name) is not None]
        beside = [name for name in beside if name not in ("dialect", "video_pruning_rate", "max_model_len")]
        if beside:
            raise UsageError(f"{_flag(beside[0])} and --server-cmd exclude each other. Write it into the command line.")
        return parse_server_command(self.server_cmd)

    def resolve(self) -> tuple[tuple[Dialect, ServerOptions], ...]:
        """Every dialect asked for with its options.

        Raises:
            UsageError: an unknown dialect, options of another server, or values that cannot be read.
        """
        command = self.command()
        given = {name: value for name, value in vars(self).items() if name not in ("dialect", "server_cmd")}
        if command is not None:
            given = {**command.options, **{name: value for name, value in given.items() if value is not None}}
        dialects: tuple[Dialect, ...]
        if self.dialect is None:
            dialects = (EVS_DIALECT,) if command is None else (command.dialect,)
        else:
            dialects = parse_dialects(self.dialect)
        return tuple(
            (dialect, parse_server_options(dialect, **given, is_one_of_all=len(dialects) > 1)) for dialect in dialects
        )


def parse_server_command(command: str) -> ServerCommand:
    """Read ``vllm serve MODEL …`` or ``python -m sglang.launch_server --model-path MODEL …``.

    Options that have nothing to do with videos are passed over.

    Raises:
        UsageError: a line that starts neither server, or a value that cannot be read.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"Invalid --server-cmd: {error}. Expected it as a shell takes it.") from error
    programs = [Path(word).name for word in words]
    if "vllm" in programs:
        dialect, rest = parse_dialect("vllm"), words[programs.index("vllm") + 1 :]
    elif any("vllm.entrypoints" in word or "vllm/vllm-openai" in word for word in words):
        dialect, rest = parse_dialect("vllm"), words
    elif any(word.startswith("sglang") for word in words):
        dialect, rest = parse_dialect("sglang"), words
    else:
        raise UsageError(
            # The line is not repeated: its --api-key is a key.
            "Invalid --server-cmd: it starts neither vLLM nor SGLang. Expected 'vllm serve MODEL …' or "
            "'python -m sglang.launch_server …'."
        )
    given = dict(_options_of(rest))
    names = {
        "media-io-kwargs": "media_io_kwargs",
        "mm-processor-kwargs": "mm_processor_kwargs",
        "mm-process-config": "mm_process_config",
        "video-pruning-rate": "video_pruning_rate",
        "max-model-len": "max_model_len",
        "context-length": "max_model_len",
        "max-num-batched-tokens": "max_num_batched_tokens",
    }
    if given.get("video-pruning-method", "evs") != "evs":
        raise UsageError(
            f"Invalid --video-pruning-method {given['video-pruning-method']!r} of --server-cmd. Expected evs, the rule "
            "that is counted here."
        )
    options: dict[str, Any] = {names[name]: value for name, value in given.items() if name in names}
    environment = dict(word.split("=", 1) for word in words if re.fullmatch(r"[A-Z][A-Z0-9_]*=.*", word))
    variables = dialect.rules.limit_variables
    options |= {variables[name]: value for name, value in environment.items() if name in variables}
    trust = dialect.rules.trust_option
    if trust is not None:
        options["trusts_requests"] = any(word.partition("=")[0].replace("_", "-") == trust for word in rest)
    overrides = _json_object("json_model_override_args", given.get("json-model-override-args"))
    if "video_pruning_rate" in overrides:
        options.setdefault("video_pruning_rate", overrides["video_pruning_rate"])
    model = given.get("model") or given.get("model-path") or _positional_model(rest)
    return ServerCommand(dialect, model, options)


def parse_server_options(
    dialect: Dialect,
    *,
    media_io_kwargs: str | None = None,
    mm_processor_kwargs: str | None = None,
    mm_process_config: str | None = None,
    video_pruning_rate: float | str | None = None,
    max_model_len: int | str | None = None,
    max_num_batched_tokens: int | str | None = None,
    trusts_requests: bool | None = None,
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
        video_pruning_rate: share of the video tokens to drop.
        max_model_len: longest sequence.
        max_num_batched_tokens: vLLM's.
        trusts_requests: whether vLLM was started with ``--trust-request-mm-kwargs``; None where that is not known.
        max_decoded_bytes: vLLM's, of its environment.
        max_image_pixels: the same.
        is_one_of_all: whether every dialect is asked for, so that an option of another server is that server's.

    Raises:
        UsageError: JSON that is none, a value outside its range, or an option of another server.
    """
    own = frozenset() if dialect.is_evs else dialect.rules.own_options
    given = (media_io_kwargs, mm_processor_kwargs, mm_process_config, max_num_batched_tokens)
    for name, value in zip(_OWNED, given, strict=True):
        if value is not None and name not in own and not is_one_of_all:
            owner = _owner(name)
            raise UsageError(f"{_flag(name)} has no effect on {dialect.name}. Expected it with --dialect {owner}.")
    processor, scoped = _processor_part(mm_processor_kwargs if "mm_processor_kwargs" in own else None)
    return ServerOptions(
        trusts_requests=trusts_requests,
        max_decoded_bytes=_length("max_decoded_bytes", max_decoded_bytes),
        max_image_pixels=_length("max_image_pixels", max_image_pixels),
        media_io=_video_part("media_io_kwargs", media_io_kwargs if "media_io_kwargs" in own else None),
        mm_processor=processor,
        scoped=scoped,
        mm_process=_video_part("mm_process_config", mm_process_config if "mm_process_config" in own else None),
        video_pruning_rate=None if video_pruning_rate is None else _rate(video_pruning_rate),
        max_model_len=_length("max_model_len", max_model_len),
        max_num_batched_tokens=_length(
            "max_num_batched_tokens", max_num_batched_tokens if "max_num_batched_tokens" in own else None
        ),
    )


def _owner(option: str) -> str:
    """The server that has an option; transformers, the first of all, is named only where no server has it."""
    return next(dialect.server for dialect in ALL[::-1] if option in dialect.rules.own_options)


def _options_of(words: list[str]) -> Iterator[tuple[str, str]]:
    """Long options and their values; of ``--media-io-kwargs.video.fps 2`` a JSON object."""
    dotted: dict[str, dict[str, Any]] = {}
    for index, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, has_value, value = word[2:].partition("=")
        name = name.replace("_", "-") if "." not in name else name
        if not has_value:
            value = words[index + 1] if index + 1 < len(words) else ""
        root = name.partition(".")[0].replace("_", "-")
        if "." in name and root in _JSON_OPTIONS:
            _put(dotted.setdefault(root, {}), name.split(".")[1:], value)
        else:
            yield name, value
    for root, content in dotted.items():
        yield root, json.dumps(content)


def _put(content: dict[str, Any], path: list[str], value: str) -> None:
    for key in path[:-1]:
        content = content.setdefault(key, {})
    try:
        content[path[-1]] = json.loads(value)
    except ValueError:
        content[path[-1]] = value


def _positional_model(words: list[str]) -> str | None:
    """The model of ``vllm serve MODEL``."""
    if "serve" not in words:
        return None
    behind = words[words.index("serve") :]
    for before, word in itertools.pairwise(behind):
        is_value = before.startswith("-") and "=" not in before and before.lstrip("-").replace("_", "-") not in _FLAGS
        if not word.startswith("-") and not is_value:
            return word
    return None


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _json_object(name: str, text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        content = json.loads(text)
    except ValueError as error:
        raise UsageError(f"Invalid {_flag(name)} {text!r}: {error}. Expected a JSON object.") from error
    if not isinstance(content, dict):
        raise UsageError(f"Invalid {_flag(name)} {text!r}. Expected a JSON object.")
    return content


def _video_part(name: str, text: str | None) -> dict[str, Any]:
    """The ``video`` part of a JSON object by modality."""
    content = _json_object(name, text)
    strange = [key for key in content if key not in ("video", "image", "audio")]
    video = content.get("video", {})
    if strange or not isinstance(video, dict):
        raise UsageError(f'Invalid {_flag(name)} {text!r}. Expected {{"video": {{…}}}}, its options under it.')
    return _checked_numbers(name, video)


def _processor_part(text: str | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Flat keys and those of ``videos_kwargs`` as one, the more specific ones win; and the names of the latter."""
    content = _json_object("mm_processor_kwargs", text)
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
                f"Invalid {key} ({value!r}) of {_flag(name)}. Expected a number of at least {least}, not 0."
            )
    fps = options.get("fps")
    if fps is not None and (isinstance(fps, bool) or not isinstance(fps, (int, float)) or not (fps > 0 or fps == -1)):
        raise UsageError(f"Invalid fps ({fps!r}) of {_flag(name)}. Expected a number above 0.")
    size = options.get("size", {})
    if not isinstance(size, dict) or not all(isinstance(edge, int) and edge > 0 for edge in size.values()):
        raise UsageError(
            f'Invalid size ({size!r}) of {_flag(name)}. Expected {{"shortest_edge": …, "longest_edge": …}} in pixels.'
        )
    return {key: value for key, value in options.items() if value is not None}


def _rate(value: float | str) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise UsageError(f"Invalid video_pruning_rate ({value!r}). Expected 0 <= q < 1.") from error


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
