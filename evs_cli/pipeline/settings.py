"""Settings of decoding and encoding, with ``auto`` resolved, and the default pruning rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from evs_cli.encoders.runtime import Runtime
from evs_cli.errors import UsageError

if TYPE_CHECKING:
    import torch

    from evs_cli.video.decoder import Decoder

DEFAULT_PRUNING_RATE = 0.7


@dataclass(frozen=True)
class EncodeSettings:
    """How frames are decoded and encoded; none of it changes a count."""

    runtime: Runtime
    batch_frames: int | None = None
    """Sampled frames a batch, at least 1; rounded up to whole tubelets. None chooses by the free memory."""
    decoder: Decoder = "pyav"
    score_dtype: torch.dtype | None = None
    """Dtype of the dissimilarity; None is the embeddings' own."""
    reuses_frames: bool = True
    """Whether a frame (tubelet) that is equal to the one before, bit for bit, is left out of the encoding and gets the
    tokens of that one. Families whose frames are not independent never do."""

    def __post_init__(self) -> None:
        if self.batch_frames is not None and self.batch_frames < 1:
            raise UsageError(f"Invalid batch_frames ({self.batch_frames}). Expected at least 1.")
