"""``evs help TOPIC``: what the words in the tables mean, a paragraph each."""

from __future__ import annotations

import textwrap

TOPICS: dict[str, str] = {
    "q": (
        "The pruning rate: the share of the video tokens to drop, 0 <= q < 1. q = 0.7 keeps 30%. Servers call it "
        "video_pruning_rate. --keep 0.3 says the same. Which rate? evs sweep shows what each one keeps, and marks "
        "the knee; evs fit finds the smallest that fits. Lists (0.5,0.7) and ranges (0:0.9:0.1: from, to with the "
        "end, step) work for prune, sweep and plan."
    ),
    "token": (
        "What a language model reads in place of a patch of a picture. A video is frames x height x width of "
        "them, and each fills one place of the context, as a piece of a word does."
    ),
    "tokens": (
        "In evs sweep: how many video tokens a rate keeps. In evs prune: kept of all. In evs plan: the video's, "
        "the separators' and the text's, which together are the sequence."
    ),
    "video tokens": (
        "The tokens that stand for pictures, without separators, timestamps and text. They alone are pruned. In "
        "evs fit: how many are left at that rate."
    ),
    "frame": (
        "A frame of tokens: one row of the token grid. It is one sampled picture, or a tubelet of several (2 for "
        "the Qwen families), so that there may be fewer frames of tokens than sampled pictures."
    ),
    "frames": (
        "How many pictures were sampled from the file, and how many frames of tokens they make: `20 sampled, 10 "
        "of 16 x 28 = 448 tokens`. --fps, --num-frames and --max-frames change the sampling."
    ),
    "frame map": (
        "What evs show --frames draws of a frame: a character is two rows of tokens, so that a map has the shape of "
        "the picture. Under it stand the frame's time, how many tokens it keeps, and a bar of them, full where all "
        "are kept. In a pooled map a character is several tokens: all kept, some or none. --json has each mask as "
        "mask_runs: lengths of kept and dropped runs by turns in reading order, kept first."
    ),
    "plot": (
        "The picture of evs sweep --plot. Above, the cost: how long the prompt is at each rate, in tokens where all "
        "clips are equally long, else as a share of the full prompt. Below, the benefit: the change kept. More than "
        "eight clips are a median and a band, in which the middle half of them lies. The .csv beside has every number."
    ),
    "grid": ("The token grid: frames of tokens x rows x columns, after the model has merged patches."),
    "tubelet": ("Several sampled pictures that a model encodes as one frame of tokens (temporal_patch_size of them)."),
    "kept": (
        "Tokens that stay. Frame 0 always stays whole; of the others the tokens stay that differ most from the "
        "same place one frame earlier, until the rate's number is reached. keep in evs fit is that share, 1 - q."
    ),
    "share": ("Tokens kept over all video tokens. It may be a little more than 1 - q, since frame 0 stays whole."),
    "dissimilarity": (
        "How much a token differs from the one at the same place one frame earlier: 1 - cosine. 0 is no change. "
        "Tokens are ranked by it; frame 0 has none and is always kept."
    ),
    "change kept": (
        "The share of all dissimilarity outside frame 0 that the kept tokens hold. 100% says that what was "
        "dropped did not change at all. It is measured on the embeddings, and is no measure of a model's answers."
    ),
    "knee": (
        "The rate farthest above the straight line from the first rate's change kept to the last's: up to it, a "
        "step in q costs less than on the average. A first guess for --q; a curve without a bend has none."
    ),
    "noise": (
        "The share of the tokens kept outside frame 0 that differ from the frame before by no more than rounding. "
        "High noise says that the rate keeps more than the video has changes: a higher q loses nothing."
    ),
    "empty frames": (
        "Frames of tokens that keep no token: nothing in them changed enough. Their separators and times stay in "
        "the sequence. In the bar of a frame they have a sign of their own."
    ),
    "in a row": (
        "The most frames in a row that keep no token: a stretch of the video of which the model sees nothing but times."
    ),
    "coverage": (
        "With --quality: the cosine of a dropped token with the last one kept at its place (mean with the "
        "standard error of a sample). 1 says that what was kept stands for what was dropped."
    ),
    "p5": ("With --quality: the 5th percentile of coverage. One dropped token in twenty is covered worse than this."),
    "drift": (
        "With --quality: how much coverage falls for each frame between a dropped token and the one kept before it."
    ),
    "sequence": (
        "The length of input_ids: video tokens, separators, timestamps and, with --prompt, text. It is what must "
        "fit the context. Before: without pruning."
    ),
    "separators": (
        "Ids between the video's tokens: start and end markers and written times, for each frame. They are never "
        "pruned, those of empty frames included."
    ),
    "placeholder": (
        "The id that stands in input_ids for each video token. evs prints runs of it as id x length: 0x448 is 448 "
        "times id 0."
    ),
    "context": (
        "The longest sequence the model takes, the answer included; --context sets another. In evs sweep and evs "
        "plan: the share of it that the video fills. --reserve keeps room for the answer."
    ),
    "kv cache": (
        "Memory for the keys and values of a prompt, in the language model's own dtype. It grows with the "
        "sequence, so pruning saves it. --kv-budget tells how many such prompts fit."
    ),
    "prefill": ("The work of reading the prompt before the first word of an answer, in TFLOP. Pruning saves it."),
    "vision": (
        "The work of the vision encoder, in TFLOP. It is the same at every rate: frames are encoded whole before "
        "their tokens are ranked."
    ),
    "told": (
        "The time that the model is told of a frame, where it is another than the frame's own. `16 at 0.53 s "
        "(told 0.27)`: source frame 16 is shown at 0.53 s, and the prompt says 0.27."
    ),
    "as served": (
        "The file as the server sees it (its count of frames and its rate may be wrong), and the rate at which it "
        "prunes."
    ),
    "first limit hit": (
        "The first of a server's limits that the video exceeds: context, encoder cache, decoded bytes, frame "
        "pixels. Empty where it passes all."
    ),
    "limits": (
        "In evs plan --dialect: how much of each of a server's limits is used, what is left, and the longest clip "
        "of this size that passes. One that is exceeded ends with exit code 6. With --together they are of one "
        "request with all videos, and its number of videos is a limit too."
    ),
    "dialect": (
        "Whose rules sample, resize and write the video. evs is the model's own processor, told the true times; "
        "hf, vllm and sglang are what these servers do, which is why they count differently. qwen-vl-utils, "
        "llamafactory, ms-swift and verl are what training does. A version is named as vllm@0.33. evs plan "
        "--dialect all compares them."
    ),
    "present sampling": (
        "In evs fit: the frames as they are sampled without changes. The other choices sample fewer or smaller frames."
    ),
    "best": (
        "In evs fit: of all ways that fit, the one with the least pruning, then the most frames, then the largest "
        "frames. One way keeps all frames at the largest size that needs no pruning. Who needs fine detail takes the "
        "present sampling: it keeps the size, and drops what repeats."
    ),
    "together": (
        "Several videos in one request. evs plan --together counts the prompt's text once and every video's part, "
        "and judges the request by every limit. evs fit --together finds the one rate at which it fits, and other "
        "ways, each with one rate of frames and one size for all."
    ),
    "vidcom2": (
        "Another method of vLLM to prune Qwen3-VL: --video-pruning-method vidcom2. It keeps a token of every frame "
        "at least, where EVS keeps a whole frame. evs counts it exactly and does not run it."
    ),
    "method": (
        "Which tokens are kept at a rate. evs ranks them by dissimilarity. uniform-frames keeps whole frames, "
        "evenly; random keeps any: both are controls at the same count, to see what the ranking is worth. evs sweep "
        "--method evs,uniform-frames,random compares them from one encoding."
    ),
    "rank": (
        "The place of a token when all are sorted by dissimilarity, the largest first. A rate keeps the first of "
        "them, so one encoding serves every rate."
    ),
    "encoding": (
        "A file of evs encode: every token once, in rank order. prune, sweep and show take it in place of the "
        "video and need neither model nor pixels."
    ),
    "embeddings": (
        "The kept rows, one a token, as the language model reads them: (tokens, size), their dtype, and their "
        "norms. -o writes them."
    ),
    "time": (
        "Where the seconds went: scan (the file's index), load (weights), decode, encode, rank, write. Steps run "
        "side by side, so they may add up to more than the whole."
    ),
    "repeat the one before": (
        "Frames that equal the one before, bit for bit. They get its tokens and are not encoded again; --no-reuse "
        "encodes them all the same."
    ),
    "encoding cache": (
        "With --cache, whole encodings are kept and taken from evs's cache: no pixel is read then, no weights are "
        "loaded. evs cache ls shows it, evs cache rm makes room; EVS_CACHE and EVS_CACHE_SIZE set its place and "
        "size."
    ),
    "encoder busy": (
        "In evs bench: the share of a pass, once it is planned, in which the encoder worked and did not wait for "
        "frames."
    ),
    "pass": ("In evs bench: all steps of evs prune together, without loading the model and writing the file."),
    "plain mask": ("In evs bench: the mask by the published formula over the whole tensor, to compare evs's own with."),
    "perhaps": ("In evs check: other plans that give the server's very count, so that you see how it was started."),
    "sizes": (
        "Tokens: 32k is 32,768 (k = 1024, as on model cards) and 1M is 1,048,576, in every option of evs. Inside "
        "--server-cmd the server's own rules hold: vLLM reads 32k as 32,000. Memory: --kv-budget 24 is GiB; "
        "24GiB, 512MiB and 80GB work too."
    ),
    "output": (
        "One video and one rate: -o is a file. Several videos: -o is a folder, and each becomes {stem}.pt; "
        "--name '{parent}/{stem}' keeps their folders, and --suffix chooses the kind. "
        "Several rates: -q0.5 stands behind each stem, as in out-q0.5.pt. Two that would become the same file are "
        "refused before any work, and so is one that exists, unless --force or --skip-existing is given. -q prints "
        "the written paths alone."
    ),
    "fits": (
        "In evs plan of several videos: the lowest of the rates at which a clip fits the context, or no. In evs fit: "
        "yes; resampled, where no rate up to 0.95 is enough but fewer or smaller frames are; or no. failed: the clip "
        "could not be planned."
    ),
    "clip": (
        "A video as it was named, cut in the middle where a terminal is narrow. seconds is its length, size the "
        "width x height of its file."
    ),
    "exit codes": (
        "0 ok. 1 failed: one of several videos, or unexpected. 2 usage: the command line. 3 the video cannot be "
        "opened or decoded. 4 the model cannot be loaded or run. 5 a file of evs is missing or damaged, or the "
        "output exists. 6 it does not fit, or a server differs from the plan. 130 interrupted."
    ),
    "json": (
        "--json prints one document: schema_version, command, and videos with a record each. A video that failed "
        "has error, hint and exit_code in its record. --format csv prints rows. Of several videos both are printed "
        "as each is done."
    ),
    "environment": (
        "EVS_MODEL and EVS_DEVICE set the defaults of --model and --device. EVS_CACHE is the cache's folder, "
        "EVS_CACHE_SIZE its size in GB. EVS_DEBUG shows tracebacks. NO_COLOR turns colours off. HF_HOME is the "
        "hub's own cache. An option counts more than the environment."
    ),
}

