"""Commands and snippets in a new interpreter, and which modules they loaded."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_WRAPPER = """
import atexit, json, os, sys
def report():
    with open(os.environ["REPORT"], "w") as file:
        json.dump(sorted(sys.modules), file)
atexit.register(report)
sys.argv = ["evs", *sys.argv[1:]]
from evs_cli.cli.app import main
sys.exit(main())
"""


def run_evs(tmp_path, *arguments, env=None):
    """Run a command in a fresh interpreter: the finished process and the modules it had loaded at its end."""
    report = tmp_path / "modules.json"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("EVS_", "_EVS"))},
        "PYTHONPATH": str(ROOT),
        "REPORT": str(report),
        **(env or {}),
    }
    done = subprocess.run(
        [sys.executable, "-c", _WRAPPER, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    return done, set(json.loads(report.read_text()))


def run_fresh(code, folder):
    """Run a snippet in a new interpreter, away from the repository; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr
