"""GLM-4.1V, 4.5V and 4.6V: a span a frame, of the image token, with the frame's time behind it.

The checkpoint's processor says how a time is written (whole seconds, or tenths and the word) and how frames are
sampled; ``model_type`` does not, for GLM-4.6V comes as ``glm46v`` and as ``glm4v_moe``.
"""

from __future__ import annotations

from typing import ClassVar

from evs_cli.core.counts import TokenGrid
from evs_cli.encoders.base import FloatArray, seconds
from evs_cli.encoders.grid_vlm import GridVideoEncoder
from evs_cli.encoders.pixel_limits import VIDEO_PIXELS
from evs_cli.encoders.segments import Segment
from evs_cli.video.sampling import SamplingDefaults


class Glm4vEncoder(GridVideoEncoder):
    """Pixel limits hold for all frames together; the video's marks tell its image tokens from an image's."""

    pixel_limits: ClassVar[tuple[str, str]] = VIDEO_PIXELS
    marks: ClassVar[tuple[str, str]] = ("video_start_token_id", "video_end_token_id")
    # A video is written as one image a frame. Beam search counts placeholders by the key; the forward takes either.
    modality: ClassVar[str] = "image"
    loader_interpolation: ClassVar[str] = "bicubic"
    supported_options: ClassVar[frozenset[str]] = frozenset({"prompt", *VIDEO_PIXELS})

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """GLM-4.1V and 4.5V: ``fps`` of ``max_duration`` seconds, evenly beyond; their ``num_frames`` is never read.

        GLM-4.6V reads neither: 3, 1 or 0.5 frames of tokens a second up to 30 s, 300 s and beyond, 640 frames at most.
        """
        video = self.plan_processor.video_processor
        if self.tells_tenths:
            tubelet = float(video.temporal_patch_size)
            return SamplingDefaults(
                fps=0.5 * tubelet, max_frames=640, fps_up_to=((30.0, 3 * tubelet), (300.0, tubelet))
            )
        return SamplingDefaults(fps=float(video.fps), max_frames=int(video.max_duration * video.fps))

    def _prompt_seconds(self, pts_seconds: FloatArray, seconds_per_grid: float | None) -> FloatArray:
        """The first frame's time of each tubelet, in whole milliseconds, as the processor prints it."""
        times = [round(1000 * t) / 1000 for t in pts_seconds[:: self.temporal_patch_size].tolist()]
        return seconds([float(self._printed(t).split()[0]) for t in times])

    @property
    def tells_tenths(self) -> bool:
        """Whether the checkpoint's processor is that of GLM-4.6V, which prints tenths of seconds and the word."""
        return self.video_processor_class == "Glm46VVideoProcessor"

    def _printed(self, time: float) -> str:
        """A time as the processor writes it behind a frame."""
        return f"{time:.1f} seconds" if self.tells_tenths else str(int(time))

    def _video_segments(self, pts_seconds: FloatArray, token_grid_thw: TokenGrid) -> list[Segment]:
        """See ``GridVideoEncoder``: an image a frame, the time of its first sampled frame behind it."""
        num_frames, per_frame = token_grid_thw.t, token_grid_thw.tokens_per_frame
        # Every second frame tells its time, whatever the tubelet (transformers 5.24).
        times = [round(1000 * t) / 1000 for t in pts_seconds[::2].tolist()][:num_frames]
        times += times[-1:] * (num_frames - len(times))
        start, end = "<|begin_of_image|>", "<|end_of_image|>"
        return [part for time in times for part in (start, per_frame, end + self._printed(time))]
