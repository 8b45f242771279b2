"""Qwen3.5: the prompt and the positions of Qwen3-VL, one level of features, a hybrid language model.

Most layers of its language model are recurrent (linear attention) and see a token's place in the order alone; the
full-attention layers between them turn by mrope, so positions are kept.
"""

from __future__ import annotations

from evs_cli.encoders.qwen3_vl import Qwen3VLEncoder


class Qwen35Encoder(Qwen3VLEncoder):
    """As Qwen3-VL; its tower has no DeepStack."""
