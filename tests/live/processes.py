"""Servers of all cases in one process a kind: started by each case's command line, ended with their block."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import Case, sglang_words, vllm_words
from environments import Environment
from verdicts import SERVED_NAME

_HERE = Path(__file__).parent
_UNPROFILED = '{"image": 0, "video": {"count": 1, "num_frames": 2, "width": 64, "height": 64}}'
"""A server makes the largest image and video at start, which takes a minute and changes no count."""


@dataclass(frozen=True)
class Servers:
    """What is running."""

    version: str
    """As the servers' package says it."""
    urls: Mapping[tuple[str, tuple[str, ...]], str]
    """By family and options."""
    commands: Mapping[tuple[str, tuple[str, ...]], str]
    """As a user starts such a server."""

    def of(self, case: Case) -> tuple[str, str]:
        """The URL of a case's server, and its command line."""
        key = (case.family, case.started)
        return self.urls[key], self.commands[key]


def vllm_servers(
    environment: Environment, cases: Sequence[Case], checkpoints: Mapping[str, Path], folder: Path
) -> AbstractContextManager[Servers]:
    """Render servers of vLLM.

    Raises:
        RuntimeError: one of them does not start.
    """
    words = {key: vllm_words(checkpoints[key[0]], key[1]) for key in _keys(cases)}
    more = ("--host", "127.0.0.1", "--limit-mm-per-prompt", _UNPROFILED, "--mm-processor-cache-gb", "0")
    return _serving(environment, "render_servers.py", ("vllm", "serve"), words, more, folder / "vllm.log")


def sglang_servers(
    environment: Environment, cases: Sequence[Case], checkpoints: Mapping[str, Path], folder: Path
) -> AbstractContextManager[Servers]:
    """SGLang's processors behind an HTTP server.

    Raises:
        RuntimeError: one of them does not start.
    """
    words = {key: sglang_words(checkpoints[key[0]], key[1]) for key in _keys(cases)}
    program = ("python", "-m", "sglang.launch_server")
    return _serving(environment, "processor_servers.py", program, words, (), folder / "sglang.log")


def _keys(cases: Sequence[Case]) -> list[tuple[str, tuple[str, ...]]]:
    """Families and options that need a server each, in order."""
    return sorted({(case.family, case.started) for case in cases})


@contextmanager
def _serving(
    environment: Environment,
    script: str,
    program: tuple[str, ...],
    words: Mapping[Any, list[str]],
    more: tuple[str, ...],
    log: Path,
) -> Iterator[Servers]:
    """Servers of ``words``, which a user starts by ``program``; ``more`` is for this run alone."""
    ports = _free_ports(words)
    named = ("--served-model-name", SERVED_NAME, *more)
    own = {key: [*line, "--port", str(ports[key]), *named] for key, line in words.items()}
    commands = {key: shlex.join([*program, *line]) for key, line in words.items()}
    with _running(environment, _HERE / script, own, log) as version:
        yield Servers(version, {key: f"http://127.0.0.1:{port}" for key, port in ports.items()}, commands)


@contextmanager
def _running(environment: Environment, script: Path, words: Mapping[Any, list[str]], log: Path) -> Iterator[str]:
    """The version of the servers, once all of them answer; they end with the block."""
    lines = log.with_suffix(".json")
    lines.write_text(json.dumps(list(words.values())), encoding="utf-8")
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables |= {"PYTHONPATH": str(environment.path)} if environment.path is not None else {}
    variables |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("w", encoding="utf-8") as noise:
        process = subprocess.Popen(
            [environment.python, str(script), str(lines)],
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": noise},
            env=variables,
            text=True,
        )
    try:
        yield _started(process, log)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _started(process: subprocess.Popen[str], log: Path) -> str:
    version = ""
    assert process.stdout is not None
    for line in process.stdout:
        if not line.startswith("{"):
            continue  # what a library prints
        said = json.loads(line)
        if "failed" in said:
            raise RuntimeError(f"server {said['number']} does not start: {said['failed']}; see {log}")
        if "seconds" in said:
            print(f"server {said['number']} is up after {said['seconds']} s", file=sys.stderr)
        version = said.get("version", version)
        if said.get("ready"):
            return version
    raise RuntimeError(f"the servers' process ended with {process.wait()}; see {log}")


def _free_ports(keys: Iterable[Any]) -> dict[Any, int]:
    """A port for each, which nobody listens on now."""
    sockets = {key: socket.create_server(("127.0.0.1", 0)) for key in keys}
    ports = {key: taken.getsockname()[1] for key, taken in sockets.items()}
    for taken in sockets.values():
        taken.close()
    return ports
