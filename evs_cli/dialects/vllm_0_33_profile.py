"""The largest image or video that vLLM 0.33 profiles at start; its encoder cache holds at least that many tokens."""

from __future__ import annotations

from evs_cli.dialects.base import GlmModel, InternVLModel, NemotronModel, QwenModel, ServedModel
from evs_cli.dialects.resize import Size, qwen3_frame_size
from evs_cli.dialects.vllm_0_33_glm import ARCHITECTURES

_QWEN_FRAMES = 14  # of the largest video that Qwen2.5-VL is profiled with
_GLM_FRAMES = 600  # of the longest video that GLM-4.1V is profiled with
_GLM46V_FRAMES = 640
_HUGE = 9_999_999  # pixels a side, which the limits cut down
_MIN_PIXELS = 112 * 112


def profiled_item_tokens(model: ServedModel, max_model_len: int, *, takes_images: bool = True) -> int:
    """Tokens of the largest image or video the server expects at start.

    Args:
        model: the checkpoint.
        max_model_len: longest sequence of the server.
        takes_images: whether it expects images; not where ``--limit-mm-per-prompt`` sets their number to 0.
    """
    if isinstance(model, NemotronModel):
        return max_model_len
    if isinstance(model, QwenModel):
        return _qwen(model, max_model_len, takes_images=takes_images)
    if isinstance(model, InternVLModel):
        image = model.image_tiles * model.tokens_per_tile if takes_images else 0
        num_frames = max(1, (max_model_len - image) // model.tokens_per_tile)
        return max(image, num_frames * model.tokens_per_tile)
    return _glm(model, max_model_len, takes_images=takes_images)


def _qwen(model: QwenModel, max_model_len: int, *, takes_images: bool) -> int:
    image = model.image_max_pixels // model.factor**2
    if model.tells_times:  # pixel limits hold for the whole video: two frames may use them up
        video = model.max_pixels // model.temporal_patch_size // model.factor**2
        return max(image, video) if takes_images else video
    # A frame of the video counts as the largest image, whether or not images are taken.
    grids = min(max(max_model_len // image, 1), _QWEN_FRAMES // model.temporal_patch_size)
    return grids * image


def _glm(model: GlmModel, max_model_len: int, *, takes_images: bool) -> int:
    patch = model.temporal_patch_size
    if model.architecture not in ARCHITECTURES:  # transformers' model: as many as the limits allow
        most_pixels = max(model.image_max_pixels, model.max_pixels) if takes_images else model.max_pixels
        return most_pixels // (patch * model.factor**2)
    side = _glm_size(model, (_HUGE, _HUGE), 1, model.image_max_pixels)
    image = _glm_tokens(model, side, 1) if takes_images else 0
    if model.samples_by_length:
        # Each frame of tokens may have a time and two marks, the whole two more.
        marks = _GLM46V_FRAMES // patch * (2 + model.max_time_tokens) + 2
        return max(image, model.max_pixels // (patch * model.factor**2) + marks)
    sizes = {n: _glm_size(model, side, n, model.max_pixels) for n in range(2, _GLM_FRAMES + 1)}
    videos = [_glm_tokens(model, size, n) for n, size in sizes.items()]
    fitting = [tokens for tokens in videos if tokens <= max_model_len - image]
    return max(image, max(fitting, default=videos[0]))


def _glm_size(model: GlmModel, frame: Size, num_frames: int, max_pixels: int) -> Size:
    return qwen3_frame_size(
        *frame,
        num_frames=max(num_frames, model.temporal_patch_size),
        temporal_factor=model.temporal_patch_size,
        factor=model.factor,
        min_pixels=_MIN_PIXELS,
        max_pixels=max_pixels,
    )


def _glm_tokens(model: GlmModel, size: Size, num_frames: int) -> int:
    return -(-num_frames // model.temporal_patch_size) * (size[0] // model.factor) * (size[1] // model.factor)
