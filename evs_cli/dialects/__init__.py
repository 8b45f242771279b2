"""Dialects: how each server samples, resizes, times, counts and writes a video, before it is asked.

``evs`` is no server here: it is the model's own processor, told the true times. The others are pure rules of one
server and version each, which import nothing of the server. A new version is a file with its ``Server`` and a line in
``_SERVERS``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from evs_cli.errors import UsageError

if TYPE_CHECKING:
    from evs_cli.dialects.server import FamilyRules, Server

EVS = "evs"
_SERVERS = {
    "hf": {"5.24": "transformers_5_24_server"},
    "qwen-vl-utils": {"0.0.14": "qwen_vl_utils_0_0_14_server"},
    "llamafactory": {"0.9.5": "llamafactory_0_9_5_server"},
    "ms-swift": {"4.6": "ms_swift_4_6_server"},
    "verl": {"0.9": "verl_0_9_server"},
    "vllm": {"0.33": "vllm_0_33_server"},
    "sglang": {"0.5.23": "sglang_0_5_23_server"},
}
"""The module whose ``SERVER`` is a server at a version, imported when its rules are asked for; the newest last."""
_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z\d]+([.-][a-z\d]+)*)?")
"""A version as Python's packages have it."""


@dataclass(frozen=True)
class Dialect:
    """One server and version, or ``evs``."""

    server: str
    """``evs``, or a key of ``_SERVERS``: a server, or a program that prepares videos for training."""
    version: str = ""
    """The version whose rules these are; none of ``evs``."""
    note: str | None = None
    """Said where another version was asked for than those that are known."""

    @property
    def name(self) -> str:
        """``hf@5.24``, ``vllm@0.33``; ``evs`` alone."""
        return f"{self.server}@{self.version}" if self.version else self.server

    @property
    def is_evs(self) -> bool:
        """Whether the model's own processor is told the true times."""
        return self.server == EVS

    @property
    def rules(self) -> Server:
        """Its rules; not for ``evs``."""
        server: Server = import_module(f"evs_cli.dialects.{_SERVERS[self.server][self.version]}").SERVER
        return server

    def family(self, name: str) -> FamilyRules:
        """Its rules for a family, by the name that ``served_model`` gives.

        Raises:
            UsageError: a family whose videos it does not serve, or not in this format.
        """
        families = self.rules.families
        if name not in families:
            others = [other.name for other in ALL if other.is_evs or name in other.rules.families]
            raise UsageError(
                f"There are no rules for {name} under {self.name}: {self.rules.missing_family}. Expected --dialect "
                f"{' or '.join(others)}."
            )
        return families[name]


EVS_DIALECT = Dialect(EVS)
"""The model's own processor, told the true times: the default."""

ALL = (EVS_DIALECT, *(Dialect(server, list(versions)[-1]) for server, versions in _SERVERS.items()))
"""Every server at its newest version, in the order of ``--dialect all``."""


def parse_dialect(text: str) -> Dialect:
    """The dialect of a name such as ``vllm``, which is its newest version, or ``vllm@0.33``.

    Raises:
        UsageError: a server or a version that is not known.
    """
    server, at, version = text.partition("@")
    newest = next((dialect for dialect in ALL if dialect.server == server), None)
    if newest is None or (newest.is_evs and at):
        names = [dialect.name for dialect in ALL]
        raise UsageError(f"Invalid dialect {text!r}. Expected {', '.join(names)} or all.")
    if not at:
        return newest
    found = _known_version(server, version) if _VERSION.fullmatch(version) else None
    if found is None:
        names = [f"{server}@{known}" for known in _SERVERS[server]]
        raise UsageError(
            f"Invalid dialect {text!r}: the rules of that version are not known. Expected {' or '.join(names)}.",
            hint=f"--dialect {server} takes the newest rules that are known, {newest.name}.",
        )
    return Dialect(server, found)


def dialect_of_server(server: str, version: str) -> Dialect:
    """The dialect of a server that tells its version; of one without rules, the newest, which is noted."""
    found = _known_version(server, version)
    if found is not None:
        return Dialect(server, found)
    newest = parse_dialect(server)
    note = f"the rules of {server} {version} are not known: those of {newest.version} are used"
    return Dialect(server, newest.version, note)


def _known_version(server: str, version: str) -> str | None:
    """The version whose rules hold for ``version``, such as 0.33 for 0.33.1."""
    versions = (known for known in _SERVERS[server] if version == known or version.startswith(f"{known}."))
    return next(versions, None)


def dialect_of_owner(owner: str | None) -> Dialect | None:
    """The dialect, at its newest version, of a server that names ``owner`` in ``/v1/models``; None of any other."""
    known = (dialect for dialect in ALL if not dialect.is_evs and dialect.rules.owner is not None)
    return next((dialect for dialect in known if dialect.rules.owner == owner), None)


def parse_dialects(text: str) -> tuple[Dialect, ...]:
    """The dialects of ``all`` or of one name."""
    return ALL if text == "all" else (parse_dialect(text),)
