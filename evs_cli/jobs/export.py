"""An export from the command line: what is asked is checked first, then written, then sent.

In: a video as named, a ``SessionRequest`` and where the body goes. Out: an ``Outcome`` of an ``Exported``.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from evs_cli.errors import UsageError
from evs_cli.files.output_file import check_output_file
from evs_cli.jobs.frames_export import SUFFIX, ExportRequest, FramesExport, FramesExporter
from evs_cli.jobs.inputs import opened
from evs_cli.jobs.runner import Input, Outcome, run_each
from evs_cli.pipeline.progress import Progress, Timings
from evs_cli.pipeline.request import SessionRequest
from evs_cli.pipeline.session import Session
from evs_cli.servers.chat_answer import CHAT_PATH, ChatAnswer, send
from evs_cli.servers.http_json import HttpJson, key_in, parse_address

TARGETS = ("vllm-frames",)
"""What ``--to`` takes."""
_USUAL_ADDRESS = "http://localhost:8000"


@dataclass(frozen=True, eq=False)
class Exported:
    """What became of an export."""

    frames: FramesExport
    curl: str | None = None
    """The shell line that posts the file, where it was asked for."""
    answer: ChatAnswer | None = None
    """The server's, where the body was sent."""


@dataclass(frozen=True)
class ExportJob:
    """What to export and where to.

    Raises:
        UsageError: neither a file nor a server, or a line for a file that is not kept.
        ArtifactError: a file that exists already or cannot be written.
    """

    video: str
    """A path, or - for standard input."""
    output: str | None
    """A ``.json`` file; None only sends the body."""
    server: HttpJson | None
    """Where the body is sent; None only writes it."""
    request: ExportRequest
    overwrite: bool = False
    with_curl: bool = False

    def __post_init__(self) -> None:
        if self.output is None and self.server is None:
            raise UsageError("Neither a file nor a server is given. Expected -o FILE.json, --send URL or both.")
        if self.output is None and self.with_curl:
            raise UsageError("--curl posts a file, and none is kept. Expected -o FILE.json beside it.")
        if self.output is not None:
            check_output_file(Path(self.output), (SUFFIX,), overwrite=self.overwrite)

    def run(self, session_request: SessionRequest, progress: Progress) -> Iterator[Outcome[Exported]]:
        """Write the body, and send it where that was asked for; a body that is only sent leaves no file.

        Raises:
            EvsError: as ``FramesExporter`` and ``chat_answer.send``.
        """

        def work(session_request: SessionRequest, _: Timings) -> Exported:
            return self._export(session_request, progress)

        output = None if self.output is None else Path(self.output)
        named = Input(self.video, output, session_request.model)
        return run_each([(named, session_request)], work, is_single=True)

    def _export(self, session_request: SessionRequest, progress: Progress) -> Exported:
        exporter = FramesExporter(Session(session_request, progress), self.request)
        with ExitStack() as stack:
            if self.output is None:
                path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evs-"))) / "body.json"
            else:
                path = Path(self.output)
            with opened(self.video) as source:
                frames = exporter.export(source, self.video, path, overwrite=self.overwrite)
            answer = None
            if self.server is not None:
                if exporter.request_note is not None:
                    progress.notice(exporter.request_note)
                progress.stage("send")
                answer = send(self.server, path)
        output = None if self.output is None else path
        return Exported(replace(frames, output=output), self._curl_line(), answer)

    def _curl_line(self) -> str | None:
        if not self.with_curl:
            return None
        address = _USUAL_ADDRESS if self.server is None else self.server.address
        header = "Content-Type: application/json"
        return shlex.join(["curl", address + CHAT_PATH, "-H", header, "--data-binary", f"@{self.output}"])


def check_target(to: str) -> None:
    """Raise ``UsageError`` for a target that evs does not write."""
    if to not in TARGETS:
        raise UsageError(f"Invalid --to {to!r}. Expected {' or '.join(TARGETS)}.")


def server_of(url: str | None, api_key_variable: str | None, timeout_seconds: float) -> HttpJson | None:
    """The server of ``--send`` and the options beside it; None where nothing is sent.

    Raises:
        UsageError: an address, a key or a time that cannot be.
    """
    if url is None:
        return None
    return HttpJson(parse_address(url, "--send"), key_in(api_key_variable), timeout_seconds)
