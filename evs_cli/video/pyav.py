"""What differs between the releases of PyAV that evs runs on (16 to 19).

Each function gives the arguments for one call of PyAV, by the release at hand. The calls themselves stay where they
are made. PyAV's functions have no signatures to ask, so the number of the release decides.
"""

from __future__ import annotations

import functools


def open_options() -> dict[str, str]:
    """Arguments of ``av.open`` with which a title that is not UTF-8 stops no file.

    Before release 19 such a title raises UnicodeDecodeError unless it is told otherwise. Release 19 keeps its bytes
    as surrogates by itself, and refuses the argument.
    """
    return {"metadata_errors": "replace"} if _major() < 19 else {}


def one_thread() -> dict[str, int]:
    """Arguments of ``VideoFrame.to_ndarray`` that keep the conversion in the calling thread.

    Since release 17 libswscale starts threads of its own unless it is told otherwise. Release 16 has neither the
    threads nor the argument.
    """
    return {"threads": 1} if _major() >= 17 else {}


@functools.cache  # asked once a picture
def _major() -> int:
    import av

    return int(av.__version__.partition(".")[0])
