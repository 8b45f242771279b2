"""What SGLang 0.5.23 tests of its EVS (``test_evs.py``, ``test_evs_core.py``), on this package: same cases, own words.

And the calls its scheduler makes: a chunk of a chunked prefill with a data item beside it.
"""

import copy
import doctest
import itertools
import pickle
import sys
from array import array
from dataclasses import asdict, dataclass
from types import SimpleNamespace

import pytest
import torch

import evs_cli.integration as evs_core
from evs_cli.errors import ModelError, UsageError
from evs_cli.integration import (
    EVS,
    EVSConfig,
    EVSEmbeddingResult,
    EVSProcessor,
    Modality,
    MultimodalDataItem,
    chunk_placeholders,
    compute_retention_mask,
    disable_evs,
    enable_evs,
    replace_offsets_with_tokens_per_frame,
)

# ------------------------------------------------------------------------------------------------ its test_evs.py


def test_the_configuration_decides_who_prunes():
    @dataclass(frozen=True, kw_only=True)
    class ModelConfig:
        video_pruning_rate: float = 0.1
        spatial_merge_size: int = 2

    class Model(EVS):
        @staticmethod
        def create_evs_config(hf_config):
            return EVSConfig(
                video_pruning_rate=hf_config.video_pruning_rate, spatial_merge_size=hf_config.spatial_merge_size
            )

    models = {ModelConfig: Model}
    chosen = EVSProcessor(hf_config=ModelConfig(spatial_merge_size=3), config_to_evs_model=models)
    assert asdict(chosen.evs_config) == asdict(EVSConfig(video_pruning_rate=0.1, spatial_merge_size=3))
    at_0 = EVSProcessor(hf_config=ModelConfig(video_pruning_rate=0.0), config_to_evs_model=models)
    assert at_0.evs_config is None
    stranger = EVSProcessor(hf_config=SimpleNamespace(), config_to_evs_model=models)
    assert stranger.evs_config is None


def test_the_examples_in_the_docstring_run():
    function = replace_offsets_with_tokens_per_frame
    names = dict(vars(sys.modules[function.__module__]))
    found = doctest.DocTestFinder().find(function, function.__name__, globs=names)
    results = [doctest.DocTestRunner().run(test) for test in found]
    assert sum(result.attempted for result in results) >= 4
    assert not any(result.failed for result in results)


def test_items_keep_what_is_their_models_in_a_dict():
    processor = EVSProcessor.__new__(EVSProcessor)
    processor.evs_config = EVSConfig(video_pruning_rate=0.1)
    make, _ = processor.static_size_data_items(frames_per_video=[2], num_images=1, rows=2, cols=3)
    items = make(
        input_ids_list=[1, 2, 3],
        image=torch.zeros(1),
        image_offsets=[(0, 0)],
        video=torch.zeros(1),
        video_offsets=[(1, 2)],
    )
    assert all(type(item) is MultimodalDataItem for item in items)
    assert items[0].thw_grids == [(1, 2, 3)]
    assert items[1].thw_grids == [(2, 2, 3)]
    assert items[1].pre_chunked_input_ids == [1, 2, 3]


class PlainModel(EVS):
    """As SGLang writes a model: EVS is its only base."""

    @staticmethod
    def create_evs_config(hf_config):
        return EVSConfig(video_pruning_rate=hf_config.video_pruning_rate)

    def get_video_feature(self, items):
        return torch.cat([item.feature for item in items])


def model_at(rate):
    return PlainModel(SimpleNamespace(video_pruning_rate=rate))


def video_item(feature, *grids, **more):
    return MultimodalDataItem(
        modality=Modality.VIDEO, feature=feature, model_specific_data={"thw_grids": list(grids), **more}
    )


def test_videos_of_one_frame_come_back_as_the_tensor_they_were():
    generator = torch.Generator().manual_seed(0)
    first, second = (video_item(torch.randn(1, 4, 8, generator=generator), (1, 2, 2)) for _ in range(2))
    result = model_at(0.7).get_video_feature([first, second])
    assert isinstance(result, torch.Tensor)
    assert torch.equal(result, torch.cat([first.feature, second.feature]))


# ------------------------------------------------------------------------------------------------ its test_evs_core.py


@pytest.mark.parametrize(
    ("tokens_per_frame", "num_frames", "q", "retained"),
    [(4, 2, 0.0, 8), (4, 2, 0.9, 4), (5, 2, 0.25, 7), (16, 1, 0.99, 16)],
)
def test_counts(tokens_per_frame, num_frames, q, retained):
    assert evs_core.compute_retained_tokens_count(tokens_per_frame, num_frames, q=q) == retained


def mask_of(embeds, thw, merge, q):
    return evs_core.compute_retention_mask(video_embeds=embeds, video_size_thw=thw, spatial_merge_size=merge, q=q)


