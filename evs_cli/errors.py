"""The error tree of evs: one class a kind of failure, one exit code a class.

The library raises these; ``evs_cli.cli.app`` turns them into ``Error:`` and ``Hint:`` lines and the exit
code. Anything else that is raised is a bug and keeps its traceback.
"""

from __future__ import annotations

import re


class EvsError(Exception):
    """Base of every error a user can cause and can mend.

    Args:
        message: one line that says what failed, what was got and what is allowed.
        hint: one line with the next step, or None where there is none.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def first_line(error: BaseException) -> str:
    """The first line of an error's text; its class's name where it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


# A scheme with one slash too: a URL that was made a path has lost the other.
_URL = r"\b[A-Za-z][A-Za-z0-9+.-]*:/{1,2}"


def without_url_secrets(text: str) -> str:
    """Hide the user, the password and the query of each URL in a text: all may hold a key, and output ends up in logs.

    JSON stays JSON: nothing is hidden beyond a quotation mark.
    """
    if ":/" not in text:  # texts may be megabytes of numbers
        return text
    text = re.sub(rf"({_URL})[^/\s\"]*@", r"\1…@", text)
    return re.sub(rf"({_URL}[^\s?\"]*\?)[^\s'\"]*[^\s'\".,:;]", r"\1…", text)


def without_secrets(text: str) -> str:
    """As ``without_url_secrets``, for a text that may be a URL without its scheme: ``me:password@host``."""
    return without_url_secrets(re.sub(r"^[^/\s]+:[^/\s]*@", "…@", text))


class UsageError(EvsError, ValueError):
    """An option or argument outside its allowed range, or options that exclude each other."""

    exit_code = 2


class VideoError(EvsError):
    """A video that cannot be opened, holds no video stream or no frame that decodes."""

    exit_code = 3


class ModelError(EvsError):
    """A model that cannot be found, loaded or run, or that gives unusable embeddings."""

    exit_code = 4


class ModelLoadError(ModelError):
    """Weights that cannot be loaded: it concerns every video of a run, so none is tried after it."""


class ArtifactError(EvsError):
    """An artifact that is missing or invalid, or an output that exists already."""

    exit_code = 5


class BudgetError(EvsError):
    """A video that does not fit the context or token budget asked for."""

    exit_code = 6


class RefusedByServerError(BudgetError):
    """A clip or an option that the server itself, or the model's processor, would refuse or fail on."""


class ServerError(EvsError):
    """A server that cannot be reached, answers an error, or answers what it should not."""


class PlanDiffersError(EvsError):
    """A server that counts a video otherwise than its plan."""

    exit_code = 6
