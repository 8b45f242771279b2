"""The cache of encodings: what its key holds, what goes first, what damage does, and that a hit reads nothing else."""

import dataclasses
import json
import os
import shutil
import threading
from pathlib import Path

import pytest
import torch
from encodings_made import assert_same, make_encoded, write
from video_files import damaged_clip

from evs_cli.core.methods import RetentionRule
from evs_cli.core.streaming import AllTokens
from evs_cli.dialects import parse_dialect
from evs_cli.dialects.base import ServerOptions
from evs_cli.encoders.base import EncodeOptions
from evs_cli.encoders.registry import open_encoder
from evs_cli.encoders.runtime import Runtime
from evs_cli.errors import ArtifactError, UsageError
from evs_cli.files.cache.store import EncodingCache, read_facts
from evs_cli.files.encoding.reader import open_encoding
from evs_cli.files.encoding.record import SCHEMA_VERSION
from evs_cli.jobs.cache import open_cache
from evs_cli.jobs.cached_session import open_session
from evs_cli.pipeline import encoding_key as key_module
from evs_cli.pipeline.encoded_video import EncodedClip
from evs_cli.pipeline.encoding_key import CHOOSES_TOKENS, encoding_key, model_identity
from evs_cli.pipeline.progress import SilentProgress
from evs_cli.pipeline.request import SessionRequest, make_request
from evs_cli.pipeline.row_selection import AllRows, NoRows, RowsAtRates, RowsToSink
from evs_cli.pipeline.session import Session
from evs_cli.pipeline.settings import EncodeSettings
from evs_cli.video.sampling import SamplingRequest

CROSSING = Path(__file__).resolve().parents[2] / "samples" / "crossing.mp4"
RUNTIME = Runtime("cpu", torch.float32, "test")
RATES = [0.3, 0.6]


class Heard(SilentProgress):
    """What was told."""

    def __init__(self):
        self.notices, self.details = [], []

    def notice(self, text):
        self.notices.append(text)

    def detail(self, text):
        self.details.append(text)


def at_rates(rates):
    """The rows that EVS keeps at some rates."""
    return RowsAtRates(rates, RetentionRule())


@pytest.fixture
def cache(tmp_path):
    return EncodingCache(tmp_path / "cache", 10**9)


@pytest.fixture
def request_of(tiny_model):
    """``request_of(q...)``: keywords of a small run as a request."""
    return lambda **more: make_request(**{"model": str(tiny_model("dinov2")), "num_frames": 4, "size": 42, **more})


@pytest.fixture
def fresh(request_of):
    """The same video without a cache."""
    return Session(request_of()).encode(CROSSING, AllRows())


@pytest.fixture
def filled(cache, request_of):
    """The cache with the encoding in it."""
    open_session(request_of(), None, cache).encode(CROSSING, NoRows())
    return cache


@pytest.fixture
def no_work(monkeypatch):
    """Nothing may open a video, read a frame or load a weight."""
    for name in (
        "evs_cli.pipeline.planner.probe_video",
        "evs_cli.video.reader.read_frames",
        "evs_cli.encoders.plain.PlainFrameEncoder.load",
        "evs_cli.encoders.vlm.VisionLanguageEncoder.load",
    ):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("a video was read or a model loaded"))


def the_entry(cache):
    (entry,) = cache.entries()
    return entry.path


# The key.


def key_of(model, request=None, settings=None, sha="0" * 64, **source):
    encoder = open_encoder(str(model))
    encoder.source = dataclasses.replace(encoder.source, **source)
    return encoding_key(request or SessionRequest(), settings or EncodeSettings(RUNTIME), encoder, sha, SCHEMA_VERSION)


CHANGES = {
    "trust_remote_code": SessionRequest(trust_remote_code=True),
    "batch_frames": SessionRequest(batch_frames=4),
    "decoder": SessionRequest(decoder="decord"),
    "decodes_first": SessionRequest(decodes_first=True),
    **{
        f"sampling.{name}": SessionRequest(sampling=SamplingRequest(**{name: value}))
        for name, value in {
            **{"fps": 1.0, "num_frames": 3, "max_frames": 5, "start_seconds": 0.5, "end_seconds": 2.0},
        }.items()
    },
    **{
        f"options.{field.name}": SessionRequest(options=EncodeOptions(**{field.name: 100}))
        for field in dataclasses.fields(EncodeOptions)
        if field.name not in ("prompt", "system", "cap_pixels_per_frame")
    },
    "options.cap_pixels_per_frame": SessionRequest(options=EncodeOptions(cap_pixels_per_frame=False)),
    "dialect": SessionRequest(dialect=parse_dialect("vllm")),
    **{
        f"server.{name}.fps": SessionRequest(server=ServerOptions(**{name: {"fps": 1.0}}))
        for name in ("media_io", "mm_processor", "mm_process", "request")
    },
}
SETTINGS = {
    "device.name": EncodeSettings(Runtime("mps", torch.float32, "test")),
    "dtype": EncodeSettings(Runtime("cpu", torch.bfloat16, "test")),
    "score_dtype": EncodeSettings(RUNTIME, score_dtype=torch.float32),
    "reuse": EncodeSettings(RUNTIME, reuses_frames=False),
}
RESOLVED = {"model", "revision", "device", "dtype", "score_dtype", "reuse"}  # tested by what they come to


