"""Features of a model, pruned in the form they came in: a tensor, a tensor a video, or an output object.

In: what a feature method returned and the token grid of each video. Out: the same kind of thing with the rows EVS
keeps, and a ``Retention`` a video. Knows no models; the rule is ``evs_cli.core``'s.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

from evs_cli.core.counts import TokenGrid
from evs_cli.core.dissimilarity import compute_dissimilarity
from evs_cli.core.retention import Ranking, Retention
from evs_cli.errors import ModelError, UsageError

Rows = torch.Tensor | Sequence[torch.Tensor]
"""One level of features: a tensor of all videos, or a sequence of one tensor a video; D last."""


def prune_video(levels: Sequence[torch.Tensor], grid: TokenGrid, q: float) -> tuple[list[torch.Tensor], Retention]:
    """One video at rate q, all its levels under one mask.

    Args:
        levels: ``(T * h * w, D_level)`` a level, the main one first; they are scored side by side.
        grid: (T, h, w) in tokens. A video that keeps every token (one frame, or q = 0) comes back as it is, unscored.
        q: pruning rate, ``0 <= q < 1``.

    Returns:
        ``(K, D_level)`` a level, and the retention.

    Raises:
        ModelError: non-finite features, naming the frame.
    """
    grid = TokenGrid(*grid)  # a model of another's may tell plain triples
    if grid.t == 1 or grid.retained_tokens(q) == grid.num_tokens:
        return list(levels), _whole(grid, q, levels[0].device)
    shaped = [level.reshape(*grid, level.shape[-1]) for level in levels]
    retention = Ranking(compute_dissimilarity(shaped)).at(q)
    return [retention.select(level) for level in shaped], retention


def prune_rows(
    levels: Sequence[Rows], grids: Sequence[TokenGrid], q: float
) -> tuple[list[Rows], tuple[Retention, ...]]:
    """All videos of a call: each its own K and mask, each level as it came (tensor, tuple or list).

    Args:
        levels: one entry a level, the main one first.
        grids: (T, h, w) of each video, in tokens.
        q: pruning rate, ``0 <= q < 1``.

    Raises:
        ModelError: rows that do not fit the grids, or non-finite features, naming video and frame.
    """
    split = [_split(level, grids) for level in levels]
    kept: list[list[torch.Tensor]] = []
    retentions = []
    for index, grid in enumerate(grids):
        try:
            rows, retention = prune_video([videos[index] for videos in split], grid, q)
        except ModelError as error:
            if len(grids) == 1:
                raise
            message = f"video {index} of {len(grids)} (counted from 0): {error.message}"
            raise ModelError(message, hint=error.hint) from error
        kept.append(rows)
        retentions.append(retention)
    joined = [_join(level, [rows[number] for rows in kept]) for number, level in enumerate(levels)]
    return joined, tuple(retentions)


def prune_features(
    features: Any, token_grids: Sequence[TokenGrid] | Callable[[int], Sequence[TokenGrid]], q: float
) -> Any:
    """What a feature method returned, pruned, in the type it came in.

    Args:
        features: an output with ``pooler_output`` and perhaps ``deepstack_features`` (transformers), a tensor, or a
            sequence of one tensor a video. It is not written to; other fields are passed on as they are.
        token_grids: (T, h, w) of each video, or a function from the number of rows to them.
        q: pruning rate, ``0 <= q < 1``.

    Returns:
        The pruned features; ``retentions_of`` reads the masks off them.

    Raises:
        ModelError: features of an unknown form or size, or that hold NaN or infinite values.
    """
    main = getattr(features, "pooler_output", features)
    if not _is_rows(main):
        raise ModelError(
            f"cannot prune video features of type {type(features).__name__}: no (N, D) rows are found in them.",
            hint="EVS reads an output with pooler_output (return_dict=True), a tensor, or one tensor a video.",
        )
    deepstack = list(getattr(features, "deepstack_features", None) or [])
    grids = token_grids(_count(main)) if callable(token_grids) else token_grids
    (main, *deepstack), retentions = prune_rows([main, *deepstack], grids, q)
    if not hasattr(features, "pooler_output"):
        return _mark(main, retentions)
    pruned = copy.copy(features)
    pruned.pooler_output = main
    if deepstack:
        pruned.deepstack_features = deepstack
    pruned.evs = retentions
    return pruned


def retentions_of(features: Any) -> tuple[Retention, ...]:
    """The retention of each video that EVS pruned in ``features``: mask, tokens of each frame, noise.

    An output object carries them as ``.evs``; a bare tensor too, until an operation makes another tensor of it.

    Raises:
        UsageError: if EVS did not prune these features.
    """
    found = getattr(features, "evs", None)
    if found is None and isinstance(features, (tuple, list)) and features:
        parts = [getattr(rows, "evs", None) for rows in features]
        found = None if None in parts else tuple(retention for part in parts for retention in part or ())
    if found is None:
        raise UsageError("Invalid features: EVS did not prune them. Expected what a model with EVS returned.")
    retentions: tuple[Retention, ...] = found
    return retentions


def rows_of(features: Any) -> torch.Tensor:
    """``(K, D)`` rows of features, video after video."""
    main = getattr(features, "pooler_output", features)
    return _flat(main) if isinstance(main, torch.Tensor) else torch.cat([_flat(rows) for rows in main])


def _is_rows(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.ndim >= 2
    return (
        isinstance(value, (tuple, list))
        and len(value) > 0
        and all(isinstance(rows, torch.Tensor) and rows.ndim >= 2 for rows in value)
    )


def _flat(rows: torch.Tensor) -> torch.Tensor:
    """``(N, D)`` from ``(..., D)``; a 2-d tensor is itself."""
    return rows if rows.ndim == 2 else rows.reshape(-1, rows.shape[-1])


def _count(rows: Rows) -> int:
    return sum(_flat(part).shape[0] for part in ([rows] if isinstance(rows, torch.Tensor) else rows))


def _split(rows: Rows, grids: Sequence[TokenGrid]) -> list[torch.Tensor]:
    """One ``(T * h * w, D)`` tensor a video."""
    sizes = [TokenGrid(*grid).num_tokens for grid in grids]
    if isinstance(rows, torch.Tensor):
        flat = _flat(rows)
        got = [flat.shape[0]]
        if got == [sum(sizes)]:
            return [flat] if len(sizes) == 1 else list(torch.split(flat, sizes))
    else:
        videos = [_flat(part) for part in rows]
        got = [part.shape[0] for part in videos]
        if got == sizes:
            return videos
    raise ModelError(
        f"cannot prune: the features have {' + '.join(map(str, got))} rows, the token grids {list(map(tuple, grids))} "
        f"{' + '.join(map(str, sizes))}. Expected a row for every token of every video."
    )


def _join(like: Rows, videos: list[torch.Tensor]) -> Rows:
    """The videos in the kind of container that ``like`` is."""
    if isinstance(like, torch.Tensor):
        return videos[0] if len(videos) == 1 else torch.cat(videos)
    return videos if isinstance(like, list) else tuple(videos)


def _mark(rows: Rows, retentions: tuple[Retention, ...]) -> Rows:
    """Features without a field to spare carry their retentions on the tensors themselves."""
    if isinstance(rows, torch.Tensor):
        rows.evs = retentions  # type: ignore[attr-defined]
    else:
        for part, retention in zip(rows, retentions, strict=True):
            part.evs = (retention,)  # type: ignore[attr-defined]
    return rows


def _whole(grid: TokenGrid, q: float, device: torch.device) -> Retention:
    """The retention of a video that keeps everything."""
    mask = torch.ones(grid, dtype=torch.bool, device=device)
    return Retention(
        q=q,
        retention_mask=mask,
        num_tokens_per_frame=mask.sum(dim=(1, 2)),
        noise_tokens=0,
        dissimilarity_kept=1.0,
    )
