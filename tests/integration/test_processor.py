"""EVSProcessor: who prunes, how many placeholders a request gets, and what its data items say."""

import pytest
import torch

from evs_cli.core.counts import compute_retained_tokens_count
from evs_cli.errors import UsageError
from evs_cli.integration import EVS, EVSConfig, EVSProcessor, MultimodalDataItem


class Config:
    def __init__(self, rate):
        self.video_pruning_rate = rate


class OwnConfig(Config):
    """A subclass, as a remote checkpoint's code would have it."""


class OtherConfig:
    video_pruning_rate = 0.0


class Model(EVS, torch.nn.Module):
    @staticmethod
    def create_evs_config(config):
        return EVSConfig(config.video_pruning_rate, spatial_merge_size=2)

    def get_video_feature(self, items):
        return torch.cat([item.feature for item in items])


def processor_of(rate, config=Config):
    return EVSProcessor(config(rate), {Config: Model})


def sequence(placeholders, separator=9):
    """Ids with a separator in front of each frame, and the spans."""
    ids, spans = [], []
    for count in placeholders:
        ids.append(separator)
        spans.append((len(ids), len(ids) + count - 1))
        ids += [0] * count
    return ids, spans


def items_of(processor, frames, *, num_images=0, **more):
    factory, placeholders = processor.static_size_data_items(
        frames_per_video=frames, num_images=num_images, rows=2, cols=3, **more
    )
    ids, spans = sequence([n for counts in placeholders for n in counts])
    image_start = len(ids)
    ids += [0] * 6 * num_images
    video = torch.zeros(1) if frames else None
    image = torch.ones(1) if num_images else None
    items = factory(
        input_ids_list=ids,
        image=image,
        image_offsets=[(image_start + 6 * i, image_start + 6 * i + 5) for i in range(num_images)],
        video=video,
        video_offsets=spans,
    )
    return items, placeholders, ids, spans


def test_full_size():
    processor = processor_of(0.0)
    items, placeholders, _, spans = items_of(processor, [3, 1], num_images=2)
    assert processor.evs_config is None
    assert placeholders == [[6, 6, 6], [6]]
    assert [type(item) for item in items] == [MultimodalDataItem, MultimodalDataItem]
    assert [item.modality for item in items] == ["image", "video"]
    assert items[1].offsets == spans
    assert torch.equal(items[0].feature, torch.ones(1))
    assert torch.equal(items[1].feature, torch.zeros(1))


def test_reduced_size():
    processor = processor_of(0.7)
    items, placeholders, ids, spans = items_of(processor, [10, 1], num_images=1)
    assert processor.evs_config == EVSConfig(0.7, 2)
    assert placeholders == [[1] * 9 + [9], [6]]  # int(60 * (1 - 0.7)) = 18 in floats; a lone frame is whole
    image, video = items
    assert [type(item) for item in items] == [MultimodalDataItem, MultimodalDataItem]
    assert image.thw_grids == [(1, 4, 6)]  # before the merge of 2
    assert video.thw_grids == [(10, 4, 6), (1, 4, 6)]
    assert video.pre_chunked_input_ids == ids
    assert video.offsets == spans


def test_each_video_has_its_own_k():
    _, placeholders, *_ = items_of(processor_of(0.8), [10, 10, 5])
    assert [sum(counts) for counts in placeholders] == [compute_retained_tokens_count(6, n, 0.8) for n in (10, 10, 5)]
    assert sum(placeholders[0]) * 2 != compute_retained_tokens_count(6, 20, 0.8)


def test_float_count_is_the_servers():
    _, placeholders = processor_of(0.8).static_size_data_items(frames_per_video=[10], num_images=0, rows=16, cols=16)
    assert sum(placeholders[0]) == 511


def test_more_frames_than_tokens():
    _, placeholders, *_ = items_of(processor_of(0.95), [60])
    assert placeholders == [[0] * 59 + [18]]


