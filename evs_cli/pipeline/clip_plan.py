"""A planned video: what every command that plans gets from the planner, whether or not it goes on to encode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from evs_cli.encoders.base import Clip, EncodeOptions, EncodePlan
from evs_cli.video.info import VideoInfo
from evs_cli.video.sampling import FrameSelection, SamplingRequest

if TYPE_CHECKING:
    from evs_cli.dialects.served import ServedClip


@dataclass(frozen=True)
class SourceFacts:
    """What of a video its token count depends on; of a file, or given as numbers."""

    name: str
    path: str | None
    """The file as it was named; None of numbers alone, and of a file object."""
    width: int
    height: int
    duration_seconds: float
    num_frames: int
    """Frames of the source; of numbers alone, at the rate assumed for it."""
    average_fps: float


@dataclass(frozen=True, eq=False)
class ClipPlan:
    """A video, the frames sampled of it, and the plan of encoding them: exact, with no pixel decoded."""

    source: SourceFacts
    sampling: SamplingRequest
    """What was asked of the frames."""
    options: EncodeOptions
    """What was asked of the family."""
    selection: FrameSelection
    clip: Clip
    encode: EncodePlan
    file: VideoInfo | None = None
    """The probed file; None of numbers alone."""
    dialect: str = "evs"
    """Whose rules chose the frames, their size and the ids."""
    served: ServedClip | None = None
    """The clip as its server takes it; None for ``evs``."""

    @property
    def video(self) -> VideoInfo:
        """The probed file, which numbers alone do not have: they are planned, and never decoded."""
        assert self.file is not None
        return self.file

    @property
    def num_sampled_frames(self) -> int:
        """S."""
        return len(self.selection.frame_indices)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user on the file, the sampling and the plan."""
        warnings = () if self.file is None else self.file.warnings
        return (*warnings, *self.selection.notes, *self.encode.notes)
