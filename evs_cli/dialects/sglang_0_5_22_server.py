"""SGLang 0.5.22 as a whole: the rules of 0.5.23, but a request of GLM may raise what the server was started with.

``tests/live/compare_wheels.py`` compared the two releases part by part. From 0.5.23 on
``multimodal/processors/glm4v.py`` lowers a request's ``fps`` and ``max_frames``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import ClassVar

from evs_cli.dialects.server import FamilyRules
from evs_cli.dialects.sglang_0_5_23_glm import glm
from evs_cli.dialects.sglang_0_5_23_server import Sglang as Sglang0523


class Sglang(Sglang0523):
    """See ``Server``."""

    families: ClassVar[Mapping[str, FamilyRules]] = {
        **Sglang0523.families,
        "glm": FamilyRules(functools.partial(glm, is_bounded_by_server=False)),
    }


SERVER = Sglang()