ALIASES: dict[str, str] = {
    **{
        "rate": "q",
        "rates": "q",
        "pruning rate": "q",
        "video pruning rate": "q",
        "keep": "kept",
        "kept tokens": "kept",
    },
    **{"--cache": "encoding cache", "evs cache": "encoding cache", "cached": "encoding cache"},
    **{"empty": "empty frames", "none": "empty frames", "drift a frame": "drift", "quality": "coverage"},
    **{"frames of tokens": "frame", "sampled": "frames", "count": "grid", "size": "grid", "factors": "grid"},
    **{
        "kv": "kv cache",
        "kv mib": "kv cache",
        "prefill tflop": "prefill",
        "tflop": "prefill",
        "longest sequence": "context",
    },
    **{"prompt seconds": "told", "times": "told", "server": "dialect", "servers": "dialect", "dialects": "dialect"},
    **{"vllm": "dialect", "sglang": "dialect", "hf": "dialect", "walls": "limits", "limit": "limits"},
    **{"rank order": "rank", "ranking": "rank", "rows": "embeddings", "norms": "embeddings", "mask": "plain mask"},
    **{"seconds": "clip", "duration": "clip", "before": "sequence", "resampled": "fits", "failed": "fits"},
    **{"reuse": "repeat the one before", "exit code": "exit codes", "errors": "exit codes", "format": "json"},
    **{"csv": "json", "variables": "environment", "units": "sizes", "32k": "sizes", "-o": "output", "files": "output"},
    **{"text before": "separators", "text behind": "separators", "prompt tokens": "sequence", "ids": "sequence"},
    **{"encoder cache": "limits", "decoded bytes": "limits", "frame pixels": "limits", "topic": "topics"},
    **{"number of videos": "limits", "--together": "together", "one request": "together"},
    **{"--video-pruning-method": "vidcom2", "the best": "best", "is best": "best"},
    **{"--frames": "frame map", "mask runs": "frame map", "pooled": "frame map", "maps": "frame map"},
    **{"picture": "plot", "--plot": "plot", "curve": "plot", "band": "plot", "median": "plot", "methods": "method"},
    **{"uniform-frames": "method", "random": "method", "id x length": "placeholder", "rounding": "noise"},
}
"""Other words for a topic."""


def topic_page(name: str, width: int) -> str:
    """A topic's paragraph under its name."""
    return f"{name}\n" + "\n".join(_indented(TOPICS[name], width))


def topics_page(width: int) -> str:
    """The names of all topics."""
    names = textwrap.wrap(
        ", ".join(name.replace(" ", "\0") for name in sorted(TOPICS)),
        width - 2,
        break_long_words=False,
        break_on_hyphens=False,
    )
    listed = "\n".join("  " + line.replace("\0", " ") for line in names)
    return f"Topics of evs help TOPIC:\n{listed}\n\n" + "\n".join(
        textwrap.wrap("evs help COMMAND explains a command; evs --help lists them.", width)
    )


def _indented(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
