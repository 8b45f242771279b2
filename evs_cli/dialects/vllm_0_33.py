"""vLLM 0.33: its loader samples by the checkpoint's video processor, q comes from the command line alone.

Read from the release of that number: the loaders of ``multimodal/video.py``, the prompt updates of the models, the
limits of ``envs.py``. The processor that runs behind the loader is transformers'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from evs_cli.dialects import sampling, text
from evs_cli.dialects import transformers_5_24 as hf
from evs_cli.dialects.base import (
    Int64Array,
    NemotronModel,
    PruningRate,
    QwenModel,
    RefusedByServerError,
    ServedModel,
    ServerOptions,
    ServerPlan,
    ServerSource,
)
from evs_cli.dialects.resize import Size
from evs_cli.dialects.vllm_0_33_notes import MAX_FPS, MAX_FRAMES, by_number_notes, by_rate_notes, idle_processor_notes
from evs_cli.encoders.nemotron_h_omni import target_patches

DEFAULT_FPS = 2.0
MIN_FRAMES = 4
DEFAULT_NUM_FRAMES = 32
"""Frames of the loaders that go by a number, and of a request of JPEGs, unless ``num_frames`` says otherwise."""


def qwen2_5_vl(source: ServerSource, model: QwenModel, options: ServerOptions) -> ServerPlan:
    """Qwen2.5-VL: 2 frames a second in whole tubelets, one span, no times told.

    Raises:
        RefusedByServerError: the server would fail on the clip or its options.
    """
    loader = loader_arguments(options)
    fps, most = _rate_and_most(loader)
    num_frames = sampling.qwen2_num_frames(
        source,
        fps,
        min_frames=loader.get("min_frames", MIN_FRAMES),
        max_frames=most,
        temporal_patch_size=loader.get("temporal_patch_size", 2),
    )
    indices = sampling.float32_arange_indices(source, num_frames)
    indices, lost = source.read(np.unique(np.minimum(indices, source.num_frames - 1)))  # a frame is read once
    rule = f"{fps:g} fps"
    idle = idle_processor_notes(options.mm_processor, "max_frames")
    if options.mm_processor.get("do_sample_frames", model.do_sample_frames):
        indices, rule = _sampled_again(source, model, options, indices, hf.qwen2_indices)
        idle = []
    return qwen2_5_vl_frames(source, model, options, indices, rule).with_notes([*by_rate_notes(loader), *idle, *lost])


def qwen2_5_vl_frames(
    source: ServerSource, model: QwenModel, options: ServerOptions, indices: Int64Array, rule: str
) -> ServerPlan:
    """Qwen2.5-VL: the plan of frames that are settled, by the loader or by a request that sends them.

    Args:
        source: the video they are of, as the server is told it.
        model: the checkpoint.
        options: the server's, and the request's.
        indices: (S,) int64, the frames.
        rule: what settled them, in words.
    """
    plan = hf.qwen2_5_vl_plan(
        source,
        model,
        processor_arguments(model, options),
        indices,
        rule,
        pruning(model, options),
        client_split="first",
    )
    assert plan.seconds_per_grid is not None
    if plan.pruning.q == 0 or plan.seconds_per_grid >= 1:
        return plan
    note = (
        f"{plan.seconds_per_grid:.2f} s between frames of tokens becomes 0 s when pruning: the model sees every "
        "frame at one time; fps 1 or below keeps them apart"
    )
    return plan.with_notes([note])


def qwen3_vl(source: ServerSource, model: QwenModel, options: ServerOptions) -> ServerPlan:
    """Qwen3-VL and Qwen3.5: 2 frames a second, odd numbers too, a span and a time a frame of tokens.

    Raises:
        RefusedByServerError: the server would fail on the clip or its options.
    """
    loader = loader_arguments(options)
    fps, most = _rate_and_most(loader)
    num_frames = sampling.qwen3_num_frames(
        source, fps, min_frames=loader.get("min_frames", MIN_FRAMES), max_frames=most
    )
    indices, notes = source.read(sampling.rounded_linspace_indices(source, num_frames))
    rule = f"{fps:g} fps"
    if source.average_fps <= 0:
        notes.append("the file's frame rate is unknown: it counts as 24")
    keeps_all = len(indices) == source.num_frames
    works: tuple[str, ...] = ()
    if options.mm_processor.get("do_sample_frames", keeps_all):
        indices, rule = _sampled_again(source, model, options, indices, hf.qwen3_indices)
        works = ("fps", "num_frames")
        if keeps_all and len(indices) < num_frames:
            notes.append(
                f"fps {fps:g} keeps every frame of the file, and then the processor samples them at {rule}: "
                f'mm_processor_kwargs {{"fps": {fps:g}}} samples as asked, {{"do_sample_frames": false}} keeps all'
            )
    plan = qwen3_vl_frames(source, model, options, indices, rule)
    idle = idle_processor_notes(options.mm_processor, "max_frames", works)
    return plan.with_notes([*by_rate_notes(loader), *notes, *idle])


def qwen3_vl_frames(
    source: ServerSource, model: QwenModel, options: ServerOptions, indices: Int64Array, rule: str
) -> ServerPlan:
    """Qwen3-VL and Qwen3.5: the plan of frames that are settled; arguments as ``qwen2_5_vl_frames``.

    Raises:
        RefusedByServerError: fewer frames than one tubelet, or an extreme aspect.
    """
    return hf.qwen3_vl_plan(
        source,
        model,
        processor_arguments(model, options),
        indices,
        rule,
        pruning(model, options),
        client_split="first",
        caches_separators="when pruning",
    )


def nemotron(source: ServerSource, model: NemotronModel, options: ServerOptions) -> ServerPlan:
    """Nemotron Nano VL 12B v2 and Omni: 32 frames unless told otherwise, a span and its times a tubelet.

    Raises:
        RefusedByServerError: the server would fail on the clip.
    """
    if source.average_fps <= 0:
        raise RefusedByServerError("the file's frame rate is unknown, and the times told are divided by it.")
    loader = loader_arguments(options)
    asked, fps = int(loader.get("num_frames", DEFAULT_NUM_FRAMES)), float(loader.get("fps", -1))
    num_frames = sampling.bounded_num_frames(source, fps if fps > 0 else None, asked if asked > 0 else None)
    indices, lost = source.read(sampling.truncated_linspace_indices(source, num_frames))
    plan = nemotron_frames(source, model, options, indices, uniform_rule(fps, asked))
    idle = idle_processor_notes(options.mm_processor, "num_frames")
    return plan.with_notes([*by_number_notes(loader), *idle, *lost])


def nemotron_frames(
    source: ServerSource, model: NemotronModel, options: ServerOptions, indices: Int64Array, rule: str
) -> ServerPlan:
    """Nemotron Nano VL: the plan of frames that are settled; arguments as ``qwen2_5_vl_frames``."""
    seconds = text.whole_millisecond_seconds(indices, source.average_fps)
    plan = hf.nemotron_plan(
        model,
        indices,
        _nemotron_patches(source, model),
        seconds,
        text.sampled_at_texts(seconds.tolist(), model.temporal_patch_size, "\n"),
        pruning(model, options),
        client_split="first",
        caches_separators="always",
        tokenises_pieces=True,
        rule=rule,
    )
    if not model.config_pruning_rate or options.video_pruning_rate is not None:
        return plan
    note = (
        f"video_pruning_rate {model.config_pruning_rate:g} of config.json is not read; --video-pruning-rate "
        f"{model.config_pruning_rate:g} prunes"
    )
    return plan.with_notes([note])


def loader_arguments(options: ServerOptions) -> dict[str, Any]:
    """The loader's arguments: the server's, then the request's; giving one of fps and num_frames wipes the other."""
    merged = {**options.media_io, **options.request}
    if "num_frames" in options.request and "fps" not in options.request:
        merged.pop("fps", None)
    elif "fps" in options.request and "num_frames" not in options.request:
        merged.pop("num_frames", None)
    return merged


