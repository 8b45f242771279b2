"""Output paths of a job, one for each video; one that cannot be written is refused before any work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evs_cli.errors import ArtifactError, UsageError
from evs_cli.files.output_file import check_output_file, refuse_inputs
from evs_cli.jobs.inputs import STDIN
from evs_cli.jobs.output_names import FIELDS, NamePattern


@dataclass(frozen=True)
class OutputRequest:
    """Where results go.

    Raises:
        UsageError: options that exclude each other, or that mean nothing without an output.
    """

    path: str | None = None
    """``-o`` as it was given: of one video a file, of several a folder; None prints only."""
    name: str | None = None
    """The pattern of a result's path in a folder, see ``NamePattern``; None is ``{stem}``."""
    suffix: str | None = None
    """Of results in a folder; None is the job's first choice."""
    overwrite: bool = False
    """Whether outputs may exist."""
    skips_existing: bool = False
    """Whether a video whose output exists is left out."""

    def __post_init__(self) -> None:
        if self.overwrite and self.skips_existing:
            raise UsageError("--force and --skip-existing exclude each other. Give one.")
        if self.path is None:
            for option, value in (
                ("--name", self.name is not None),
                ("--suffix", self.suffix is not None),
                ("--skip-existing", self.skips_existing),
            ):
                if value:
                    raise UsageError(f"{option} has no effect without an output. Expected -o beside it.")


@dataclass(frozen=True)
class Output:
    """One result's place."""

    path: Path | None
    """None prints only."""
    is_skipped: bool = False
    """Whether it exists, and is left as it is."""


def settle_outputs(
    videos: Sequence[str], asked: OutputRequest, suffixes: Sequence[str], *, rates: Sequence[float] | None = ()
) -> tuple[Output, ...]:
    """An output a video: of one a file, of several a path in a folder.

    With several rates it is an output a video and rate, video by video, and each name has its rate behind the stem,
    unless the pattern has it: ``out.pt`` becomes ``out-q0.5.pt``. A folder is taken for one video too then, and
    wherever ``name`` or ``suffix`` is given or the output ends in ``/``.

    Args:
        videos: the inputs as they were named.
        asked: where results go.
        suffixes: what the job writes, its own choice first.
        rates: the rates asked for, None where the model's own is taken; empty for a job without rates.

    Raises:
        UsageError: standard input twice, a suffix that is not written, a file for several videos, a name that is none,
            or an output that is an input.
        ArtifactError: an output that exists, or two videos that would become the same one.
    """
    if list(videos).count(STDIN) > 1:
        raise UsageError("Invalid videos: - stands for standard input, which comes but once. Give it once.")
    of_rates: Sequence[float | None] = rates or (None,)
    named = [(video, index, q) for index, video in enumerate(videos, 1) for q in of_rates]
    if asked.path is None:
        return tuple(Output(None) for _ in named)
    if asked.path == "-":
        raise UsageError(
            "Invalid output -: files of evs do not go to stdout. Expected a name.",
            hint="--json and --format csv print there what is known of the tokens.",
        )
    if len(videos) == 1 and not _is_folder(asked, suffixes, several_rates=len(of_rates) > 1):
        path = Path(asked.path)
        paths = [path if len(of_rates) == 1 or q is None else at_rate(path, q) for q in of_rates]
    else:
        folder = _FolderNames(asked, suffixes, len(videos), has_rates=rates is None or len(rates) > 0)
        paths = [folder.path_of(video, index, q, several=len(of_rates) > 1) for video, index, q in named]
    _refuse_clashes([video for video, _, _ in named], paths, asked.name)
    return tuple(_settled(path, videos, asked, suffixes) for path in paths)


def at_rate(path: Path, q: float) -> Path:
    """The name of a path's result at one of several rates, ``out-q0.5.pt``."""
    return path.with_name(f"{path.stem}-q{q:.9g}{path.suffix}")  # rates are rounded to 1e-9, so that no two are one


class _FolderNames:
    """The paths of results in a folder."""

    def __init__(self, asked: OutputRequest, suffixes: Sequence[str], num_videos: int, *, has_rates: bool) -> None:
        assert asked.path is not None
        self._folder = Path(asked.path)
        fields = FIELDS if has_rates else tuple(field for field in FIELDS if field != "q")
        text = "{stem}" if asked.name is None else asked.name
        written = next((suffix for suffix in suffixes if text.endswith(suffix)), None)
        given = None if asked.suffix is None else f".{asked.suffix.removeprefix('.')}"
        if given is not None and (given not in suffixes or written not in (None, given)):
            expected = written or ", ".join(suffixes)
            raise UsageError(f"Invalid suffix {asked.suffix!r}. Expected one of {expected}.")
        self._suffix = given or written or suffixes[0]
        self._pattern = NamePattern(text.removesuffix(written or ""), fields)
        if self._folder.suffix in suffixes or (self._folder.exists() and not self._folder.is_dir()):
            videos = "1 video" if num_videos == 1 else f"{num_videos} videos"
            raise UsageError(
                f"Invalid output {asked.path} for {videos}: it is a file. "
                f"Expected a folder; each video becomes {{stem}}{self._suffix} in it."
            )

    def path_of(self, video: str, index: int, q: float | None, *, several: bool) -> Path:
        """Where a video's result goes, at one of several rates or at the only one."""
        path = self._pattern.path_of(video, index, q)
        name = f"{path.name}-q{q:.9g}" if several and "q" not in self._pattern.used else path.name
        return self._folder / path.parent / f"{name}{self._suffix}"


def _is_folder(asked: OutputRequest, suffixes: Sequence[str], *, several_rates: bool) -> bool:
    """Whether ``-o`` names a folder for one video: it must be one, or the name ends as only a folder's does."""
    assert asked.path is not None
    if asked.name is not None or asked.suffix is not None or asked.path.endswith("/"):
        return True
    path = Path(asked.path)
    return several_rates and path.suffix not in suffixes and (path.is_dir() or not path.suffix)


def _refuse_clashes(videos: Sequence[str], outputs: Sequence[Path], name: str | None) -> None:
    """Refuse two videos that would become one file, and say by what names they would not."""
    taken: dict[str, str] = {}
    for video, output in zip(videos, outputs, strict=True):
        key = str(output).casefold()  # some file systems do not tell cases apart
        if key in taken:
            raise ArtifactError(
                f"cannot write {taken[key]} and {video}: both would become {output}.",
                hint=_telling_apart(taken[key], video, name),
            )
        taken[key] = video


def _telling_apart(first: str, second: str, name: str | None) -> str:
    """A pattern by which two videos get names of their own."""
    for pattern in ("{parent}/{stem}", "{parent}/{name}"):
        paths = [str(NamePattern(pattern).path_of(video, 1, None)).casefold() for video in (first, second)]
        if paths[0] != paths[1] and pattern != name:
            return f"--name '{pattern}' tells them apart."
    return "Give each video once, or number the results: --name '{index}-{stem}'."


def _settled(path: Path, videos: Sequence[str], asked: OutputRequest, suffixes: Sequence[str]) -> Output:
    """An output that can be written, or is to be skipped."""
    refuse_inputs(path, [video for video in videos if video != STDIN])
    is_kept = asked.overwrite or asked.skips_existing
    check_output_file(path, suffixes, overwrite=is_kept, hint="--force overwrites it, --skip-existing leaves it.")
    return Output(path, is_skipped=asked.skips_existing and path.exists())