def test_every_field_of_a_request_is_in_the_key_or_named_as_none():
    fields = {field.name for field in dataclasses.fields(SessionRequest)}
    assert fields == {name.split(".")[0] for name in CHANGES} | RESOLVED | set(CHOOSES_TOKENS)
    for part, kind in (("sampling", SamplingRequest), ("options", EncodeOptions)):
        found = {name.split(".")[1] for name in CHANGES if name.startswith(f"{part}.")}
        assert found == {field.name for field in dataclasses.fields(kind)} - {"prompt", "system"}


@pytest.mark.parametrize("name", [*CHANGES, *SETTINGS])
def test_each_part_changes_the_key_and_is_told_by_its_name(tiny_model, name):
    plain = key_of(tiny_model("dinov2"))
    other = key_of(tiny_model("dinov2"), CHANGES.get(name), SETTINGS.get(name))
    assert other.digest != plain.digest
    assert plain.differences(other.parts) == [name]
    assert plain.digest == key_of(tiny_model("dinov2")).digest


def test_video_model_revision_and_versions_change_the_key(tiny_model, monkeypatch):
    model = tiny_model("dinov2")
    plain = key_of(model)
    assert plain.differences(key_of(model, sha="1" * 64).parts) == ["video_sha256"]
    assert plain.differences(key_of(model, revision="abc").parts) == ["model.revision"]
    hub = {"location": "owner/name", "revision": "abc"}
    assert key_of(model, **hub).differences(key_of(model, **{**hub, "location": "owner/other"}).parts) == [
        "model.location"
    ]
    assert "model.files" in plain.differences(key_of(tiny_model("siglip")).parts)
    monkeypatch.setattr(key_module, "__version__", "9")
    assert plain.differences(key_of(model).parts) == ["versions.evs"]
    monkeypatch.setattr(key_module, "version", lambda name: {"torch": "9"}.get(name, "0"))
    assert {"versions.torch", "versions.transformers"} <= set(plain.differences(key_of(model).parts))


def test_what_only_chooses_tokens_and_the_prompt_do_not(tiny_model):
    plain = key_of(tiny_model("dinov2"))
    for request in (
        SessionRequest(method="random", seed=3),
        SessionRequest(min_dissimilarity=0.1),
        SessionRequest(options=EncodeOptions(prompt="Who?")),
        SessionRequest(server=ServerOptions(video_pruning_rate=0.5, max_model_len=100, max_num_batched_tokens=4)),
    ):
        assert key_of(tiny_model("dinov2"), request).digest == plain.digest
    served = [
        key_of(tiny_model("dinov2"), SessionRequest(dialect=parse_dialect(name))) for name in ("vllm", "vllm@0.33")
    ]
    assert served[0].digest == served[1].digest  # the same rules


@pytest.mark.parametrize("whole_bytes", [64 << 20, 0], ids=["by content", "by times"])
def test_a_change_in_any_file_of_a_model_is_another_model(tiny_model, tmp_path, monkeypatch, whole_bytes):
    monkeypatch.setattr(key_module, "_WHOLE_BYTES", whole_bytes)
    folder = tmp_path / "model"
    shutil.copytree(tiny_model("dinov2"), folder)
    (folder / "code").mkdir()
    (folder / "code" / "more.py").write_text("1")
    source = open_encoder(str(folder)).source
    seen = [model_identity(source)]
    assert model_identity(source) == seen[0]
    for name in ("model.safetensors", "preprocessor_config.json", "code/more.py"):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        times = (folder / name).stat()
        os.utime(folder / name, ns=(times.st_atime_ns, times.st_mtime_ns + 1))  # a clock may tick too slowly to tell
        seen.append(model_identity(source))
    (folder / "more.json").write_text("{}")
    seen.append(model_identity(source))
    assert len({json.dumps(each) for each in seen}) == len(seen)
    (folder / ".notes").write_text("hidden")
    assert model_identity(source) == seen[-1]


