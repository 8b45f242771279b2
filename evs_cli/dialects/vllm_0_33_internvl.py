"""vLLM 0.33 with InternVL in transformers' format: 32 uniform frames, a token of its own for a video's tokens.

Read from the release of that number: the loader ``opencv`` and the model ``interns1``, which takes this format.
"""

from __future__ import annotations

from dataclasses import replace

from evs_cli.dialects import sampling
from evs_cli.dialects import transformers_5_24_internvl as hf_internvl
from evs_cli.dialects import vllm_0_33 as vllm
from evs_cli.dialects.base import Int64Array, InternVLModel, ServerOptions, ServerPlan, ServerSource
from evs_cli.dialects.vllm_0_33_notes import by_number_notes, idle_processor_notes


def internvl(source: ServerSource, model: InternVLModel, options: ServerOptions) -> ServerPlan:
    """InternVL: 32 frames unless told otherwise, each at the size of an image's tile.

    Raises:
        RefusedByServerError: the server would fail on the clip or its options.
    """
    loader = vllm.loader_arguments(options)
    asked, fps = int(loader.get("num_frames", vllm.DEFAULT_NUM_FRAMES)), float(loader.get("fps", -1))
    num_frames = sampling.bounded_num_frames(source, fps if fps > 0 else None, asked if asked > 0 else None)
    indices, lost = source.read(sampling.truncated_linspace_indices(source, num_frames))
    rule = vllm.uniform_rule(fps, asked)
    works: tuple[str, ...] = ()
    if options.mm_processor.get("do_sample_frames", model.do_sample_frames):
        works = ("fps", "num_frames")
        # The processor is told nothing of the file: what the loader kept is the video, at no known rate.
        loaded = replace(source, num_frames=len(indices), average_fps=0.0, lost=frozenset())
        chosen, rule = hf_internvl.internvl_indices(loaded, model, options.mm_processor)
        indices = indices[chosen]
    notes = [*by_number_notes(loader), *idle_processor_notes(options.mm_processor, "num_frames", works), *lost]
    return internvl_frames(source, model, options, indices, rule).with_notes(notes)


def internvl_frames(
    source: ServerSource, model: InternVLModel, options: ServerOptions, indices: Int64Array, rule: str
) -> ServerPlan:
    """The plan of frames that are settled, by the loader or by a request that sends them.

    Args:
        source: the video they are of, as the server is told it.
        model: the checkpoint.
        options: the server's, and the request's.
        indices: (S,) int64, the frames.
        rule: what settled them, in words.

    Raises:
        RefusedByServerError: a size whose tokens are not as many as the prompt holds.
    """
    return hf_internvl.internvl_plan(
        source,
        model,
        indices,
        hf_internvl.frame_size(model.image_size, options.mm_processor),
        vllm.pruning(model, options),
        rule=rule,
        client_placeholder=model.video,
        tokenises_pieces=True,
    )
