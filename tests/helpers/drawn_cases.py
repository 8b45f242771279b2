"""How many cases a property is tried on: a tenth of them every day, all of them in a run of the slow tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

FEWEST = 100


class Amount:
    """What this run draws; conftest.py sets it before the tests are collected."""

    is_full = False


def tried_on(count: int, *, daily: int | None = None, **more: Any) -> Callable[[Any], Any]:
    """A decorator in place of ``settings(max_examples=count)``; with all of its cases a test counts as slow.

    The mark is pytest's, so where ``count`` is cut down it stands on the test itself, not on a function inside.

    Args:
        count: cases in a run of the slow tests.
        daily: cases in every other run; None means a tenth, and ``FEWEST`` at least.
        more: other settings of Hypothesis.
    """
    fewer = min(count, max(FEWEST, count // 10)) if daily is None else daily
    chosen = settings(max_examples=count if Amount.is_full else fewer, **more)
    is_slow = Amount.is_full and fewer < count

    def decorate(test: Any) -> Any:
        return pytest.mark.slow(chosen(test)) if is_slow else chosen(test)

    return decorate