# A hit.


def test_a_hit_is_the_fresh_encoding(filled, request_of, fresh, no_work):
    session = open_session(request_of(), None, filled)
    retained = session.encode(CROSSING, at_rates(RATES))
    for q in RATES:
        assert_same(retained.prune(q), fresh.prune(q))
    with pytest.raises(UsageError, match="one of the rates"):
        retained.prune(0.0)
    assert torch.equal(session.encode(CROSSING, NoRows()).ranking.dissimilarity, fresh.ranking.dissimilarity)
    tokens = torch.tensor([5, 2, 2])
    assert torch.equal(session.encode(CROSSING, AllRows()).rows_of(tokens), fresh.rows_of(tokens))
    sinks = []
    clip = session.encode(CROSSING, RowsToSink(lambda grid: sinks.append(AllTokens(grid[0])) or sinks[-1]))
    assert clip.actual.token_grid_thw == fresh.actual.token_grid_thw
    assert torch.equal(sinks[0].levels[0], fresh.levels[0])
    assert set(clip.timings_seconds) == {"hash", "read"}


def test_a_miss_gives_what_no_cache_gives(cache, request_of, fresh):
    for q, method in ((0.6, "evs"), (0.6, "random"), (0.7, "uniform-frames")):
        request = request_of(method=method, num_frames=4)
        for _ in range(2):
            session = open_session(request, None, cache)
            retained = session.encode(CROSSING, RowsAtRates([q], session.rule))
            assert_same(retained.prune(q), fresh.prune(q, retained.rule))
    assert len(cache.entries()) == 1  # what chooses tokens needs no entry of its own
    assert list(cache.folder.glob(".*")) == []


def test_a_hit_tells_of_frames_that_do_not_decode(cache, request_of, tmp_path_factory):
    video = damaged_clip(tmp_path_factory.getbasetemp())
    words = []
    for _ in range(2):
        watcher = SilentProgress()
        watcher.notice = words.append
        open_session(request_of(num_frames=20), watcher, cache).encode(video, NoRows())
    assert len(cache.entries()) == 1
    assert words[0] == words[-1] == f"{video.name}: 5 of 20 sampled frames do not decode and are left out."


def test_an_entry_has_the_name_the_video_has_now(filled, request_of, tmp_path, no_work):
    copy = tmp_path / "copy.mp4"
    copy.write_bytes(CROSSING.read_bytes())
    clip = open_session(request_of(), None, filled).encode(copy, NoRows())
    assert clip.provenance["video"]["name"] == "copy.mp4"
    assert read_facts(the_entry(filled)).video == "crossing.mp4"


def test_it_says_why_it_missed(filled, request_of, tmp_path):
    other = tmp_path / "other.mp4"
    other.write_bytes(CROSSING.with_name("pan.mp4").read_bytes())
    for video, more, words in (
        (CROSSING, {"num_frames": 5}, "of this video differs in sampling.num_frames"),
        (CROSSING, {"num_frames": 5, "batch_frames": 2}, "differs in batch_frames"),
        (other, {}, "miss for other.mp4: no encoding of this video is there"),
        (CROSSING, {}, "hit for crossing.mp4: entry"),
    ):
        heard = Heard()
        open_session(request_of(**more), heard, filled).encode(video, NoRows())
        assert any(words in line for line in heard.details), (words, heard.details)


# Damage.


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def break_header(path):
    path.write_bytes(b"\0" * 8 + path.read_bytes()[8:])


def break_record(path):
    path.write_bytes(path.read_bytes().replace(b'token_grid_thw\\":[4', b'token_grid_thw\\":[5'))


