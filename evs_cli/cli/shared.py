"""The options that every command has, and those of every command that runs a model: declared and parsed once.

``with_output`` and ``with_model`` add them to a command's signature, which Typer reads, and hand the command a
``Sink`` and the model's keywords instead.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import warnings
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, cast

import typer

from evs_cli.cli import options as o
from evs_cli.cli.values import frames_a_batch, method_names, token_count
from evs_cli.errors import UsageError
from evs_cli.pipeline.keywords import RequestKeywords
from evs_cli.report.console import FORMATS, OutputStyle, Sink

if TYPE_CHECKING:
    from evs_cli.pipeline.request import SessionRequest

Command = Callable[..., None]
Options = Mapping[str, tuple[Any, Any]]
"""Annotation and default by parameter name."""

_NONE: Options = {}

_OUTPUT: Options = {
    "format": (o.Format, "table"),
    "json": (o.Json, False),
    "quiet": (o.Quiet, False),
    "verbose": (o.Verbose, 0),
    "no_color": (o.NoColor, False),
    "debug": (o.Debug, False),
    "help_all": (o.HelpAll, False),
}
_SOURCE: Options = {
    "model": (o.Model, "dinov2-small"),
    "fps": (o.Fps, None),
    "num_frames": (o.NumFrames, None),
    "max_frames": (o.MaxFrames, None),
    "start_seconds": (o.Start, None),
    "end_seconds": (o.End, None),
    "prompt": (o.Prompt, None),
    "system": (o.System, None),
    "size": (o.Size, None),
    "frame_min_pixels": (o.FrameMinPixels, None),
    "frame_max_pixels": (o.FrameMaxPixels, None),
    "video_min_pixels": (o.VideoMinPixels, None),
    "video_max_pixels": (o.VideoMaxPixels, None),
    "cap_pixels_per_frame": (o.CapPixelsPerFrame, None),
    "decoder": (o.Decoder, "pyav"),
    "revision": (o.Revision, None),
    "trust_remote_code": (o.TrustRemoteCode, False),
}
"""What is read: options before a command's own, by the names of ``SessionRequest`` and what it holds."""
_SERVER: Options = {
    "dialect": (o.Dialect, None),
    "server_cmd": (o.ServerCmd, None),
    "media_io_kwargs": (o.MediaIoKwargs, None),
    "mm_processor_kwargs": (o.MmProcessorKwargs, None),
    "mm_process_config": (o.MmProcessConfig, None),
    "video_kwargs": (o.VideoKwargs, None),
    "max_num_batched_tokens": (o.MaxNumBatchedTokens, None),
    "video_pruning_method": (o.VideoPruningMethod, None),
    "decodes_first": (o.DecodeFirst, False),
}
"""The server whose rules hold, by the names of ``ServerRequest``."""
_RUN: Options = {
    "method": (o.Method, "evs"),
    "min_dissimilarity": (o.MinDissimilarity, None),
    "seed": (o.Seed, 0),
    "score_dtype": (o.ScoreDtype, None),
    "device": (o.Device, "auto"),
    "dtype": (o.Dtype, "auto"),
    "batch_frames": (o.BatchFrames, "auto"),
    "reuse": (o.Reuse, True),
}
"""How it is run: options behind a command's own."""
_ENCODE: Options = {name: each for name, each in _RUN.items() if name not in ("method", "min_dissimilarity", "seed")}
"""How a video is encoded where no rate is chosen."""
_NUMBERS: Options = {
    "frames": (o.Frames, None),
    "height": (o.Height, None),
    "width": (o.Width, None),
    "duration": (o.Duration, None),
    "source_fps": (o.SourceFps, None),
}


class NumbersKeywords(TypedDict):
    """A video in numbers: the keywords of ``numbers_of``."""

    frames: int | None
    height: int | None
    width: int | None
    duration: float | None
    source_fps: float | None


