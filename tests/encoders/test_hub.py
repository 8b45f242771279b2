"""A hub that is out of reach is asked once, and what needs no weights does not ask it."""

import os
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from evs_cli.encoders import embedded
from evs_cli.encoders.source import DEFAULT_MODEL, resolve_model

ROOT = Path(__file__).resolve().parents[2]

_ASK = """
import sys
from evs_cli.encoders.source import resolve_model
from evs_cli.errors import ModelError
try:
    resolve_model(sys.argv[1])
except ModelError as error:
    print(error.message)
"""


@pytest.fixture
def hub():
    """``hub(status)``: the address of a hub that answers everything with it, or with nothing, and what it was asked."""
    servers = []

    def start(status):
        asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self):
                if self.path.startswith("/Qwen/"):  # the client asks for other things of its own
                    asked.append(self.path)
                if status is not None:
                    self.send_response(status)
                    self.end_headers()

            def do_GET(self):
                self.do_HEAD()

            def log_message(self, *arguments):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}", asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def ask(endpoint, tmp_path, model="qwen3-vl-8b"):
    """What resolving a model of the hub says, in a process of its own that is not told to be offline."""
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "0",
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(tmp_path / "hub"),
        "PYTHONPATH": str(ROOT),
        "NO_PROXY": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", _ASK, model], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("status", [None, 500, 503])
def test_a_hub_out_of_reach_is_asked_once(hub, tmp_path, status):
    """Its client would ask six times, and wait 25 seconds between."""
    endpoint, asked = hub(status)
    assert ask(endpoint, tmp_path) == (
        "cannot load qwen3-vl-8b: the hub is out of reach and its files are not in the cache.\n"
    )
    assert len(asked) == 1


def test_a_port_where_nobody_listens(tmp_path):
    assert "the hub is out of reach" in ask("http://127.0.0.1:9", tmp_path)


def test_a_hub_that_answers_is_asked_what_is_wrong(hub, tmp_path):
    endpoint, asked = hub(404)
    assert "cannot load qwen3-vl-8b: " in ask(endpoint, tmp_path)
    assert len(asked) >= 2


@pytest.fixture
def no_weights(monkeypatch):
    monkeypatch.setattr(embedded, "find_weights", lambda: None)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *_, **__: pytest.fail("asked the hub"))


def test_the_default_model_counts_without_its_weights(no_weights, evs):
    source = resolve_model(DEFAULT_MODEL, counts_alone=True)
    assert (source.location, source.is_embedded) == ("facebook/dinov2-small", False)
    code, out, _ = evs("plan", ROOT / "samples" / "still.mp4", "--q", "0.7")
    assert code == 0
    assert "8,960 video tokens" in out
    assert "2,688" in out


def test_what_is_out_of_reach_stays_out_of_later_calls():
    source = resolve_model(DEFAULT_MODEL, counts_alone=True)
    assert replace(source, is_reachable=False).pretrained_arguments()["local_files_only"] is True
    assert "local_files_only" not in source.pretrained_arguments()
