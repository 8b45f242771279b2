"""A session that keeps what it encodes, and takes what was kept: no pixel is read then and no weights are loaded.

In: videos, as ``Session`` takes them. Out: what ``Session`` gives, the same bits. An entry that is damaged is removed
and the video encoded anew; an entry that cannot be written costs a note and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch

from evs_cli.core.streaming import NoTokens, RetainedRows
from evs_cli.errors import ArtifactError
from evs_cli.files.cache.entry_spool import EntrySpool
from evs_cli.files.cache.store import NAME_DIGITS, EncodingCache, read_facts
from evs_cli.files.encoding.reader import StoredVideo, open_encoding
from evs_cli.files.encoding.record import SCHEMA_VERSION, StoredModel
from evs_cli.pipeline.encoded_video import ClipCounts, ClipPlan, EncodedClip, RetainedVideo
from evs_cli.pipeline.encoding_key import EncodingKey, encoding_key
from evs_cli.pipeline.progress import Progress, Timings
from evs_cli.pipeline.provenance import provenance_of
from evs_cli.pipeline.request import SessionRequest
from evs_cli.pipeline.session import Session, TokenGrid
from evs_cli.video.source import VideoSource, file_sha256, source_name

if TYPE_CHECKING:
    from evs_cli.core.methods import RetentionRule
    from evs_cli.core.streaming import TokenSink

Clip = TypeVar("Clip", bound=EncodedClip)

_REPLAY_TOKENS = 4096  # a batch, where all rows of an entry go to a sink


class _DamagedEntryError(Exception):
    """Rows of an entry cannot be used."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(reason)
        self.path, self.reason = path, reason


def open_session(request: SessionRequest, progress: Progress | None, cache: EncodingCache | None) -> Session:
    """A session; one that keeps encodings where there is a cache."""
    return Session(request, progress) if cache is None else CachedSession(request, progress, cache)


