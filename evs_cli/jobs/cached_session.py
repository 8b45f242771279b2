"""The encoding cache of a session: a video that was encoded before needs neither pixels nor weights.

In: videos, as ``Session`` takes them. Out: what ``Session`` gives, the same bits. An entry that is damaged is removed
and the video encoded anew; an entry that cannot be written costs a note and nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evs_cli.errors import ArtifactError, UsageError
from evs_cli.files.cache.entry_spool import EntrySpool
from evs_cli.files.cache.store import NAME_DIGITS, EncodingCache, read_facts
from evs_cli.files.encoding.reader import open_encoding
from evs_cli.files.encoding.record import SCHEMA_VERSION, StoredModel
from evs_cli.pipeline.encoded_video import ClipCounts, EncodedClip, StoredVideo
from evs_cli.pipeline.encoding_key import EncodingKey, encoding_key
from evs_cli.pipeline.progress import Progress, Timings
from evs_cli.pipeline.provenance import provenance_of
from evs_cli.pipeline.request import SessionRequest
from evs_cli.pipeline.row_selection import RowSelection, SinkT
from evs_cli.pipeline.session import EncodedT, Session
from evs_cli.video.source import VideoSource, file_sha256, source_name

if TYPE_CHECKING:
    import torch


class _DamagedEntryError(Exception):
    """Rows of an entry cannot be used."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(reason)
        self.path, self.reason = path, reason


def open_session(request: SessionRequest, progress: Progress | None, cache: EncodingCache | None) -> Session:
    """A session; one that keeps encodings where there is a cache.

    Raises:
        UsageError: a server that chooses its tokens otherwise than EVS: no mask is made as it would.
    """
    method = request.server.video_pruning_method
    if method != "evs":
        raise UsageError(
            f"--video-pruning-method {method} has no effect here: its tokens are counted, and not chosen. Expected "
            "evs, or evs plan, fit, check or export."
        )
    return Session(request, progress, None if cache is None else CachedEncodings(cache))


class CachedEncodings:
    """The encodings in a cache, for the sessions that ask for them; see ``ClipCache``."""

    def __init__(self, cache: EncodingCache) -> None:
        self._cache = cache

    def encode(self, session: Session, source: VideoSource, rows: RowSelection[SinkT, EncodedT]) -> EncodedT:
        """See ``ClipCache.encode``."""
        return _Lookup(self._cache, session, source).encode(rows)


