"""Time of the mask: the plain formula against ours, in one run on one machine. Not collected by pytest.

Run from the repository: ``PYTHONPATH=. python tests/bench/bench_mask.py``. It needs about 4.5 GB for the default size,
nearly all of it for the plain formula. Targets: at most 1/5 of the plain time in float32,
at most 1/3 in bfloat16, at (T, tokens, D) = (256, 256, 3584). Exit code 1 if a mask differs or a target is missed.
"""

import argparse
import platform
import statistics
import sys
import time
from pathlib import Path

import torch

from evs_cli.core.dissimilarity import compute_dissimilarity
from evs_cli.core.retention import Ranking

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))
import oracle

TARGETS = {torch.float32: 5, torch.bfloat16: 3}  # plain time / our time, at least


def processor():
    """The processor's name where the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def plain(embeds, q):
    """The peers' mask: the whole tensor at once and a stable sort."""
    return oracle.mask_of(oracle.dissimilarity(embeds), q)


def ours(embeds, q):
    return Ranking(compute_dissimilarity(embeds)).at(q).retention_mask


def median_seconds(call, repeats):
    """Median of ``repeats`` calls after one that is not counted."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def video(num_frames, tokens, dim, dtype):
    """Embeddings that drift from frame to frame, as a video's do; the time does not depend on the values."""
    generator = torch.Generator().manual_seed(0)
    embeds = torch.empty(num_frames, 1, tokens, dim, dtype=dtype)
    frame = torch.randn(1, tokens, dim, generator=generator)
    for t in range(num_frames):
        frame += 0.1 * torch.randn(1, tokens, dim, generator=generator)
        embeds[t] = frame
    return embeds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, nargs=3, default=(256, 256, 3584), metavar=("T", "TOKENS", "D"))
    parser.add_argument("--q", type=float, default=0.7)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    size = ", ".join(str(n) for n in args.size)
    sys.stdout.write(
        f"{processor()}, {torch.get_num_threads()} threads, {platform.system()}, torch {torch.__version__}\n"
        f"(T, tokens, D) = ({size}), q = {args.q}, median of {args.repeats} after one warm-up\n\n"
        f"{'dtype':<10}{'plain ms':>10}{'evs ms':>10}{'evs/plain':>11}{'target':>8}{'ratio':>8}  same mask\n"
    )
    met = True
    for dtype, target in TARGETS.items():
        embeds = video(*args.size, dtype)
        same = torch.equal(plain(embeds, args.q), ours(embeds, args.q))
        plain_seconds = median_seconds(lambda embeds=embeds: plain(embeds, args.q), args.repeats)
        our_seconds = median_seconds(lambda embeds=embeds: ours(embeds, args.q), args.repeats)
        ratio = plain_seconds / our_seconds
        met = met and same and ratio >= target
        sys.stdout.write(
            f"{str(dtype).removeprefix('torch.'):<10}{plain_seconds * 1e3:>10.0f}{our_seconds * 1e3:>10.0f}"
            f"{our_seconds / plain_seconds:>11.3f}{f'<= 1/{target}':>8}{ratio:>7.1f}x  {'yes' if same else 'NO'}\n"
        )
        sys.stdout.flush()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
