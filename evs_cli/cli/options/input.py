"""What is read: videos, models, and how frames are sampled and sized."""

from __future__ import annotations

from typing import Annotated

import typer

from evs_cli.cli.options.values import DECODERS, MODELS, completed_from

_INPUT, _NUMBERS = "Input", "Numbers in place of a video"

Videos = Annotated[list[str], typer.Argument(metavar="VIDEO", help="Video files. - is standard input.")]
Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="VIDEO",
        help="Video files, or files or URLs of evs encode. - is standard input.",
    ),
]
Video = Annotated[str, typer.Argument(metavar="VIDEO", help="A video file. - is standard input.")]
OptionalVideo = Annotated[
    str | None,
    typer.Argument(metavar="VIDEO", help="A video file. - is standard input. Default: a clip drawn in memory."),
]
OptionalVideos = Annotated[list[str] | None, typer.Argument(metavar="VIDEO", help="Video files. - is standard input.")]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="NAME",
        envvar="EVS_MODEL",
        help="A folder, a Hugging Face id, or a short name. evs models lists them.",
        autocompletion=completed_from(*MODELS),
        rich_help_panel=_INPUT,
    ),
]
Models = Annotated[  # no envvar: of a list Typer would split its value at spaces
    list[str] | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="A folder, a Hugging Face id, or a short name. May be given again, to compare. Default: EVS_MODEL, else "
        "dinov2-small.",
        autocompletion=completed_from(*MODELS),
        rich_help_panel=_INPUT,
    ),
]
PlanModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        envvar="EVS_MODEL",
        help="A folder, a Hugging Face id, or a short name, to plan with. Default: what the server says it serves.",
        autocompletion=completed_from(*MODELS),
        rich_help_panel=_INPUT,
    ),
]
Revision = Annotated[
    str | None,
    typer.Option(
        "--revision", metavar="COMMIT", help="Branch, tag or commit of the model on the hub.", rich_help_panel=_INPUT
    ),
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
    typer.Option(
        "--fps",
        metavar="FPS",
        help="Frames to sample a second. Default: the model's own.",
        rich_help_panel=_INPUT,
    ),
]
NumFrames = Annotated[
    int | None,
    typer.Option(
        "--num-frames",
        metavar="N",
        help="Frames to sample in all, instead of --fps. They lie evenly over the clip.",
        rich_help_panel=_INPUT,
    ),
]
MaxFrames = Annotated[
    int | None,
    typer.Option(
        "--max-frames", metavar="N", help="Most frames to sample. Default: the model's own.", rich_help_panel=_INPUT
    ),
]
Start = Annotated[
    float | None, typer.Option("--start", metavar="SECONDS", help="Where to begin, in seconds.", rich_help_panel=_INPUT)
]
End = Annotated[
    float | None, typer.Option("--end", metavar="SECONDS", help="Where to end, in seconds.", rich_help_panel=_INPUT)
]
Prompt = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        metavar="TEXT",
        help="Put the video into a chat prompt with this text. Default: the video's part alone.",
        rich_help_panel=_INPUT,
    ),
]
SentPrompt = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        metavar="TEXT",
        help="The text beside the video. Default: 'Describe the video.'",
        rich_help_panel=_INPUT,
    ),
]
System = Annotated[
    str | None,
    typer.Option(
        "--system",
        metavar="TEXT",
        help="A system message in front of --prompt. Default: none.",
        rich_help_panel=_INPUT,
    ),
]
SentSystem = Annotated[
    str | None,
    typer.Option(
        "--system",
        metavar="TEXT",
        help="The system message; '' sends none. Default: one where the server fails without text before the video.",
        rich_help_panel=_INPUT,
    ),
]
Size = Annotated[
    int | None,
    typer.Option(
        "--size",
        metavar="PIXELS",
        help="Short side of a frame in pixels, plain encoders. Default: 224.",
        rich_help_panel=_INPUT,
    ),
]
FrameMinPixels = Annotated[
    int | None,
    typer.Option(
        "--frame-min-pixels", metavar="PIXELS", help="Least pixels of a resized frame.", rich_help_panel=_INPUT
    ),
]
FrameMaxPixels = Annotated[
    int | None,
    typer.Option(
        "--frame-max-pixels", metavar="PIXELS", help="Most pixels of a resized frame.", rich_help_panel=_INPUT
    ),
]
VideoMinPixels = Annotated[
    int | None,
    typer.Option(
        "--video-min-pixels",
        metavar="PIXELS",
        help="Least pixels of all resized frames together.",
        rich_help_panel=_INPUT,
    ),
]
VideoMaxPixels = Annotated[
    int | None,
    typer.Option(
        "--video-max-pixels",
        metavar="PIXELS",
        help="Most pixels of all resized frames together.",
        rich_help_panel=_INPUT,
    ),
]
CapPixelsPerFrame = Annotated[
    bool | None,
    typer.Option(
        "--cap-pixels-per-frame/--no-cap",
        help="Bound each frame by its share of the processor's budget for the video. Default: the model's own.",
        rich_help_panel=_INPUT,
    ),
]
Decoder = Annotated[
    str,
    typer.Option(
        "--decoder",
        metavar="NAME",
        help="pyav or decord.",
        autocompletion=completed_from(*DECODERS),
        rich_help_panel=_INPUT,
    ),
]
Together = Annotated[
    bool,
    typer.Option(
        "--together",
        help="Judge all videos as one request, by every limit.",
        rich_help_panel=_INPUT,
    ),
]
Manifest = Annotated[
    str | None,
    typer.Option("--manifest", metavar="FILE", help="A text file that names one video a line.", rich_help_panel=_INPUT),
]
Frames = Annotated[
    int | None,
    typer.Option("--frames", metavar="N", help="Sampled frames, in place of a video.", rich_help_panel=_NUMBERS),
]
Height = Annotated[
    int | None, typer.Option("--height", metavar="PIXELS", help="Rows of a frame.", rich_help_panel=_NUMBERS)
]
Width = Annotated[
    int | None, typer.Option("--width", metavar="PIXELS", help="Columns of a frame.", rich_help_panel=_NUMBERS)
]
Duration = Annotated[
    float | None, typer.Option("--duration", metavar="SECONDS", help="Length in seconds.", rich_help_panel=_NUMBERS)
]
SourceFps = Annotated[
    float | None,
    typer.Option(
        "--source-fps",
        metavar="FPS",
        help="Frames a second of the imagined file. Default: 30.",
        rich_help_panel=_NUMBERS,
    ),
]
