"""Qwen's tokenizer without its vocabulary: exact for markers and times, an estimate for other text.

Its rules cut a text before any vocabulary is asked: at special tokens, each digit by itself, words with the space in
front of them, runs of marks. A time such as ``<12.3 seconds>`` has only pieces that are one token each: ``<``, the
digits, ``.``, `` seconds``, ``>``. A word is taken to be a token for every ten letters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NO_ID = -1
"""In place of the id of a piece of text, which only the vocabulary knows."""
_LETTERS_A_TOKEN = 10  # of a word in ASCII: most words of English prose are one token
_BYTES_A_TOKEN = 4  # of any other text
_PIECES = re.compile(r"(?i:'(?:s|t|re|ve|m|ll|d)\b)|[^\r\n\w]?[^\W\d_]+|\d| ?[^\s\w]+[\r\n]*|_+|\s*[\r\n]+|\s+")
_SINGLE = frozenset({" seconds", "seconds"})


@dataclass(frozen=True, eq=False)
class EstimatedTokenizer:
    """What plans ask of a tokenizer, under the names of transformers'."""

    special_ids: Mapping[str, int]
    named: Mapping[str, str] = field(default_factory=dict)
    bos_token: str | None = None

    def __call__(self, text: str | Sequence[str], add_special_tokens: bool = True) -> dict[str, Any]:
        """``input_ids`` of a text, or of each of several; ``NO_ID`` for each piece that is no special token."""
        if isinstance(text, str):
            return {"input_ids": self._ids(text)}
        return {"input_ids": [self._ids(each) for each in text]}

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """The id of a special token by its text, or of each of several; None of any other."""
        if isinstance(tokens, str):
            return self.special_ids.get(tokens)
        return [self.special_ids.get(token) for token in tokens]

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        """Texts of special tokens."""
        texts = {token_id: text for text, token_id in self.special_ids.items()}
        return [texts.get(each) for each in ids]

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """Nothing: the ids do not tell the text that they stand for."""
        return ""

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in re.split(f"({'|'.join(map(re.escape, self.special_ids))})", text):
            if part in self.special_ids:
                ids.append(self.special_ids[part])
            else:
                ids += [NO_ID] * sum(map(_num_tokens, _PIECES.findall(part)))
        return ids


def _num_tokens(piece: str) -> int:
    """Tokens of a piece: one of a digit, a mark or a short word."""
    if piece in _SINGLE or len(piece) == 1:
        return 1
    text = piece.strip()
    if text.isascii() and text.isalpha():
        return -(-len(text) // _LETTERS_A_TOKEN)
    return max(1, -(-len(text.encode()) // _BYTES_A_TOKEN))
