"""Small servers on this machine that follow the published endpoints and count for themselves.

``CountingServer`` decodes the clip it is sent, samples it by a restatement of a server's rule, and lets the
checkpoint's own processor write the ids: nothing of evs takes part. Its ``Habits`` say where it is to differ from the
plan. ``CannedServer`` answers whatever it is told to, ``Listener`` need not even speak HTTP.
"""

import base64
import io
import json
import math
import socket
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import av
import numpy as np
import torch
import transformers as tf

UNTRUSTED = (
    "Per-request {} are disabled by default because they can change multimodal preprocessing resource usage. Start "
    "the server with --trust-request-mm-kwargs only when clients are trusted."
)


@dataclass
class Habits:
    """How a server takes videos; the defaults are those of a vLLM 0.33 without options."""

    owner: str = "vllm"
    version: str = "0.33.0"
    fps: float = 2.0
    heeds_requests: bool = True
    """Whether fps in a request's media_io_kwargs counts."""
    more_frames: int = 0
    q: float = 0.0
    times_factor: float = 1.0
    """Of the rate that the processor is told, which makes other timestamps."""
    system: str | None = None
    """Text of a system message that it adds."""
    max_model_len: int = 4096
    has_tokenize: bool = True
    expands: bool = True
    """Whether /tokenize writes the video's placeholders out."""
    key: str | None = None
    served_name: str = "tiny"
    tells_video_tokens: bool = False
    trusts_requests: bool = False
    """Whether a vLLM was started with --trust-request-mm-kwargs; it refuses what a request says of sampling if not."""


class _Server:
    """A server in a thread, and what it was asked."""

    def __init__(self):
        self.requests = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                owner.handle(self, None)

            def do_POST(self):
                owner.handle(self, self.rfile.read(int(self.headers["Content-Length"])))

            def log_message(self, *arguments):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self):
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def handle(self, handler, body):
        self.requests.append((handler.command, handler.path, dict(handler.headers), body))
        status, headers, content = self.answer(handler.path, dict(handler.headers), body)
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def bodies(self, path):
        """What was posted to a path, decoded."""
        return [json.loads(body) for _, asked, _, body in self.requests if asked == path and body is not None]


class CannedServer(_Server):
    """Answers ``{path: (status, content)}``, content an object for JSON or bytes; 404 elsewhere, as FastAPI says it."""

    def __init__(self, answers):
        super().__init__()
        self.answers = answers

    def answer(self, path, headers, body):
        status, content, *more = self.answers.get(path, (404, {"detail": "Not Found"}))
        return status, more[0] if more else {}, content if isinstance(content, bytes) else json.dumps(content).encode()


class Listener:
    """Accepts connections and does with each what it is told."""

    def __init__(self, act):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, args=(act,), daemon=True)

    def _serve(self, act):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                act(connection)

    def __enter__(self):
        self._thread.start()
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __exit__(self, *error):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@dataclass
class CountingServer(_Server):
    """Serves a checkpoint's processor."""

    folder: Path
    habits: Habits = field(default_factory=Habits)

    def __post_init__(self):
        super().__init__()
        self.processor = tf.AutoProcessor.from_pretrained(self.folder)

    def answer(self, path, headers, body):
        habits = self.habits
        if body is not None and habits.owner == "vllm" and not habits.trusts_requests:
            refused = next(
                (name for name in ("mm_processor_kwargs", "media_io_kwargs") if json.loads(body).get(name)), None
            )
            if refused is not None:
                return 400, {}, json.dumps({"error": {"message": UNTRUSTED.format(refused), "code": 400}}).encode()
        if habits.key is not None and headers.get("Authorization") != f"Bearer {habits.key}":
            return 401, {}, json.dumps({"error": "Unauthorized"}).encode()
        if path == "/v1/models":
            card = {"id": habits.served_name, "object": "model", "owned_by": habits.owner, "root": str(self.folder)}
            content = {"object": "list", "data": [{**card, "max_model_len": habits.max_model_len}]}
        elif path in ("/version", "/server_info"):
            content = {"version": habits.version}
        elif path == "/tokenize" and habits.has_tokenize:
            ids = self.input_ids(json.loads(body))
            content = {"count": len(ids), "max_model_len": habits.max_model_len, "tokens": ids, "token_strs": None}
        elif path == "/v1/chat/completions":
            request = json.loads(body)
            assert request["max_tokens"] == 1
            ids = self.input_ids(request, expands=True)
            usage = {"prompt_tokens": len(ids), "completion_tokens": 1, "total_tokens": len(ids) + 1}
            if habits.tells_video_tokens:
                usage["prompt_tokens_details"] = {"video_tokens": ids.count(self.placeholder_id)}
            content = {"object": "chat.completion", "choices": [], "usage": usage}
        else:
            return 404, {}, json.dumps({"detail": "Not Found"}).encode()
        return 200, {"Content-Type": "application/json"}, json.dumps(content).encode()

    @property
    def placeholder_id(self):
        is_nemotron = isinstance(self.processor, tf.NemotronH_Omni_Reasoning_V3Processor)
        return self.processor.tokenizer.convert_tokens_to_ids("<image>" if is_nemotron else "<|video_pad|>")

    def sampler(self):
        if self.habits.owner == "sglang":
            return sglang_frames
        samplers = {tf.Qwen2_5_VLProcessor: vllm_pairs, tf.NemotronH_Omni_Reasoning_V3Processor: vllm_uniform}
        return samplers.get(type(self.processor), vllm_frames)

    def input_ids(self, request, *, expands=None):
        """The prompt as the processor writes it, with what the habits change."""
        habits = self.habits
        assert request["model"] == habits.served_name
        *before, message = request["messages"]
        part, text = message["content"]
        assert (part["type"], text["type"]) == ("video_url", "text")
        messages = [*before, {"role": "user", "content": [{"type": "video"}, text]}]
        if habits.system is not None:
            messages.insert(0, {"role": "system", "content": habits.system})
        prompt = self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        if not (habits.expands if expands is None else expands):
            return self.processor.tokenizer(prompt)["input_ids"]
        frames, rate = decoded(clip_bytes(part["video_url"]["url"]))
        asked = request.get("media_io_kwargs", {}).get("video", {}) if habits.heeds_requests else {}
        sample = self.sampler()
        indices, frames = sample(frames, rate, asked.get("fps", habits.fps), habits.more_frames)
        inputs = self.processor(
            text=[prompt],
            videos=[frames],
            video_metadata=[
                {
                    "fps": rate * habits.times_factor,
                    "frames_indices": indices.tolist(),
                    "total_num_frames": len(frames),
                }
            ],
            do_sample_frames=False,
            input_data_format="channels_first",
            return_tensors="pt",
            **request.get("mm_processor_kwargs", {}),
        )
        ids = inputs["input_ids"][0].tolist()
        if habits.q == 0:
            return ids
        grids, height, width = inputs["video_grid_thw"][0].tolist()  # the Qwen families'
        a_frame = height * width // self.processor.video_processor.merge_size**2
        return pruned_ids(ids, self.placeholder_id, max(a_frame, int(grids * a_frame * (1 - habits.q))))


