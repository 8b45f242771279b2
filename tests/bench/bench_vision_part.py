"""What reading the vision part alone saves: bytes of weights and peak memory, beside loading the whole model.

Writes a Qwen2.5-VL checkpoint into a temporary folder, small in its vision tower and large in its language model, as
real ones are, and loads it both ways in float32, as evs does on a CPU, in processes of their own. Needs about
4 GB of disk and 12 GB of memory.

    PYTHONPATH=. python tests/bench/bench_vision_part.py
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

LAYERS, HIDDEN, VOCABULARY = 24, 2048, 151_936


def write_checkpoint(folder: str) -> None:
    import torch
    import transformers as tf

    config = tf.Qwen2_5_VLConfig(
        text_config={
            "hidden_size": HIDDEN,
            "intermediate_size": 5632,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "vocab_size": VOCABULARY,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
        },
        vision_config={
            **{"depth": 8, "hidden_size": 640, "intermediate_size": 1708, "num_heads": 10},
            "out_hidden_size": HIDDEN,
        },
    )
    with torch.device("meta"):
        model = tf.Qwen2_5_VLForConditionalGeneration(config).to(torch.bfloat16)
    model = model.to_empty(device="cpu")
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, 0.01)
    model.save_pretrained(folder, max_shard_size="1GB")


def load_whole(folder: str) -> None:
    import torch
    import transformers as tf

    tf.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)


def load_vision(folder: str) -> None:
    import torch

    from evs_cli.encoders.loading import load_vision_part
    from evs_cli.encoders.source import resolve_model

    _, account = load_vision_part(resolve_model(folder), "cpu", torch.float32)
    print(json.dumps(vars(account)))


def import_only(folder: str) -> None:
    import torch
    import transformers as tf

    assert torch.float32
    assert tf.AutoModelForImageTextToText


def child(step: str, folder: str) -> dict[str, int]:
    """Run one step in a process of its own; its peak memory and what it printed."""
    output = subprocess.run(
        [sys.executable, __file__, step, folder], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return {key: value for line in output if line.startswith("{") for key, value in json.loads(line).items()}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        child("write_checkpoint", folder)
        files = sorted(Path(folder).glob("*.safetensors"))
        steps = {step: child(step, folder) for step in ("import_only", "load_whole", "load_vision")}
    account = steps["load_vision"]
    base = steps["import_only"]["peak_rss_bytes"]
    print(f"{len(files)} shards, {account['bytes_total'] / 1e9:.2f} GB of weights in bfloat16")
    print(
        f"read: {account['bytes_read'] / 1e9:.3f} GB of {account['bytes_total'] / 1e9:.2f} GB, "
        f"{account['files_read']} of {account['files_total']} shards"
    )
    for step in ("load_whole", "load_vision"):
        peak = steps[step]["peak_rss_bytes"]
        print(f"{step}: peak memory {peak / 1e9:.2f} GB, {(peak - base) / 1e9:.2f} GB above the imports alone")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        globals()[sys.argv[1]](sys.argv[2])
        # Linux counts kilobytes; mapped files that were read count too.
        print(json.dumps({"peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
    else:
        main()
