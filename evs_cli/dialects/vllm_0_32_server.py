"""vLLM 0.32 as a whole: the rules of 0.33 without its limit of decoded bytes and its count of packets.

From 0.33 on ``multimodal/media/base.py`` has the limit, and ``multimodal/video_decoders/opencv.py`` the count of files
that state none; it reads frames anew, where 0.32 seeks to the end to count them, and back. The parts that the rules
come from were compared by ``tests/live/compare_wheels.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from evs_cli.dialects.base import Int64Array, RefusedByServerError, ServedModel, ServerOptions, ServerSource
from evs_cli.dialects.opencv_frames import opencv_num_frames, opencv_reads
from evs_cli.dialects.server import Limit
from evs_cli.dialects.vllm_0_33_limits import DECODED_BYTES, IMAGE_PIXELS_VARIABLE, VARIABLES
from evs_cli.dialects.vllm_0_33_server import Vllm as Vllm033
from evs_cli.video.info import VideoInfo


class Vllm(Vllm033):
    """See ``Server``."""

    limit_variables: ClassVar[Mapping[str, str]] = {IMAGE_PIXELS_VARIABLE: VARIABLES[IMAGE_PIXELS_VARIABLE]}

    def source_of(self, video: VideoInfo, options: ServerOptions, reads: Int64Array | None = None) -> ServerSource:
        """See ``Server.source_of``: OpenCV's count alone.

        Raises:
            RefusedByServerError: a file that its OpenCV cannot decode or cannot count.
        """
        if not video.header_num_frames and not video.container_seconds:
            raise RefusedByServerError(
                "the file states neither its frames nor its length, and vLLM 0.32 finds no frame in it.",
                hint="Write it anew (ffmpeg -i … -c copy clip.mp4), or serve it with vLLM 0.33, which counts it.",
            )
        if video.num_frames == 1:
            raise RefusedByServerError("vLLM 0.32 finds no frame in a file of one: it reads on from the end.")
        return super().source_of(video, options, reads)

    def reads_of(self, video: VideoInfo, options: ServerOptions) -> Int64Array | None:
        """See ``Server.reads_of``: what is read after the seek to the end and back need not begin with frame 0."""
        if super().reads_of(video, options) is None:
            return None
        return opencv_reads(video, opencv_num_frames(video, decodes=True), is_sought=True)

    def limits(self, model: ServedModel, options: ServerOptions, context: int | None) -> Iterator[Limit]:
        """See ``Server.limits``."""
        return (limit for limit in super().limits(model, options, context) if limit.name != DECODED_BYTES)


SERVER = Vllm()
