"""JSON over HTTP against real sockets on this machine: every way a server can fail is one sentence."""

import contextlib
import socket
import threading
import time

import pytest
from counting_servers import CannedServer, Listener

from evs_cli.errors import ServerError, UsageError
from evs_cli.servers.http_json import HttpJson, HttpStatusError, error_message, is_loopback, parse_address
from evs_cli.servers.inline_video import RequestBody


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://localhost:8000/", "http://localhost:8000"),
        ("http://localhost:8000/v1", "http://localhost:8000"),
        (" https://host/models/a/v1/ ", "https://host/models/a"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
    ],
)
def test_an_address_is_the_servers_root(given, address):
    assert parse_address(given) == address


@pytest.mark.parametrize(
    "given",
    [
        *("", "localhost:8000", "ftp://host", "http://", "http://:8000", "file:///etc/passwd"),
        *("http://host:99999", "http://host:0", "http://h:x", "http://host?a=1", "http://host#a"),
        *("http://ho st", "http://hôst"),
    ],
)
def test_what_is_no_address_is_refused(given):
    with pytest.raises(UsageError, match=r"Invalid --url.*Expected http://HOST:PORT"):
        parse_address(given)


def test_a_password_in_an_address_is_not_repeated():
    with pytest.raises(UsageError) as error:
        parse_address("http://me:secret@host:8000")
    assert "secret" not in error.value.message
    assert "--api-key" in error.value.message


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b'{"error": {"message": "too long", "type": "x", "code": 400}}', "too long"),  # vLLM, OpenAI
        (b'{"object": "error", "message": "no video", "code": 400}', "no video"),  # SGLang
        (b'{"detail": "Not Found"}', "Not Found"),  # FastAPI
        (b'{"detail": [{"msg": "field required"}, {"msg": "not a number"}]}', "field required; not a number"),
        (b'{"error": "Unauthorized"}', "Unauthorized"),
        (b"<html><body>502 Bad Gateway</body></html>", ""),
        (b"plain\nwords.", "plain words"),
        (b'"\\u001b[31mred\\u0007"', "[31mred"),  # no control characters reach a terminal
        (b"\xff\xfe", "��"),
        (b"", ""),
        (b"[]", ""),
        (b"7", ""),
    ],
)
def test_the_servers_own_words(answer, said):
    assert error_message(answer) == said


def test_long_words_are_cut():
    assert len(error_message(b'{"message": "' + b"x" * 5000 + b'"}')) == 300


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 500, 503])
def test_an_error_tells_the_status_and_the_servers_words(status):
    with CannedServer({"/a": (status, {"error": {"message": "it [bold]hurts[/]"}})}) as server:
        for ask in (HttpJson(server.url).get, lambda path: HttpJson(server.url).post(path, RequestBody({}))):
            with pytest.raises(
                HttpStatusError, match=rf"answers (GET|POST) /a with {status}: it \[bold\]hurts"
            ) as error:
                ask("/a")
            assert error.value.status == status
            assert error.value.is_absent == (status == 404)
            assert error.value.exit_code == 1
            assert ("--api-key" in (error.value.hint or "")) == (status in (401, 403))
            assert ("--as-url" in (error.value.hint or "")) == (status == 413)


def test_an_error_without_words_has_its_reason():
    with (
        CannedServer({"/a": (502, b"<html>")}) as server,
        pytest.raises(HttpStatusError, match="with 502: Bad Gateway"),
    ):
        HttpJson(server.url).get("/a")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed_and_the_key_stays(status):
    with CannedServer({"/a": (200, {})}) as other:
        elsewhere = {"/a": (status, b"", {"Location": f"{other.url}/a"})}
        with CannedServer(elsewhere) as server:
            http = HttpJson(server.url, api_key="secret")
            for ask in (http.get, lambda path: http.post(path, RequestBody({}))):
                with pytest.raises(HttpStatusError, match=f"elsewhere .{status} to {other.url}/a") as error:
                    ask("/a")
                assert "secret" not in error.value.message
        assert other.requests == []


def test_an_answer_that_is_no_json_object():
    with CannedServer({"/a": (200, b"<html>hello"), "/b": (200, [1]), "/c": (200, b"")}) as server:
        http = HttpJson(server.url)
        for path, message in (
            ("/a", "no JSON: <html>hello"),
            ("/b", "JSON that is no object"),
            ("/c", "no JSON: nothing"),
        ):
            with pytest.raises(ServerError, match=message):
                http.get(path)


def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr("evs_cli.servers.http_json.MAX_ANSWER_BYTES", 100)
    with CannedServer({"/a": (200, b"[" + b"1," * 60), "/b": (200, b'{"a":"' + b"b" * 92 + b'"}')}) as server:
        with pytest.raises(ServerError, match="more than 100 bytes"):
            HttpJson(server.url).get("/a")
        assert HttpJson(server.url).get("/b") == {"a": "b" * 92}


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_nobody_there():
    with pytest.raises(ServerError, match=r"cannot reach http://127\.0\.0\.1:\d+: connection refused") as error:
        HttpJson(f"http://127.0.0.1:{free_port()}").get("/a")
    assert error.value.exit_code == 1


