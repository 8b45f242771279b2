"""The limits of vLLM 0.33 besides the context length, each with the option that changes it.

Read from the release of that number: the defaults of ``envs.py`` and ``arg_utils.py``, the encoder cache's budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from evs_cli.dialects.base import GlmModel, QwenModel, ServedModel, ServerOptions
from evs_cli.dialects.server import Limit, videos_limit
from evs_cli.dialects.vllm_0_33_glm import ARCHITECTURES
from evs_cli.dialects.vllm_0_33_profile import profiled_item_tokens

MAX_DECODED_BYTES = 715_827_880
MAX_IMAGE_PIXELS = 178_956_970
VIDEOS_OPTION = "--limit-mm-per-prompt"
MAX_VIDEOS = 999
"""Of ``--limit-mm-per-prompt`` where it is not given."""
MAX_NUM_BATCHED_TOKENS = 8192
"""Default of a server on a GPU of 70 to 160 GB; 2,048 on a smaller one."""
DECODED_BYTES_VARIABLE = "VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES"
IMAGE_PIXELS_VARIABLE = "VLLM_MAX_IMAGE_PIXELS"
VARIABLES = {DECODED_BYTES_VARIABLE: "max_decoded_bytes", IMAGE_PIXELS_VARIABLE: "max_image_pixels"}
"""The fields of ``ServerOptions`` that the server's environment settles."""


def limits_of(model: ServedModel, options: ServerOptions, context: int | None) -> Iterator[Limit]:
    """Every limit of a server.

    Args:
        model: the checkpoint.
        options: what the server was started with.
        context: its longest sequence; without one the largest item it expects is not known, nor what its cache holds.
    """
    if context is not None:
        yield encoder_cache(model, options, context)
    yield decoded_bytes(options)
    yield frame_pixels(options)


def encoder_cache(model: ServedModel, options: ServerOptions, context: int) -> Limit:
    """Tokens of one video: what a batch holds, or the largest item that the server expects."""
    batched = options.max_num_batched_tokens or MAX_NUM_BATCHED_TOKENS
    item = profiled_item_tokens(_profiled(model, options), context, takes_images=options.takes_images)
    most = max(batched, item)
    return Limit("encoder cache", most, "tokens", "--max-num-batched-tokens", lambda clip: clip.cached_tokens)


def videos(model: ServedModel, options: ServerOptions) -> Limit | None:
    """Videos of one request: what the server was started with, and what its model takes."""
    if isinstance(model, GlmModel) and model.architecture in ARCHITECTURES:
        return videos_limit("the model's own", 1)
    return videos_limit(VIDEOS_OPTION, MAX_VIDEOS if options.max_videos is None else options.max_videos)


def decoded_bytes(options: ServerOptions) -> Limit:
    """Bytes of all frames of one request."""
    most = options.max_decoded_bytes or MAX_DECODED_BYTES
    return Limit("decoded bytes", most, "bytes", DECODED_BYTES_VARIABLE, lambda clip: clip.decoded_bytes)


def frame_pixels(options: ServerOptions) -> Limit:
    """Pixels of one frame."""
    most = options.max_image_pixels or MAX_IMAGE_PIXELS
    return Limit("frame pixels", most, "pixels", IMAGE_PIXELS_VARIABLE, lambda clip: clip.frame_pixels, grows=False)


def _profiled(model: ServedModel, options: ServerOptions) -> ServedModel:
    """The checkpoint with the pixel limits that the server was started with: it expects images by them too."""
    given = options.mm_processor
    if not isinstance(model, QwenModel) or not given.keys() & {"size", "min_pixels", "max_pixels"}:
        return model
    size = given.get("size", {})
    most = given.get("max_pixels", size.get("longest_edge"))
    least = given.get("min_pixels", size.get("shortest_edge", model.min_pixels))
    if most is None:
        return replace(model, min_pixels=least)
    return replace(model, min_pixels=least, max_pixels=most, image_max_pixels=most)
