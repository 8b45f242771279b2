"""A key is never printed: not where its name is expected, not by a server that repeats it, not with ``--debug``."""

import inspect
import json

import pytest
from counting_servers import CannedServer, Listener
from video_files import video

from evs_cli.cli.app import _COMMANDS
from evs_cli.errors import UsageError, without_secrets
from evs_cli.files.encoding.byte_source import open_bytes
from evs_cli.jobs.check import CheckRequest
from evs_cli.report.console import Sink
from evs_cli.servers.http_json import HttpJson

SECRET = "sk-SECRET123"
WITH_A_KEY = {
    "check": ("--url",),
    "export": ("--to", "vllm-frames", "--num-frames", "4", "--send"),
}
"""Every command that takes a key, and the options before the server's address."""


@pytest.fixture(params=WITH_A_KEY)
def command(request, evs, tiny_model, tmp_path, monkeypatch):
    """Run a command that takes a key with ``--debug``: its exit code, and all it printed."""
    monkeypatch.chdir(tmp_path)

    def run(url, *arguments):
        model = ("--model", str(tiny_model("qwen3_vl")), "--debug")
        code, out, err = evs(request.param, video("normal.mp4"), *model, *WITH_A_KEY[request.param], url, *arguments)
        assert SECRET not in out
        assert SECRET not in err
        return code, out + err

    return run


def test_every_command_with_a_key_is_tested():
    takers = {name for name, module in _COMMANDS.items() if "api_key" in inspect.signature(module.command).parameters}
    assert takers == set(WITH_A_KEY)


@pytest.mark.parametrize("more", [(), ("--json",), ("-v", "-v")])
def test_a_key_in_place_of_its_variable(command, more):
    code, text = command("http://localhost:9", "--api-key", SECRET, *more)
    assert code == 2
    assert "Invalid --api-key: no environment variable of this name holds a key. Expected its name." in text


def test_a_command_without_a_key_does_not_repeat_one(evs):
    for arguments in (("plan", "clip.mp4"), ("check", "clip.mp4", "--url", "http://h"), ("export", "clip.mp4")):
        for option in ("--api-kye", "-api-key"):
            for given in ((option, SECRET), (f"{option}={SECRET}",)):
                code, out, err = evs(*arguments, *given)
                assert code == 2
                assert SECRET not in out + err


@pytest.mark.parametrize("inside", ["a\nb", "clé"])
def test_a_key_that_cannot_be_sent(command, monkeypatch, inside):
    monkeypatch.setenv("MY_KEY", SECRET + inside)
    code, text = command("http://localhost:9", "--api-key", "MY_KEY")
    assert code == 2
    assert "Invalid key of --api-key" in text


def test_the_line_break_behind_a_key_is_not_sent(command, monkeypatch):
    monkeypatch.setenv("MY_KEY", f"{SECRET}\n")
    with CannedServer({}) as server:
        command(server.url, "--api-key", "MY_KEY")
        assert {headers["Authorization"] for _, _, headers, _ in server.requests} == {f"Bearer {SECRET}"}


@pytest.mark.parametrize(
    "answer",
    [
        (401, {"error": {"message": f"Incorrect API key provided: {SECRET}."}}),
        (403, f"no entry for Bearer {SECRET}".encode()),
        (400, {"message": "x" * 290 + f" {SECRET}"}),  # cut in the middle of the key
        (302, b"", {"Location": f"http://elsewhere/?key={SECRET}"}),
        (302, b"", {"Location": f"http://me:{SECRET}@elsewhere/"}),
        (200, f"<html>{SECRET}".encode()),
    ],
)
def test_a_server_that_repeats_the_key(command, monkeypatch, answer):
    monkeypatch.setenv("MY_KEY", SECRET)
    with CannedServer(dict.fromkeys(("/v1/models", "/v1/chat/completions"), answer)) as server:
        code, text = command(server.url, "--api-key", "MY_KEY")
    assert code == 1
    assert "sk-" not in text


def test_a_status_line_that_repeats_the_key(command, monkeypatch):
    monkeypatch.setenv("MY_KEY", SECRET)
    for line in (f"HTTP/1.1 401 {SECRET}", f"{SECRET}"):

        def act(connection, line=line):
            connection.settimeout(0.2)
            try:
                while connection.recv(65536):
                    pass
            except TimeoutError:
                connection.sendall(f"{line}\r\nContent-Length: 0\r\n\r\n".encode())

        with Listener(act) as url:
            assert command(url, "--api-key", "MY_KEY")[0] == 1


@pytest.mark.parametrize(
    "url",
    [
        *(f"http://me:{SECRET}@host", f"http://{SECRET}@host:0", f"ftp://me:{SECRET}@host", f"me:{SECRET}@host"),
        *(f"http://me:{SECRET}@host:99999", f"http://me:{SECRET}/@host", f"http://me:{SECRET}#@host"),
        *(f"http://host:x?key={SECRET}", f"http://host#{SECRET}", f"http://me:{SECRET}\u2100@host"),
    ],
)
def test_a_key_in_an_address(command, url):
    code, text = command(url)
    assert code == 2
    assert "A key goes by --api-key" in text


