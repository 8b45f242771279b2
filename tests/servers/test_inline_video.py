"""A clip inside a request: the same bytes as a body made in one piece, their number, and files too large for it."""

import base64
import io
import json

import pytest

from evs_cli.errors import UsageError, VideoError
from evs_cli.servers.inline_video import _PIECE_BYTES, MARKER, MAX_INLINE_BYTES, InlineVideo, RequestBody, media_type


@pytest.mark.parametrize("size", [0, 1, 2, 3, 100, _PIECE_BYTES - 1, _PIECE_BYTES, _PIECE_BYTES + 1, 3 * _PIECE_BYTES])
def test_the_pieces_are_the_whole(tmp_path, size):
    content = bytes(number % 251 for number in range(size))
    path = tmp_path / "clip.webm"
    path.write_bytes(content)
    body = {"model": "tiny", "messages": [{"url": MARKER}, {"text": "What is »this«? " + MARKER}]}
    request = RequestBody(body, InlineVideo(path, "video/webm"))
    sent = b"".join(request)
    assert len(sent) == request.size_bytes
    url, text = (part for message in json.loads(sent)["messages"] for part in message.values())
    assert url == "data:video/webm;base64," + base64.b64encode(content).decode()
    assert text == "What is »this«? " + MARKER  # a prompt that holds the marker stays as it is


def test_no_more_than_a_piece_is_held(tmp_path):
    path = tmp_path / "clip.mp4"
    path.write_bytes(bytes(5 * _PIECE_BYTES))
    pieces = list(RequestBody({"url": MARKER}, InlineVideo(path, "video/mp4")))
    assert len(pieces) > 5
    assert max(len(piece) for piece in pieces) == _PIECE_BYTES // 3 * 4


def test_a_body_without_a_video_is_plain_json():
    body = {"url": "http://host/clip.mp4", "note": MARKER}
    request = RequestBody(body)
    assert json.loads(b"".join(request)) == body
    assert request.size_bytes == len(b"".join(request))


def test_a_file_too_large_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "film.mp4"
    with path.open("wb") as file:
        file.truncate(MAX_INLINE_BYTES)  # sparse: takes no room
    InlineVideo(path, "video/mp4")
    with path.open("wb") as file:
        file.truncate(MAX_INLINE_BYTES + 1)
    with pytest.raises(UsageError, match=r"film\.mp4 is 536,870,913 bytes, .* at most 536,870,912") as error:
        InlineVideo(path, "video/mp4")
    assert "--as-url" in error.value.hint


def test_a_file_that_is_gone_is_a_videos_error(tmp_path):
    with pytest.raises(VideoError, match="no such file"):
        InlineVideo(tmp_path / "gone.mp4", "video/mp4")


def test_the_media_type_is_the_file_names():
    assert media_type("a.mp4") == "video/mp4"
    assert media_type("A.WEBM") == "video/webm"
    assert {media_type(name) for name in ("-", "clip", "clip.png", "clip.txt")} == {"video/mp4"}


def test_a_posted_body_needs_no_file_object(tmp_path):
    # urllib would send what has a read() in blocks of its own choosing; an iterator is sent piece by piece.
    assert not hasattr(iter(RequestBody({})), "read")
    assert not isinstance(iter(RequestBody({})), io.IOBase)