def with_output(name: str) -> Callable[[Command], Command]:
    """Give a command the output options; it receives them as ``sink``, in which it runs under ``name``."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(*, sink: Sink, **values: Any) -> None:
            with sink.running(name, _inputs(values)):
                command(sink=sink, **values)

        return _gathering(run, "sink", _make_sink, behind=_OUTPUT)

    return decorate


def _inputs(values: Mapping[str, Any]) -> list[str] | None:
    """The videos or files of a command line; None of a command that takes none."""
    named = [values[name] for name in ("videos", "files", "video", "file") if name in values]
    if not named:
        return None
    return [named[0]] if isinstance(named[0], str) else list(named[0] or ())


def with_source(command: Command) -> Command:
    """Give a command the options of what is read, without running it; it receives them as ``request``."""
    return _gathering(command, "request", _request, before=_SOURCE, behind=_SERVER)


def with_served(command: Command) -> Command:
    """As ``with_source``, for what is asked of a running server: a whole file, and a prompt."""
    local = ("start_seconds", "end_seconds", "size", "decoder")
    served = {name: option for name, option in _SOURCE.items() if name not in local}
    served |= {"model": (o.PlanModel, None), "prompt": (o.SentPrompt, None), "system": (o.SentSystem, None)}
    behind = {**_SERVER, "dialect": (o.ServerDialect, None)}
    return _gathering(command, "request", _request, before=served, behind=behind)


def with_numbers(command: Command) -> Command:
    """Give a command the options of a video that is numbers alone; it receives them as ``numbers``."""
    return _gathering(command, "numbers", dict, behind=_NUMBERS)


def with_model(command: Command) -> Command:
    """Give a command the options of a model run; it receives them as ``request``, keywords of ``make_request``."""
    return _gathering(command, "request", _run_request, before=_SOURCE, behind={**_SERVER, **_RUN})


def with_encoder(command: Command) -> Command:
    """As ``with_model``, without what chooses tokens: for commands that keep them all."""
    return _gathering(command, "request", _run_request, before=_SOURCE, behind={**_SERVER, **_ENCODE})


def with_models(command: Command) -> Command:
    """As ``with_model``, for several of each.

    ``--model`` may be given again: it is received as ``models``, a list or None. ``--method`` takes a list: it is
    received as ``methods``, names that are known.
    """
    source = {name: option for name, option in _SOURCE.items() if name != "model"}
    run = {name: option for name, option in _RUN.items() if name != "method"}
    command = _gathering(command, "methods", lambda method: method_names(method), behind={"method": (o.Methods, None)})
    command = _gathering(command, "request", _run_request, before=source, behind={**_SERVER, **run})
    return _with_several_models(command)


def with_viewed(command: Command) -> Command:
    """As ``with_models``, without ``--max-frames``, which says how many frames are drawn there."""
    source = {name: option for name, option in _SOURCE.items() if name not in ("model", "max_frames")}
    command = _gathering(command, "request", _run_request, before=source, behind={**_SERVER, **_RUN})
    return _with_several_models(command)


def named_on_command_line(context: typer.Context, names: Container[str]) -> dict[str, str]:
    """The flags that stand on the command line of the parameters called ``names``, by the parameters' names."""
    named = {}
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in names and source is not None and source.name == "COMMANDLINE":
            is_off = context.params.get(name) is False
            flags = (parameter.secondary_opts if is_off else ()) or parameter.opts
            named[name] = next(flag for flag in flags if flag.startswith("--"))
    return named


def _with_several_models(command: Command) -> Command:
    return _gathering(command, "models", lambda model: model, before={"model": (o.Models, None)})


def of_each_model(request: RequestKeywords, models: Sequence[str] | None) -> list[SessionRequest]:
    """A request a model; where none was named, of ``EVS_MODEL`` or the default.

    Raises:
        UsageError: a value outside its range.
    """
    from evs_cli.encoders.source import DEFAULT_MODEL
    from evs_cli.pipeline.request import make_request

    each: list[RequestKeywords] = [
        {**request, "model": model} for model in models or [os.environ.get("EVS_MODEL") or DEFAULT_MODEL]
    ]
    return [make_request(**keywords) for keywords in each]


def _request(*, max_num_batched_tokens: str | None, **values: Any) -> RequestKeywords:
    """The keywords of a request, tokens with a unit made a number."""
    tokens = token_count("--max-num-batched-tokens", max_num_batched_tokens)
    return cast("RequestKeywords", {**values, "max_num_batched_tokens": tokens})


def _run_request(*, batch_frames: str, **values: Any) -> RequestKeywords:
    """The keywords of a model run, ``--batch-frames`` made a number or None too."""
    return _request(**values, batch_frames=frames_a_batch(batch_frames))


def for_encodings(request: RequestKeywords, context: typer.Context) -> RequestKeywords:
    """What of a request means something to an encoding in place of a video; the environment's word means nothing to it.

    Raises:
        UsageError: an option on the command line that the encoding has settled, whatever its value.
    """
    from evs_cli.jobs.stored_session import RULE_OPTIONS, no_effect_error

    settled = {*_SOURCE, *_SERVER, *_RUN}.difference(RULE_OPTIONS)
    if named := named_on_command_line(context, settled):
        raise no_effect_error(next(iter(named.values())))
    return {
        "method": request["method"],
        "min_dissimilarity": request["min_dissimilarity"],
        "seed": request["seed"],
    }


def _gathering(
    command: Command, received: str, make: Callable[..., Any], *, before: Options = _NONE, behind: Options = _NONE
) -> Command:
    """``command`` with options around its own, which it receives in one: ``make(**values)``, as ``received``."""

    def call(**values: Any) -> None:
        made = make(**{name: values.pop(name) for name in (*before, *behind)})
        command(**values, **{received: made})

    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != received]
    parameters = [
        *_parameters(before),
        *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own),
        *_parameters(behind),
    ]
    call.__doc__ = _unwrapped(command.__doc__ or "")
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    return call


def _unwrapped(text: str) -> str:
    """A docstring, each paragraph on one line: Typer wraps lines to the terminal, and keeps the breaks it finds."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(text).split("\n\n"))


def _parameters(added: Options) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in added.items()
    ]


def _make_sink(
    *, format: str, json: bool, quiet: bool, verbose: int, no_color: bool, debug: bool, help_all: bool
) -> Sink:
    """The sink of a command; ``debug`` is the program's own business, and ``help_all`` has ended it before.

    Raises:
        UsageError: a format that is not known.
    """
    if format not in FORMATS:
        raise UsageError(f"Invalid format {format!r}. Expected one of {', '.join(FORMATS)}.")
    if json and format == "csv":
        raise UsageError("--json and --format csv exclude each other. Give one.")
    # Set either way: of two command lines in one process, the second must not be as loud as the first.
    logging.getLogger("evs_cli").setLevel(logging.DEBUG if verbose >= 2 else logging.NOTSET)
    if verbose < 2:
        warnings.simplefilter("ignore")  # of libraries; evs tells its own notes
    return Sink(OutputStyle("json" if json else format, quiet=quiet, verbosity=verbose, no_color=no_color))
