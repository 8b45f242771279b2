"""One job over several items: one that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from evs_cli.errors import EvsError, ModelLoadError

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def one_by_one(
    items: Iterable[Item],
    work: Callable[[Item], Outcome],
    failed: Callable[[Item, EvsError], Outcome],
    *,
    is_single: bool,
) -> Iterator[Outcome]:
    """``work`` on each item; of several, one that fails becomes an outcome of its own and the others go on.

    Raises:
        EvsError: the error of a single item.
        ModelLoadError: weights that cannot be loaded concern every item.
    """
    for item in items:
        try:
            yield work(item)
        except ModelLoadError:
            raise
        except EvsError as error:
            if is_single:
                raise
            yield failed(item, error)
