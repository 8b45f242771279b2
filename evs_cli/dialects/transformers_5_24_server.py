"""transformers 5.24 as a whole: which families it takes; it is no server, so there is no line that starts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from evs_cli.dialects import transformers_5_24 as hf
from evs_cli.dialects import transformers_5_24_glm as glm
from evs_cli.dialects import transformers_5_24_internvl as internvl
from evs_cli.dialects.base import PruningRate, ServedModel, ServerOptions
from evs_cli.dialects.requests import ServerRecipe, ServingRequest
from evs_cli.dialects.server import FamilyRules, Server
from evs_cli.dialects.transformers_5_24_arguments import unknown_argument_notes


class Transformers(Server):
    """See ``Server``."""

    families: ClassVar[Mapping[str, FamilyRules]] = {
        "qwen2_5_vl": FamilyRules(hf.qwen2_5_vl),
        "qwen3_vl": FamilyRules(hf.qwen3_vl),
        "nemotron": FamilyRules(hf.nemotron),
        "glm": FamilyRules(glm.glm),
        "internvl": FamilyRules(internvl.internvl),
    }
    own_options = frozenset(("mm_processor_kwargs",))

    def pruning(self, model: ServedModel, options: ServerOptions) -> PruningRate:
        """See ``Server.pruning``."""
        return hf.pruning(model, options)

    def configured(self, options: ServerOptions, asked: Mapping[str, Any]) -> ServerOptions:
        """See ``Server.configured``: a number of frames is taken only where the processor's own rate is put off."""
        no_rate = {"fps": None} if "num_frames" in asked and "fps" not in asked else {}
        return replace(options, request={**asked, **no_rate})

    def option_notes(self, options: ServerOptions) -> tuple[str, ...]:
        """See ``Server.option_notes``: what the processors drop with a warning."""
        return unknown_argument_notes(options)

    def recipe(self, serving: ServingRequest, options: ServerOptions, started: ServerOptions) -> ServerRecipe:
        """See ``Server.recipe``."""
        return ServerRecipe(None, {"tokenize": True, **options.mm_processor, **options.request})


SERVER = Transformers()
