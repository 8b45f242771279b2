"""A picture that matplotlib draws, with its numbers beside it as CSV: refused before any work where it cannot be."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from evs_cli.errors import UsageError
from evs_cli.files.output_file import check_output_file


def check_figure_path(path: Path, suffixes: Sequence[str], *, named: str, overwrite: bool) -> None:
    """Refuse a picture, or the CSV beside it, that could not be written later.

    Args:
        path: the picture.
        suffixes: what it may end with.
        named: what asks for matplotlib, in the message where that is missing.
        overwrite: whether both may exist.

    Raises:
        UsageError: another suffix, or matplotlib is not installed.
        ArtifactError: one of the two exists already, or their folder cannot be written.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(f"{named} needs matplotlib, which is not installed.", hint="pip install 'evs-cli[plot]'")
    check_output_file(path, suffixes, overwrite=overwrite)
    check_output_file(path.with_suffix(".csv"), (".csv",), overwrite=overwrite)
