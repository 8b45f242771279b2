"""verl 0.9.1: qwen-vl-utils with the model's own patch size, and the processor resizes its frames once more.

Read from ``utils/dataset/rl_dataset.py`` and ``utils/tokenizer/tokenizer.py`` of that release: it passes rate and
indices and ``do_sample_frames=False``, and nothing of ``do_resize``. What a row of the data says of its video is
``--video-kwargs``.
"""

from __future__ import annotations

from evs_cli.dialects import qwen_vl_utils_0_0_14 as rules
from evs_cli.dialects.qwen_vl_utils_0_0_14_server import QwenVlUtils, families_of

CALLER = rules.Caller("verl", resizes_again=lambda model: True)


class Verl(QwenVlUtils):
    """See ``Server``."""

    caller = CALLER
    families = families_of(CALLER)


SERVER = Verl()
