"""LLaMA-Factory 0.9.5 as a whole: which of its templates are known, and what it reads of a file's header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from evs_cli.dialects import llamafactory_0_9_5 as rules
from evs_cli.dialects.base import Int64Array, PruningRate, ServedModel, ServerOptions, ServerSource
from evs_cli.dialects.requests import ServerRecipe, ServingRequest
from evs_cli.dialects.server import FamilyRules, Server
from evs_cli.encoders.base import EncodeOptions
from evs_cli.errors import UsageError
from evs_cli.video.info import VideoInfo
from evs_cli.video.orientation import Orientation

_ARGUMENTS = {"fps": "video_fps", "max_frames": "video_maxlen"}
"""What is asked of the sampling, and its names of it."""


class LlamaFactory(Server):
    """See ``Server``."""

    families: ClassVar[Mapping[str, FamilyRules]] = {
        name: FamilyRules(rules.plan_video) for name in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
    }
    own_options = frozenset(("video_kwargs",))
    missing_family = "of its templates, those of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5 alone are written down"
    bounds_any_pixels = True
    bounds_frames_alone = True
    resizes_frames_itself = True

    def pruning(self, model: ServedModel, options: ServerOptions) -> PruningRate:
        """See ``Server.pruning``."""
        return PruningRate(0.0, "LLaMA-Factory does not prune", can_prune=False)

    def source_of(self, video: VideoInfo, options: ServerOptions, reads: Int64Array | None = None) -> ServerSource:
        """See ``Server.source_of``: the header of the stream."""
        seen = super().source_of(video, options, reads)
        return rules.StreamSource(
            **vars(seen),
            stated_frames=video.header_num_frames,
            stated_seconds=video.header_seconds,
            is_turned=replace(video.orientation, is_exact=True) != Orientation(),
        )

    def configured(self, options: ServerOptions, asked: Mapping[str, Any]) -> ServerOptions:
        """See ``Server.configured``: as its own arguments.

        Raises:
            UsageError: a number of frames, which it does not take.
        """
        if "num_frames" in asked:
            raise UsageError("--num-frames has no effect on llamafactory. Expected --fps and --max-frames.")
        named = {_ARGUMENTS[name]: value for name, value in asked.items()}
        return replace(options, video_kwargs={**options.video_kwargs, **named})

    def with_pixels(self, options: ServerOptions, asked: EncodeOptions, model: ServedModel) -> ServerOptions:
        """See ``Server.with_pixels``: its limits are those of a frame, though they are named by the video.

        Raises:
            UsageError: a limit of all frames together.
        """
        for name in ("video_min_pixels", "video_max_pixels"):
            if getattr(asked, name) is not None:
                raise UsageError(
                    f"--{name.replace('_', '-')} has no effect on llamafactory: its own {name} bounds each frame. "
                    f"Expected --{name.replace('_', '-').replace('video', 'frame')}."
                )
        limits = {"video_min_pixels": asked.frame_min_pixels, "video_max_pixels": asked.frame_max_pixels}
        named = {name: value for name, value in limits.items() if value is not None}
        return replace(options, video_kwargs={**options.video_kwargs, **named})

    def recipe(self, serving: ServingRequest, options: ServerOptions, started: ServerOptions) -> ServerRecipe:
        """See ``Server.recipe``: its arguments, as its YAML file has them."""
        return ServerRecipe(None, {**rules.DEFAULTS, **options.video_kwargs})


SERVER = LlamaFactory()
