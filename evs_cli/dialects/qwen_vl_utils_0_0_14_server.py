"""qwen-vl-utils 0.0.14 as a whole: which families it prepares videos of, and how its readers count a file's frames.

It is no server: it stands in front of transformers' processor, in a script or a trainer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from evs_cli.dialects import qwen_vl_utils_0_0_14 as rules
from evs_cli.dialects.base import Int64Array, PruningRate, ServedModel, ServerOptions, ServerSource
from evs_cli.dialects.pixels import message_pixels
from evs_cli.dialects.requests import ServerRecipe, ServingRequest
from evs_cli.dialects.server import FamilyRules, Server
from evs_cli.dialects.torchcodec_frames import torchcodec_facts
from evs_cli.encoders.base import EncodeOptions
from evs_cli.errors import UsageError
from evs_cli.video.info import VideoInfo


def families_of(caller: rules.Caller) -> dict[str, FamilyRules]:
    """The families whose videos the package prepares, as ``caller`` has them prepared."""
    return {
        name: FamilyRules(partial(rules.plan_video, caller=caller)) for name in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
    }


class QwenVlUtils(Server):
    """See ``Server``. A trainer that calls the package is a subclass with a ``caller`` of its own."""

    caller: ClassVar[rules.Caller] = rules.OWN
    families: ClassVar[Mapping[str, FamilyRules]] = families_of(rules.OWN)
    own_options = frozenset(("video_kwargs",))
    missing_family: ClassVar[str] = "it prepares videos of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5 alone"
    bounds_any_pixels = True
    resizes_frames_itself = True

    def pruning(self, model: ServedModel, options: ServerOptions) -> PruningRate:
        """See ``Server.pruning``: what feeds a model prunes nothing."""
        return PruningRate(0.0, f"{self.caller.name} does not prune", can_prune=False)

    def source_of(self, video: VideoInfo, options: ServerOptions, reads: Int64Array | None = None) -> ServerSource:
        """See ``Server.source_of``: torchcodec's frames and rate, or decord's and torchvision's rate of the header.

        Raises:
            UsageError: a reader that the package does not have.
        """
        reader = options.video_kwargs.get("FORCE_QWENVL_VIDEO_READER", rules.READERS[0])
        if reader not in rules.READERS:
            raise UsageError(f"Invalid FORCE_QWENVL_VIDEO_READER ({reader!r}). Expected {', '.join(rules.READERS)}.")
        source = super().source_of(video, options, reads)
        if reader == "torchcodec":
            facts = torchcodec_facts(video)
            source = replace(source, num_frames=facts.num_frames, average_fps=facts.average_fps)
        return source

    def configured(self, options: ServerOptions, asked: Mapping[str, Any]) -> ServerOptions:
        """See ``Server.configured``: in the video's part of the message."""
        named = {"nframes" if name == "num_frames" else name: value for name, value in asked.items()}
        return replace(options, video_kwargs={**options.video_kwargs, **named})

    def with_pixels(self, options: ServerOptions, asked: EncodeOptions, model: ServedModel) -> ServerOptions:
        """See ``Server.with_pixels``: limits of each frame, and a budget of all of them."""
        return replace(options, video_kwargs={**options.video_kwargs, **message_pixels(asked)})

    def recipe(self, serving: ServingRequest, options: ServerOptions, started: ServerOptions) -> ServerRecipe:
        """See ``Server.recipe``: the part of each video in a message, and what is given beside it."""
        given = options.video_kwargs
        element = {name: value for name, value in given.items() if name in rules.MESSAGE_KEYS}
        beside = {name: value for name, value in given.items() if name not in rules.MESSAGE_KEYS}
        parts = [{"type": "video", "video": url, **element} for url in serving.urls]
        return ServerRecipe(None, {"content": parts, **beside})


SERVER = QwenVlUtils()
