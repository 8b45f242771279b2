"""The prompt's side of EVS: whether a model prunes, and placeholders of the size it will need.

A server writes ``input_ids`` before a mask exists. K is known then (it needs no content), the split over frames is
not: placeholders are written by a provisional split and put right by ``EVSEmbeddingResult`` once the mask is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evs_cli.core.counts import check_grid, tokens_per_frame
from evs_cli.errors import UsageError
from evs_cli.integration.data_items import Modality, MultimodalDataItem
from evs_cli.integration.mixin import EVS
from evs_cli.integration.redistribution import Span, as_spans
from evs_cli.integration.results import EVSConfig

DataItemFactory = Callable[..., list[MultimodalDataItem]]
"""Keywords ``input_ids_list``, ``image``, ``image_offsets``, ``video``, ``video_offsets``; None where no pixels are."""


class EVSProcessor:
    """Decides by its configuration whether a model prunes, and sizes placeholders by that.

    Args:
        hf_config: the model's configuration.
        config_to_evs_model: model class with EVS, by the class of its configuration; subclasses of a configuration
            count as it.

    Attributes:
        evs_config: rate and merge, or None where nothing is pruned.

    Raises:
        UsageError: an empty mapping or classes without EVS; or a configuration that asks for pruning although none
            of the models is for it, which would otherwise be ignored in silence.
    """

    def __init__(self, hf_config: Any, config_to_evs_model: Mapping[type[Any], type[EVS]]) -> None:
        strangers = [model.__name__ for model in config_to_evs_model.values() if not issubclass(model, EVS)]
        if strangers or not config_to_evs_model:
            raise UsageError(f"Invalid config_to_evs_model: {strangers or 'empty'}. Expected classes that have EVS.")
        found = [config_to_evs_model[base] for base in type(hf_config).__mro__ if base in config_to_evs_model]
        self.evs_config: EVSConfig | None = None
        if found:
            config = found[0].create_evs_config(hf_config)
            self.evs_config = config if config.enabled else None
        elif getattr(hf_config, "video_pruning_rate", None):
            raise UsageError(
                f"Invalid video_pruning_rate {hf_config.video_pruning_rate!r}: no model for {type(hf_config).__name__} "
                f"prunes. Expected 0, or one of {[kind.__name__ for kind in config_to_evs_model]}."
            )

    def static_size_data_items(
        self, *, frames_per_video: Sequence[int], num_images: int, rows: int, cols: int, temporal_patch_size: int = 1
    ) -> tuple[DataItemFactory, list[list[int]]]:
        """For models whose every image and frame has ``rows * cols`` tokens.

        Args:
            frames_per_video: sampled frames of each video.
            num_images: images of the request.
            rows: token rows of a frame, after the spatial merge.
            cols: token columns of a frame, after the spatial merge.
            temporal_patch_size: sampled frames in one frame of tokens; an odd end is filled, so T is rounded up.

        Returns:
            A factory of data items (``MultimodalDataItem``), and for each video the placeholders of each of its T
            frames of tokens: all tokens, or where the model prunes a provisional split whose sum is K. Each video has
            its own K.

        Raises:
            UsageError: an empty grid, a negative number of images. Spans are checked where they are used, by
                ``EVSEmbeddingResult.redistribute_pruned_frames_placeholders``.
        """
        if temporal_patch_size < 1 or num_images < 0:
            raise UsageError(
                f"Invalid temporal_patch_size {temporal_patch_size} or num_images {num_images}. "
                "Expected at least 1 and at least 0."
            )
        num_frames = [-(-int(frames) // temporal_patch_size) for frames in frames_per_video]
        for frames in [*num_frames, *[1] * bool(num_images)]:
            check_grid(frames, rows, cols)
        if self.evs_config is None:
            full = [[rows * cols] * frames for frames in num_frames]
            return _Factory(full, None, num_images, rows, cols), full
        rate = self.evs_config.video_pruning_rate
        reduced = [tokens_per_frame(q=rate, num_frames=frames, frame_num_tokens=rows * cols) for frames in num_frames]
        return _Factory(reduced, self.evs_config, num_images, rows, cols), reduced


@dataclass(frozen=True)
class _Factory:
    """Makes the data items of one request."""

    placeholders: list[list[int]]
    """Of each frame of each video."""
    evs_config: EVSConfig | None
    num_images: int
    rows: int
    cols: int

    def __call__(
        self,
        *,
        input_ids_list: Sequence[int],
        image: Any | None,
        image_offsets: Sequence[Span],
        video: Any | None,
        video_offsets: Sequence[Span],
    ) -> list[MultimodalDataItem]:
        items: list[MultimodalDataItem] = []
        if image is not None:
            items.append(self._item(Modality.IMAGE, image, image_offsets, [1] * self.num_images))
        if video is not None:
            frames = [len(counts) for counts in self.placeholders]
            item = self._item(Modality.VIDEO, video, video_offsets, frames)
            if self.evs_config is not None:
                item.set("pre_chunked_input_ids", input_ids_list)
            items.append(item)
        return items

    def _item(
        self, modality: Modality, feature: Any, offsets: Sequence[Span], num_frames: list[int]
    ) -> MultimodalDataItem:
        item = MultimodalDataItem(modality=modality, feature=feature, offsets=as_spans(offsets))
        if self.evs_config is not None:
            merge = self.evs_config.spatial_merge_size
            item.set("thw_grids", [(frames, self.rows * merge, self.cols * merge) for frames in num_frames])
        return item
