"""``evs show --frames``: the frames of a file, drawn for people and listed for programs."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from evs_cli.core.placeholders import run_lengths
from evs_cli.report.frame_maps import FrameMap, draw_bands, map_legend
from evs_cli.report.pictures.writer import thinned

if TYPE_CHECKING:
    from evs_cli.jobs.viewed_run import ViewedRun
    from evs_cli.report.console import Sink
    from evs_cli.report.frame_maps import Mask

DEFAULT_MAX_FRAMES = 64


@dataclass(frozen=True, eq=False)
class FramesView:
    """The frames of one file at one rate."""

    run: ViewedRun
    max_frames: int = DEFAULT_MAX_FRAMES
    """Most frames drawn, at least 1. Programs get all."""

    @property
    def masks(self) -> Mask:
        """(T, h, w) bool, True where a token is kept."""
        masks: Mask = self.run.retention.retention_mask.cpu().numpy()
        return masks

    def records(self) -> list[dict[str, Any]]:
        """A record a frame for JSON.

        The mask is there as run lengths, for programs that read no tensors: ``mask_runs`` are the lengths of kept and
        dropped runs by turns in reading order, kept first, so 0 is first where the first token is dropped.
        """
        return [
            {
                "frame": index,
                "pts_seconds": float(pts),
                "tokens": int(mask.sum()),
                "q": self.run.q,
                "mask_runs": _mask_runs(mask),
            }
            for index, (pts, mask) in enumerate(zip(self.run.pts_seconds, self.masks, strict=True))
        ]

    def rows(self) -> list[dict[str, Any]]:
        """The same for CSV, the runs in one cell."""
        name = self.run.video_name
        return [{"video": name, **each, "mask_runs": " ".join(map(str, each["mask_runs"]))} for each in self.records()]

    def draw(self, title: str, sink: Sink) -> None:
        """Draw the frames as wide as the terminal, evenly thinned."""
        columns, masks = sink.drawing_width, self.masks
        shown = thinned(len(masks), self.max_frames)
        frames = [FrameMap(float(self.run.pts_seconds[index]), masks[index]) for index in shown]
        notes = [map_legend(masks.shape[2], sink.signs, columns)]
        if len(frames) < len(masks):
            notes.append(f"{len(frames)} of {len(masks)} frames, evenly spread; --max-frames sets how many")
        parts = [Text(title, style="bold"), Text(_wrapped(_told(self.run), columns))]
        parts += [Text(_wrapped(note, columns), style="dim") for note in notes]
        for band in draw_bands(frames, sink.signs, columns):
            parts += [Text(""), *(Text(line, style="green") for line in band.masks)]
            parts += [Text(band.captions), Text(band.bars, style="green")]
        sink.result(Group(*parts))


def _told(run: ViewedRun) -> str:
    kept, total = run.retention.retained_tokens, run.total_tokens
    method = "" if run.rule.method == "evs" else f", method {run.rule.method}"
    num_frames, height, width = run.token_grid_thw
    return (
        f"q = {run.q:g}{method}: {kept:,} of {total:,} tokens kept ({kept / total:.1%}); "
        f"{num_frames} frames of {height} x {width} = {height * width:,} tokens"
    )


def _wrapped(text: str, columns: int) -> str:
    return textwrap.fill(text, max(16, columns), break_long_words=False, break_on_hyphens=False)


def _mask_runs(mask: Mask) -> list[int]:
    runs = run_lengths(mask.flatten())
    lengths = [length for _, length in runs]
    return lengths if runs[0][0] else [0, *lengths]
