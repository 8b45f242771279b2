"""Options that several commands share, under one name and one help text each."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from evs_cli.dialects import ALL

_INPUT, _NUMBERS, _PRUNING, _BUDGET = "Input", "Numbers in place of a video", "Pruning", "Budget"
_OUTPUT, _RUNTIME, _SERVER = "Output", "Runtime", "Server"

_MODELS = ("dinov2-small", "dinov2-base", "dinov3-small", "siglip-base", "clip-base", "qwen2.5-vl-7b", "qwen3-vl-8b")
_FORMATS = ("table", "json", "csv")
_DEVICES = ("auto", "cpu", "cuda", "mps")
_DTYPES = ("auto", "float32", "bfloat16", "float16")
_DIALECTS = (*(dialect.name for dialect in ALL), "all")
_DECODERS = ("pyav", "decord")
_METHODS = ("evs", "uniform-frames", "random")
_ENDPOINTS = ("auto", "tokenize", "usage")
_STORE_DTYPES = ("bfloat16", "float16", "int8", "fp8")
_LEVELS = ("all", "main")


def _static(*values: str) -> Any:
    """Completion from a fixed list, so that it needs no torch."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete


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
Model = Annotated[
    str,
    typer.Option(
        "--model",
        envvar="EVS_MODEL",
        help="A folder, a Hugging Face id, or a short name (see `evs models`).",
        autocompletion=_static(*_MODELS),
        rich_help_panel=_INPUT,
    ),
]
Models = Annotated[  # no envvar: of a list Typer would split its value at spaces
    list[str] | None,
    typer.Option(
        "--model",
        help="A folder, a Hugging Face id, or a short name; may be given twice to compare. Default: EVS_MODEL, else "
        "dinov2-small.",
        autocompletion=_static(*_MODELS),
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
    typer.Option("--decoder", help="pyav or decord.", autocompletion=_static(*_DECODERS), rich_help_panel=_INPUT),
]
Dialect = Annotated[
    str | None,
    typer.Option(
        "--dialect",
        help="Whose rules sample, resize and write the video: evs, hf, vllm@0.33, sglang@0.5.23; plan takes all. "
        "Default: evs.",
        autocompletion=_static(*_DIALECTS),
        rich_help_panel=_SERVER,
    ),
]
ServerCmd = Annotated[
    str | None,
    typer.Option(
        "--server-cmd",
        help="The server's whole command line, 'vllm serve ...', in place of the options below.",
        rich_help_panel=_SERVER,
    ),
]
MediaIoKwargs = Annotated[
    str | None, typer.Option("--media-io-kwargs", metavar="JSON", help="As vLLM takes it.", rich_help_panel=_SERVER)
]
MmProcessorKwargs = Annotated[
    str | None,
    typer.Option(
        "--mm-processor-kwargs",
        metavar="JSON",
        help="As vLLM takes it; for hf, arguments of the processor.",
        rich_help_panel=_SERVER,
    ),
]
MmProcessConfig = Annotated[
    str | None, typer.Option("--mm-process-config", metavar="JSON", help="As SGLang takes it.", rich_help_panel=_SERVER)
]
MaxNumBatchedTokens = Annotated[
    int | None,
    typer.Option(
        "--max-num-batched-tokens",
        help="As vLLM takes it: the least its encoder cache holds. Default: 8192, its own on an 80 GB GPU.",
        rich_help_panel=_SERVER,
    ),
]
Url = Annotated[
    str,
    typer.Option(
        "--url", metavar="URL", help="The running server, such as http://localhost:8000.", rich_help_panel=_SERVER
    ),
]
ServedModel = Annotated[
    str | None,
    typer.Option(
        "--served-model", help="The model's name at the server. Default: as it lists it.", rich_help_panel=_SERVER
    ),
]
Endpoint = Annotated[
    str,
    typer.Option(
        "--endpoint",
        help="auto, tokenize (ids, of vLLM) or usage (a number, of any server).",
        autocompletion=_static(*_ENDPOINTS),
        rich_help_panel=_SERVER,
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="VARIABLE",
        help="The environment variable that holds the server's key.",
        rich_help_panel=_SERVER,
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for an answer.", rich_help_panel=_SERVER)
]
AsUrl = Annotated[
    str | None,
    typer.Option(
        "--as-url",
        metavar="URL",
        help="By which the server reads the clip, or file for file:// and its path. Default: inside the request.",
        rich_help_panel=_SERVER,
    ),
]
PlanModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        envvar="EVS_MODEL",
        help="A folder, a Hugging Face id, or a short name, for the plan. Default: what the server says it serves.",
        autocompletion=_static(*_MODELS),
        rich_help_panel=_INPUT,
    ),
]
SentPrompt = Annotated[
    str | None,
    typer.Option("--prompt", help="The text beside the video. Default: 'Describe the video.'", rich_help_panel=_INPUT),
]
ServerDialect = Annotated[
    str | None,
    typer.Option(
        "--dialect",
        help="Whose rules the plan goes by: vllm@0.33, sglang@0.5.23, hf. Default: what the server says it is.",
        autocompletion=_static(*_DIALECTS[1:-1]),
        rich_help_panel=_SERVER,
    ),
]
ServerRate = Annotated[
    float | None,
    typer.Option(
        "--q",
        help="The rate the server prunes at; also --video-pruning-rate. Default: the server's own.",
        rich_help_panel=_SERVER,
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--q",
        help="Share of the video tokens to drop, 0 <= q < 1; also --pruning-rate, --video-pruning-rate. "
        "Default: the model's own, else 0.7.",
        rich_help_panel=_PRUNING,
    ),
]
# Aliases stand apart and hidden: in one row with the option they would be cut off in an 80-column help.
RateAlias = Annotated[float | None, typer.Option("--pruning-rate", "--video-pruning-rate", hidden=True)]
RatesAlias = Annotated[str | None, typer.Option("--pruning-rate", "--video-pruning-rate", hidden=True)]
ContextAlias = Annotated[int | None, typer.Option("--max-model-len", "--context-length", hidden=True)]
Keep = Annotated[
    float | None,
    typer.Option("--keep", help="Share of the tokens to keep: 1 - q, instead of --q.", rich_help_panel=_PRUNING),
]
Rates = Annotated[
    str | None,
    typer.Option(
        "--q",
        help="Rates: 0.5,0.75 or 0:0.9:0.1 (from, to, step; the end is included); also --pruning-rate. "
        "Default: 0:0.9:0.1.",
        rich_help_panel=_PRUNING,
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        help="evs, or a control at the same count: uniform-frames, random.",
        autocompletion=_static(*_METHODS),
        rich_help_panel=_PRUNING,
    ),
]
MinDissimilarity = Annotated[
    float | None,
    typer.Option(
        "--min-dissimilarity",
        help="Floor: below it nothing is kept beyond frame 0, so counts depend on the content.",
        rich_help_panel=_PRUNING,
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of --method random.", rich_help_panel=_PRUNING)]
PlanRates = Annotated[
    str | None,
    typer.Option(
        "--q",
        help="Rates: 0.7 or 0.5,0.75 or 0:0.9:0.1 (from, to, step). Default: 0 and the model's own, else 0.7.",
        rich_help_panel=_PRUNING,
    ),
]
OptionalVideos = Annotated[
    list[str] | None, typer.Argument(metavar="VIDEO", help="Video files; - reads one from standard input.")
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
Context = Annotated[
    int | None,
    typer.Option(
        "--context",
        help="Longest sequence allowed; also --max-model-len, --context-length. Default: the model's own.",
        rich_help_panel=_BUDGET,
    ),
]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", help="Longest prompt allowed.", rich_help_panel=_BUDGET)]
KvBudget = Annotated[
    float | None,
    typer.Option("--kv-budget", help="GiB of memory for caches: how many such prompts fit.", rich_help_panel=_BUDGET),
]
Reserve = Annotated[
    int,
    typer.Option("--reserve", help="Tokens of the context kept for the answer.", rich_help_panel=_BUDGET),
]
Quality = Annotated[
    bool,
    typer.Option(
        "--quality",
        help="Measure coverage (cosine of a dropped token with the last kept at its place) and drift.",
        rich_help_panel=_PRUNING,
    ),
]
Plot = Annotated[
    str | None,
    typer.Option("--plot", help="Draw the curves: .png, .svg or .pdf, with a .csv beside.", rich_help_panel=_OUTPUT),
]
ScoreDtype = Annotated[
    str | None,
    typer.Option(
        "--score-dtype",
        help="Dtype of the dissimilarity: float32, bfloat16 or float16. Default: the embeddings' own.",
        autocompletion=_static(*_DTYPES[1:]),
        rich_help_panel=_PRUNING,
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        help="File to write, .pt or .safetensors; a folder for several videos. Default: print only.",
        rich_help_panel=_OUTPUT,
    ),
]
EncodingOutput = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        help="File to write, .safetensors; a folder for several videos.",
        rich_help_panel=_OUTPUT,
    ),
]
StoreDtype = Annotated[
    str | None,
    typer.Option(
        "--store-dtype",
        help="Dtype of the rows in the file: bfloat16, float16, int8 or fp8 (these two with a scale a row). The error "
        "is measured and told. Default: the embeddings' own, without any.",
        autocompletion=_static(*_STORE_DTYPES),
        rich_help_panel=_OUTPUT,
    ),
]
Levels = Annotated[
    str,
    typer.Option(
        "--levels",
        help="all, or main to leave further levels (DeepStack) out.",
        autocompletion=_static(*_LEVELS),
        rich_help_panel=_OUTPUT,
    ),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite an output that exists.", rich_help_panel=_OUTPUT)]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Say what would be read, computed and written; load no weights.", rich_help_panel=_OUTPUT
    ),
]
Print = Annotated[
    str | None,
    typer.Option(
        "--print",
        metavar="PARTS",
        help="Print ids, embeddings or both (ids,embeddings) whole, as JSON.",
        rich_help_panel=_OUTPUT,
    ),
]
Format = Annotated[
    str,
    typer.Option("--format", help="table, json or csv.", autocompletion=_static(*_FORMATS), rich_help_panel=_OUTPUT),
]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json.", rich_help_panel=_OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="The result and errors alone.", rich_help_panel=_OUTPUT)]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        help="More about the run; twice for the libraries' own logs.",
        rich_help_panel=_OUTPUT,
    ),
]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours.", rich_help_panel=_OUTPUT)]
Debug = Annotated[bool, typer.Option("--debug", envvar="EVS_DEBUG", help="Show tracebacks.", rich_help_panel=_OUTPUT)]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        envvar="EVS_DEVICE",
        help="auto, cpu, cuda, cuda:1, mps or any torch device.",
        autocompletion=_static(*_DEVICES),
        rich_help_panel=_RUNTIME,
    ),
]
Dtype = Annotated[
    str,
    typer.Option(
        "--dtype",
        help="auto, float32, bfloat16 or float16. auto is float32 on the CPU, bfloat16 elsewhere.",
        autocompletion=_static(*_DTYPES),
        rich_help_panel=_RUNTIME,
    ),
]
BatchFrames = Annotated[
    str,
    typer.Option(
        "--batch-frames",
        metavar="N|auto",
        help="Frames to encode at once; auto is 16, or 4 on the CPU, and fewer where memory is short.",
        rich_help_panel=_RUNTIME,
    ),
]
Cache = Annotated[
    bool,
    typer.Option(
        "--cache",
        help="Keep the whole encoding in evs's cache, and take it from there the next time: no pixel is read then, and "
        "no weights are loaded. At most 10 GB, or EVS_CACHE_SIZE (in GB); see `evs cache`.",
        rich_help_panel=_RUNTIME,
    ),
]
Reuse = Annotated[
    bool,
    typer.Option(
        "--reuse/--no-reuse",
        help="Encode a frame that repeats the one before bit for bit only once: slides and screen recordings gain, "
        "camera video does not.",
        rich_help_panel=_RUNTIME,
    ),
]
Repeats = Annotated[
    int, typer.Option("--repeats", help="Runs of each step that are counted.", rich_help_panel=_RUNTIME)
]
