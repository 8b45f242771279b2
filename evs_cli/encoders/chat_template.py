"""Renders a checkpoint's chat template with Jinja alone, as transformers renders it.

The environment is that of transformers 5.24's ``render_jinja_template``: sandboxed, blocks trimmed, with ``break`` and
``continue``, ``raise_exception``, ``strftime_now`` and a ``tojson`` that leaves HTML characters alone. The tag
``generation``, an extension of transformers, is not known here.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Template

_GENERATION_TAG = re.compile(r"{%-?\s*generation\b")


def is_renderable(template: str) -> bool:
    """Whether Jinja alone can render it: it does not mark the assistant's words with transformers' own tag."""
    return _GENERATION_TAG.search(template) is None


def render_chat(template: str, messages: Sequence[Mapping[str, Any]], special_tokens: Mapping[str, str]) -> str:
    """The text of a chat whose next words are the assistant's.

    Args:
        template: the chat template.
        messages: a role and a content each.
        special_tokens: texts of the tokenizer's tokens by name, such as ``bos_token``.

    Raises:
        jinja2.TemplateError: the template fails, or refuses the messages.
    """
    return _compiled(template).render(
        messages=messages, tools=None, documents=None, add_generation_prompt=True, **special_tokens
    )


@functools.lru_cache(maxsize=16)
def _compiled(template: str) -> Template:
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _json_text
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(template)


def _json_text(value: Any, ensure_ascii: bool = False, **more: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **more)
