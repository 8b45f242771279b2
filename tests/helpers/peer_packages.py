"""Packages that stand beside evs in an optional test, and what their readers are given in place of a file."""

import sys
import types
from dataclasses import dataclass
from importlib.metadata import version

import pytest


def qwen_vl_utils():
    """The module ``vision_process`` of qwen-vl-utils 0.0.14; without it the test is skipped and says so."""
    reason = "qwen-vl-utils 0.0.14 or what it imports is not installed: its own functions are not at hand"
    module = pytest.importorskip("qwen_vl_utils.vision_process", reason=reason)
    if version("qwen-vl-utils") != "0.0.14":
        pytest.skip(f"qwen-vl-utils {version('qwen-vl-utils')} is installed, and the rules are those of 0.0.14")
    return module


class NotReadError(Exception):
    """Raised in place of the package's last reader, to which it falls back where another one fails."""


def no_reader(element):
    """A reader that reads nothing."""
    raise NotReadError(element["video"])


@dataclass
class DrawnFile:
    """A file as its reader states it; its frames have a size and no pixels."""

    num_frames: int
    average_fps: float
    height: int
    width: int


def put_torchcodec(monkeypatch, package, files):
    """A module ``torchcodec`` whose decoder opens ``files[name]``: the package's own reader runs, on no pixels."""
    import torch

    class VideoDecoder:
        def __init__(self, name, num_ffmpeg_threads):
            self.metadata = files[name]

        def get_frames_at(self, indices):
            shape = (len(indices), 3, self.metadata.height, self.metadata.width)
            return types.SimpleNamespace(data=torch.empty(shape, dtype=torch.uint8, device="meta"))

    decoders = types.ModuleType("torchcodec.decoders")
    decoders.VideoDecoder = VideoDecoder
    monkeypatch.setitem(sys.modules, "torchcodec", types.ModuleType("torchcodec"))
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", decoders)
    monkeypatch.setattr(package, "get_video_reader_backend", lambda: "torchcodec")
    monkeypatch.setitem(package.VIDEO_READER_BACKENDS, "torchvision", no_reader)