def break_rows(path):
    """Not a number in the row that ranks first."""
    content = bytearray(path.read_bytes())
    with open_encoding(path) as encoding:
        start = encoding.front_bytes
    content[start : start + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(content)


def put_another(path):
    write(make_encoded(), path)


@pytest.mark.parametrize("damage", [cut, break_header, break_record, break_rows, put_another])
@pytest.mark.parametrize("way", ["retain", "rows", "into"])
def test_a_damaged_entry_is_told_removed_and_encoded_anew(filled, request_of, fresh, damage, way):
    path = the_entry(filled)
    sound = path.read_bytes()
    damage(path)
    assert path.read_bytes() != sound
    heard = Heard()
    session = open_session(request_of(), heard, filled)
    every = torch.arange(fresh.actual.total_tokens)
    if way == "retain":
        assert_same(session.encode(CROSSING, at_rates([0.5])).prune(0.5), fresh.prune(0.5))
    elif way == "rows":
        assert torch.equal(session.encode(CROSSING, AllRows()).rows_of(every), fresh.rows_of(every))
    else:
        sinks = []
        session.encode(CROSSING, RowsToSink(lambda grid: sinks.append(AllTokens(grid[0])) or sinks[-1]))
        assert torch.equal(sinks[-1].levels[0], fresh.levels[0])
    (notice,) = heard.notices
    assert "was damaged and is removed, the video is encoded anew" in notice
    assert path.read_bytes() == sound


# What cannot be kept.


def test_an_encoding_larger_than_the_cache_is_not_kept_and_pushes_nothing_out(filled, request_of):
    small = EncodingCache(filled.folder, the_entry(filled).stat().st_size)
    request = request_of(num_frames=6)
    heard = Heard()
    retained = open_session(request, heard, small).encode(CROSSING, at_rates([0.5]))
    assert_same(retained.prune(0.5), Session(request).encode(CROSSING, at_rates([0.5])).prune(0.5))
    assert "its encoding is not kept: it takes" in heard.notices[0]
    assert "more than the whole cache" in heard.notices[0]
    assert len(small.entries()) == 1


def test_rows_that_are_too_many_are_not_even_set_aside(filled, request_of):
    """It is told by the first of them, so that no disk is filled for nothing."""
    with open_encoding(the_entry(filled)) as encoding:
        rows_bytes = encoding.size_bytes - encoding.front_bytes
    tiny = EncodingCache(filled.folder.with_name("tiny"), rows_bytes - 1)
    heard = Heard()
    open_session(request_of(), heard, tiny).encode(CROSSING, NoRows())
    assert "is not kept" in heard.notices[0]
    assert not tiny.folder.exists()


def test_a_folder_that_cannot_be_written_costs_a_note(tmp_path, request_of, fresh):
    (tmp_path / "file").write_text("no folder")
    heard = Heard()
    session = open_session(request_of(), heard, EncodingCache(tmp_path / "file" / "cache", 10**9))
    assert_same(session.encode(CROSSING, at_rates([0.5])).prune(0.5), fresh.prune(0.5))
    assert "its encoding is not kept: cannot write" in heard.notices[0]


def test_what_changes_while_it_is_encoded_is_not_kept(cache, request_of, tmp_path, tiny_model):
    model = tmp_path / "model"
    shutil.copytree(tiny_model("dinov2"), model)
    heard = Heard()

    def open_sink(grid):
        (model / "preprocessor_config.json").write_text('{"image_mean": [0, 0, 0], "image_std": [1, 1, 1]}')
        return AllTokens(grid[0])

    open_session(request_of(model=str(model)), heard, cache).encode(CROSSING, RowsToSink(open_sink))
    assert "not kept: the video or the model changed meanwhile" in heard.notices[0]
    assert cache.entries() == []


# Several programs.


def test_two_that_miss_at_once_write_the_same(cache, request_of, fresh):
    """One begins, the other does all of it meanwhile, the one ends."""

    class Slow(RowsAtRates):
        def open(self, token_grid_thw):
            done["other"] = open_session(request_of(), None, cache).encode(CROSSING, at_rates([0.5]))
            done["meanwhile"] = the_entry(cache).read_bytes()
            return super().open(token_grid_thw)

    done = {}
    retained = open_session(request_of(), None, cache).encode(CROSSING, Slow([0.5], RetentionRule()))
    assert_same(retained.prune(0.5), fresh.prune(0.5))
    assert_same(done["other"].prune(0.5), fresh.prune(0.5))
    assert the_entry(cache).read_bytes() == done["meanwhile"]
    assert len(list(cache.folder.iterdir())) == 1


def test_an_entry_that_is_removed_while_it_is_read_serves_to_the_end(filled, request_of, fresh):
    clip = open_session(request_of(), None, filled).encode(CROSSING, AllRows())
    filled.remove_named([], every=True)
    every = torch.arange(fresh.actual.total_tokens)
    assert torch.equal(clip.rows_of(every), fresh.rows_of(every))


def test_many_writers_keep_the_limit_and_leave_whole_files(tmp_path):
    size = write(make_encoded(), tmp_path / "one.safetensors")
    cache = EncodingCache(tmp_path / "cache", 3 * size + size // 2)
    failures = []

    def fill(first):
        try:
            for index in range(first, first + 8):
                path = cache.path_of(f"{index:064x}")
                cache.make_room(size)
                write(make_encoded(), path)
                cache.make_room(size, path)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=fill, args=(100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    cache.make_room(0)
    assert 1 <= len(cache.entries()) <= 3
    for entry in cache.entries():
        open_encoding(entry.path).at(0.5)


# The folder.


def put(cache, names, size=100):
    """Entries that were last used in this order."""
    cache.folder.mkdir(parents=True, exist_ok=True)
    for second, name in enumerate(names):
        path = cache.folder / f"{name}.safetensors"
        path.write_bytes(b"x" * size)
        os.utime(path, (second, second))


def names(cache):
    return [entry.name for entry in cache.entries()]


def test_the_least_recently_used_go_first(tmp_path):
    cache = EncodingCache(tmp_path, 400)
    put(cache, "abcd")
    assert names(cache) == list("dcba")
    assert cache.make_room(0) == []
    assert [entry.name for entry in cache.make_room(150)] == ["a", "b"]
    cache.touch(cache.folder / "c.safetensors")
    assert [entry.name for entry in cache.make_room(300)] == ["d"]
    assert names(cache) == ["c"]
    assert cache.make_room(400, cache.folder / "c.safetensors") == []
    assert [entry.name for entry in cache.make_room(400)] == ["c"]


def test_an_entry_that_replaces_its_like_pushes_no_other_out(tmp_path):
    """As of two programs that write the same entry at once."""
    cache = EncodingCache(tmp_path, 250)
    put(cache, "ab")
    assert cache.make_room(100, cache.folder / "b.safetensors") == []
    assert [entry.name for entry in cache.make_room(200, cache.folder / "b.safetensors")] == ["a"]


def test_a_hit_counts_as_a_use(filled, request_of):
    os.utime(the_entry(filled), (0, 0))
    open_session(request_of(), None, filled).encode(CROSSING, NoRows())
    assert filled.entries()[0].last_used_seconds > 10**9


def test_what_a_killed_program_left_goes_but_not_what_is_being_written(tmp_path):
    cache = EncodingCache(tmp_path, 400)
    for name in (".old.tmp", ".new.tmp", "readme.txt"):
        (tmp_path / name).write_text("half")
    os.utime(tmp_path / ".old.tmp", (0, 0))
    os.utime(tmp_path / "readme.txt", (0, 0))
    put(cache, "a")
    cache.make_room(10)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".new.tmp", "a.safetensors", "readme.txt"]


def test_entries_are_removed_by_name_all_or_none(tmp_path):
    cache = EncodingCache(tmp_path, 1000)
    put(cache, ["abc1", "abd2", "xyz3"])
    for asked, error, words in (
        (["ab"], UsageError, "2 begin so"),
        (["abc", "none"], ArtifactError, "no such entry"),
        ([""], ArtifactError, "no such entry"),
        ([], UsageError, "or --all"),
    ):
        with pytest.raises(error, match=words):
            cache.remove_named(asked)
    with pytest.raises(UsageError, match="not both"):
        cache.remove_named(["abc"], every=True)
    assert len(names(cache)) == 3
    assert [entry.name for entry in cache.remove_named(["abc", "abc1"])] == ["abc1"]
    assert len(cache.remove_named([], every=True)) == 2
    assert names(cache) == []


def test_where_the_cache_is_and_how_large(tmp_path, monkeypatch):
    monkeypatch.setenv("EVS_CACHE", str(tmp_path))
    assert (open_cache().folder, open_cache().limit_bytes) == (tmp_path / "encodings", 10**10)
    monkeypatch.setenv("EVS_CACHE_SIZE", "0.5")
    assert open_cache().limit_bytes == 5 * 10**8
    for wrong in ("0", "-1", "much", "nan", "inf"):
        monkeypatch.setenv("EVS_CACHE_SIZE", wrong)
        with pytest.raises(UsageError, match=r"Expected a size in GB above 0\."):
            open_cache()
    assert EncodingCache(tmp_path / "none", 1).entries() == []


def test_facts_of_an_entry(filled, tmp_path):
    facts = read_facts(the_entry(filled))
    assert (facts.video, facts.model, facts.num_sampled_frames) == ("crossing.mp4", facts.key_parts["model.id"], 4)
    assert facts.token_grid_thw == (4, 3, 5)
    assert facts.dtype == "float32"
    (tmp_path / "no.safetensors").write_bytes(b"")
    assert read_facts(tmp_path / "no.safetensors") is None
    assert read_facts(tmp_path / "none.safetensors") is None
    assert isinstance(open_encoding(the_entry(filled)).video, EncodedClip)
