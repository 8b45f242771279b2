"""A server as the user names it: a dialect with options one by one, or the command line that starts it."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from evs_cli.dialects import EVS_DIALECT, Dialect, parse_dialect, parse_dialects
from evs_cli.dialects.base import ServerOptions
from evs_cli.dialects.prompt_limits import OPTIONS as LIMITS
from evs_cli.dialects.prompt_limits import prompt_limits
from evs_cli.dialects.server_options import flag_of, json_object, parse_server_options
from evs_cli.errors import UsageError

_FLAGS = (
    "trust-remote-code",
    "trust-request-mm-kwargs",
    "enforce-eager",
    "language-model-only",
    "enable-prefix-caching",
    "no-enable-prefix-caching",
)
"""Options without a value that people put in front of a model."""
_JSON_OPTIONS = ("media-io-kwargs", "mm-processor-kwargs", "mm-process-config", *LIMITS)


_UNREAD = frozenset(("chat-template", "hf-overrides", "tokenizer", "revision", "skip-mm-profiling", "mm-encoder-only"))
"""Options that change a prompt or a limit, and are not read here."""


_SLIP = 0.85
"""How alike a name must be to one that is read for a slip in it; servers have hundreds of others."""


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
    video_kwargs: str | None = None
    video_pruning_rate: float | str | None = None
    video_pruning_method: str | None = None
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
            raise UsageError(
                f"{flag_of(beside[0])} and --server-cmd exclude each other. Write it into the command line."
            )
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
        if command is not None and len(dialects) == 1 and dialects[0].server != command.dialect.server:
            raise UsageError(
                f"--dialect {self.dialect} and --server-cmd, which starts {command.dialect.server}, contradict each "
                "other. Give one of them."
            )
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
    unread: list[str] = []
    if "config" in given:
        read = _config_file(given["config"])
        if read is None:
            why = "holds no options" if Path(given["config"]).is_file() else "is not here"
            unread.append(f"--config {given['config']}, which {why},")
        given = {**(read or {}), **given}  # as vLLM does, the line's own options win
    unread += [f"--{name}" for name in given if name in _UNREAD]
    names = {
        "media-io-kwargs": "media_io_kwargs",
        "mm-processor-kwargs": "mm_processor_kwargs",
        "mm-process-config": "mm_process_config",
        "video-pruning-rate": "video_pruning_rate",
        "video-pruning-method": "video_pruning_method",
        "max-model-len": "max_model_len",
        "context-length": "max_model_len",
        "max-num-batched-tokens": "max_num_batched_tokens",
    }
    if "video-retention-ratio" in given:  # of VidCom2's first draft; no release takes it
        raise UsageError(
            "vLLM has no --video-retention-ratio, and would not start. Expected --video-pruning-rate, the share that "
            "is dropped, with --video-pruning-method vidcom2."
        )
    known = (*names, *LIMITS, *_FLAGS, *_UNREAD, "config", "model", "model-path", "json-model-override-args")
    for name in given:
        near = [] if name in known else get_close_matches(name, names, n=1, cutoff=_SLIP)
        unread += [f"--{name} (--{near[0]}?)"] if near else []
    options: dict[str, Any] = {names[name]: value for name, value in given.items() if name in names}
    environment = dict(word.split("=", 1) for word in words if re.fullmatch(r"[A-Z][A-Z0-9_]*=.*", word))
    variables = dialect.rules.limit_variables
    options |= {variables[name]: value for name, value in environment.items() if name in variables}
    trust = dialect.rules.trust_option
    if trust is not None:
        options["trusts_requests"] = trust.removeprefix("--") in given
    limits = prompt_limits(given)
    options |= {"max_videos": limits.max_videos, "takes_images": limits.takes_images}
    unread += limits.unread
    if "VLLM_VIDEO_LOADER_BACKEND" in environment:
        unread.append("VLLM_VIDEO_LOADER_BACKEND")
    options["unread"] = tuple(unread)
    overrides = json_object("json_model_override_args", given.get("json-model-override-args"))
    if "video_pruning_rate" in overrides:
        options.setdefault("video_pruning_rate", overrides["video_pruning_rate"])
    model = given.get("model") or given.get("model-path") or _positional_model(rest)
    return ServerCommand(dialect, model, options)


def _config_file(path: str) -> dict[str, str] | None:
    """The options of a YAML file as the command line has them; None where it cannot be read here."""
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None
    if not isinstance(content, dict):
        return None
    return {
        str(name).replace("_", "-"): json.dumps(value) if isinstance(value, dict) else str(value)
        for name, value in content.items()
        if value is not False
    }


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
