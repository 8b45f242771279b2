"""What plans ask of a checkpoint's processor, read from its files without transformers or torch.

In: a resolved checkpoint. Out: ``ProcessorFiles``, whose fields have the names of transformers' processor, or None for
a checkpoint whose files leave room for doubt: a family or a class that is not in ``processor_defaults``, code of its
own, a tokenizer that transformers would change. Its processor itself is asked then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import Any

from evs_cli.encoders.chat_template import is_renderable, render_chat
from evs_cli.encoders.file_tokenizer import FileTokenizer, read_tokenizer
from evs_cli.encoders.processor_defaults import CLASSES, FIELDS, PIXEL_ALIASES, SPECIAL_TEXTS
from evs_cli.encoders.source import ModelSource, checkpoint_file

_INTERNVL_TOKENS = {
    "image_token": "context_image_token",
    "video_token": "video_token",
    "start_image_token": "start_image_token",
    "end_image_token": "end_image_token",
}
"""InternVL's names of its tokens, by the tokenizer's."""


@dataclass(frozen=True, eq=False)
class ProcessorFiles:
    """A processor that plans and cannot process: the fields, tokens and texts of transformers' own."""

    name: str
    """The class that transformers would make of these files."""
    video_class: str
    """The class of its video processor."""
    tokenizer: FileTokenizer
    video_processor: Any
    """Fields of the video processor, by their names."""
    image_processor: Any
    chat_template: str | None
    tokens: Mapping[str, str] = field(default_factory=dict)
    """Texts of the tokens it knows by name, such as ``video_token``."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Its own fields: ``image_seq_length``, ``video_temporal_patch_dim``."""

    def __getattr__(self, name: str) -> Any:
        for known in (self.__dict__.get("tokens", {}), self.__dict__.get("settings", {})):
            if name in known:
                return known[name]
        raise AttributeError(f"{type(self).__name__} has no {name}")

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **_: Any) -> str:
        """The text of a chat that the assistant is to answer; see ``render_chat``."""
        assert self.chat_template is not None
        return render_chat(self.chat_template, messages, self.tokenizer.named)


def read_processor(source: ModelSource) -> ProcessorFiles | None:
    """The processor of a checkpoint's files; None where only transformers can tell it."""
    classes = CLASSES.get(source.model_type)
    if classes is None or source.trust_remote_code:
        return None
    try:
        files = {name: _json_of(source, f"{name}.json") for name in _NAMES}
        template = _chat_template(source, files)
        tokenizer_file = _file(source, "tokenizer.json")
    except (OSError, ValueError):  # a damaged file: transformers says what is wrong with it
        return None
    outer = files["processor_config"]
    video = outer.get("video_processor", files["video_preprocessor_config"] or files["preprocessor_config"])
    image = outer.get("image_processor", files["preprocessor_config"])
    parts = (*files.values(), video, image)
    stated = {part["processor_class"] for part in parts if "processor_class" in part}
    if any("auto_map" in part for part in parts) or len(stated) > 1 or not stated <= set(classes.processor):
        return None
    name = stated.pop() if stated else classes.processor[0]
    video_class, image_class = _video_class(video, classes.video), _class(image, "image_processor_type", classes.image)
    if not video or not image or video_class is None or image_class is None:
        return None
    tokenizer = read_tokenizer(source.model_type, tokenizer_file, files["tokenizer_config"])
    if tokenizer is None or (template is not None and not is_renderable(template)):
        return None
    video_fields, image_fields = _fields_of(video_class, video), _fields_of(image_class, image)
    tokens = _tokens(name, tokenizer)
    if video_fields is None or image_fields is None or tokens is None:
        return None
    settings = {key: outer.get(key, default) for key, default in _SETTINGS.items()}
    return ProcessorFiles(name, video_class, tokenizer, video_fields, image_fields, template, tokens, settings)


_NAMES = (
    *("processor_config", "video_preprocessor_config", "preprocessor_config"),
    *("tokenizer_config", "chat_template", "special_tokens_map"),
)
_SETTINGS: Mapping[str, Any] = MappingProxyType({"image_seq_length": 256, "video_temporal_patch_dim": 2})


def _file(source: ModelSource, name: str) -> Any:
    """A file of the checkpoint; None where it has none, or the cache of a hub out of reach does not hold it."""
    try:
        return checkpoint_file(source, name)
    except OSError:
        return None


def _json_of(source: ModelSource, name: str) -> dict[str, Any]:
    """A JSON file of the checkpoint; empty where it has none.

    Raises:
        ValueError: a file that holds no JSON object.
    """
    path = _file(source, name)
    if path is None:
        return {}
    values = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(values, dict):
        raise ValueError(f"{name} holds no object")
    return values


def _chat_template(source: ModelSource, files: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The processor's chat template, of the file that transformers would take.

    Raises:
        ValueError: several templates, or one that is no text.
    """
    named = files["processor_config"].get("chat_template")
    legacy = files["chat_template"]
    path = _file(source, "chat_template.jinja")
    if named is None and legacy:
        named = legacy["chat_template"] if "chat_template" in legacy else ValueError
    if named is None and path is not None:
        named = path.read_text(encoding="utf-8")
    if named is not None and not isinstance(named, str):
        raise ValueError("the chat template is no text")
    return named


def _class(values: Mapping[str, Any], key: str, known: Sequence[str]) -> str | None:
    """The known class that a processor's fields name, the first where they name none; None for any other."""
    named = str(values.get(key, known[0])).removesuffix("Fast").removesuffix("Pil")
    return named if named in known else None


def _video_class(values: Mapping[str, Any], known: Sequence[str]) -> str | None:
    """As ``_class``, of a video processor, which an image processor's file settles too where there is none of its own."""
    if "video_processor_type" in values or "image_processor_type" not in values:
        return _class(values, "video_processor_type", known)
    implied = str(values["image_processor_type"]).replace("ImageProcessor", "VideoProcessor")
    return implied if implied in known else known[0]


def _fields_of(name: str, values: Mapping[str, Any]) -> SimpleNamespace | None:
    """The fields of a class, with its own values where a file leaves them out or says null; None for an odd size."""
    own = FIELDS[name]
    found = {key: default if values.get(key) is None else values[key] for key, default in own.items()}
    if name in PIXEL_ALIASES:
        edges = {"shortest_edge": values.get("min_pixels"), "longest_edge": values.get("max_pixels")}
        given = found["size"] if isinstance(found["size"], Mapping) else {}
        found["size"] = {**given, **{edge: pixels for edge, pixels in edges.items() if pixels is not None}}
    if "size" in own and not (isinstance(found["size"], Mapping) and set(found["size"]) == set(own["size"])):
        return None
    if found.get("do_resize", True) is not True or found.get("do_center_crop"):
        return None
    return SimpleNamespace(**found)


def _tokens(name: str, tokenizer: FileTokenizer) -> dict[str, str] | None:
    """Texts of the tokens that a processor knows by name; None where the tokenizer lacks one."""
    defaults = SPECIAL_TEXTS[name]
    if defaults:
        tokens = {key: tokenizer.named.get(key, text) for key, text in defaults.items()}
    else:
        tokens = {key: tokenizer.named.get(theirs, "") for key, theirs in _INTERNVL_TOKENS.items()}
    return tokens if all(tokenizer.convert_tokens_to_ids(text) is not None for text in tokens.values()) else None