def processor_arguments(model: QwenModel, options: ServerOptions) -> dict[str, Any]:
    """The processor's arguments; vLLM fills an edge of ``size`` that is not given with the checkpoint's."""
    arguments = dict(options.mm_processor)
    if "size" in arguments:
        own = {"shortest_edge": model.min_pixels, "longest_edge": model.max_pixels}
        arguments["size"] = {**own, **arguments["size"]}
    return arguments


def pruning(model: ServedModel, options: ServerOptions) -> PruningRate:
    """q is the command line's alone; it does nothing to families other than Qwen-VL and Nemotron.

    Raises:
        RefusedByServerError: a rate by a method that the family does not have: the server does not start.
    """
    if not isinstance(model, (QwenModel, NemotronModel)):
        return PruningRate(0.0, "vLLM does not prune this family", can_prune=False)
    q, method = options.video_pruning_rate or 0.0, options.video_pruning_method
    if method == "vidcom2" and not (isinstance(model, QwenModel) and model.tells_times):
        if q > 0:
            raise RefusedByServerError(
                f"vLLM does not start with --video-pruning-method {method} for this family: Qwen3-VL and Qwen3.5 alone "
                "have it.",
                hint="Leave the option out: the method is then evs.",
            )
        return PruningRate(0.0, f"vLLM does not prune this family by {method}", can_prune=False)
    if options.video_pruning_rate is None:
        return PruningRate(0.0, "no --video-pruning-rate", can_prune=True, method=method)
    source = "--video-pruning-rate" if method == "evs" else f"--video-pruning-rate, by {method}"
    return PruningRate(q, source, can_prune=True, method=method)


def uniform_rule(fps: float, asked: int) -> str:
    """The sampling of the loaders that go by a number, in words; -1 for what is not asked."""
    most = f"at most {asked} frames" if asked > 0 else "every frame"
    if fps > 0:
        return f"{fps:g} fps, {most}"
    return f"{asked} frames" if asked > 0 else most


def _rate_and_most(loader: Mapping[str, Any]) -> tuple[float, int]:
    """Frames a second and the most frames, of the loaders of the Qwen families."""
    return (
        min(float(loader.get("fps", DEFAULT_FPS)), MAX_FPS),
        min(int(loader.get("max_frames", MAX_FRAMES)), MAX_FRAMES),
    )


def _sampled_again(
    source: ServerSource, model: QwenModel, options: ServerOptions, loaded: Int64Array, sampler: hf.Sampler
) -> tuple[Int64Array, str]:
    """The frames left when the processor samples what the loader gave it, by the file's own numbers.

    Raises:
        RefusedByServerError: the loader left frames out, so that the processor asks for frames it does not have.
    """
    indices, rule = sampler(source, model, options.mm_processor)
    if indices[-1] >= len(loaded):
        raise RefusedByServerError(
            f"do_sample_frames makes the processor ask for frame {indices[-1]} of the {len(loaded)} that the loader "
            "kept, and it fails.",
            hint='Leave do_sample_frames out and sample by --media-io-kwargs \'{"video": {"fps": 2}}\'.',
        )
    return indices, rule


def _nemotron_patches(source: ServerSource, model: NemotronModel) -> Size:
    """(rows, columns) of patches of a frame."""
    if model.target_num_patches is None:
        side = model.image_size // model.patch_size
        return side, side
    return target_patches(
        source.height,
        source.width,
        target_num_patches=model.target_num_patches,
        merge_size=model.merge_size,
        keeps_aspect=model.keeps_aspect,
    )
