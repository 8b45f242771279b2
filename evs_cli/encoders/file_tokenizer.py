"""A tokenizer read from ``tokenizer.json`` by the library ``tokenizers`` alone, for plans.

transformers loads the same file into the same library, and then adds tokens and replaces parts, by the class that
``tokenizer_config.json`` names. Here a file is read only where all of that changes nothing; ``read_tokenizer`` says
None of any other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from evs_cli.encoders.chat_template import render_chat

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_AS_THE_FILE_SAYS = ("TokenizersBackend", "PreTrainedTokenizerFast", "PreTrainedTokenizer")
"""Classes that take ``tokenizer.json`` as it stands."""
_CONTRACTIONS, _BREAKS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS: Mapping[str, str] = MappingProxyType(
    {
        "Qwen2Tokenizer": rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BREAKS}",
        "Qwen3_5Tokenizer": rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_BREAKS}",
    }
)
"""Classes that build their own pipeline around the file's vocabulary: NFC, these pieces, bytes."""
_FORCED: Mapping[str, str] = MappingProxyType({"qwen3_5": "Qwen3_5Tokenizer", "qwen3_5_moe": "Qwen3_5Tokenizer"})
"""The class by ``model_type`` where transformers does not believe ``tokenizer_config.json``."""


@dataclass(frozen=True, eq=False)
class FileTokenizer:
    """What plans ask of a tokenizer, under the names of transformers'."""

    backend: Tokenizer
    named: Mapping[str, str]
    """Texts of the named special tokens, such as ``eos_token`` or ``video_token``."""
    chat_template: str | None = None
    """The tokenizer's own, which only a family without a processor has a use for."""

    @property
    def bos_token(self) -> str | None:
        """Text of the start token."""
        return self.named.get("bos_token")

    def __call__(self, text: str | Sequence[str], add_special_tokens: bool = True) -> dict[str, Any]:
        """``input_ids`` of a text, or of each of several."""
        if isinstance(text, str):
            return {"input_ids": self.backend.encode(text, add_special_tokens=add_special_tokens).ids}
        encoded = self.backend.encode_batch_fast(list(text), add_special_tokens=add_special_tokens)
        return {"input_ids": [each.ids for each in encoded]}

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """The id of a token by its text, or of each of several; None where there is no such token."""
        if isinstance(tokens, str):
            return self.backend.token_to_id(tokens)
        return [self.backend.token_to_id(token) for token in tokens]

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        """Texts of tokens."""
        return [self.backend.id_to_token(each) for each in ids]

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **_: Any) -> str:
        """The text of a chat that the assistant is to answer; see ``render_chat``."""
        assert self.chat_template is not None
        return render_chat(self.chat_template, messages, self.named)

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """The text of ids, special tokens included."""
        text: str = self.backend.decode(list(ids), skip_special_tokens=False)
        return text


def read_tokenizer(model_type: str, path: Path | None, config: Mapping[str, Any]) -> FileTokenizer | None:
    """The tokenizer of a checkpoint; None where transformers would make another one of its files.

    Args:
        model_type: of the checkpoint.
        path: its ``tokenizer.json``; None where it has none.
        config: its ``tokenizer_config.json``, empty where it has none.
    """
    if path is None or not config or "auto_map" in config or config.get("split_special_tokens"):
        return None
    if config.get("add_prefix_space") or "fix_mistral_regex" in config:
        return None
    from tokenizers import Tokenizer

    try:
        backend = Tokenizer.from_file(str(path))
    except Exception:  # the library raises nothing narrower; transformers then tells what is wrong
        return None
    named = _named_tokens(config)
    if named is None or not _has_class_pipeline(backend, model_type, str(config.get("tokenizer_class"))):
        return None
    if not _holds_tokens(backend, config, named):
        return None
    backend.no_truncation()
    backend.no_padding()
    starts = backend.encode("").ids
    if starts not in ([], [backend.token_to_id(named.get("bos_token", ""))]):
        return None
    return FileTokenizer(backend, MappingProxyType(named))


def _named_tokens(config: Mapping[str, Any]) -> dict[str, str] | None:
    """Texts of the named special tokens; None where one is no text."""
    named = {name: value for name, value in config.items() if name.endswith("_token") and value is not None}
    # Flags such as ``add_bos_token`` have the same ending.
    named = {name: value for name, value in named.items() if name in _NAMED or isinstance(value, (str, dict))}
    extra = config.get("extra_special_tokens")
    if isinstance(extra, dict):
        named |= extra
    texts = {name: _text_of(value) for name, value in named.items()}
    return None if None in texts.values() else {name: str(text) for name, text in texts.items()}


def _text_of(token: Any) -> str | None:
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _has_class_pipeline(backend: Tokenizer, model_type: str, tokenizer_class: str) -> bool:
    """Whether the file's own pipeline is that of the class transformers would choose."""
    name = _FORCED.get(model_type, tokenizer_class.removesuffix("Fast"))
    if name in _AS_THE_FILE_SAYS or (tokenizer_class in _AS_THE_FILE_SAYS and model_type not in _FORCED):
        return _is_cut_at_placeholders(backend)
    if name not in _SPLITS:
        return False
    pieces = {"type": "Split", "pattern": {"Regex": _SPLITS[name]}, "behavior": "Isolated", "invert": False}
    steps = _state(backend.pre_tokenizer).get("pretokenizers", [])
    return (
        _state(backend.normalizer).get("type") == "NFC"
        and len(steps) == 2
        and steps[0] == pieces
        and steps[1].get("type") == "ByteLevel"
        and not steps[1].get("add_prefix_space")
        and not steps[1].get("use_regex")
    )


def _is_cut_at_placeholders(backend: Tokenizer) -> bool:
    """Whether the text on one side of a special token has no say in the ids on the other: bytes, no joined spaces."""
    steps = _state(backend.pre_tokenizer)
    kinds = {step.get("type") for step in steps.get("pretokenizers", [steps])}
    normalizer = _state(backend.normalizer)
    changes = {step.get("type") for step in normalizer.get("normalizers", [normalizer])}
    return kinds <= {"Split", "ByteLevel", "Digits"} and "ByteLevel" in kinds and changes <= {None, "NFC", "Sequence"}


def _state(part: Any) -> dict[str, Any]:
    """A part of a tokenizer as its file writes it; empty where it has none."""
    if part is None:
        return {}
    state: dict[str, Any] = json.loads(part.__getstate__())
    return state


def _holds_tokens(backend: Tokenizer, config: Mapping[str, Any], named: Mapping[str, str]) -> bool:
    """Whether the file holds every token that the configuration would add, and as a special one where it is named."""
    held = backend.get_added_tokens_decoder()
    by_text = {token.content: (token_id, token) for token_id, token in held.items()}
    listed = config.get("added_tokens_decoder") or {}
    if any(_text_of(token) != getattr(held.get(int(token_id)), "content", None) for token_id, token in listed.items()):
        return False
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    texts = [*named.values(), *(extra if isinstance(extra, list) else ())]
    return all((text := _text_of(each)) in by_text and by_text[text][1].special for each in texts)
