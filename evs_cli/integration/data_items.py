"""The data items of a request, in the shape that SGLang 0.5.23 gives them: common fields, and a dict for the rest."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from evs_cli.integration.redistribution import Span


class Modality(StrEnum):
    """What an item holds."""

    IMAGE = "image"
    VIDEO = "video"
    AUDIO = "audio"


@dataclass(kw_only=True, eq=False)
class MultimodalDataItem:
    """Pixels of one kind in a request, and where their placeholders stand.

    A name that is no field is looked up in ``model_specific_data`` and set there, so ``item.thw_grids`` reads what
    ``EVSProcessor`` wrote. It is written to: a server sets ``pad_value`` once it knows it.
    """

    modality: Modality
    feature: Any = None
    """Pixels, as the model's feature method takes them."""
    offsets: list[Span] | None = None
    """Inclusive spans of placeholders."""
    pad_value: int | None = None
    """The id that stands for this item's placeholders in the server's sequences."""
    model_specific_data: dict[str, Any] = field(default_factory=dict)
    """``thw_grids``: (T, H, W) of each image or video, before the spatial merge. For videos of a model that prunes also
    ``pre_chunked_input_ids``: the whole provisional sequence, to rebuild any chunk of it from."""

    def __post_init__(self) -> None:
        self.modality = Modality(self.modality)

    def is_image(self) -> bool:
        """Whether it holds images."""
        return self.modality is Modality.IMAGE

    def is_video(self) -> bool:
        """Whether it holds videos."""
        return self.modality is Modality.VIDEO

    def is_audio(self) -> bool:
        """Whether it holds sound."""
        return self.modality is Modality.AUDIO

    def set(self, key: str, value: Any) -> None:
        """Set a field, or an entry of ``model_specific_data``."""
        setattr(self, key, value)

    def __getattr__(self, name: str) -> Any:
        # Copies and unpickled items ask before they have any field: by way of the dict that would never end.
        more = self.__dict__.get("model_specific_data", {})
        if name not in more:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return more[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIELDS:
            object.__setattr__(self, name, value)
        else:
            self.model_specific_data[name] = value


_FIELDS = frozenset(each.name for each in fields(MultimodalDataItem))