def test_masks():
    frame = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    twice = torch.cat([frame, frame])
    mask = mask_of(twice, (2, 2, 2), 1, 0.9)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [True] * 4 + [False] * 4
    assert mask_of(twice, (2, 2, 2), 1, 0.0).all()
    merged = mask_of(torch.randn(8, 8), (2, 4, 4), 2, 0.5)
    assert merged.numel() == 8
    assert int(merged.sum()) == evs_core.compute_retained_tokens_count(4, 2, q=0.5)
    flat = mask_of(torch.randn(12, 4), (3, 2, 2), 1, 0.4)
    assert (flat.dtype, flat.dim()) == (torch.bool, 1)


# ------------------------------------------------------------------------------------------------ a model of its form


def test_a_model_of_evs_alone_is_a_module_with_the_names_of_sglang():
    model = model_at(0.5)
    assert isinstance(model, torch.nn.Module)
    model.scale = torch.nn.Linear(2, 2)
    assert len(list(model.parameters())) == 2
    assert model.evs_enabled is True
    item = video_item(torch.randn(4, 6, 5), (4, 2, 3))
    mask = compute_retention_mask(item.feature, (4, 2, 3), 1, 0.5)
    for call in (model.get_video_feature, model.evs_video):
        result = call([item])
        assert torch.equal(result.embedding, item.feature.flatten(0, 1)[mask])
        assert result.num_tokens_per_frame == mask.view(4, -1).sum(1).tolist()
    assert torch.equal(model.original_get_video_feature([item]), item.feature)


def test_at_rate_0_it_prunes_nothing():
    model = model_at(0.0)
    item = video_item(torch.randn(4, 6, 5), (4, 2, 3))
    assert model.evs_enabled is False
    assert model.get_video_feature([item]) is not None
    assert torch.equal(model.get_video_feature([item]), item.feature)
    assert model.evs_video([item]).num_tokens_per_frame == [6] * 4


def test_the_rate_of_such_a_model_can_change():
    model, item = model_at(0.5), video_item(torch.randn(4, 6, 5), (4, 2, 3))
    enable_evs(model, 0.75)
    assert len(model.get_video_feature([item]).embedding) == len(model.evs_video([item]).embedding) == 6
    disable_evs(model)
    assert model.evs_enabled is False
    assert torch.equal(model.get_video_feature([item]), item.feature)


def test_copies_of_such_a_model_prune_with_themselves():
    model, item = model_at(0.5), video_item(torch.randn(4, 6, 5), (4, 2, 3))
    model.weight = torch.nn.Parameter(torch.ones(1))
    other = copy.deepcopy(model)
    assert other.original_get_video_feature.__self__ is other
    assert other.get_video_feature.model is other
    assert torch.equal(other.get_video_feature([item]).embedding, model.get_video_feature([item]).embedding)


def test_a_video_of_one_frame_among_others_is_whole():
    one, four = torch.randn(6, 5), torch.randn(24, 5)
    result = model_at(0.5).get_video_feature([video_item(torch.cat([one, four]), (1, 2, 3), (4, 2, 3))])
    assert isinstance(result, EVSEmbeddingResult)
    assert result.num_tokens_per_frame[0] == 6
    assert torch.equal(result.embedding[:6], one)


def test_such_a_model_without_the_method_is_refused():
    class Neither(EVS):
        create_evs_config = staticmethod(PlainModel.create_evs_config)

    with pytest.raises(ModelError, match="Neither cannot prune"):
        Neither(SimpleNamespace(video_pruning_rate=0.5))


# ------------------------------------------------------------------------------------------------ data items


def test_an_item_is_read_and_written_as_sglangs():
    item = video_item(1, (2, 2, 2))
    assert (item.is_video(), item.is_image(), item.is_audio()) == (True, False, False)
    assert item.pad_value is None
    item.pad_value = 1_000_007
    item.set("pre_chunked_input_ids", [1, 2])
    item.second_per_grid_ts = 0.5
    assert item.model_specific_data == {
        "thw_grids": [(2, 2, 2)],
        "pre_chunked_input_ids": [1, 2],
        "second_per_grid_ts": 0.5,
    }
    assert "pad_value" not in item.model_specific_data
    with pytest.raises(AttributeError, match="'MultimodalDataItem' object has no attribute 'nothing'"):
        _ = item.nothing
    for other in (copy.deepcopy(item), pickle.loads(pickle.dumps(item))):
        assert vars(other) == vars(item)
        assert other.thw_grids == [(2, 2, 2)]


def test_an_item_of_an_unknown_modality_is_refused():
    with pytest.raises(ValueError, match="smell"):
        MultimodalDataItem(modality="smell")


# ------------------------------------------------------------------------------------------------ chunked prefill

