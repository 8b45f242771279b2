"""The clips that are held against servers: the six shipped ones, and fourteen drawn ones of awkward kinds."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from video_files import video, write_video

ROOT = Path(__file__).resolve().parents[2]
_HELPERS_CLIPS = (
    *("vfr.mp4", "vp9.webm", "av1.mp4", "b_frames.avi", "stream.ts", "edit_list.mp4", "one.mp4", "two.mp4"),
    "truncated.mp4",
)
_NTSC = Fraction(1001, 24_000)
_DRAWN = {
    "ntsc.mp4": {"numbers": range(170), "time_base": _NTSC, "size": (640, 360)},
    "sixty.mp4": {"numbers": range(150), "time_base": Fraction(1, 60), "size": (1280, 720)},
    "portrait.mkv": {"numbers": range(99), "time_base": Fraction(2, 25), "size": (270, 480)},
    "slow.mp4": {"numbers": range(23), "time_base": Fraction(1), "size": (322, 182)},
    "long.mp4": {"numbers": [k % 256 for k in range(1000)], "time_base": Fraction(1, 10), "size": (192, 108)},
}
"""23.976 fps, 60 fps, a phone's picture at 12.5 fps, one picture a second, and 100 seconds."""


def all_clips(folder: Path) -> dict[str, Path]:
    """Every clip by its name; the drawn ones are written to ``folder`` where they are not there yet."""
    clips = {path.name: path for path in sorted((ROOT / "samples").glob("*.mp4"))}
    clips |= {name: video(name) for name in _HELPERS_CLIPS}
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawn in _DRAWN.items():
        clips[name] = folder / name
        if not clips[name].exists():
            write_video(folder / name, options={"preset": "veryfast", "sc_threshold": "0"}, **drawn)
    return clips
