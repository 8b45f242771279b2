"""``evs prune`` against the plain way, end to end: wall time, processor time, peak memory. Not collected by pytest.

Run from the repository: ``PYTHONPATH=. python tests/bench/bench_end_to_end.py --json end_to_end.json``. The plain way
is decord's ``get_batch`` of all frames, the processor on all, the model on all (``get_video_features`` of a VLM, the
plain forward of a frame encoder), the published formula and ``torch.save``; ``plain/16`` is the same with the model on
16 frames at a time. Each run is a process of its own, from its start to its end, and the runs of a case take turns.
Clips are drawn here: a camera that pans, slides of 20 s, and a camera that stands still before a quiet scene.

Targets, of the plain way's time over ours: at least 1 on moving video; at least 5 on ten minutes of slides; elsewhere
at least 0.8 of what the share of frames that repeat allows, which is the plain way's time over that time less this
share of its preprocessing and encoding. Exit code 1 if one is missed.
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RATE, FPS, MAX_FRAMES = 0.7, 2, 1200
VIDEO_FPS, HEIGHT, WIDTH = 30, 360, 640
SLIDE_SECONDS = 20
STEPS = ("start", "probe", "load", "decode", "preprocess", "encode", "rank", "write")


@dataclass(frozen=True)
class Case:
    """A clip and what is asked of evs on it."""

    content: str
    length_seconds: int
    target: float | None = None
    """The plain way's time over ours, at least; None where the share of repeats settles it."""

    @property
    def name(self):
        return f"{self.content}-{self.length_seconds}s"


CASES = (
    Case("moving", 10, 1.0),
    Case("moving", 120, 1.0),
    Case("slides", 10),
    Case("slides", 120),
    Case("slides", 600, 5.0),
    Case("still", 10),
    Case("still", 120),
)


def pictures(content, length_seconds):
    """The ``(HEIGHT, WIDTH, 3)`` uint8 pictures of a clip, one by one."""
    import numpy as np

    rng = np.random.default_rng(0)
    scale = 8  # patches of one colour, so that there are edges and plains

    def scene(width):
        small = rng.integers(20, 235, (HEIGHT // scale, width // scale, 3), dtype=np.uint8)
        return small.repeat(scale, 0).repeat(scale, 1)

    view, wide = scene(WIDTH), scene(2 * WIDTH)
    noise = [rng.normal(0, 1, view.shape).astype(np.int8) for _ in range(7)]
    for k in range(length_seconds * VIDEO_FPS):
        if content == "moving":
            yield np.roll(wide, -2 * k, 1)[:, :WIDTH]
        elif content == "slides":
            if k and k % (SLIDE_SECONDS * VIDEO_FPS) == 0:
                view = scene(WIDTH)
            yield view
        else:  # as a sensor sees it
            yield (view.astype(np.int16) + noise[k % 7]).clip(0, 255).astype(np.uint8)


def make_video(path, case):
    """Write a clip as H.264."""
    import av
    import numpy as np

    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=VIDEO_FPS, options={"preset": "ultrafast", "crf": "28", "g": "250"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for k, picture in enumerate(pictures(case.content, case.length_seconds)):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), "rgb24")
            frame.pts = k
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))


class Clock:
    """Seconds a step."""

    def __init__(self):
        self.seconds = {}

    @contextmanager
    def measure(self, step):
        start = time.perf_counter()
        yield
        self.seconds[step] = self.seconds.get(step, 0.0) + time.perf_counter() - start


