"""vLLM's render servers, several in one process: each answers ``/tokenize`` with the ids of the full server.

Runs in the environment that has vLLM, not in that of evs: ``python render_servers.py SERVERS.json``. The file holds a
list of command lines behind ``vllm launch render``. Prints a line of JSON a server as soon as it is built, and then
serves all of them until its standard input closes.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

TOLD = os.fdopen(os.dup(1), "w")
"""What the caller reads; it stops once all servers are up, so that a library's own lines would fill the pipe."""
os.dup2(2, 1)

try:
    from vllm.entrypoints.common.cli_args import make_arg_parser, validate_parsed_serve_args  # 0.33
except ImportError:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args  # 0.32
from vllm import AsyncEngineArgs
from vllm.config import VllmConfig
from vllm.entrypoints.launchers.launcher import setup_server
from vllm.entrypoints.launchers.render.entry import build_and_serve_renderer
from vllm.model_executor.models import registry
from vllm.utils.argparse_utils import FlexibleArgumentParser

registry._run_in_subprocess = lambda inspect: (
    inspect()
)  # a process a family would spare CUDA alone, and import it all anew


SERVING: set[asyncio.Task[Any]] = set()
"""What answers; asyncio itself forgets a task that nobody holds."""


async def serve(words: list[str]) -> None:
    """Build one server as ``vllm launch render`` does; it answers until the process ends."""
    parser = make_arg_parser(FlexibleArgumentParser())
    arguments = parser.parse_args(words)
    if getattr(arguments, "model_tag", None) is not None:
        arguments.model = arguments.model_tag
    validate_parsed_serve_args(arguments)
    address, socket = setup_server(arguments, reuse_port=False)
    engine = AsyncEngineArgs.from_cli_args(arguments)
    config = VllmConfig(
        model_config=engine.create_model_config(),
        logging_config=engine.create_logging_config(),
        structured_outputs_config=engine.create_structured_outputs_config(),
    )
    serving = asyncio.create_task(build_and_serve_renderer(config, address, socket, arguments))
    while not serving.done():
        try:
            _, writer = await asyncio.open_connection(arguments.host, arguments.port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            SERVING.add(serving)
            return
    await serving  # raises what went wrong


def tell(**said: Any) -> None:
    """One line to the caller."""
    print(json.dumps(said), file=TOLD, flush=True)


async def main() -> None:
    """Build every server, tell how each went, and wait for the end of standard input."""
    for number, words in enumerate(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))):
        begin = time.perf_counter()
        try:
            await serve(words)
        except BaseException as error:  # argparse ends with SystemExit; the other servers go on
            tell(number=number, failed=f"{type(error).__name__}: {error}"[:300])
        else:
            tell(number=number, seconds=round(time.perf_counter() - begin, 2))
    tell(ready=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)  # uvicorn would wait for its clients


if __name__ == "__main__":
    from vllm import __version__

    tell(version=__version__)
    asyncio.run(main())
