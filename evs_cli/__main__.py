"""``evs`` and ``python -m evs_cli``: starts the program so that Ctrl-C is quiet while it is still being imported."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    try:
        from evs_cli.cli.app import main as run

        return run()
    except KeyboardInterrupt:  # before the program could take it
        sys.stderr.write("Interrupted.\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
