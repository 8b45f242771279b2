"""``evs`` and ``python -m evs_cli``: starts the program so that Ctrl-C is quiet while it is still being imported."""

from __future__ import annotations

import contextlib
import gc
import os
import sys

from evs_cli.report import interrupt

_ALLOCATIONS_A_COLLECTION = 50_000  # Python's own is 700 to 2,000
_TELLS_OF_LEAKS = "triton._C.libtriton"
"""A module of nanobind from triton 3.9 on: at exit it prints 30 lines on its objects that were not collected."""


def main() -> int:
    """Run the command line of this process; returns the exit code.

    torch and transformers are a million objects that live to the end. Looking through them for garbage again and again
    while they are imported, and once more at exit, is a fifth of the time that a short video takes: collections are
    rarer here, and the last one is left out where no module complains.
    """
    gc.set_threshold(_ALLOCATIONS_A_COLLECTION)
    interrupt.watch()
    try:
        from evs_cli.cli.app import main as run

        code = run()
    except KeyboardInterrupt:  # before the program could take it
        with contextlib.suppress(OSError, AttributeError):
            sys.stderr.write("Interrupted.\n")
        code = 130
    if _TELLS_OF_LEAKS not in sys.modules:
        gc.freeze()
    if code == 130:  # now: Python would wait for a batch that is still being preprocessed, and end by a signal at times
        with contextlib.suppress(OSError, AttributeError):  # nobody reads the pipe any more, or the caller closed it
            sys.stdout.flush()
        os._exit(interrupt.exit_code())
    return code


if __name__ == "__main__":
    sys.exit(main())
