"""Growth of peak memory with the length of the video, against the size of all embeddings. Not collected by pytest.

Run from the repository: ``PYTHONPATH=. python tests/bench/bench_memory.py``. Each case is ``evs prune --q 0.9 -o`` in a
process of its own, at 60 and at 900 frames; its peak is the process's ``ru_maxrss``. Two encoders: DINOv2 ViT-S, and
one that makes ``(256, 3584)`` bfloat16 rows a frame out of nothing, through the same path. Target: the peak grows by
less than 0.2 of what all embeddings grow by. ``--plain`` measures the plain way beside: everything in memory, then
``torch.save``. Exit code 1 if the target is missed.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

TARGET = 0.2
SHORT, LONG = 60, 900
RATE = 0.9
CASES = ("dinov2-small", "synthetic")
ROWS, DIM = 256, 3584


def synthetic_encoder():
    """An encoder of ``(256, 3584)`` bfloat16 rows a frame: noise that a batch's place in the video settles."""
    import torch

    from evs_cli.core.counts import TokenGrid
    from evs_cli.core.video_tokens import VideoTokens
    from evs_cli.encoders.base import NO_MODALITY, EncodePlan
    from evs_cli.encoders.plain import PlainFrameEncoder, generic_layout
    from evs_cli.encoders.weights import WeightsRead

    class Synthetic(PlainFrameEncoder):
        num_done = 0

        def plan(self, clip, options, *, frame_size=None):
            grid = TokenGrid(clip.num_frames, 16, 16)
            return EncodePlan(
                frame_size=(16, 16),
                token_grid_thw=grid,
                model_grid_thw=grid,
                spatial_merge_size=1,
                temporal_patch_size=1,
                layout=generic_layout(clip.num_frames, ROWS),
                pts_seconds=clip.pts_seconds,
                prompt_seconds=clip.pts_seconds,
                modality=NO_MODALITY,
            )

        def load(self, device, dtype):
            return WeightsRead(1, 1, 1, 1)

        def preprocess(self, frames, plan):
            return {"frames": frames}

        def embed(self, inputs, plan):
            num_frames = len(inputs["frames"])
            generator = torch.Generator().manual_seed(self.num_done)
            self.num_done += num_frames
            level = torch.randn((num_frames, 16, 16, DIM), generator=generator)
            return VideoTokens((level.to(torch.bfloat16),))

    return Synthetic


def run_case(case, video, num_frames, plain):
    """Prune in this process; prints its peak memory and the size of all embeddings, in bytes, as JSON."""
    import torch

    from evs_cli.jobs.outputs import OutputRequest
    from evs_cli.jobs.prune import PruneRequest, run_prune
    from evs_cli.pipeline import session
    from evs_cli.pipeline.memory import keep_freed_blocks
    from evs_cli.pipeline.request import make_request
    from evs_cli.report.records import prune_record

    if case == "synthetic":
        kind, open_real = synthetic_encoder(), session.open_encoder
        session.open_encoder = lambda name, **options: kind(open_real(name, **options).source)
    request = make_request(num_frames=num_frames)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "out.pt"
        if plain:
            prune_plainly(session.Session(request), video, output)
            print(json.dumps({"peak": peak_bytes(), "rows": None}))
            return
        keep_freed_blocks()  # as the program does
        job = PruneRequest([video], request, [RATE], OutputRequest(str(output)))
        (outcome,) = run_prune(job, session.SilentProgress())
        prune_record(outcome)
        pruned = outcome.result.pruned
        print(json.dumps({"peak": peak_bytes(), "rows": pruned.total_tokens * pruned.embeddings[0].nbytes}))
    assert torch.isfinite(pruned.embeddings.float()).all()


def prune_plainly(opened, video, output):
    """All frames, all pixels and all embeddings in memory at once, the published formula, ``torch.save``."""
    import torch

    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))
    import oracle

    from evs_cli.video.reader import read_frames

    plan = opened.plan(video)
    opened._load()
    indices = plan.selection.frame_indices
    frames = next(iter(read_frames(plan.video, indices, chunk_frames=len(indices)))).frames
    parts = [opened.encoder.encode(part, plan.encode).levels[0] for part in frames.split(16)]
    embeddings = torch.cat(parts)
    mask = oracle.mask_of(oracle.dissimilarity(embeddings), RATE)
    torch.save({"embeddings": embeddings[mask], "mask": mask}, output)


def peak_bytes():
    """The most memory this process has had, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def make_video(path, num_frames):
    """A moving clip of ``num_frames`` pictures of 320 x 180."""
    import av
    import numpy as np

    rng = np.random.default_rng(0)
    texture = rng.integers(0, 255, (180, 1400, 3), dtype=np.uint8)
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=30, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 320, 180, "yuv420p"
        for k in range(num_frames):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(texture[:, k : k + 320]), "rgb24")
            frame.pts = k
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))


def measure(case, video, num_frames, plain=False):
    """What ``run_case`` prints, in a process of its own."""
    command = [sys.executable, __file__, "--case", case, "--video", str(video), "--frames", str(num_frames)]
    done = subprocess.run([*command, *(["--plain"] if plain else [])], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plain", action="store_true", help="measure the plain way beside")
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--video")
    parser.add_argument("--frames", type=int)
    args = parser.parse_args()
    if args.frames:
        run_case(args.case, args.video, args.frames, args.plain)
        return 0
    met = True
    with tempfile.TemporaryDirectory() as folder:
        video = Path(folder) / "moving.mp4"
        make_video(video, LONG)
        print(f"{'encoder':<14}{'all rows MB':>12}{'peak MB':>16}{'grows MB':>10}{'share':>8}{'target':>8}", end="")
        print(f"{'plain way MB':>16}{'grows MB':>10}" if args.plain else "")
        for case in [args.case] if args.case else CASES:
            short, long = (measure(case, video, n) for n in (SHORT, LONG))
            grows, rows = long["peak"] - short["peak"], long["rows"] - short["rows"]
            met = met and grows < TARGET * rows
            print(
                f"{case:<14}{long['rows'] / 1e6:>12.0f}{short['peak'] / 1e6:>9.0f}{long['peak'] / 1e6:>7.0f}"
                f"{grows / 1e6:>10.0f}{grows / rows:>8.3f}{f'< {TARGET}':>8}",
                end="" if args.plain else "\n",
                flush=True,
            )
            if args.plain:
                short, long = (measure(case, video, n, plain=True)["peak"] for n in (SHORT, LONG))
                print(f"{short / 1e6:>9.0f}{long / 1e6:>7.0f}{(long - short) / 1e6:>10.0f}", flush=True)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
