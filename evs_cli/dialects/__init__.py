"""Dialects: how each server samples, resizes, times, counts and writes a video, before it is asked.

``evs`` is no module here: it is the model's own processor, told the true times. The others are pure rules of one
server and version each, which import nothing of the server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType

from evs_cli.dialects.base import (
    PruningRate,
    RefusedByServerError,
    ServedModel,
    ServerOptions,
    ServerPlan,
    ServerSource,
)
from evs_cli.errors import UsageError

EVS = "evs"
_MODULES = {
    "hf": ("transformers_5_24", "transformers_5_24_glm", "transformers_5_24_internvl"),
    "vllm": ("vllm_0_33", "vllm_0_33_glm", "vllm_0_33_internvl"),
    "sglang": ("sglang_0_5_23", "sglang_0_5_23_glm"),
}
"""Modules of a server's rules: its own, then those of families that need more room."""
_VERSIONS = {"hf": "5.24", "vllm": "0.33", "sglang": "0.5.23"}


Planner = Callable[[ServerSource, ServedModel, ServerOptions], ServerPlan]
"""A server's rules for a family."""


@dataclass(frozen=True)
class Dialect:
    """One server and version, or ``evs``."""

    server: str
    """``evs``, ``hf``, ``vllm`` or ``sglang``."""
    note: str | None = None
    """Said where another version was asked for than the one that is known."""

    @property
    def name(self) -> str:
        """``hf@5.24``, ``vllm@0.33``: the server and the version whose rules these are; ``evs`` alone."""
        return self.server if self.server == EVS else f"{self.server}@{_VERSIONS[self.server]}"

    @property
    def is_evs(self) -> bool:
        """Whether the model's own processor is told the true times."""
        return self.server == EVS

    def rules(self) -> ModuleType:
        """The module of its rules; not for ``evs``."""
        return import_module(f"evs_cli.dialects.{_MODULES[self.server][0]}")

    def planner(self, rules: str) -> Planner:
        """Its rules for a family, by the name that ``served_model`` gives.

        Raises:
            UsageError: a family whose videos it does not serve, or not in this format.
        """
        planners = _by_family(self.server, "PLANNERS")
        if rules not in planners:
            others = [other.name for other in ALL if other.is_evs or rules in _by_family(other.server, "PLANNERS")]
            raise UsageError(
                f"There are no rules for {rules} under {self.name}: the server has no model of its own for this "
                f"family's format. Expected --dialect {' or '.join(others)}."
            )
        return planners[rules]

    def without_unreadable(
        self, rules: str, plan: ServerPlan, source: ServerSource, model: ServedModel, options: ServerOptions, held: int
    ) -> ServerPlan:
        """The plan without the frames past the last of a file that holds ``held``: vLLM's loader leaves them out.

        Raises:
            RefusedByServerError: no frame is left, or fewer than the model takes.
        """
        readable = plan.frame_indices[plan.frame_indices < held]
        if self.server != "vllm" or len(readable) == len(plan.frame_indices):
            return plan
        if not len(readable):
            raise RefusedByServerError("none of the frames that the server asks for is in the file.")
        lost = len(plan.frame_indices) - len(readable)
        note = f"{lost} of its {len(plan.frame_indices)} frames are past the end of the file, and it leaves them out"
        again = _by_family(self.server, "FRAME_PLANNERS")[rules](source, model, options, readable, plan.rule)
        return replace(again, notes=(*dict.fromkeys((*plan.notes, *again.notes)), note))

    @property
    def context_margin(self) -> int:
        """Ids of the context that no prompt gets."""
        margin: int = self.rules().CONTEXT_MARGIN
        return margin

    def pruning(self, model: ServedModel, options: ServerOptions) -> PruningRate:
        """The rate it prunes a checkpoint's videos at."""
        rate: PruningRate = self.rules().pruning(model, options)
        return rate


def _by_family(server: str, table: str) -> dict[str, Callable[..., ServerPlan]]:
    """What the modules of a server hold by family: ``PLANNERS``, or ``FRAME_PLANNERS`` of given frames."""
    found: dict[str, Callable[..., ServerPlan]] = {}
    for module in _MODULES[server]:
        found |= getattr(import_module(f"evs_cli.dialects.{module}"), table)
    return found


EVS_DIALECT = Dialect(EVS)
"""The model's own processor, told the true times: the default."""

ALL = tuple(Dialect(server) for server in (EVS, *_MODULES))
"""Every dialect, in the order of ``--dialect all``."""


def parse_dialect(text: str) -> Dialect:
    """The dialect of a name such as ``vllm`` or ``vllm@0.33``; of another version, the known one, which is noted.

    Raises:
        UsageError: a server that is not known.
    """
    server, _, version = text.partition("@")
    if (server != EVS and server not in _MODULES) or (server == EVS and version):
        names = [dialect.name for dialect in ALL]
        raise UsageError(f"Invalid dialect {text!r}. Expected {', '.join(names)} or all.")
    known = _VERSIONS.get(server)
    if not version or known is None or version == known or version.startswith(f"{known}."):
        return Dialect(server)
    return Dialect(server, note=f"the rules of {server} {version} are not known: those of {known} are used")


def parse_dialects(text: str) -> tuple[Dialect, ...]:
    """The dialects of ``all`` or of one name."""
    return ALL if text == "all" else (parse_dialect(text),)
