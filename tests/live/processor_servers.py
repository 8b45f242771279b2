"""SGLang's own processors behind HTTP servers: ``/tokenize`` answers with the ids of a chat prompt with its video.

Runs in an environment with torch, transformers and torchcodec, and with SGLang's Python files on the path:
``python processor_servers.py SERVERS.json``, a list of command lines behind ``python -m sglang.launch_server``. The
processors sample, resize and write the prompt as in the server; models, layers and kernels, which they only name, are
empty. The chat template is the checkpoint's, rendered by its tokenizer as SGLang does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TOLD = os.fdopen(os.dup(1), "w")
"""What the caller reads; it stops once all servers are up, so that a library's own lines would fill the pipe."""
os.dup2(2, 1)
os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")  # before its modules are imported
sys.path.insert(0, str(Path(__file__).parent))

import absent_modules

_UNUSED = (
    *("sglang.srt.models", "sglang.srt.layers", "sglang.kernels", "sglang.srt.model_loader", "sglang.lang"),
    *("sglang.srt.model_executor", "sglang.srt.mem_cache", "sglang.srt.distributed", "sglang.srt.disaggregation"),
)
_ABSENT_PACKAGES = ("triton", "sgl_kernel", "flashinfer")
absent_modules.install(_UNUSED, packages=_ABSENT_PACKAGES)

import msgspec
from sglang.srt import runtime_context
from sglang.srt.server_args import ServerArgs

_DEFAULTS = {field.name: field for field in msgspec.structs.fields(ServerArgs)}


class Settings(SimpleNamespace):
    """What SGLang's processors ask of a running server; whatever is not said is as without an option."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        field = _DEFAULTS.get(name)
        if field is None or field.default is not msgspec.NODEFAULT:
            return None if field is None else field.default
        return None if field.default_factory is msgspec.NODEFAULT else field.default_factory()


STARTED = Settings(mm_preprocess_cache_size_mb=0, mm_processor_worker_num=1, tp_size=1)
"""What is asked of any part of the server's settings; ``mm_process_config`` is each server's own."""
runtime_context.RuntimeContext.config_bag = lambda self, name: STARTED
runtime_context.get_parallel = lambda: STARTED

import torch
import transformers
from sglang.srt.multimodal.processors import glm4v, qwen_vl
from sglang.version import __version__


class NoPositions:
    """In place of ``MRotaryEmbedding``: positions are made from the ids, which are settled by then."""

    @staticmethod
    def get_rope_index(**of_ids: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Zeros of the shape that is expected."""
        return torch.zeros(3, 1, 1, dtype=torch.long), torch.zeros(1, 1, dtype=torch.long)

    get_rope_index_glm4v = get_rope_index


glm4v.MRotaryEmbedding = qwen_vl.MRotaryEmbedding = NoPositions
PROCESSORS = dict.fromkeys(("qwen2_5_vl", "qwen3_vl", "qwen3_5"), qwen_vl.QwenVLImageProcessor)
PROCESSORS |= dict.fromkeys(("glm4v", "glm4v_moe"), glm4v.Glm4vImageProcessor)
"""By ``model_type``."""


class Counter:
    """One checkpoint with a server's options."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.name, self.folder = arguments.served_model_name, arguments.model_path
        self.max_model_len = arguments.context_length
        config = transformers.AutoConfig.from_pretrained(self.folder)
        self.processor = transformers.AutoProcessor.from_pretrained(self.folder)
        STARTED.mm_process_config = json.loads(arguments.mm_process_config)  # read as a processor is made
        self.own = PROCESSORS[config.model_type](config, Settings(), self.processor, "default", skip_mm_pool=True)

    def ids(self, body: dict[str, Any]) -> list[int]:
        """The ids of a chat prompt, its video's part written out."""
        videos = [
            part["video_url"]["url"].removeprefix("file://")
            for message in body["messages"]
            if not isinstance(message["content"], str)
            for part in message["content"]
            if part["type"] == "video_url"
        ]
        messages = [{**message, "content": _template_parts(message["content"])} for message in body["messages"]]
        text = self.processor.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        request = Settings(video_data=videos, image_data=[], audio_data=[], rid="0")
        found = asyncio.run(self.own.process_mm_data_async([], input_text=text, request_obj=request))
        ids = found["input_ids"] if isinstance(found, dict) else found.input_ids
        return [int(token) for token in ids]


def _template_parts(content: Any) -> Any:
    if isinstance(content, str):
        return content
    return [{"type": "video"} if part["type"] == "video_url" else part for part in content]


def handler_of(counter: Counter) -> type[BaseHTTPRequestHandler]:
    """Answers as SGLang does where evs asks; ``/tokenize`` writes a video out, which SGLang's does not."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            card = {"id": counter.name, "object": "model", "owned_by": "sglang", "root": counter.folder}
            answers = {
                "/v1/models": {"object": "list", "data": [{**card, "max_model_len": counter.max_model_len}]},
                "/server_info": {"version": __version__},
            }
            self.answer(200 if self.path in answers else 404, answers.get(self.path, {"detail": "Not Found"}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                ids = counter.ids(body)
            except Exception as error:  # as a server answers whatever its processor raises
                traceback.print_exc()
                self.answer(400, {"message": f"{type(error).__name__}: {error}"[:300]})
            else:
                self.answer(200, {"tokens": ids, "count": len(ids), "max_model_len": counter.max_model_len})

        def answer(self, status: int, content: dict[str, Any]) -> None:
            text = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    return Handler


def tell(**said: Any) -> None:
    """One line to the caller."""
    print(json.dumps(said), file=TOLD, flush=True)


def main() -> None:
    """Make every server, tell how each went, and wait for the end of standard input."""
    tell(version=__version__)
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--context-length", type=int)
    parser.add_argument("--mm-process-config", default="{}")
    for number, words in enumerate(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))):
        begin = time.perf_counter()
        try:
            arguments = parser.parse_args(words)
            server = ThreadingHTTPServer(("127.0.0.1", arguments.port), handler_of(Counter(arguments)))
        except BaseException as error:
            traceback.print_exc()
            tell(number=number, failed=f"{type(error).__name__}: {error}"[:300])
        else:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            tell(number=number, seconds=round(time.perf_counter() - begin, 2))
    tell(ready=True)
    sys.stdin.read()
    os._exit(0)  # pools of the processors' threads stay


if __name__ == "__main__":
    main()