def prune_plainly(video, output, model, batch_frames, frame_size):
    """All frames, all pixels and all embeddings in memory at once; prints the seconds of each step as JSON.

    Args:
        video: the file.
        output: the ``.pt`` file to write.
        model: a folder or a hub's id.
        batch_frames: frames the model takes at once; 0 is all.
        frame_size: (height, width) that a frame encoder sees, so that both ways make the same tokens.
    """
    clock = Clock()
    with clock.measure("start"):
        import decord
        import torch
        import transformers

        sys.path.insert(0, str(ROOT / "tests" / "helpers"))
        import oracle
    with clock.measure("probe"):
        reader = decord.VideoReader(video)
        wanted = min(MAX_FRAMES, int(len(reader) * FPS / VIDEO_FPS))
        indices = [k * VIDEO_FPS // FPS for k in range(wanted)]
    with clock.measure("load"):
        config = transformers.AutoConfig.from_pretrained(model)
        is_vlm = hasattr(config, "text_config")
        if is_vlm:
            processor = transformers.AutoProcessor.from_pretrained(model).video_processor
            net = transformers.AutoModelForImageTextToText.from_pretrained(model, dtype=torch.float32).eval()
        else:
            processor = transformers.AutoImageProcessor.from_pretrained(model)
            net = transformers.AutoModel.from_pretrained(model, dtype=torch.float32).eval()
    with clock.measure("decode"):
        frames = reader.get_batch(indices).asnumpy()
    with clock.measure("preprocess"):
        if is_vlm:
            inputs = processor(videos=[frames.transpose(0, 3, 1, 2)], do_sample_frames=False, return_tensors="pt")
        else:
            height, width = frame_size
            size = {"height": height, "width": width}
            inputs = processor(list(frames), size=size, do_center_crop=False, return_tensors="pt")
    with clock.measure("encode"), torch.inference_mode():
        if is_vlm:
            grid, merge = inputs["video_grid_thw"][0].tolist(), config.vision_config.spatial_merge_size
            rows = net.get_video_features(inputs["pixel_values_videos"], inputs["video_grid_thw"]).pooler_output[0]
            embeddings = rows.view(grid[0], grid[1] // merge, grid[2] // merge, -1)
        else:
            parts = inputs["pixel_values"].split(batch_frames or len(frames))
            embeddings = torch.cat([net(pixel_values=part).last_hidden_state[:, 1:] for part in parts])
            patch = config.patch_size
            embeddings = embeddings.view(len(frames), height // patch, width // patch, -1)
    with clock.measure("rank"):
        scores = oracle.dissimilarity(embeddings)
        mask = oracle.mask_of(scores, RATE)
        kept = embeddings[mask]
    with clock.measure("write"):
        torch.save({"embeddings": kept, "retention_mask": mask, "dissimilarity": scores}, output)
    print(json.dumps({"seconds": clock.seconds}))


def compare(ours, plain):
    """Print, as JSON, the frame size of our file, and the largest difference of a score between both."""
    import torch

    import evs_cli

    pruned = evs_cli.load(ours)
    facts = {"frame_size": pruned.provenance["frame_size"]}
    if plain:
        scores = torch.load(plain, weights_only=True)["dissimilarity"]
        facts["scores_differ"] = (scores - pruned.dissimilarity).abs().max().item()
    print(json.dumps(facts))


def run(command):
    """Run a process: its output, its error output, and what it cost.

    Its peak counts this process's memory at the start in, which is why no torch is imported here.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen([sys.executable, *command], stdout=out, stderr=err, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{texts[1]}")
    unit = 1 if sys.platform == "darwin" else 1024
    cost = {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "peak": usage.ru_maxrss * unit}
    return (*texts, cost)


def run_evs(video, output, model):
    """One ``evs prune``: what it cost, its seconds a step, and its record.

    Decoding and preprocessing run beside the other steps, so that all together are more than the whole.
    """
    options = ["--q", str(RATE), "--fps", str(FPS), "--max-frames", str(MAX_FRAMES), "--model", model]
    text, told, cost = run(
        ["-m", "evs_cli", "prune", str(video), *options, "-o", str(output), "--force", "--json", "-v"]
    )
    (record,) = json.loads(text)["videos"]
    seconds = record["timings_seconds"]
    beside = re.search(r"([\d.]+) s of decoding and ([\d.]+) s of preprocessing", told)
    steps = {
        "start": cost["wall"] - sum(seconds.values()),
        "probe": seconds["probe"] + seconds["plan"],
        "load": seconds["load_model"],
        "decode": float(beside[1]),
        "preprocess": float(beside[2]),
        "encode": seconds["encode"],
        "rank": seconds["rank"],
        "write": seconds["write"],
        "waited": seconds["decode"],
    }
    return {**cost, "steps": steps}, record


def run_plain(video, output, model, batch_frames, frame_size):
    """One run of the plain way: what it cost, and its seconds a step."""
    size = ",".join(str(side) for side in frame_size)
    text, _, cost = run([__file__, "--plain", str(video), str(output), model, str(batch_frames), size])
    seconds = json.loads(text.splitlines()[-1])["seconds"]
    seconds["start"] += cost["wall"] - sum(seconds.values())
    return {**cost, "steps": seconds}


def median_of(runs):
    """The medians of what several runs of one way cost."""
    steps = {step: statistics.median(run["steps"][step] for run in runs) for step in runs[0]["steps"]}
    return {**{key: statistics.median(run[key] for run in runs) for key in ("wall", "cpu", "peak")}, "steps": steps}


def measure(case, video, model, rounds, batches, folder):
    """All runs of a case, in turns: medians a way, and what they say of the target."""
    ours, theirs = folder / "evs.pt", folder / "plain.pt"
    runs = {"evs": [], **{f"plain/{batch}" if batch else "plain": [] for batch in batches}}
    for _ in range(rounds):
        cost, record = run_evs(video, ours, model)
        runs["evs"].append(cost)
        size = json.loads(run([__file__, "--compare", str(ours)])[0])["frame_size"]
        for batch in batches:
            location = plain_location(model)
            runs[f"plain/{batch}" if batch else "plain"].append(run_plain(video, theirs, location, batch, size))
    differ = json.loads(run([__file__, "--compare", str(ours), str(theirs)])[0])["scores_differ"]
    ways = {way: median_of(each) for way, each in runs.items()}
    first = ways["plain" if "plain" in ways else f"plain/{batches[0]}"]
    repeats = record["reused_frames"] / record["num_sampled_frames"]
    spared = repeats * (first["steps"]["preprocess"] + first["steps"]["encode"])
    allowed = first["wall"] / (first["wall"] - spared)
    return {
        "case": case.name,
        "frames": record["num_sampled_frames"],
        "tokens": record["total_tokens"],
        "repeats": repeats,
        "scores_differ": differ,
        "ways": ways,
        "speedup": first["wall"] / ways["evs"]["wall"],
        "speedup_cpu": first["cpu"] / ways["evs"]["cpu"],
        "allowed": allowed,
        "target": case.target or 0.8 * allowed,
    }


def plain_location(model):
    """Where transformers finds a model; the short name of the embedded weights is evs's own."""
    from evs_cli.encoders.embedded import converted_directory

    return str(converted_directory()) if model == "dinov2-small" else model


def machine():
    """Processor, cores and versions; nothing that names the machine."""
    from importlib.metadata import version

    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    libraries = {name: version(name) for name in ("torch", "transformers", "av", "decord")}
    return {"processor": names[0] if names else platform.processor(), "cores": os.cpu_count(), **libraries}


def show(result):
    """Two lines a way: what it cost, and where its time went."""
    head = f"{result['case']}: {result['frames']} frames, {result['tokens']:,} tokens, {result['repeats']:.0%} repeat"
    print(f"\n{head}; scores differ by {result['scores_differ']:.1g} at most")
    print(f"  {'':<10}{'wall s':>8}{'cpu s':>8}{'peak MB':>9}  " + "".join(f"{step:>11}" for step in STEPS))
    for way, cost in result["ways"].items():
        steps = "".join(f"{cost['steps'][step]:>11.2f}" for step in STEPS)
        print(f"  {way:<10}{cost['wall']:>8.1f}{cost['cpu']:>8.1f}{cost['peak'] / 1e6:>9.0f}  {steps}")
    word = "met" if result["speedup"] >= result["target"] else "MISSED"
    print(
        f"  {result['speedup']:.2f} times as fast ({result['speedup_cpu']:.2f} in processor time); repeats allow "
        f"{result['allowed']:.2f}, target {result['target']:.2f}: {word}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="dinov2-small")
    parser.add_argument("--cases", default=",".join(case.name for case in CASES), help="names, with commas")
    parser.add_argument("--slides", help="ten minutes of slides; default: drawn here")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", default="0,16", help="frames the plain model takes at once; 0 is all")
    parser.add_argument("--threads", type=int, help="of torch, for both ways; default: torch's own choice")
    parser.add_argument("--json", help="file to write the results to")
    args = parser.parse_args()
    if args.threads:
        os.environ["OMP_NUM_THREADS"] = str(args.threads)
    about = {**machine(), "threads": args.threads or "torch's own choice"}
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    print(f"{args.model}, --q {RATE} --fps {FPS} --max-frames {MAX_FRAMES}, medians of {args.rounds}")
    results = []
    batches = [int(batch) for batch in args.batches.split(",")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in CASES:
            if case.name not in args.cases.split(","):
                continue
            video = folder / f"{case.name}.mp4"
            if case.name == "slides-600s" and args.slides:
                video = Path(args.slides)
            else:
                make_video(video, case)
            if not results:
                run_evs(video, folder / "warm.pt", args.model)  # weights converted, libraries in the file cache
            results.append(measure(case, video, args.model, args.rounds, batches, folder))
            show(results[-1])
            if args.json:
                settings = {"model": args.model, "q": RATE, "fps": FPS, "max_frames": MAX_FRAMES, "rounds": args.rounds}
                document = {"machine": about, "settings": settings, "cases": results}
                Path(args.json).write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(result["speedup"] >= result["target"] for result in results) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plain"]:
        _, _, video, output, model, batch, size = sys.argv
        prune_plainly(video, output, model, int(batch), [int(side) for side in size.split(",")])
    elif sys.argv[1:2] == ["--compare"]:
        compare(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
    else:
        sys.exit(main())
