"""Growth of peak memory of ``evs encode`` with the length of the video. Not collected by pytest.

Run from the repository: ``PYTHONPATH=. python tests/bench/bench_encode_memory.py``. Each case is ``evs encode -o`` in a
process of its own, at 60 and at 900 frames, of a moving clip; its peak is the process's ``ru_maxrss``. Encoders and
clip are those of ``bench_memory.py``. Target: the peak grows by less than 0.05 of what all embeddings grow by. Exit
code 1 if it is missed.
"""

import argparse
import contextlib
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_memory import CASES, LONG, SHORT, make_video, peak_bytes, synthetic_encoder

TARGET = 0.05


def run_case(case, video, num_frames, store_dtype):
    """Run the command in this process; prints its peak memory, the size of all embeddings and of the file, as JSON."""
    from evs_cli.cli.app import main
    from evs_cli.pipeline import session

    if case == "synthetic":
        kind, open_real = synthetic_encoder(), session.open_encoder
        session.open_encoder = lambda name, **options: kind(open_real(name, **options).source)
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out):
        output = ["-o", str(Path(folder) / "full.safetensors"), "--num-frames", str(num_frames), "--json"]
        code = main(["encode", video, *output, *(["--store-dtype", store_dtype] if store_dtype else [])])
    assert code == 0
    import torch

    (record,) = json.loads(out.getvalue())["videos"]
    itemsize = getattr(torch, record["embeddings_dtype"]).itemsize
    seconds = record["timings_seconds"]
    sizes = {
        "peak": peak_bytes(),
        "rows": record["total_tokens"] * sum(record["embedding_sizes"]) * itemsize,
        "file": record["output_bytes"],
    }
    print(json.dumps({**sizes, "seconds": sum(seconds.values()), "write_seconds": seconds["write"]}))


def measure(case, video, num_frames, store_dtype):
    """What ``run_case`` prints, in a process of its own."""
    command = [sys.executable, __file__, "--case", case, "--video", str(video), "--frames", str(num_frames)]
    store = ["--store-dtype", store_dtype] if store_dtype else []
    done = subprocess.run([*command, *store], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store-dtype")
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--video")
    parser.add_argument("--frames", type=int)
    args = parser.parse_args()
    if args.frames:
        run_case(args.case, args.video, args.frames, args.store_dtype)
        return 0
    met = True
    with tempfile.TemporaryDirectory() as folder:
        video = Path(folder) / "moving.mp4"
        make_video(video, LONG)
        headings = ("frames", "rows MB", "file MB", "peak MB", "seconds", "write s", "growth")
        print(f"{'case':<14}" + "".join(f"{heading:>9}" for heading in headings))
        for case in CASES:
            short, long = (measure(case, video, frames, args.store_dtype) for frames in (SHORT, LONG))
            share = (long["peak"] - short["peak"]) / (long["rows"] - short["rows"])
            met = met and share < TARGET
            for frames, run, growth in ((SHORT, short, ""), (LONG, long, f"{share:.3f}")):
                sizes = "".join(f"{run[key] / 1e6:>9.1f}" for key in ("rows", "file", "peak"))
                times = f"{run['seconds']:>9.1f}{run['write_seconds']:>9.2f}"
                print(f"{case:<14}{frames:>9}{sizes}{times}{growth:>9}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
