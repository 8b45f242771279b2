"""vLLM 0.33 as a whole: which families it serves, how it counts a file's frames, how it is started and asked."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from evs_cli.core.counts import TokenGrid
from evs_cli.dialects import vllm_0_33 as vllm
from evs_cli.dialects import vllm_0_33_glm as glm
from evs_cli.dialects import vllm_0_33_internvl as internvl
from evs_cli.dialects import vllm_0_33_limits as limits
from evs_cli.dialects.base import (
    Int64Array,
    PruningRate,
    QwenModel,
    RefusedByServerError,
    ServedModel,
    ServerOptions,
    ServerSource,
)
from evs_cli.dialects.opencv_frames import opencv_num_frames, opencv_reads
from evs_cli.dialects.requests import ServerRecipe, ServingRequest, chat_body, json_text, only_asked
from evs_cli.dialects.server import FamilyRules, Limit, Server
from evs_cli.dialects.torchcodec_frames import torchcodec_facts
from evs_cli.dialects.vllm_0_33_notes import option_notes
from evs_cli.video.info import StreamChoice, VideoInfo


class Vllm(Server):
    """See ``Server``."""

    families: ClassVar[Mapping[str, FamilyRules]] = {
        "qwen2_5_vl": FamilyRules(vllm.qwen2_5_vl, vllm.qwen2_5_vl_frames, takes_sent_frames=True),
        "qwen3_vl": FamilyRules(vllm.qwen3_vl, vllm.qwen3_vl_frames, takes_sent_frames=True),
        "nemotron": FamilyRules(vllm.nemotron, vllm.nemotron_frames, takes_sent_frames=True),
        "glm": FamilyRules(glm.glm, glm.glm_frames),
        "internvl": FamilyRules(internvl.internvl, internvl.internvl_frames),
    }
    own_options = frozenset(
        ("media_io_kwargs", "mm_processor_kwargs", "max_num_batched_tokens", "video_pruning_method")
    )
    limit_variables = limits.VARIABLES
    context_option = "--max-model-len"
    videos_option = limits.VIDEOS_OPTION
    trust_option = "--trust-request-mm-kwargs"
    owner = "vllm"
    version_path = "/version"

    def pruning(self, model: ServedModel, options: ServerOptions) -> PruningRate:
        """See ``Server.pruning``."""
        return vllm.pruning(model, options)

    def needs_text_before(self, model: ServedModel, q: float) -> bool:
        """See ``Server.needs_text_before``: positions are rewritten from a first time's length before the video."""
        return q > 0 and isinstance(model, QwenModel) and model.tells_times

    def stream_choice(self, options: ServerOptions) -> StreamChoice:
        """See ``Server.stream_choice``: OpenCV takes the first."""
        return "first" if _decoder_of(options) == "opencv" else "best"

    def leaves_out_lost_frames(self, options: ServerOptions) -> bool:
        """See ``Server.leaves_out_lost_frames``: OpenCV does, torchcodec raises."""
        return _decoder_of(options) == "opencv"

    def reads_of(self, video: VideoInfo, options: ServerOptions) -> Int64Array | None:
        """See ``Server.reads_of``: OpenCV reads frame after frame, and numbers them as they come out."""
        if _decoder_of(options) != "opencv" or video.codec == "av1":
            return None
        return opencv_reads(video, opencv_num_frames(video, decodes=True))

    def source_of(self, video: VideoInfo, options: ServerOptions, reads: Int64Array | None = None) -> ServerSource:
        """See ``Server.source_of``: the counts and rates of OpenCV or torchcodec; tested against the installed ones.

        Raises:
            RefusedByServerError: a codec that its OpenCV does not decode.
        """
        source = super().source_of(video, options)
        if _decoder_of(options) == "torchcodec":
            facts = torchcodec_facts(video)
            return replace(source, num_frames=facts.num_frames, average_fps=facts.average_fps)
        if _decoder_of(options) != "opencv":
            return source
        if video.codec == "av1":
            raise RefusedByServerError(
                "the OpenCV of vLLM decodes no AV1: no frame of it is read.",
                hint="Encode it anew (ffmpeg -i … -c:v libx264), or start vLLM with another decoder: "
                '--media-io-kwargs \'{"video": {"backend": "torchcodec"}}\'.',
            )
        num_frames = opencv_num_frames(video, decodes=reads is not None)
        read = np.arange(video.num_frames) if reads is None else np.flatnonzero(reads >= 0)
        return replace(source, num_frames=num_frames, lost=frozenset(range(num_frames)).difference(read.tolist()))

    def option_notes(self, options: ServerOptions) -> tuple[str, ...]:
        """See ``Server.option_notes``."""
        return option_notes(options)

    def limits(self, model: ServedModel, options: ServerOptions, context: int | None) -> Iterator[Limit]:
        """See ``Server.limits``."""
        return limits.limits_of(model, options, context)

    def together_fault(self, model: ServedModel, grids: Sequence[TokenGrid]) -> str | None:
        """See ``Server.together_fault``: it processes each video alone."""
        return None

    def video_limit(self, model: ServedModel, options: ServerOptions) -> Limit | None:
        """See ``Server.video_limit``."""
        return limits.videos(model, options)

    def extra_body(self, options: ServerOptions) -> dict[str, Any]:
        """See ``Server.extra_body``."""
        body: dict[str, Any] = {}
        if options.request:
            body["media_io_kwargs"] = {"video": dict(options.request)}
        if options.mm_processor:
            body["mm_processor_kwargs"] = dict(options.mm_processor)
        return body

    def recipe(self, serving: ServingRequest, options: ServerOptions, started: ServerOptions) -> ServerRecipe:
        """See ``Server.recipe``."""
        said = self.extra_body(only_asked(options, started))
        line = _line(serving, started, is_trusting=bool(said or started.trusts_requests))
        return ServerRecipe(line, {**chat_body(serving, *serving.urls), **said})


SERVER = Vllm()


def _decoder_of(options: ServerOptions) -> str:
    return str(options.media_io.get("backend", "opencv"))


def _line(serving: ServingRequest, options: ServerOptions, *, is_trusting: bool) -> str:
    changed = {variable: getattr(options, field) for variable, field in limits.VARIABLES.items()}
    words = [f"{variable}={value}" for variable, value in changed.items() if value is not None]
    words += ["vllm", "serve", serving.model]
    words += ["--video-pruning-rate", f"{serving.q:g}"] if serving.q > 0 else []
    if options.video_pruning_method != "evs":
        words += ["--video-pruning-method", options.video_pruning_method]
    words += [] if serving.context is None else ["--max-model-len", str(serving.context)]
    if options.max_num_batched_tokens is not None:
        words += ["--max-num-batched-tokens", str(options.max_num_batched_tokens)]
    per_prompt = {"video": options.max_videos, **({} if options.takes_images else {"image": 0})}
    per_prompt = {kind: most for kind, most in per_prompt.items() if most is not None}
    words += [limits.VIDEOS_OPTION, json_text(per_prompt)] if per_prompt else []
    words += ["--media-io-kwargs", json_text({"video": options.media_io})] if options.media_io else []
    words += ["--mm-processor-kwargs", json_text(options.mm_processor)] if options.mm_processor else []
    words += ["--trust-request-mm-kwargs"] if is_trusting else []
    folder = os.path.commonpath([path.parent for path in serving.paths])
    return shlex.join([*words, "--allowed-local-media-path", folder])
