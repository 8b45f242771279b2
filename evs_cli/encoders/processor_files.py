"""What plans ask of a checkpoint's processor, read from its files without transformers or torch.

In: a resolved checkpoint. Out: ``ProcessorFiles``, whose fields have the names of transformers' processor, or None for
a checkpoint whose files leave room for doubt: a family or a class that is not in ``processor_defaults``, code of its
own, a tokenizer that transformers would change. Its processor itself is asked then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType, SimpleNamespace
from typing import Any

from evs_cli.core.releases import transformers_release
from evs_cli.encoders.chat_template import is_renderable, render_chat
from evs_cli.encoders.estimated_tokenizer import EstimatedTokenizer
from evs_cli.encoders.file_tokenizer import FileTokenizer, read_tokenizer
from evs_cli.encoders.processor_defaults import CLASSES, FIELDS, MODEL_FIELDS, PIXEL_ALIASES, SPECIAL_TEXTS
from evs_cli.encoders.published import PUBLISHED, QWEN_TOKENS
from evs_cli.encoders.source import ModelSource, checkpoint_file

_RELEASE = (5, 24)
"""The release of transformers whose reading of the files this is."""
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
    tokenizer: FileTokenizer | EstimatedTokenizer
    video_processor: Any
    """Fields of the video processor, by their names."""
    image_processor: Any
    chat_template: str | None
    tokens: Mapping[str, str] = field(default_factory=dict)
    """Texts of the tokens it knows by name, such as ``video_token``."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Its own fields: ``image_seq_length``, ``video_temporal_patch_dim``."""
    config: Any = None
    """Fields of the model's configuration that settle a frame's tokens."""

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
    if source.is_published:
        return published_processor(source)
    classes = CLASSES.get(source.model_type)
    if classes is None or source.trust_remote_code or transformers_release().release[:2] != _RELEASE:
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
    parts = (*(part for name, part in files.items() if name != "added_tokens"), video, image)
    stated = {part["processor_class"] for part in parts if "processor_class" in part}
    if any("auto_map" in part for part in parts) or len(stated) > 1 or not stated <= set(classes.processor):
        return None
    name = stated.pop() if stated else classes.processor[0]
    video_class, image_class = _video_class(video, classes.video), _class(image, "image_processor_type", classes.image)
    if not video or not image or video_class is None or image_class is None:
        return None
    tokenizer = read_tokenizer(source.model_type, tokenizer_file, _tokenizer_config(files))
    if tokenizer is None or (template is not None and not is_renderable(template)):
        return None
    video_fields, image_fields = _fields_of(video_class, video), _fields_of(image_class, image)
    tokens = _tokens(name, tokenizer)
    if video_fields is None or image_fields is None or tokens is None:
        return None
    settings = {key: outer.get(key, default) for key, default in _SETTINGS.items()}
    config = _model_config(source)
    return ProcessorFiles(name, video_class, tokenizer, video_fields, image_fields, template, tokens, settings, config)


def published_processor(source: ModelSource) -> ProcessorFiles:
    """The processor of a model whose files are out of reach, by its published figures; its text is estimated."""
    known, classes = PUBLISHED[source.location], CLASSES[source.model_type]
    tokenizer = EstimatedTokenizer(QWEN_TOKENS)
    name, video, image = classes.processor[0], classes.video[0], classes.image[0]
    return ProcessorFiles(
        name=name,
        video_class=video,
        tokenizer=tokenizer,
        video_processor=SimpleNamespace(**{**FIELDS[video], **known.video}),
        image_processor=SimpleNamespace(**{**FIELDS[image], **known.image}),
        chat_template=known.chat_template,
        tokens=SPECIAL_TEXTS[name],
    )


def read_tokenizer_files(source: ModelSource) -> FileTokenizer | None:
    """The tokenizer of a checkpoint that has no processor, with its chat template; None as of ``read_processor``."""
    if source.trust_remote_code or transformers_release().release[:2] != _RELEASE:
        return None
    try:
        files = {name: _json_of(source, f"{name}.json") for name in _TOKENIZER_NAMES}
        path = _file(source, "chat_template.jinja")
        template = files["tokenizer_config"].get("chat_template") if path is None else path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    if template is not None and not (isinstance(template, str) and is_renderable(template)):
        return None
    tokenizer = read_tokenizer(source.model_type, _file(source, "tokenizer.json"), _tokenizer_config(files))
    return None if tokenizer is None else replace(tokenizer, chat_template=template)


_TOKENIZER_NAMES = ("tokenizer_config", "special_tokens_map", "added_tokens")
_NAMES = (
    *("processor_config", "video_preprocessor_config", "preprocessor_config", "chat_template"),
    *_TOKENIZER_NAMES,
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
    if named is None and files["chat_template"]:
        named = files["chat_template"].get("chat_template", 0)
    path = _file(source, "chat_template.jinja")
    if named is None and path is not None:
        named = path.read_text(encoding="utf-8")
    if named is not None and not isinstance(named, str):
        raise ValueError("the chat template is no text")
    return named


def _tokenizer_config(files: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """``tokenizer_config.json``, with the files beside it put in that transformers reads where it lists no tokens."""
    config = dict(files["tokenizer_config"])
    if config and "added_tokens_decoder" not in config:
        config |= files["special_tokens_map"]
        config["added_tokens_decoder"] = {token_id: text for text, token_id in files["added_tokens"].items()}
    return config


def _class(values: Mapping[str, Any], key: str, known: Sequence[str]) -> str | None:
    """The known class that a processor's fields name, the first where they name none; None for any other."""
    named = str(values.get(key, known[0])).removesuffix("Fast").removesuffix("Pil")
    return named if named in known else None


def _video_class(values: Mapping[str, Any], known: Sequence[str]) -> str | None:
    """As ``_class``, of a video processor, which the image processor's file may settle too."""
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


def _model_config(source: ModelSource) -> SimpleNamespace:
    """Fields of ``config.json``, with the classes' own values where it leaves them out."""
    outer, defaults = source.config, MODEL_FIELDS.get(source.model_type, {})
    vision = outer.get("vision_config") or {}
    found = {name: outer.get(name, value) for name, value in defaults.items() if name != "vision_config"}
    inner = {name: vision.get(name, value) for name, value in defaults.get("vision_config", {}).items()}
    return SimpleNamespace(vision_config=SimpleNamespace(**inner), **found)


def _tokens(name: str, tokenizer: FileTokenizer) -> dict[str, str] | None:
    """Texts of the tokens that a processor knows by name; None where the tokenizer lacks one."""
    defaults = SPECIAL_TEXTS[name]
    if defaults:
        tokens = {key: tokenizer.named.get(key, text) for key, text in defaults.items()}
    else:
        tokens = {key: tokenizer.named.get(theirs, "") for key, theirs in _INTERNVL_TOKENS.items()}
    return tokens if all(tokenizer.convert_tokens_to_ids(text) is not None for text in tokens.values()) else None
