"""vLLM 0.33 with GLM-4.1V, 4.5V and 4.6V: a loader a video processor, whole seconds told, nothing pruned.

Read from the release of that number: the loaders ``opencv_dynamic`` and ``glm46v``, and the model ``glm4_1v``. A
checkpoint that names another architecture than its own two runs as transformers' model, with transformers' text.
"""

from __future__ import annotations

import numpy as np

from evs_cli.dialects import sampling
from evs_cli.dialects import transformers_5_24_glm as hf_glm
from evs_cli.dialects import vllm_0_33 as vllm
from evs_cli.dialects.base import (
    GlmModel,
    Int64Array,
    RefusedByServerError,
    ServerOptions,
    ServerPlan,
    ServerSource,
)

ARCHITECTURES = ("Glm4vForConditionalGeneration", "Glm4vMoeForConditionalGeneration")
"""What vLLM has models of its own for."""
MAX_SECONDS = 300
"""``max_duration`` of the loader, unless ``--media-io-kwargs`` says otherwise."""


def glm(source: ServerSource, model: GlmModel, options: ServerOptions) -> ServerPlan:
    """GLM-4.1V and 4.5V: 2 frames a second up to 300 s; GLM-4.6V: by the clip's length.

    Raises:
        RefusedByServerError: the server would fail on the clip or its options.
    """
    loader = vllm.loader_arguments(options)
    if model.samples_by_length:
        patch = loader.get("temporal_patch_size", 2)
        indices, rule = sampling.glm46v_indices(source, patch), hf_glm.by_length_rule(source, patch)
    else:
        fps, longest = float(loader.get("fps", vllm.DEFAULT_FPS)), loader.get("max_duration", MAX_SECONDS)
        indices = sampling.glm4v_indices(source, fps, max_seconds=longest, at_least=0)
        rule = hf_glm.fps_rule(source, fps, longest)
    hf_glm.require_frames(source, indices)
    indices, lost = source.read(indices)
    notes = lost + hf_glm.unused_argument_notes(model, loader, "media_io_kwargs")
    idle_fps = options.mm_processor.get("fps")
    if idle_fps is not None and not model.samples_by_length and not _samples_again(source, model, options, indices):
        notes.append(
            f"fps {idle_fps} of mm_processor_kwargs does nothing: the loader samples; --media-io-kwargs "
            f'\'{{"video": {{"fps": {idle_fps}}}}}\' does'
        )
    if _samples_again(source, model, options, indices):
        num_loaded = len(indices)
        indices, rule = hf_glm.glm_indices(source, model, options.mm_processor)
        if len(np.unique(indices)) < num_loaded:
            notes.append(
                f"the loader keeps every frame of the file, and then the processor samples them at {rule}: what it is "
                "given by mm_processor_kwargs holds"
            )
    return glm_frames(source, model, options, indices, rule).with_notes(notes)


def glm_frames(
    source: ServerSource, model: GlmModel, options: ServerOptions, indices: Int64Array, rule: str
) -> ServerPlan:
    """The plan of frames that are settled, by the loader or by a request that sends them.

    Args:
        source: the video they are of, as the server is told it.
        model: the checkpoint.
        options: the server's, and the request's.
        indices: (S,) int64, the frames.
        rule: what settled them, in words.

    Raises:
        RefusedByServerError: fewer frames than one tubelet, an extreme aspect, or half a ``size``.
    """
    notes = hf_glm.unused_argument_notes(model, options.mm_processor, "mm_processor_kwargs")
    is_native = model.architecture in ARCHITECTURES
    if not is_native:
        notes.append(f"vLLM has no model of {model.architecture} and runs transformers' own")
    elif model.samples_by_length:
        notes.append("times are cut to whole seconds: frames of one second cannot be told apart by them")
    plan = hf_glm.glm_plan(
        source,
        model,
        options.mm_processor,
        indices,
        rule,
        vllm.pruning(model, options),
        tells_whole_seconds=is_native,
        tokenises_pieces=True,
    )
    return plan.with_notes(notes)


def _samples_again(source: ServerSource, model: GlmModel, options: ServerOptions, loaded: Int64Array) -> bool:
    """Whether the processor samples what the loader gave it: where that is the whole file, or as a request says.

    Raises:
        RefusedByServerError: it would ask for frames that the loader left out.
    """
    keeps_all = len(loaded) == source.num_frames
    if model.architecture in ARCHITECTURES:  # its own models go by the loader alone
        return keeps_all
    asked = bool(options.mm_processor.get("do_sample_frames", keeps_all))
    if asked and not keeps_all:
        raise RefusedByServerError(
            f"do_sample_frames makes the processor sample by the file's {source.num_frames} frames, of which the "
            f"loader kept {len(loaded)}, and it fails.",
            hint="Leave do_sample_frames out.",
        )
    return asked