PAD, OTHER_PAD = 900, 901
COUNTS = [6, 0, 3, 1]
SPANS = [(1, 3), (5, 6), (8, 9), (11, 13)]
IDS = [1, *[PAD] * 3, 2, *[PAD] * 2, 3, *[PAD] * 2, 4, *[PAD] * 3, 5, OTHER_PAD, OTHER_PAD, PAD, 6]
"""A provisional sequence of four frames of 3, 2, 2 and 3 placeholders; behind it an image, and the pad id as text."""
REAL = [1, *[PAD] * 6, 2, 3, *[PAD] * 3, 4, PAD, 5, OTHER_PAD, OTHER_PAD, PAD, 6]
REAL_SPANS = [(1, 6), (8, 7), (9, 11), (13, 13)]


def chunk_of(result, item, prefix, length, ids=IDS):
    return result.redistribute_pruned_frames_placeholders(
        torch.tensor(ids[prefix : prefix + length]),
        SPANS,
        item=item,
        extend_prefix_len=prefix,
        extend_seq_len=length,
    )


def item_of(ids=IDS):
    item = video_item(None, (4, 2, 3), pre_chunked_input_ids=ids)
    item.pad_value = PAD
    return item


@pytest.mark.parametrize("kind", [list, lambda ids: array("q", ids), torch.tensor])
@pytest.mark.parametrize("size", [1, 4, 7, len(IDS)])
def test_chunks_with_an_item_make_up_the_real_sequence(kind, size):
    result = EVSEmbeddingResult(torch.arange(10.0)[:, None], COUNTS)
    item, ids, rows = item_of(kind(IDS)), [], []
    for prefix in range(0, len(IDS), size):
        length = min(size, len(IDS) - prefix)
        chunk, spans = chunk_of(result, item, prefix, length)
        assert spans == REAL_SPANS
        assert chunk.dtype == torch.int64
        ids += chunk.tolist()
        first, last = chunk_placeholders(REAL, spans, prefix, length).rows
        rows += result.embedding[first:last, 0].tolist()
    assert ids == REAL
    assert rows == list(range(10))


def test_an_item_is_needed_whole():
    result = EVSEmbeddingResult(torch.zeros(10, 1), COUNTS)
    image = MultimodalDataItem(modality=Modality.IMAGE, model_specific_data={"pre_chunked_input_ids": IDS})
    for item in (image, video_item(None, (4, 2, 3))):
        with pytest.raises(UsageError, match="without pre_chunked_input_ids"):
            chunk_of(result, item, 0, 4)
    with pytest.raises(UsageError, match=r"Invalid chunk: 4 ids\. Expected extend_seq_len, 5"):
        result.redistribute_pruned_frames_placeholders(
            torch.tensor(IDS[:4]), SPANS, item=item_of(), extend_prefix_len=0, extend_seq_len=5
        )
    item = item_of()
    item.pad_value = None
    with pytest.raises(UsageError, match="No placeholder id"):
        chunk_of(result, item, 0, 4)
    assert chunk_of(result, item_of(), 0, 4)[0].tolist() == REAL[:4]
    with pytest.raises(UsageError, match="Expected a part of the 19 ids"):
        chunk_of(result, item_of(), 17, 4, [*IDS, 7, 7])
    with pytest.raises(UsageError, match=r"the item's 19 ids become 13 with 4 kept tokens"):
        chunk_of(EVSEmbeddingResult(torch.zeros(4, 1), [1, 1, 1, 1]), item_of(), 0, 4)


def test_from_the_processor_to_the_chunks():
    """What a server does from end to end: placeholders, items, the pad id, features, chunks."""
    processor = EVSProcessor(SimpleNamespace(video_pruning_rate=0.6), {SimpleNamespace: PlainModel})
    make, placeholders = processor.static_size_data_items(frames_per_video=[5, 3], num_images=0, rows=2, cols=3)
    ids, spans = [], []
    for count in itertools.chain.from_iterable(placeholders):
        ids.append(7)
        spans.append((len(ids), len(ids) + count - 1))
        ids += [PAD] * count
    features = torch.randn(8, 6, 4, generator=torch.Generator().manual_seed(0))
    (item,) = make(input_ids_list=ids, image=None, image_offsets=[], video=features, video_offsets=spans)
    item.pad_value = PAD
    result = model_at(0.6).get_video_feature([item])
    assert len(result.embedding) == sum(map(sum, placeholders))
    half = len(ids) // 2
    parts = [
        result.redistribute_pruned_frames_placeholders(
            ids[start:stop], item.offsets, item=item, extend_prefix_len=start, extend_seq_len=stop - start
        )
        for start, stop in [(0, half), (half, len(ids))]
    ]
    real = [id_ for part, _ in parts for id_ in part]
    assert len(real) == len(ids)
    counts = [sum(1 for _ in run) for id_, run in itertools.groupby(real) if id_ == PAD]
    assert counts == [count for count in result.num_tokens_per_frame if count]
    assert [end - start + 1 for start, end in parts[0][1]] == result.num_tokens_per_frame