@pytest.mark.parametrize(
    ("frames", "patch", "tubelets"), [(1, 2, 1), (2, 2, 1), (3, 2, 2), (9, 2, 5), (4, 3, 2), (5, 4, 2)]
)
def test_odd_frame_counts_are_rounded_up(frames, patch, tubelets):
    """``n + n % p`` (a peer's way) makes 5 of 4 frames in threes, one tubelet short."""
    for rate in (0.0, 0.5):
        _, placeholders, *_ = items_of(processor_of(rate), [frames], temporal_patch_size=patch)
        assert len(placeholders[0]) == tubelets


def test_only_what_is_there():
    assert [item.modality for item in items_of(processor_of(0.5), [2])[0]] == ["video"]
    assert [item.modality for item in items_of(processor_of(0.5), [], num_images=2)[0]] == ["image"]


def test_subclass_of_a_known_configuration_prunes():
    assert processor_of(0.5, OwnConfig).evs_config == EVSConfig(0.5, 2)


def test_rate_for_a_model_that_cannot_prune_is_refused():
    assert EVSProcessor(OtherConfig(), {Config: Model}).evs_config is None
    config = OtherConfig()
    config.video_pruning_rate = 0.5
    with pytest.raises(UsageError, match=r"no model for OtherConfig prunes. Expected 0, or one of \['Config'\]"):
        EVSProcessor(config, {Config: Model})


def test_rate_is_checked():
    with pytest.raises(UsageError, match="Expected 0 <= q < 1"):
        processor_of(1.0)


@pytest.mark.parametrize("mapping", [{}, {Config: torch.nn.Module}])
def test_mapping_is_checked(mapping):
    with pytest.raises(UsageError, match="Invalid config_to_evs_model"):
        EVSProcessor(Config(0.5), mapping)


@pytest.mark.parametrize("spans", [[(0, 5)], [(1, 6), (7, 13)], [(20, 31)] * 4, [(1, 3), (3, 5), (6, 8), (9, 11)]])
def test_spans_that_do_not_fit_are_refused_where_they_are_used(spans):
    """The factory takes them unseen, as SGLang's does; its own test gives it spans that hold nothing."""
    features = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0))
    factory, _ = processor_of(0.5).static_size_data_items(frames_per_video=[4], num_images=0, rows=2, cols=3)
    (item,) = factory(input_ids_list=[0] * 31, image=None, image_offsets=[], video=features, video_offsets=spans)
    item.pad_value = 0
    result = Model(Config(0.5)).get_video_feature([item])
    with pytest.raises(UsageError, match="Expected"):
        result.redistribute_pruned_frames_placeholders(
            item.pre_chunked_input_ids, item.offsets, item=item, extend_prefix_len=0, extend_seq_len=31
        )


@pytest.mark.parametrize(
    "change", [{"frames_per_video": [0]}, {"rows": 0}, {"num_images": -1}, {"temporal_patch_size": 0}]
)
def test_sizes_are_checked(change):
    sizes = {"frames_per_video": [2], "num_images": 0, "rows": 2, "cols": 2} | change
    with pytest.raises(UsageError, match="Expected"):
        processor_of(0.5).static_size_data_items(**sizes)


def test_from_placeholders_to_the_real_sequence():
    """Processor, model and result together: what the processor plans is what the model gives."""
    items, placeholders, ids, spans = items_of(processor_of(0.6), [5, 3])
    video = items[0]
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(8, 6, 4, generator=generator)
    video.feature = features
    result = Model(Config(0.6)).get_video_feature([video])
    assert len(result.embedding) == sum(map(sum, placeholders))
    real, offsets = result.redistribute_pruned_frames_placeholders(
        video.pre_chunked_input_ids, video.offsets, filler_token_id=0
    )
    assert len(real) == len(ids)
    assert [end - start + 1 for start, end in offsets] == result.num_tokens_per_frame
    assert offsets != spans
