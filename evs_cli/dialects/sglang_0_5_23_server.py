"""SGLang 0.5.23 as a whole: which families it serves, how it counts a file's frames, how it is started."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from evs_cli.core.counts import TokenGrid
from evs_cli.dialects import sglang_0_5_23 as sglang
from evs_cli.dialects import sglang_0_5_23_glm as glm
from evs_cli.dialects.base import Int64Array, NemotronModel, PruningRate, ServedModel, ServerOptions, ServerSource
from evs_cli.dialects.pixels import loader_pixels, with_pixels
from evs_cli.dialects.requests import ServerRecipe, ServingRequest, chat_body, json_text
from evs_cli.dialects.server import FamilyRules, Server
from evs_cli.dialects.torchcodec_frames import torchcodec_facts
from evs_cli.encoders.base import EncodeOptions
from evs_cli.video.info import VideoInfo
from evs_cli.video.sampling import SamplingRequest


class Sglang(Server):
    """See ``Server``."""

    families: ClassVar[Mapping[str, FamilyRules]] = {
        "qwen2_5_vl": FamilyRules(sglang.qwen2_5_vl),
        "qwen3_vl": FamilyRules(sglang.qwen3_vl),
        "nemotron": FamilyRules(sglang.nemotron),
        "glm": FamilyRules(glm.glm),
    }
    own_options = frozenset(("mm_process_config",))
    context_option = "--context-length"
    videos_option = "--limit-mm-data-per-request"
    context_margin = 7  # 6 are kept free, and a prompt as long as the rest is refused too
    owner = "sglang"
    version_path = "/server_info"
    samples_by_request = False
    resizes_frames_itself = True
    tokenizes_videos = False  # a video stays one placeholder

    def pruning(self, model: ServedModel, options: ServerOptions) -> PruningRate:
        """See ``Server.pruning``."""
        return sglang.pruning(model, options)

    def source_of(self, video: VideoInfo, options: ServerOptions, reads: Int64Array | None = None) -> ServerSource:
        """See ``Server.source_of``: the frames and the rate that torchcodec counts.

        Raises:
            RefusedByServerError: a file that torchcodec does not open.
        """
        facts = torchcodec_facts(video)
        source = super().source_of(video, options)
        return replace(source, num_frames=facts.num_frames, average_fps=facts.average_fps)

    def configured(self, options: ServerOptions, asked: Mapping[str, Any]) -> ServerOptions:
        """See ``Server.configured``: in ``--mm-process-config``."""
        named = {"nframes" if name == "num_frames" else name: value for name, value in asked.items()}
        return replace(options, mm_process={**options.mm_process, **named})

    def together_fault(self, model: ServedModel, grids: Sequence[TokenGrid]) -> str | None:
        """See ``Server.together_fault``; ``multimodal/processors/nano_nemotron_vl.py``."""
        if isinstance(model, NemotronModel) and len({(grid.h, grid.w) for grid in grids}) > 1:
            return "counts every video of a request by the frame size of the first, and encodes each at its own"
        return None

    def with_pixels(self, options: ServerOptions, asked: EncodeOptions, model: ServedModel) -> ServerOptions:
        """See ``Server.with_pixels``: its own resize has the limits of a frame."""
        return replace(options, mm_process=with_pixels(options.mm_process, loader_pixels(asked), model))

    def fewer_frames(self, model: ServedModel, num_frames: int, duration_seconds: float) -> SamplingRequest | None:
        """See ``Server.fewer_frames``: the sampling of Nemotron is fixed."""
        if isinstance(model, NemotronModel):
            return None
        return super().fewer_frames(model, num_frames, duration_seconds)

    def recipe(self, serving: ServingRequest, options: ServerOptions, started: ServerOptions) -> ServerRecipe:
        """See ``Server.recipe``."""
        words = ["python", "-m", "sglang.launch_server", "--model-path", serving.model]
        words += [] if serving.context is None else ["--context-length", str(serving.context)]
        if started.max_videos is not None:
            words += ["--limit-mm-data-per-request", json_text({"video": started.max_videos})]
        words += ["--mm-process-config", json_text({"video": options.mm_process})] if options.mm_process else []
        if serving.q != serving.own_rate:  # of config.json, which may prune where nothing need be dropped
            words += ["--json-model-override-args", json_text({"video_pruning_rate": serving.q})]
        return ServerRecipe(shlex.join(words), chat_body(serving, *serving.urls))


SERVER = Sglang()
