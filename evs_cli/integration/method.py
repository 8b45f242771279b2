"""One feature method that prunes: it calls the method of before, reads the grids off the call, drops rows.

Knows the two signatures that serve videos: SGLang's ``get_video_feature(items)`` and transformers'
``get_video_features(..., video_grid_thw)``; any other says its grids itself.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import torch

from evs_cli.core.counts import TokenGrid, merged_grid
from evs_cli.errors import ModelError, UsageError
from evs_cli.integration.features import prune_features, prune_rows, rows_of
from evs_cli.integration.results import EVSConfig, EVSEmbeddingResult, frame_counts

SERVER_METHOD, TRANSFORMERS_METHOD = "get_video_feature", "get_video_features"
METHODS = (SERVER_METHOD, TRANSFORMERS_METHOD)

_pruning: ContextVar[bool] = ContextVar("evs_pruning", default=False)
"""True inside a method that prunes: what it calls delegates to must not prune as well."""


class PrunedMethod:
    """A feature method of one model, pruning what the method of before returns.

    An object and no closure, so that a copied or unpickled model prunes with itself.

    Args:
        model: the model that was given EVS; it, or the one underneath, has the method.
        name: ``get_video_feature`` or ``get_video_features``.
        original: the method as it was, bound.
        config: rate, above 0, and merge.
    """

    def __init__(self, model: Any, name: str, original: Callable[..., Any], config: EVSConfig) -> None:
        self.model, self.name, self.config = model, name, config
        self.__wrapped__ = original  # inspect.signature follows it: transformers' generate reads the parameters
        self.__doc__ = original.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method and prune its result: the result's own type, or ``EVSEmbeddingResult`` for items.

        Items whose every video is a single frame come back as they are, as at SGLang: its scheduler takes them for
        images, and there is nothing to prune.
        """
        if _pruning.get():
            return self.__wrapped__(*args, **kwargs)
        if kwargs.get("return_dict") is False:
            raise UsageError("cannot prune with return_dict=False: a tuple has no names. Expected return_dict=True.")
        token = _pruning.set(True)
        try:
            features = self.__wrapped__(*args, **kwargs)
        finally:
            _pruning.reset(token)
        arguments = self._arguments(args, kwargs)

        def token_grids(num_rows: int) -> Sequence[TokenGrid]:
            return _token_grids(self.model, arguments, num_rows, self.config.spatial_merge_size)

        if self.name == SERVER_METHOD:
            return _prune_items(features, token_grids, self.config.video_pruning_rate)
        return prune_features(features, token_grids, self.config.video_pruning_rate)

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments of the call by name, those of ``**kwargs`` among them."""
        signature = inspect.signature(self.__wrapped__)
        arguments = dict(signature.bind(*args, **kwargs).arguments)
        for name, parameter in signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                arguments |= arguments.pop(name, {})
        return arguments


def _token_grids(
    model: Any, arguments: Mapping[str, Any], num_rows: int, spatial_merge_size: int
) -> Sequence[TokenGrid]:
    """Token grid of each video of a call, out of what the call was told; never out of the features alone."""
    if hasattr(model, "evs_token_grids"):
        own: Sequence[TokenGrid] = model.evs_token_grids(arguments, num_rows)
        return own
    if arguments.get("video_grid_thw") is not None:
        return _reported_grids(model, arguments, spatial_merge_size)
    if arguments.get("frames_per_video") is not None:
        return _square_grids([int(n) for n in arguments["frames_per_video"]], num_rows)
    if "items" in arguments:
        missing = [item for item in arguments["items"] if getattr(item, "thw_grids", None) is None]
        if not missing:
            return [merged_grid(grid, spatial_merge_size) for item in arguments["items"] for grid in item.thw_grids]
    raise ModelError(
        f"cannot prune: the call told {type(model).__name__} no grid of its videos. Expected video_grid_thw, "
        "frames_per_video, or items with thw_grids.",
        hint="A model with another signature says its grids by a method evs_token_grids(arguments, num_rows).",
    )


def _reported_grids(model: Any, arguments: Mapping[str, Any], spatial_merge_size: int) -> Sequence[TokenGrid]:
    """Token grids out of ``video_grid_thw``: merged by the call's own sizes where it tells some, in time as well."""
    grids = [[int(n) for n in grid] for grid in arguments["video_grid_thw"]]
    merges = arguments.get("video_merge_sizes")  # VideoLLaMA 3 merges videos by another size than images
    sizes = [spatial_merge_size] * len(grids) if merges is None else [int(merge) for merge in merges]
    # ERNIE's resampler makes one frame of two.
    temporal = vision_number(getattr(model, "config", None), "temporal_merge_size")
    return [
        merged_grid((-(-t // temporal), height, width), size)
        for (t, height, width), size in zip(grids, sizes, strict=True)
    ]


def vision_number(config: Any, name: str) -> int:
    """A number of the vision part of a model's configuration; 1 where it has none."""
    vision = getattr(config, "vision_config", None)
    return int(getattr(vision, name, None) or 1)


def can_report_grids(model: Any, method: Callable[..., Any]) -> bool:
    """Whether a call of a feature method can tell the grids of its videos, or the model has a way to.

    transformers names a grid among the parameters where it takes one; other code may pass it in ``**kwargs``.
    """
    if hasattr(model, "evs_token_grids") or not type(model).__module__.startswith("transformers."):
        return True
    return any(name in inspect.signature(method).parameters for name in ("video_grid_thw", "frames_per_video", "items"))


def _square_grids(frames_per_video: list[int], num_rows: int) -> list[TokenGrid]:
    """Grids of frames of as many tokens each; ``h`` and ``w`` do not matter to the rule, only to the mask's shape."""
    each, rest = divmod(num_rows, sum(frames_per_video))
    if rest or not each:
        raise ModelError(f"cannot prune: {num_rows} rows for {sum(frames_per_video)} frames. Expected as many in each.")
    side = math.isqrt(each)
    height, width = (side, side) if side * side == each else (1, each)
    return [TokenGrid(n, height, width) for n in frames_per_video]


def _prune_items(
    features: Any, token_grids: Callable[[int], Sequence[TokenGrid]], q: float
) -> EVSEmbeddingResult | torch.Tensor:
    """SGLang's form: a tensor of every video of the items, ``(N, D)`` or ``(frames, tokens, D)``."""
    if not isinstance(features, torch.Tensor) or features.ndim < 2:
        raise ModelError(
            f"cannot prune: {SERVER_METHOD} returned {type(features).__name__}. "
            "Expected a tensor (N, D) or (frames, tokens, D)."
        )
    rows = rows_of(features)
    grids = token_grids(rows.shape[0])
    if all(grid[0] == 1 for grid in grids) and sum(TokenGrid(*grid).num_tokens for grid in grids) == len(rows):
        return features
    (kept,), retentions = prune_rows([rows], grids, q)
    return EVSEmbeddingResult(rows_of(kept), frame_counts(retentions), retentions)
