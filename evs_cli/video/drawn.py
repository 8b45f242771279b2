"""A clip to measure with where no file is at hand: a camera that pans, so that no frame repeats.

Out: an MP4 in memory, H.264, the same from run to run with one version of PyAV.
"""

from __future__ import annotations

import io

import numpy as np

HEIGHT, WIDTH, FPS = 360, 640, 30
NAME = "drawn clip"
"""What messages and results call it."""
_PATCH = 8  # pixels of one colour, so that there are edges to code and plains to skip
_STEP = 2  # pixels a frame


def draw_clip(length_seconds: int) -> io.BytesIO:
    """A moving clip of ``WIDTH`` x ``HEIGHT`` pixels at ``FPS`` frames a second.

    Args:
        length_seconds: at least 1.
    """
    import av

    file = io.BytesIO()
    scene = np.random.default_rng(0).integers(20, 236, (HEIGHT // _PATCH, 4 * WIDTH // _PATCH, 3), dtype=np.uint8)
    scene = np.tile(scene.repeat(_PATCH, 0).repeat(_PATCH, 1), (1, 2, 1))
    with av.open(file, "w", format="mp4") as output:
        stream = output.add_stream("libx264", rate=FPS, options={"preset": "ultrafast", "crf": "28"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for k in range(length_seconds * FPS):
            left = _STEP * k % (4 * WIDTH)
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(scene[:, left : left + WIDTH]), "rgb24")
            frame.pts = k
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    file.seek(0)
    file.name = NAME
    return file