def test_a_name_that_is_none():
    with pytest.raises(ServerError, match=r"cannot reach http://no-such-host\.invalid:"):
        HttpJson("http://no-such-host.invalid").get("/a")


def test_no_answer_within_the_time():
    done = threading.Event()
    with Listener(lambda connection: done.wait()) as url:
        with pytest.raises(ServerError, match=r"no answer to GET /a within 0\.2 s") as error:
            HttpJson(url, timeout_seconds=0.2).get("/a")
        done.set()
    assert "--timeout" in error.value.hint


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ENDLESS = {
    "a byte now and then": (HEAD + b"Content-Length: 1000000\r\n\r\n", b" "),
    "a byte now and then, of no length": (HEAD + b"\r\n", b" "),
    "chunks now and then": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "100 Continue without end": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "headers now and then": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "an error that drips": (b"HTTP/1.1 500 No\r\nContent-Length: 1000000\r\n\r\n", b" "),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_the_time_is_that_of_the_whole_exchange(name):
    """Each read is answered long before the limit, so that a limit of reads alone would never end it."""
    head, again = ENDLESS[name]
    done = threading.Event()

    def act(connection):
        connection.recv(65536)
        with contextlib.suppress(OSError):  # broken by the other side
            connection.sendall(head)
            for _ in range(600):
                connection.sendall(again)
                if done.wait(0.05):
                    return

    with Listener(act) as url:
        words = "answers GET /a with 500: No" if "error" in name else r"no answer to GET /a within 0\.5 s"
        begun = time.monotonic()
        with pytest.raises(ServerError, match=words):
            HttpJson(url, timeout_seconds=0.5).get("/a")
        done.set()
    assert time.monotonic() - begun < 15  # of 30 s that the server would go on


@pytest.mark.parametrize("size", [b"-5", b"-1", b"zz", b"99999999999999999999"])
def test_chunks_of_no_size(size):
    def act(connection):
        connection.recv(65536)
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + size + b"\r\n{}")

    with Listener(act) as url, pytest.raises(ServerError, match="breaks off the connection at GET /a"):
        HttpJson(url, timeout_seconds=5).get("/a")


def test_json_that_is_nested_deep():
    deep = b"[" * 100_000
    with CannedServer({"/a": (200, deep), "/b": (400, deep), "/c": (400, b"[" * 900 + b"]" * 900)}) as server:
        http = HttpJson(server.url)
        with pytest.raises(ServerError, match="something that is no JSON"):
            http.get("/a")
        for path in ("/b", "/c"):
            with pytest.raises(HttpStatusError, match="with 400"):
                http.get(path)


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"])
def test_a_connection_that_breaks_off(said):
    def act(connection):
        connection.recv(65536)
        connection.sendall(said)

    with Listener(act) as url, pytest.raises(ServerError, match="breaks off the connection at GET /a"):
        HttpJson(url).get("/a")


def test_no_tls_where_it_is_asked_for():
    def act(connection):
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with Listener(act) as url, pytest.raises(ServerError, match="TLS is not accepted"):
        HttpJson(url.replace("http://", "https://")).get("/a")


def test_what_is_sent(tmp_path):
    with CannedServer({"/a": (200, {"ok": 1})}) as server:
        http = HttpJson(server.url, api_key="secret")
        assert http.get("/a") == {"ok": 1}
        http.post("/a", RequestBody({"text": "é"}))
        HttpJson(server.url).get("/a")
    (get, _, got, _), (post, _, posted, body), (_, _, anonymous, _) = server.requests
    assert (get, post) == ("GET", "POST")
    assert got["Authorization"] == posted["Authorization"] == "Bearer secret"
    assert "Authorization" not in anonymous
    assert posted["Content-Type"] == "application/json"
    assert "Transfer-Encoding" not in posted
    assert server.bodies("/a") == [{"text": "é"}]
    assert int(posted["Content-Length"]) == len(body)


def test_a_server_on_this_machine_is_asked_without_a_proxy(monkeypatch):
    """A proxy of the environment would be asked for localhost too; elsewhere it is the user's wish."""
    with CannedServer({"/a": (200, {"proxied": False})}) as server, CannedServer({}) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        assert HttpJson(server.url).get("/a") == {"proxied": False}
        assert HttpJson(server.url.replace("127.0.0.1", "localhost")).get("/a") == {"proxied": False}
        assert proxy.requests == []
        with pytest.raises(HttpStatusError):
            HttpJson("http://host.invalid").get("/a")
        assert [path for _, path, _, _ in proxy.requests] == ["http://host.invalid/a"]


def test_which_hosts_are_this_machine():
    for host in ("localhost", "127.0.0.1", "127.8.0.1", "::1", "a.localhost"):
        assert is_loopback(host), host
    for host in ("example.com", "10.0.0.1", "0.0.0.0", "localhost.example.com", ""):
        assert not is_loopback(host), host


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_time_that_is_none(seconds):
    with pytest.raises(UsageError, match="Invalid --timeout"):
        HttpJson("http://host", timeout_seconds=seconds)


@pytest.mark.parametrize("key", ["a\nb", "a\r\nHost: evil", "clé"])
def test_a_key_that_no_header_holds(key):
    with pytest.raises(UsageError, match="Invalid key") as error:
        HttpJson("http://host", api_key=key)
    assert key not in error.value.message