class CachedSession(Session):
    """See ``Session``; encodings are kept in ``cache``.

    Raises:
        ModelError, UsageError: as ``Session``.
    """

    def __init__(self, request: SessionRequest, progress: Progress | None, cache: EncodingCache) -> None:
        super().__init__(request, progress)
        self._cache = cache
        self._spool: EntrySpool | None = None  # of the video that is being encoded

    def beside(self, plan: ClipPlan) -> TokenSink | None:
        """See ``Session.beside``: what sets the rows aside for the cache."""
        return None if self._spool is None else self._spool.expecting(plan.encode.token_grid_thw)

    def encode(self, source: VideoSource) -> EncodedClip:
        """See ``Session.encode``; of an entry, rows are read as they are asked for."""

        def lasting(stored: StoredVideo) -> EncodedClip:
            rows_of = stored.rows_of

            def read_rows(tokens: torch.Tensor, level: int) -> torch.Tensor:
                nonlocal rows_of
                try:
                    return rows_of(tokens, level)
                except _DamagedEntryError as error:
                    self._discard(error)
                    rows_of = self.encode(source).rows_of
                    return rows_of(tokens, level)

            return replace(stored, read_rows=read_rows)

        encode = super().encode
        return self._from_cache(source, lasting, lambda: encode(source))

    def retain(self, source: VideoSource, rates: Sequence[float]) -> RetainedVideo:
        """See ``Session.retain``; of an entry, the rows that the rates keep are read and no others."""
        retain = super().retain
        return self._from_cache(
            source, lambda stored: _retained(stored, self.rule, rates), lambda: retain(source, rates)
        )

    def encode_into(self, source: VideoSource, open_sink: Callable[[TokenGrid], TokenSink]) -> EncodedClip:
        """See ``Session.encode_into``; ``open_sink`` may be called twice, and then the later sink counts."""
        encode_into = super().encode_into
        return self._from_cache(
            source,
            lambda stored: _replayed(stored, open_sink(stored.planned.token_grid_thw)),
            lambda: encode_into(source, open_sink),
        )

    def _from_cache(self, source: VideoSource, read: Callable[[StoredVideo], Clip], encode: Callable[[], Clip]) -> Clip:
        """What ``read`` makes of the video's entry, or ``encode`` where there is none, which then becomes one."""
        timings = Timings()
        self.progress.stage("look up")
        with timings.measure("hash"):
            key = self._key(file_sha256(source))
        stored = self._found(source, key)
        if stored is not None:
            try:
                with timings.measure("read"):
                    clip = read(stored)
                return replace(clip, timings_seconds=timings.seconds)
            except _DamagedEntryError as error:
                self._discard(error)
        with EntrySpool(self._cache, key) as spool:
            self._spool = spool
            try:
                clip = encode()
            finally:
                self._spool = None
            timings = Timings({**timings.seconds, **clip.timings_seconds})
            with timings.measure("cache"):
                self._keep(source_name(source), key, spool, clip)
        return replace(clip, timings_seconds=timings.seconds)

    def _key(self, video_sha256: str) -> EncodingKey:
        return encoding_key(self.request, self.settings, self.encoder, video_sha256, SCHEMA_VERSION)

    def _found(self, source: VideoSource, key: EncodingKey) -> StoredVideo | None:
        """The entry of a key, as if this video had just been encoded; None where there is none."""
        path, name = self._cache.path_of(key.digest), source_name(source)
        if not path.is_file():
            self.progress.detail(f"cache: miss for {name}: {self._why_missed(key)}")
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

        self.progress.detail(
            f"cache: hit for {name}: entry {path.stem[:NAME_DIGITS]}; no frame is encoded and no weights are loaded"
        )
        if encoding.video.loss is not None:
            self.progress.notice(f"{name}: {encoding.video.loss}")
        return self._as_asked(replace(encoding.video, read_rows=read_rows), source)

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

    def _as_asked(self, stored: StoredVideo, source: VideoSource) -> StoredVideo:
        """An entry with the name the video has now, and the sequence around it for the prompt asked for.

        Raises:
            EvsError: as of planning, for another prompt than the one it was made with.
        """
        record = stored.provenance
        if record["options"].get("prompt") == self.request.options.prompt:
            return replace(stored, provenance={**record, "video": {**record["video"], "name": source_name(source)}})
        self.progress.detail("cache: the sequence is made anew, for another prompt")
        plan = self.plan_told(source, Timings())
        options, actual = self.request.options, plan.encode
        if len(stored.actual.pts_seconds) < len(actual.pts_seconds):  # frames that do not decode
            clip = replace(plan.clip, pts_seconds=stored.actual.pts_seconds)
            actual = self.encoder.plan(clip, options, frame_size=actual.frame_size)
        provenance = provenance_of(
            plan, self.encoder, self.settings, options, record["batch_frames"], record["reused_frames"]
        )
        return replace(
            stored,
            planned=ClipCounts.of(plan.encode),
            actual=actual,
            position_ids=self.encoder.position_ids(actual),
            provenance=provenance,
        )

    def _keep(self, name: str, key: EncodingKey, spool: EntrySpool, clip: EncodedClip) -> None:
        """Make an entry of what was encoded, or say why there is none."""
        if self._key(clip.provenance["video"]["sha256"]) != key:
            spool.fault = "the video or the model changed meanwhile"
        removed = spool.write(clip, StoredModel.of(self.encoder))
        if spool.fault is not None:
            self.progress.notice(f"{name}: its encoding is not kept: {spool.fault}.")
        if removed:
            self.progress.detail(f"cache: removed {', '.join(removed)} to make room")

    def _discard(self, error: _DamagedEntryError) -> None:
        self._cache.remove(error.path)
        self.progress.notice(
            f"An entry of the cache was damaged and is removed, the video is encoded anew: {error.reason}"
        )


def _retained(stored: StoredVideo, rule: RetentionRule, rates: Sequence[float]) -> RetainedVideo:
    """What some rates keep of an entry, read from the front of it."""
    masks = [retention.retention_mask for retention in rule.sweep(stored.ranking, list(rates))]
    tokens = torch.stack(masks).any(dim=0).flatten().nonzero().flatten()
    rows = RetainedRows(tuple(stored.rows_of(tokens, level) for level in range(stored.num_levels)), tokens)
    parts = {field.name: getattr(stored, field.name) for field in fields(EncodedClip)}
    return RetainedVideo(**parts, rule=rule, rows=rows)


def _replayed(stored: StoredVideo, sink: TokenSink) -> StoredVideo:
    """An entry, all of its rows handed to a sink as if they were just encoded."""
    if isinstance(sink, NoTokens):
        return stored
    num_frames, height, width = stored.actual.token_grid_thw
    places = height * width
    step = max(1, _REPLAY_TOKENS // places)
    for first in range(0, num_frames, step):
        last = min(num_frames, first + step)
        tokens = torch.arange(first * places, last * places)
        rows = (stored.rows_of(tokens, level) for level in range(stored.num_levels))
        levels = tuple(level.view(last - first, height, width, -1) for level in rows)
        sink.add(levels, stored.ranking.dissimilarity[first:last])
    return stored
