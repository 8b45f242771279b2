"""Releases of transformers: which one is installed, and the error where something needs a newer one.

The number comes from the package's metadata, so nothing heavy is imported to ask for it.
"""

from __future__ import annotations

from importlib.metadata import version

from packaging.version import Version

from evs_cli.errors import ModelError


def transformers_release() -> Version:
    """The installed release."""
    return Version(version("transformers"))


def require_transformers(needed: str, task: str, reason: str) -> None:
    """Raise ``ModelError`` where the installed transformers is older than ``needed``.

    Args:
        needed: the first release that will do, such as "5.18".
        task: what cannot be done, for "cannot ...".
        reason: why an older release will not do, as a clause.
    """
    found = transformers_release()
    if found < Version(needed):
        raise ModelError(
            f"cannot {task}: {reason}. It needs transformers {needed} or newer; {found} is installed.",
            hint=f"pip install 'transformers>={needed}'",
        )
