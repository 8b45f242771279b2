"""What is read: videos, models, and how frames are sampled and sized."""

from __future__ import annotations

from typing import Annotated

import typer

from evs_cli.cli.options.values import DECODERS, MODELS, completed_from

_INPUT, _NUMBERS = "Input", "Numbers in place of a video"

Videos = Annotated[list[str], typer.Argument(metavar="VIDEO", help="Video files; - reads one from standard input.")]
Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="VIDEO",
        help="Video files, or files (or URLs) that `evs encode` wrote; - reads a video from standard input.",
    ),
]
Video = Annotated[str, typer.Argument(metavar="VIDEO", help="A video file; - reads it from standard input.")]
OptionalVideo = Annotated[
    str | None,
    typer.Argument(
        metavar="VIDEO", help="A video file; - reads it from standard input. Default: a moving clip drawn in memory."
    ),
]
OptionalVideos = Annotated[
    list[str] | None, typer.Argument(metavar="VIDEO", help="Video files; - reads one from standard input.")
]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        envvar="EVS_MODEL",
        help="A folder, a Hugging Face id, or a short name (see `evs models`).",
        autocompletion=completed_from(*MODELS),
        rich_help_panel=_INPUT,
    ),
]
Models = Annotated[  # no envvar: of a list Typer would split its value at spaces
    list[str] | None,
    typer.Option(
        "--model",
        help="A folder, a Hugging Face id, or a short name; may be given twice to compare. Default: EVS_MODEL, else "
        "dinov2-small.",
        autocompletion=completed_from(*MODELS),
        rich_help_panel=_INPUT,
    ),
]
PlanModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        envvar="EVS_MODEL",
        help="A folder, a Hugging Face id, or a short name, for the plan. Default: what the server says it serves.",
        autocompletion=completed_from(*MODELS),
        rich_help_panel=_INPUT,
    ),
]
Revision = Annotated[
    str | None,
    typer.Option("--revision", help="Branch, tag or commit of the model on the hub.", rich_help_panel=_INPUT),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Let code that comes with the model run.",
        rich_help_panel=_INPUT,
    ),
]
Fps = Annotated[
    float | None,
    typer.Option("--fps", help="Frames to sample a second of video. Default: the model's own.", rich_help_panel=_INPUT),
]
NumFrames = Annotated[
    int | None,
    typer.Option("--num-frames", help="Frames to sample in all, evenly; instead of --fps.", rich_help_panel=_INPUT),
]
MaxFrames = Annotated[
    int | None,
    typer.Option("--max-frames", help="Most frames to sample. Default: the model's own.", rich_help_panel=_INPUT),
]
Start = Annotated[float | None, typer.Option("--start", help="Where to begin, in seconds.", rich_help_panel=_INPUT)]
End = Annotated[float | None, typer.Option("--end", help="Where to end, in seconds.", rich_help_panel=_INPUT)]
Prompt = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        help="Put the video into the model's chat prompt beside this text. Default: the video's part alone.",
        rich_help_panel=_INPUT,
    ),
]
SentPrompt = Annotated[
    str | None,
    typer.Option("--prompt", help="The text beside the video. Default: 'Describe the video.'", rich_help_panel=_INPUT),
]
Size = Annotated[
    int | None,
    typer.Option(
        "--size", help="Short side of a frame in pixels, plain encoders. Default: 224.", rich_help_panel=_INPUT
    ),
]
FrameMinPixels = Annotated[
    int | None, typer.Option("--frame-min-pixels", help="Least pixels of a resized frame.", rich_help_panel=_INPUT)
]
FrameMaxPixels = Annotated[
    int | None, typer.Option("--frame-max-pixels", help="Most pixels of a resized frame.", rich_help_panel=_INPUT)
]
VideoMinPixels = Annotated[
    int | None,
    typer.Option("--video-min-pixels", help="Least pixels of all resized frames together.", rich_help_panel=_INPUT),
]
VideoMaxPixels = Annotated[
    int | None,
    typer.Option("--video-max-pixels", help="Most pixels of all resized frames together.", rich_help_panel=_INPUT),
]
CapPixelsPerFrame = Annotated[
    bool | None,
    typer.Option(
        "--cap-pixels-per-frame/--no-cap",
        help="Bound each frame by its share of the video's budget, as qwen-vl-utils does. Default: the model's own.",
        rich_help_panel=_INPUT,
    ),
]
Decoder = Annotated[
    str,
    typer.Option("--decoder", help="pyav or decord.", autocompletion=completed_from(*DECODERS), rich_help_panel=_INPUT),
]
Manifest = Annotated[
    str | None, typer.Option("--manifest", help="A text file that names one video a line.", rich_help_panel=_INPUT)
]
Frames = Annotated[
    int | None, typer.Option("--frames", help="Sampled frames, in place of a video.", rich_help_panel=_NUMBERS)
]
Height = Annotated[int | None, typer.Option("--height", help="Rows of a frame.", rich_help_panel=_NUMBERS)]
Width = Annotated[int | None, typer.Option("--width", help="Columns of a frame.", rich_help_panel=_NUMBERS)]
Duration = Annotated[float | None, typer.Option("--duration", help="Length in seconds.", rich_help_panel=_NUMBERS)]
SourceFps = Annotated[
    float | None,
    typer.Option("--source-fps", help="Frames a second of the imagined file. Default: 30.", rich_help_panel=_NUMBERS),
]
