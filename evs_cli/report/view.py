"""``evs view``: which outputs are drawn, and the one pass over the frames that draws them all.

An output is known by its name: ``.html`` is the report page, ``.mp4`` a film, ``.png`` a contact sheet, ``.svg`` and
``.pdf`` a strip for a paper, and a name without a suffix, or of a folder, a folder of pictures.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.text import Text

from evs_cli.errors import UsageError
from evs_cli.files.output_file import check_output_file, refuse_inputs
from evs_cli.report.pictures.folder import check_output_folder
from evs_cli.report.pictures.strip import SUFFIXES as STRIP_SUFFIXES
from evs_cli.report.pictures.strip import check_strip_path
from evs_cli.report.pictures.writer import PictureWriter
from evs_cli.report.records import flat

if TYPE_CHECKING:
    from evs_cli.jobs.runner import Outcome
    from evs_cli.jobs.view import View
    from evs_cli.jobs.viewed_run import ViewedRun
    from evs_cli.pipeline.progress import Progress
    from evs_cli.report.console import Sink

Drawer = Callable[["View", Path, int, bool], PictureWriter]


class Checker(Protocol):
    """Refuses an output that could not be written later."""

    def __call__(self, path: Path, *, overwrite: bool) -> None:
        """Raise ``UsageError`` or ``ArtifactError``."""


@dataclass(frozen=True)
class OutputKind:
    """One kind of output of ``evs view``."""

    name: str
    """In a few words."""
    suffixes: tuple[str, ...]
    """Of its files; none is a folder."""
    max_frames: int | None
    """Most frames it draws unless the user says otherwise; None draws all."""
    open: Drawer
    """Makes the writer, of a view, a path, the most frames, and whether the path may exist."""
    draws_all_runs: bool = False
    """Whether it has room for more than one run."""
    check: Checker | None = None
    """Refuses a path before any work; None does so as for any file."""


def _page(view: View, path: Path, max_frames: int, overwrite: bool) -> PictureWriter:
    from evs_cli.report.page.writer import PageWriter

    return PageWriter(view, path, max_frames, overwrite=overwrite)


def _film(view: View, path: Path, max_frames: int, overwrite: bool) -> PictureWriter:
    from evs_cli.report.pictures.film import FilmWriter

    return FilmWriter(view, path, max_frames, overwrite=overwrite)


def _sheet(view: View, path: Path, max_frames: int, overwrite: bool) -> PictureWriter:
    from evs_cli.report.pictures.sheet import SheetWriter

    return SheetWriter(view, path, max_frames, overwrite=overwrite)


def _strip(view: View, path: Path, max_frames: int, overwrite: bool) -> PictureWriter:
    from evs_cli.report.pictures.strip import StripWriter

    return StripWriter(view, path, max_frames, overwrite=overwrite)


def _folder(view: View, path: Path, max_frames: int, overwrite: bool) -> PictureWriter:
    from evs_cli.report.pictures.folder import FolderWriter

    return FolderWriter(view, path, max_frames, overwrite=overwrite)


FOLDER = OutputKind("folder of pictures", (), None, _folder, check=check_output_folder)
KINDS = (
    OutputKind("report page", (".html",), 64, _page, draws_all_runs=True),
    OutputKind("film", (".mp4",), None, _film),
    OutputKind("contact sheet", (".png",), 24, _sheet),
    OutputKind("strip", STRIP_SUFFIXES, 8, _strip, check=check_strip_path),
    FOLDER,
)


@dataclass(frozen=True)
class ViewOutput:
    """A file or folder to draw."""

    path: Path
    kind: OutputKind
    overwrite: bool = False
    """Whether it may exist when it is written."""


def settle_view_outputs(
    names: Sequence[str], *, num_runs: int, overwrite: bool, inputs: Sequence[str] = ()
) -> tuple[ViewOutput, ...]:
    """The outputs by their names, refused before any work where they cannot be written.

    Args:
        names: ``-o`` as they were given.
        num_runs: how many files or models are viewed.
        overwrite: whether they may exist.
        inputs: what they are made of, which none of them replaces.

    Raises:
        UsageError: no output, two of one name, a suffix that is not known, too many runs for it, or an input.
        ArtifactError: one exists already, or its folder cannot be written.
    """
    known = ", ".join(suffix for kind in KINDS for suffix in kind.suffixes) + ", or a folder"
    if not names:
        raise UsageError(
            "Nothing to draw: no output is given.",
            hint=f"-o report.html draws the report page; -o also takes {known}.",
        )
    if len({os.path.abspath(name) for name in names}) < len(names):  # noqa: PTH100 - links stay what they are named
        raise UsageError(f"Invalid outputs {', '.join(names)}: one is given twice. Expected each once.")
    outputs = tuple(_settled(name, known, num_runs, overwrite=overwrite) for name in names)
    for each in outputs:
        refuse_inputs(each.path, inputs)
    return outputs


def _settled(name: str, known: str, num_runs: int, *, overwrite: bool) -> ViewOutput:
    path = Path(name)
    if name == "-":
        raise UsageError("Invalid output -: pictures do not go to stdout.", hint="Give a file, such as report.html.")
    kind = (
        FOLDER if _names_folder(name) else next((each for each in KINDS if path.suffix.lower() in each.suffixes), None)
    )
    if kind is None:
        raise UsageError(f"Invalid output {name}: suffix {path.suffix!r}. Expected one of {known}.")
    if num_runs > 1 and not kind.draws_all_runs:
        raise UsageError(f"Invalid output {name}: a {kind.name} draws one run, {num_runs} are given. Expected .html.")
    if kind.check is None:
        check_output_file(path, (path.suffix,), overwrite=overwrite)
    else:
        kind.check(path, overwrite=overwrite)
    return ViewOutput(path, kind, overwrite)


def _names_folder(name: str) -> bool:
    """Whether an output is a folder: it has no suffix, ends with a slash, or is there as one."""
    if not Path(name).suffix or name.endswith(("/", os.sep)):
        return True
    try:
        return Path(name).is_dir()
    except OSError:  # a name that is too long: a file of that name is refused
        return False


def render_view(
    outcomes: Iterable[Outcome[View]],
    outputs: Sequence[ViewOutput],
    sink: Sink,
    progress: Progress,
    max_frames: int | None = None,
) -> None:
    """Draw the outputs of a view, and tell what they show.

    Args:
        outcomes: of ``run_view``; each is drawn while it is open.
        outputs: where to.
        sink: the terminal.
        progress: who watches.
        max_frames: most frames an output draws; None is its own default.
    """
    for outcome in outcomes:
        view = outcome.result
        assert view is not None  # one video, whose error is raised
        source = None if view.frames is None else view.frames.info.source
        if isinstance(source, (str, os.PathLike)):  # found by its name, so that nobody typed it
            for each in outputs:
                refuse_inputs(each.path, [source])
        for note in view.notes:
            sink.notice(note)
        written = draw_outputs(view, outputs, progress, max_frames)
        record = _record(outcome.video, view, written)
        sink.show([record], [_row(record)], partial(_draw, view, sink))
        _report_written(written, outputs, sink)
    sink.finish()


def draw_outputs(
    view: View, outputs: Sequence[ViewOutput], progress: Progress, max_frames: int | None = None
) -> list[Path]:
    """Draw all outputs in one pass over the frames.

    Returns:
        The files that were written; of a folder all that are in it.
    """
    with ExitStack() as begun:
        writers = []
        for each in outputs:
            most = max_frames or each.kind.max_frames or view.runs[0].token_grid_thw[0]
            writers.append(each.kind.open(view, each.path, most, each.overwrite))
            begun.callback(writers[-1].discard)  # an interrupt ends the process without its destructors
        _hand_frames(view, writers, progress)
        # Two strips of one name share a CSV.
        return list(dict.fromkeys(path for writer in writers for path in writer.finish()))


def _hand_frames(view: View, writers: Sequence[PictureWriter], progress: Progress) -> None:
    if view.frames is None:
        return
    wanted = [set(writer.frame_indices) for writer in writers]
    indices = sorted(set().union(*wanted))
    progress.stage("draw", len(indices))
    for frame_index, picture in view.frames.read(indices):
        for writer, its in zip(writers, wanted, strict=True):
            if frame_index in its:
                writer.add(frame_index, picture)
        progress.advance(1)


def _report_written(written: Sequence[Path], outputs: Sequence[ViewOutput], sink: Sink) -> None:
    """A line a file; a folder of hundreds is one line."""
    folders = [each.path for each in outputs if each.kind is FOLDER]
    for folder in folders:
        sizes = [path.stat().st_size for path in written if path.parent == folder]
        sink.status(f"wrote {len(sizes)} pictures into {folder}, {sum(sizes):,} bytes")
    for path in written:
        if path.parent not in folders:
            sink.status(f"wrote {path}, {path.stat().st_size:,} bytes")


def _record(video: str, view: View, written: Sequence[Path]) -> dict[str, Any]:
    return {
        "video": video,
        "source": view.runs[0].video_name,
        "has_pictures": view.frames is not None,
        "runs": [_run_record(run) for run in view.runs],
        "outputs": [str(path) for path in written],
    }


def _run_record(run: ViewedRun) -> dict[str, Any]:
    retained = run.retention.retained_tokens
    length = run.sequence_length(retained)
    return {
        "label": run.label,
        "model": run.model,
        "method": run.rule.method,
        "q": run.q,
        "token_grid_thw": list(run.token_grid_thw),
        "total_tokens": run.total_tokens,
        "retained_tokens": retained,
        "retained_share": retained / run.total_tokens,
        "sequence_length": length,
        "empty_frames": run.retention.empty_frames,
        "context_limit": run.cost.context_limit,
        "kv_cache_bytes": run.cost.kv_cache_bytes(length),
        "num_tokens_per_frame": run.retention.num_tokens_per_frame.tolist(),
    }


def _row(record: dict[str, Any]) -> dict[str, Any]:
    """One line of CSV: the first run, and the files."""
    return {"video": record["video"], **flat(record["runs"][0]), "outputs": " ".join(record["outputs"])}


def _draw(view: View, sink: Sink) -> None:
    for run in view.runs:
        retained = run.retention.retained_tokens
        frames, height, width = run.token_grid_thw
        sink.result(
            Text(
                f"{run.label}: q = {run.q:g} keeps {retained:,} of {run.total_tokens:,} tokens "
                f"({retained / run.total_tokens:.1%}) of {frames} frames of {height} x {width}; "
                f"{run.retention.empty_frames} keep nothing"
            )
        )
