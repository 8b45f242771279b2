"""ms-swift 4.6.0: qwen-vl-utils with constants of its environment variables, and the processor resizes nothing.

Read from ``model/models/qwen.py`` and ``template/templates/qwen.py`` of that release. Unset, every constant is the
package's. What a row of the data says of its video, and the environment variables, are ``--video-kwargs``.
"""

from __future__ import annotations

from evs_cli.dialects import qwen_vl_utils_0_0_14 as rules
from evs_cli.dialects.qwen_vl_utils_0_0_14 import Budget, Given
from evs_cli.dialects.qwen_vl_utils_0_0_14_server import QwenVlUtils, families_of

_CONSTANTS = {
    "FPS": ("fps", float),
    "FRAME_FACTOR": ("frame_factor", int),
    "FPS_MIN_FRAMES": ("min_frames", int),
    "FPS_MAX_FRAMES": ("max_frames", int),
    "VIDEO_MIN_TOKEN_NUM": ("min_tokens", int),
    "VIDEO_MAX_TOKEN_NUM": ("max_tokens", int),
}
"""Variables, and the fields of ``Budget`` that they settle."""
_PIXELS = {"VIDEO_MIN_PIXELS": "VIDEO_MIN_TOKEN_NUM", "VIDEO_MAX_PIXELS": "VIDEO_MAX_TOKEN_NUM"}
"""Variables in pixels, and what they become in whole tokens where it is not set itself."""


def budget(given: Given, factor: int) -> Budget:
    """The package's constants as ms-swift sets them."""
    named = dict(given)
    for name, tokens in _PIXELS.items():
        if given.get(name) and not given.get(tokens):
            named[tokens] = int(given[name]) // factor**2
    fields = {field: kind(named[name]) for name, (field, kind) in _CONSTANTS.items() if name in named}
    return Budget(**{"sequence_tokens": rules.own_budget(given, factor).sequence_tokens, **fields})


CALLER = rules.Caller(
    "ms-swift",
    resizes_again=lambda model: False,
    budget=budget,
    variables=rules.VARIABLES | _CONSTANTS.keys() | _PIXELS.keys(),
)


class MsSwift(QwenVlUtils):
    """See ``Server``."""

    caller = CALLER
    families = families_of(CALLER)


SERVER = MsSwift()