def clip_bytes(url):
    """The file that a URL stands for: in it, or on this machine."""
    if url.startswith("file://"):
        return Path(unquote(urlsplit(url).path)).read_bytes()
    head, _, data = url.partition(",")
    assert head.startswith("data:video/")
    assert head.endswith(";base64")
    return base64.b64decode(data, validate=True)


def decoded(content):
    """(F, 3, H, W) uint8 frames and the average rate of a file."""
    with av.open(io.BytesIO(content)) as container:
        rate = float(container.streams.video[0].average_rate)
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2), rate


def vllm_frames(frames, rate, fps, more):
    """vLLM's loader of Qwen3-VL: the share of the frames that fps wants, evenly from the first to the last, rounded."""
    total = len(frames)
    wanted = min(max(int(total / rate * fps), 4), 768, total) + more
    indices = np.linspace(0, total - 1, wanted).round().astype(int)
    return indices, frames[indices.tolist()]


def vllm_uniform(frames, rate, fps, more):
    """vLLM's loader of Nemotron: 32 frames evenly from the first to the last, cut down to whole ones."""
    indices = np.linspace(0, len(frames) - 1, min(32 + more, len(frames))).astype(int)
    return indices, frames[indices.tolist()]


def vllm_pairs(frames, rate, fps, more):
    """vLLM's loader of Qwen2.5-VL: whole pairs of frames, from the first on at even steps."""
    total = len(frames)
    wanted = math.floor(min(max(total / rate * fps, 4), 768, total) / 2) * 2 + more
    indices = np.arange(0, total, total / wanted).astype(int)[:wanted]
    return indices, frames[indices.tolist()]


def sglang_frames(frames, rate, fps, more):
    """SGLang's processor of the Qwen families: whole pairs of frames, cut down, resized to multiples of 28."""
    total, _, height, width = frames.shape
    wanted = math.floor(min(max(total / rate * fps, 4), 768, total) / 2) * 2 + more
    indices = np.unique(np.linspace(0, total - 1, wanted).astype(int))
    share = max(min(602_112, 90_316_800 / len(indices) * 2), int(100_352 * 1.05))
    rows, columns = round(height / 28) * 28, round(width / 28) * 28
    if rows * columns > share:
        factor = math.sqrt(height * width / share)
        rows, columns = (max(28, math.floor(side / factor / 28) * 28) for side in (height, width))
    elif rows * columns < 100_352:
        factor = math.sqrt(100_352 / (height * width))
        rows, columns = (math.ceil(side * factor / 28) * 28 for side in (height, width))
    resized = torch.nn.functional.interpolate(frames[indices.tolist()].float(), size=(rows, columns))
    return indices, resized.to(torch.uint8)


def pruned_ids(ids, placeholder_id, retained):
    """Ids as vLLM shows them to a client when it prunes: what is kept stands under the first frame."""
    first = ids.index(placeholder_id)
    rest = [token for token in ids[first:] if token != placeholder_id]
    return [*ids[:first], *[placeholder_id] * retained, *rest]
