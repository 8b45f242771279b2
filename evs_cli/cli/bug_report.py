"""The versions that a report of an unexpected error needs: of evs, of Python and of the libraries behind it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version

from packaging.requirements import Requirement

from evs_cli._version import __version__


def versions_behind(error: BaseException) -> str:
    """``evs 0.1.0, Python 3.13.0, av 19.0.2, numpy 2.5.5``, on one line.

    The library that raised the error stands first, where its code is in the traceback. The dependencies of evs that
    were loaded follow, since compiled code leaves no trace.
    """
    distributions_of = packages_distributions()
    loaded = {name for module in distributions_of.keys() & sys.modules.keys() for name in distributions_of[module]}
    names = dict.fromkeys(distributions_of.get(_raising_package(error), ())[:1])
    names |= dict.fromkeys(name for name in _declared_dependencies() if name in loaded)
    names.pop("evs-cli", None)
    libraries = [f"{name} {version(name)}" for name in names]
    return ", ".join([f"evs {__version__}", f"Python {platform.python_version()}", *libraries])


def _raising_package(error: BaseException) -> str:
    """The top-level package whose code the innermost frame of the traceback runs."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return module.partition(".")[0]


def _declared_dependencies() -> Iterator[str]:
    """Distributions that evs asks for, in the order of their declaration."""
    try:
        declared = requires("evs-cli") or ()
    except PackageNotFoundError:  # run from a folder of sources
        return
    for line in declared:
        yield Requirement(line).name