def test_a_key_in_a_servers_command_line(evs):
    for line in (f"VLLM_API_KEY={SECRET} serve m", f"tgi --api-key {SECRET}", f"tgi --api-key '{SECRET}"):
        code, out, err = evs("plan", video("normal.mp4"), "--server-cmd", line, "--debug")
        assert code == 2
        assert "Invalid --server-cmd" in err
        assert SECRET not in out + err


@pytest.mark.parametrize("url", ["ftp://me:{}@host/a", "me:{}@host/a", "ftp://host/a?sig={}", "http://me:{}\u2100@h/"])
def test_a_key_in_the_address_of_a_clip(url):
    try:
        CheckRequest("a.mp4", "http://host", as_url=url.format(SECRET))
    except UsageError as error:
        assert SECRET not in str(error)  # noqa: PT017


def test_a_key_in_the_address_of_an_encoding(evs):
    for url in (f"nofs://me:{SECRET}@host/a.safetensors", f"nofs://host/a.safetensors?sig={SECRET}"):
        code, out, err = evs("show", url, "--debug")
        assert code == 5
        assert SECRET not in out + err
        with pytest.raises(Exception, match="cannot read nofs://") as error:
            open_bytes(url)
        assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    "url", ["http://me:{}@host/clip.mp4", "https://{}@host/clip.mp4", "https://host/clip.mp4?s={}"]
)
@pytest.mark.parametrize("more", [("--debug",), ("--json",), ("--format", "csv"), ("more.mp4", "--json")])
@pytest.mark.parametrize(
    "command", [("plan",), ("fit", "--context", "8k"), ("prune",), ("sweep",), ("encode", "-o", "kept/")]
)
def test_a_key_in_the_address_of_a_video(evs, tmp_path, monkeypatch, command, more, url):
    monkeypatch.chdir(tmp_path)
    code, out, err = evs(*command, url.format(SECRET), *more)
    assert code == (1 if "more.mp4" in more else 3)
    assert "it is a URL, and evs reads videos from files" in err
    assert SECRET not in out + err
    if "--json" in more:
        videos = json.loads(out)["videos"]
        assert [video["exit_code"] for video in videos] == [3] * len(videos)
        assert len(videos) == more.index("--json") + 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("prune", "a.mp4", "--model", f"https://me:{SECRET}@host/model"),
        ("prune", "a.mp4", "--model", f"https://host/model?token={SECRET}"),
        ("plan", "--manifest", f"https://me:{SECRET}@host/clips.txt"),
        ("prune", "a.mp4", "-o", f"https://me:{SECRET}@host/a.mp4"),
        ("bench", f"https://me:{SECRET}@host/a.mp4"),
        ("view", f"https://me:{SECRET}@host/a.mp4", "-o", "a.html"),
        ("check", "a.mp4", "--url", "http://h", "--api-key", SECRET, "--api-key", SECRET),
    ],
)
def test_a_key_where_something_else_is_expected(evs, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    for more in ((), ("--json",)):
        code, out, err = evs(*arguments, "--debug", *more)
        assert code in (2, 3, 4)
        assert "Error: " in err
        assert SECRET not in out + err


def test_json_of_addresses_stays_json(capsys):
    record = {"a": "http://host:9", "b": "x@y", "c": f"https://me:{SECRET}@host/a?b={SECRET}", "d": "x?y@z"}
    Sink().text(json.dumps(record, separators=(",", ":")))
    assert json.loads(capsys.readouterr().out) == {**record, "c": "https://…@host/a?…"}


def test_objects_that_hold_a_key_do_not_show_it():
    assert SECRET not in repr(HttpJson("http://host", SECRET))
    assert SECRET not in repr(CheckRequest("a.mp4", "http://host", api_key_variable=SECRET))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no entry", "no entry"),
        ("vllm@0.33 says: a?b", "vllm@0.33 says: a?b"),
        ("see https://docs.example/a#b", "see https://docs.example/a#b"),
        ("cannot fetch 'https://me:pw@host/a?sig=1&b=2'.", "cannot fetch 'https://…@host/a?…'."),
        ("me:pw@host/a", "…@host/a"),
        ("no such file: 'https:/me:pw@host/a'", "no such file: 'https:/…@host/a'"),  # a URL made a path
        ("cannot open https://host/a?sig=1: it is gone.", "cannot open https://host/a?…: it is gone."),
        ("file:///home/me@work/a.mp4", "file:///home/me@work/a.mp4"),
    ],
)
def test_what_is_hidden_of_a_text(text, shown):
    assert without_secrets(text) == shown
