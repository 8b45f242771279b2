"""Output paths of a job, one for each video; one that cannot be written is refused before any work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evs_cli.errors import ArtifactError, UsageError
from evs_cli.files.output_file import check_output_file
from evs_cli.jobs.inputs import STDIN


def settle_outputs(
    videos: Sequence[str],
    output: str | None,
    suffixes: Sequence[str],
    *,
    overwrite: bool,
    rates: Sequence[float] = (),
) -> tuple[Path | None, ...]:
    """An output a video: of one a file, of several ``{stem}`` and the first suffix in a folder; None prints only.

    With several rates it is an output a video and rate, video by video, and each name has its rate behind the stem:
    ``out.pt`` becomes ``out-q0.5.pt``. A folder is taken for one video too then.

    Args:
        videos: the inputs as they were named.
        output: ``-o`` as it was given.
        suffixes: what the job writes, its own choice first.
        overwrite: whether outputs may exist.
        rates: the rates, where there are several.

    Raises:
        UsageError: standard input twice, a suffix that is not written, a file for several videos, or an output that is
            an input.
        ArtifactError: an output that exists, or two videos that would become the same one.
    """
    if list(videos).count(STDIN) > 1:
        raise UsageError("Invalid videos: - stands for standard input, which comes but once. Give it once.")
    outputs: list[Path | None]
    if output is None:
        outputs = [None] * len(videos)
    elif len(videos) == 1 and not (rates and _is_folder(output, suffixes)):
        outputs = [Path(output)]
    else:
        folder = Path(output)
        if folder.suffix in suffixes or (folder.exists() and not folder.is_dir()):
            raise UsageError(
                f"Invalid output {output} for {len(videos)} videos: it is a file. "
                f"Expected a folder; each video becomes {{stem}}{suffixes[0]} in it."
            )
        outputs = [folder / f"{'stdin' if video == STDIN else Path(video).stem}{suffixes[0]}" for video in videos]
    if rates:
        outputs = [None if path is None else at_rate(path, q) for path in outputs for q in rates]
    _refuse_clashes([video for video in videos for _ in rates or (None,)], outputs)
    for path in outputs:
        if path is not None:
            _refuse_inputs(path, videos)
            check_output_file(path, suffixes, overwrite=overwrite)
    return tuple(outputs)


def at_rate(path: Path, q: float) -> Path:
    """The name of a path's result at one of several rates, ``out-q0.5.pt``."""
    return path.with_name(f"{path.stem}-q{q:.9g}{path.suffix}")  # rates are rounded to 1e-9, so that no two are one


def _is_folder(output: str, suffixes: Sequence[str]) -> bool:
    """Whether ``-o`` names a folder: there is one, or the name ends as only a folder's does."""
    path = Path(output)
    return path.suffix not in suffixes and (output.endswith("/") or path.is_dir() or not path.suffix)


def _refuse_clashes(videos: Sequence[str], outputs: Sequence[Path | None]) -> None:
    taken: dict[str, str] = {}
    for video, output in zip(videos, outputs, strict=True):
        if output is None:
            continue
        key = str(output).casefold()  # some file systems do not tell cases apart
        if key in taken:
            raise ArtifactError(
                f"cannot write {video} and {taken[key]}: both would become {output}.",
                hint="Give them one by one, each with its own -o.",
            )
        taken[key] = video


def _refuse_inputs(output: Path, videos: Sequence[str]) -> None:
    for video in videos:
        try:
            is_input = video != STDIN and output.exists() and output.samefile(video)
        except (OSError, ValueError):  # no such input, which is told when it is read
            is_input = False
        if is_input:
            raise UsageError(f"Invalid output {output}: it is the input {video} itself. Expected another name.")
