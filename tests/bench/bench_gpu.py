"""The mask's share of encoding time, and how busy the encoder is, on a GPU. Not collected by pytest.

Run from the repository: ``PYTHONPATH=. python tests/bench/bench_gpu.py --json gpu.json``; it takes under five minutes.
Without ``--model`` it makes a Qwen2.5-VL checkpoint of the 7B model's vision tower with random weights, as times do not
depend on them. Targets: the mask under 1 % of encoding time, the encoder busy at least 90 % of wall time after warm-up.
Exit code 1 if one is missed; 0, with a line saying so, where there is no GPU.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

MOST_MASK_SHARE, LEAST_BUSY_SHARE = 0.01, 0.9
CLIP_SECONDS, FPS = 120, 4
VISION = {
    **{"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 3584},
    **{"window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31]},
}
"""The vision tower of Qwen2.5-VL-7B."""


def write_checkpoint(folder, device):
    """A checkpoint with that tower, a language model of two tiny layers, and the processor's own limits."""
    import tiny_models
    import transformers as tf

    tiny, processor = tiny_models.BUILDERS["qwen2_5_vl"]()
    for name, value in VISION.items():
        setattr(tiny.config.vision_config, name, value)
    processor.video_processor.size = tf.Qwen2VLVideoProcessor().size
    with torch.device(device):
        model = tf.Qwen2_5_VLForConditionalGeneration(tiny.config).to(torch.bfloat16)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a folder or a hub's id; default: made here")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=int, default=CLIP_SECONDS, help="length of the clip")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", help="file to write the result to")
    args = parser.parse_args()
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        print("skipped: no GPU is at hand")
        return 0
    from evs_cli.jobs.bench import bench
    from evs_cli.pipeline.request import make_request
    from evs_cli.report.bench import bench_record
    from evs_cli.video.drawn import draw_clip

    with tempfile.TemporaryDirectory() as folder:
        if args.model is None:
            write_checkpoint(folder, args.device)
        request = make_request(model=args.model or folder, fps=FPS, device=args.device)
        result = bench(draw_clip(args.seconds), request, repeats=args.repeats)
    name = result.machine["accelerator"] or result.machine["processor"]
    print(f"{name}, torch {result.machine['torch']}, {result.dtype}, {result.num_sampled_frames} frames")
    for each in result.measurements:
        rate = f"{each.per_second:>14,.0f} a second"
        print(f"{each.step:<11}{each.amount:>9,} {each.unit:<7}{each.median_seconds:>9.4f} s{rate}")
    met = result.mask_share < MOST_MASK_SHARE and result.busy_share >= LEAST_BUSY_SHARE
    print(f"mask {result.mask_share:.3%} of encoding time (target below {MOST_MASK_SHARE:.0%})")
    print(f"encoder busy {result.busy_share:.1%} of wall time (target at least {LEAST_BUSY_SHARE:.0%})")
    if args.json:
        document = {**bench_record(result), "model": args.model or "qwen2_5_vl, random weights", "targets_met": met}
        Path(args.json).write_text(json.dumps(document, indent=1) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
