"""Time of a sweep of 99 rates against one prune, in one process on one machine. Not collected by pytest.

Run from the repository: ``PYTHONPATH=. python tests/bench/bench_sweep.py [VIDEO]``. Libraries are imported and the
weights converted before any clock starts. Each round opens the model anew and runs both, in turns, so that a machine
that slows down slows both. Target: at most 1.2 times one prune. Exit code 1 if missed.
"""

import argparse
import platform
import statistics
import sys
import time
from pathlib import Path

import torch

from evs_cli.encoders.base import EncodeOptions
from evs_cli.jobs.sweep import sweep
from evs_cli.pipeline.request import SessionRequest
from evs_cli.pipeline.row_selection import AllRows
from evs_cli.pipeline.session import Session
from evs_cli.video.sampling import SamplingRequest

ROOT = Path(__file__).resolve().parents[2]
RATES = [round(0.01 * k, 9) for k in range(99)]
TARGET = 1.2


def processor():
    """The processor's name where the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def timed(request, video, finish):
    """Seconds of opening the model, encoding and ``finish(encoded)``: ``(all, all but loading the weights)``."""
    start = time.perf_counter()
    encoded = Session(request).encode(video, AllRows())
    finish(encoded)
    total = time.perf_counter() - start
    return total, total - encoded.timings_seconds.get("load_model", 0.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("video", nargs="?", default=str(ROOT / "samples" / "crossing.mp4"))
    parser.add_argument("--model", default="dinov2-small")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--fps", type=float)
    parser.add_argument("--size", type=int)
    parser.add_argument("--q", type=float, default=0.7, help="rate of the one prune")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    request = SessionRequest(
        model=args.model,
        device=args.device,
        sampling=SamplingRequest(fps=args.fps),
        options=EncodeOptions(size=args.size),
    )
    encoded = Session(request).encode(args.video, AllRows())
    grid = " x ".join(str(n) for n in encoded.ranking.token_grid_thw)
    runtime = f"{encoded.provenance['device']} {encoded.provenance['dtype']}"
    sys.stdout.write(
        f"{processor()}, {torch.get_num_threads()} threads, {platform.system()}, torch {torch.__version__}, {runtime}\n"
        f"{Path(args.video).name}, {args.model}, tokens {grid}, {len(RATES)} rates, "
        f"median of {args.rounds} rounds after one warm-up\n\n"
    )
    prune, sweeps = [], []
    for _ in range(args.rounds):
        prune.append(timed(request, args.video, lambda encoded: encoded.prune(args.q)))
        sweeps.append(timed(request, args.video, lambda encoded: sweep(encoded, RATES)))
    sys.stdout.write(f"{'model loading':<15}{'prune s':>9}{'sweep s':>9}{'ratio':>8}{'target':>9}\n")
    met = True
    for place, what in enumerate(("included", "excluded")):
        one, many = (statistics.median(times[place] for times in runs) for runs in (prune, sweeps))
        met = met and many / one <= TARGET
        sys.stdout.write(f"{what:<15}{one:>9.3f}{many:>9.3f}{many / one:>8.3f}{f'<= {TARGET}':>9}\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