class _Lookup:
    """One video of one session, looked up in the cache."""

    def __init__(self, cache: EncodingCache, session: Session, source: VideoSource) -> None:
        self._cache, self._session, self._source = cache, session, source
        self._name, self._progress = source_name(source), session.progress

    def encode(self, rows: RowSelection[SinkT, EncodedT]) -> EncodedT:
        """What ``rows`` reads of the video's entry, or keeps of a fresh encoding, which then becomes an entry."""
        timings = Timings()
        self._progress.stage("look up")
        with timings.measure("hash"):
            key = self._key(file_sha256(self._source))
        stored = self._found(key)
        if stored is not None:
            try:
                with timings.measure("read"):
                    clip = rows.read(stored)
            except _DamagedEntryError as error:
                self._discard(error)
            else:
                return replace(self._mended_later(clip, rows), timings_seconds=timings.seconds)
        with EntrySpool(self._cache, key) as spool:
            clip = self._session.encode_fresh(self._source, rows, extra_sink=spool.expecting)
            timings = Timings({**timings.seconds, **clip.timings_seconds})
            with timings.measure("cache"):
                self._keep(key, spool, clip)
        return replace(clip, timings_seconds=timings.seconds)

    def _mended_later(self, clip: EncodedT, rows: RowSelection[SinkT, EncodedT]) -> EncodedT:
        """``clip``; if its rows are read later and turn out to be damaged, the video is encoded anew."""
        if not isinstance(clip, StoredVideo):
            return clip
        rows_of = clip.rows_of

        def read_rows(tokens: torch.Tensor, level: int) -> torch.Tensor:
            nonlocal rows_of
            try:
                return rows_of(tokens, level)
            except _DamagedEntryError as error:
                self._discard(error)
                rows_of = self.encode(rows).rows_of
                return rows_of(tokens, level)

        return replace(clip, read_rows=read_rows)

    def _key(self, video_sha256: str) -> EncodingKey:
        session = self._session
        return encoding_key(session.request, session.settings, session.encoder, video_sha256, SCHEMA_VERSION)

    def _found(self, key: EncodingKey) -> StoredVideo | None:
        """The entry of a key, as if this video had just been encoded; None where there is none."""
        path = self._cache.path_of(key.digest)
        if not path.is_file():
            self._progress.detail(f"cache: miss for {self._name}: {self._why_missed(key)}")
            return None
        try:
            encoding = open_encoding(path)
        except ArtifactError as error:
            if path.is_file():  # else another program has just removed it
                self._discard(_DamagedEntryError(path, error.message))
            return None
        facts = read_facts(path)
        if facts is None or facts.key_parts != key.parts:
            self._discard(_DamagedEntryError(path, "it is of something else"))
            return None
        self._cache.touch(path)

        def read_rows(tokens: torch.Tensor, level: int) -> torch.Tensor:
            try:
                return encoding.video.rows_of(tokens, level)
            except ArtifactError as error:
                raise _DamagedEntryError(path, error.message) from error

        self._progress.detail(
            f"cache: hit for {self._name}: entry {path.stem[:NAME_DIGITS]}; "
            "no frame is encoded and no weights are loaded"
        )
        if encoding.video.loss is not None:
            self._progress.notice(f"{self._name}: {encoding.video.loss}")
        return self._as_asked(replace(encoding.video, read_rows=read_rows))

    def _why_missed(self, key: EncodingKey) -> str:
        """What keeps the entry that is nearest from being the one asked for."""
        nearest: tuple[list[str], str] | None = None
        for entry in self._cache.entries():
            facts = read_facts(entry.path)
            if facts is None or facts.key_parts.get("video_sha256") != key.parts["video_sha256"]:
                continue
            differences = key.differences(facts.key_parts)
            if nearest is None or len(differences) < len(nearest[0]):
                nearest = differences, entry.name
        if nearest is None:
            return "no encoding of this video is there"
        return f"entry {nearest[1]} of this video differs in {', '.join(nearest[0])}"

    def _as_asked(self, stored: StoredVideo) -> StoredVideo:
        """An entry with the name the video has now, and the sequence around it for the prompt asked for.

        Raises:
            EvsError: as of planning, for another prompt than the one it was made with.
        """
        session, record = self._session, stored.provenance
        options, encoder = session.request.options, session.encoder
        if all(record["options"].get(name) == getattr(options, name) for name in ("prompt", "system")):
            return replace(stored, provenance={**record, "video": {**record["video"], "name": self._name}})
        self._progress.detail("cache: the sequence is made anew, for another prompt")
        plan = session.plan_and_report(self._source)
        actual = plan.encode
        if len(stored.actual.pts_seconds) < len(actual.pts_seconds):  # frames that do not decode
            clip = replace(plan.clip, pts_seconds=stored.actual.pts_seconds)
            actual = encoder.plan(clip, options, frame_size=actual.frame_size)
        provenance = provenance_of(
            plan, encoder, session.settings, options, record["batch_frames"], record["reused_frames"]
        )
        return replace(
            stored,
            planned=ClipCounts.of(plan.encode),
            actual=actual,
            position_ids=encoder.position_ids(actual),
            provenance=provenance,
        )

    def _keep(self, key: EncodingKey, spool: EntrySpool, clip: EncodedClip) -> None:
        """Make an entry of what was encoded, or say why there is none."""
        if self._key(clip.provenance["video"]["sha256"]) != key:
            spool.fault = "the video or the model changed meanwhile"
        removed = spool.write(clip, StoredModel.of(self._session.encoder))
        if spool.fault is not None:
            self._progress.notice(f"{self._name}: its encoding is not kept: {spool.fault}.")
        if removed:
            self._progress.detail(f"cache: removed {', '.join(removed)} to make room")

    def _discard(self, error: _DamagedEntryError) -> None:
        self._cache.remove(error.path)
        self._progress.notice(
            f"An entry of the cache was damaged and is removed, the video is encoded anew: {error.reason}"
        )
