"""Empty modules in place of those that a server's preprocessing imports and does not use: kernels, layers, models.

``install(names)`` makes every import below one of the names, and of packages that are not installed, give a module
whose attributes are classes without content.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterable, Sequence
from typing import Any


class _EmptyMeta(type):
    """So that the class itself has every attribute, and stands in annotations such as ``A | None`` and ``A[int]``."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _empty(name)

    def __or__(cls, other: Any) -> Any:
        return cls

    def __ror__(cls, other: Any) -> Any:
        return cls

    def __getitem__(cls, key: Any) -> Any:
        return cls

    def __iter__(cls) -> Any:
        return iter(())


def _empty(name: str) -> Any:
    def decorated(cls: Any, *arguments: Any, **keywords: Any) -> Any:
        if len(arguments) == 1 and isinstance(arguments[0], (types.FunctionType, type)) and not keywords:
            return arguments[0]  # used as a decorator
        return object.__new__(cls)

    members = {
        "__new__": decorated,
        "__init__": lambda self, *arguments, **keywords: None,
        "__call__": lambda self, *arguments, **keywords: arguments[0] if arguments else None,
        "__getattr__": lambda self, attribute: _empty(attribute),
    }
    return _EmptyMeta(name, (), members)


class _EmptyModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _empty(name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, is_absent: Any) -> None:
        self._is_absent = is_absent

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if not self._is_absent(name):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        module = _EmptyModule(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is in it."""


def install(names: Iterable[str], *, packages: Iterable[str]) -> None:
    """Make modules below ``names`` empty, and ``packages`` that are not installed."""
    prefixes, missing = tuple(f"{name}." for name in names), frozenset(packages)
    sys.meta_path.insert(0, _Finder(lambda name: f"{name}.".startswith(prefixes)))
    sys.meta_path.append(_Finder(lambda name: name.partition(".")[0] in missing))
