"""The EVS mixin on models of the test's own: SGLang's signature, other forms of features, and what is refused."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_language_models import LANGUAGE_FAMILIES, language_family

import evs_cli.integration
from evs_cli.core.counts import compute_retained_tokens_count
from evs_cli.core.retention import compute_retention_mask
from evs_cli.encoders.base import EncodeOptions
from evs_cli.errors import ModelError, UsageError
from evs_cli.integration import (
    EVS,
    EVSConfig,
    EVSEmbeddingResult,
    FramesAsImages,
    disable_evs,
    enable_evs,
    prune_features,
    retentions_of,
)

ROOT = Path(__file__).resolve().parents[2]
PROFILE = settings(max_examples=60, deadline=None, derandomize=True)


def rows(count, dim=5, seed=0):
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))


def config_of(rate):
    return SimpleNamespace(video_pruning_rate=rate, vision_config=SimpleNamespace(spatial_merge_size=2))


class ServerModel(EVS, torch.nn.Module):
    """SGLang's form: the mixin's constructor is called first, the layers come after it."""

    def __init__(self, config):
        super().__init__(config)
        self.scale = torch.nn.Parameter(torch.ones(1))

    def get_video_feature(self, items):
        """All items' features behind each other."""
        return torch.cat([item.feature for item in items]) * self.scale.detach()


def item_of(feature, *grids):
    return SimpleNamespace(feature=feature, thw_grids=list(grids))


# ------------------------------------------------------------------------------------------------ SGLang's form


@PROFILE
@given(
    grids=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=4),
    cut=st.integers(1, 3),
    q=st.sampled_from([0.1, 0.5, 0.8, 0.97]),
)
def test_every_video_of_every_item_has_its_own_k_and_mask(grids, cut, q):
    before_merge = [(t, 2 * h, 2 * w) for t, h, w in grids]
    features = [rows(t * h * w, seed=i) for i, (t, h, w) in enumerate(grids)]
    items = [
        item_of(torch.cat(features[start : start + cut]), *before_merge[start : start + cut])
        for start in range(0, len(grids), cut)
    ]
    result = ServerModel(config_of(q)).get_video_feature(items)
    if all(t == 1 for t, _, _ in grids):
        assert torch.equal(result, torch.cat(features))
        return
    assert isinstance(result, EVSEmbeddingResult)
    kept, counts = [], []
    for feature, grid, (t, h, w) in zip(features, before_merge, grids, strict=True):
        mask = compute_retention_mask(feature, grid, 2, q)
        assert int(mask.sum()) == compute_retained_tokens_count(h * w, t, q)
        kept.append(feature[mask])
        counts += mask.view(t, -1).sum(1).tolist()
    assert torch.equal(result.embedding, torch.cat(kept))
    assert result.num_tokens_per_frame == counts
    assert [tuple(r.retention_mask.shape) for r in result.retentions] == grids


def test_frames_times_tokens_are_flattened():
    feature = rows(24).view(4, 6, 5)
    model = ServerModel(config_of(0.5))
    result = model.get_video_feature([item_of(feature, (4, 4, 6))])
    assert torch.equal(result.embedding, feature.flatten(0, 1)[compute_retention_mask(rows(24), (4, 4, 6), 2, 0.5)])


def test_rate_zero_is_the_very_same_method():
    model = ServerModel(config_of(0.0))
    assert model.get_video_feature == ServerModel.get_video_feature.__get__(model)
    assert "get_video_feature" not in vars(model)
    assert isinstance(model.get_video_feature([item_of(rows(6), (1, 4, 6))]), torch.Tensor)


def test_one_frame_passes_through_unscored():
    """No ranking means no complaint on values either: the rows are the model's own."""
    feature = torch.full((6, 5), float("nan"))
    result = ServerModel(config_of(0.9)).get_video_feature([item_of(feature, (1, 4, 6))])
    assert isinstance(result, torch.Tensor)
    assert result.isnan().all()
    assert result.shape == (6, 5)


def test_constructor_leaves_the_module_usable():
    model = ServerModel(config_of(0.5))
    assert [name for name, _ in model.named_parameters()] == ["scale"]
    assert model.evs_config == EVSConfig(0.5, 2)
    assert ServerModel.get_video_feature.__doc__ == model.get_video_feature.__doc__


def test_method_that_calls_the_other_is_pruned_once():
    class Both(EVS, torch.nn.Module):
        def get_video_features(self, pixels, video_grid_thw):
            return SimpleNamespace(pooler_output=(pixels,))

        def get_video_feature(self, items):
            grids = [grid for item in items for grid in item.thw_grids]
            return torch.cat(self.get_video_features(torch.cat([i.feature for i in items]), grids).pooler_output)

    model = Both(config_of(0.5))
    item = item_of(rows(24), (4, 4, 6))
    assert len(model.get_video_feature([item]).embedding) == 12
    assert len(model.get_video_features(item.feature, item.thw_grids).pooler_output[0]) == 12


def test_error_inside_the_model_does_not_switch_pruning_off():
    class Once(ServerModel):
        def get_video_feature(self, items):
            if not items:
                raise RuntimeError("no items")
            return super().get_video_feature(items)

    model = Once(config_of(0.5))
    with pytest.raises(RuntimeError, match="no items"):
        model.get_video_feature([])
    assert len(model.get_video_feature([item_of(rows(12), (2, 4, 6))]).embedding) == 6


# ------------------------------------------------------------------------------------------------ other forms


class GridModel(torch.nn.Module):
    """Returns what it is given, through transformers' signature."""

    def get_video_features(self, features, video_grid_thw=None, **kwargs):
        return features


@pytest.mark.parametrize("form", [tuple, list, torch.cat])
def test_bare_features_come_back_in_their_own_form(form):
    grids = torch.tensor([(4, 2, 3), (2, 2, 3)])
    videos = [rows(24), rows(12, seed=1)]
    model = GridModel()
    assert enable_evs(model, 0.5) == EVSConfig(0.5)
    got = model.get_video_features(form(videos), video_grid_thw=grids)
    assert type(got) is (torch.Tensor if form is torch.cat else form)
    wanted = [v[compute_retention_mask(v, grid, 1, 0.5)] for v, grid in zip(videos, grids, strict=True)]
    assert torch.equal(torch.cat(list(got)) if form is not torch.cat else got, torch.cat(wanted))
    assert [r.retained_tokens for r in retentions_of(got)] == [12, 6]
    result = EVSEmbeddingResult.of(got)
    assert torch.equal(result.embedding, torch.cat(wanted))
    assert not hasattr(videos[0], "evs")


def test_grids_by_keyword_among_others():
    model = GridModel()
    enable_evs(model, 0.5)
    assert len(model.get_video_features(features=rows(24), video_grid_thw=[(4, 2, 3)], anything=1)) == 12


def test_grids_that_pass_through_arguments_without_a_name():
    class Loose(torch.nn.Module):
        def get_video_features(self, features, **kwargs):
            return features

    model = Loose()
    enable_evs(model, 0.5)
    assert len(model.get_video_features(rows(24), video_grid_thw=[(4, 2, 3)])) == 12


def test_frames_of_unequal_tokens():
    class Ragged(FramesAsImages, torch.nn.Module):
        def get_image_features(self, pixel_values):
            return rows(7)

    model = Ragged()
    enable_evs(model, 0.5)
    with pytest.raises(ModelError, match=r"7 rows for 2 frames. Expected as many in each"):
        model.get_video_features(torch.zeros(2, 3, 4, 4), [2])


def test_model_that_tells_its_grids_itself():
    """The way in for a signature EVS does not know (llava: 5-d pixels, no grid)."""

    class Llava(torch.nn.Module):
        def get_video_features(self, pixels):
            return SimpleNamespace(pooler_output=pixels.flatten(1, 2))

        def evs_token_grids(self, arguments, num_rows):
            batch, frames = arguments["pixels"].shape[:2]
            return [(frames, 1, num_rows // batch // frames)] * batch

    model = Llava()
    enable_evs(model, 0.5)
    features = model.get_video_features(rows(2 * 4 * 6).view(2, 4, 6, 5))
    assert [r.num_tokens_per_frame.sum().item() for r in retentions_of(features)] == [12, 12]
    assert features.pooler_output.shape == (24, 5)


def test_part_that_sees_is_found_inside_a_model_of_several_parts():
    class Omni(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.thinker = GridModel()
            self.thinker.config = config_of(0.0)

    model = Omni()
    assert enable_evs(model, 0.5) == EVSConfig(0.5, spatial_merge_size=2)
    assert len(model.thinker.get_video_features(rows(24), [(4, 4, 6)])) == 12
    disable_evs(model)
    assert len(model.thinker.get_video_features(rows(24), [(4, 4, 6)])) == 24


def test_gradients_flow_through_the_kept_rows():
    feature = rows(24).requires_grad_()
    prune_features(feature, [(4, 2, 3)], 0.5).sum().backward()
    mask = compute_retention_mask(feature.detach(), (4, 2, 3), 1, 0.5)
    assert torch.equal(feature.grad, mask[:, None].float().expand(-1, 5))


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize("grid", [(4, 5, 6), (4, 4, 7), (4, 3, 3)])
def test_grid_that_the_merge_does_not_divide(grid):
    with pytest.raises(UsageError, match=rf"Invalid grid \({grid[0]}, {grid[1]}, {grid[2]}\) for spatial_merge_size 2"):
        ServerModel(config_of(0.5)).get_video_feature([item_of(rows(24), grid)])


@pytest.mark.parametrize("grids", [[(4, 4, 4)], [(4, 4, 6), (1, 4, 6)], [(2, 4, 6)]])
def test_rows_that_do_not_fit_the_grids(grids):
    with pytest.raises(ModelError, match=r"the features have 24 rows, the token grids"):
        ServerModel(config_of(0.5)).get_video_feature([item_of(rows(24), *grids)])


def test_sizes_of_single_videos_are_compared_not_their_sum():
    with pytest.raises(ModelError, match=r"have 12 \+ 24 rows, the token grids .* 24 \+ 12"):
        prune_features((rows(12), rows(24)), [(4, 2, 3), (2, 2, 3)], 0.5)


def test_deepstack_of_another_size():
    features = SimpleNamespace(pooler_output=(rows(24),), deepstack_features=[(rows(23),)])
    with pytest.raises(ModelError, match="have 23 rows"):
        prune_features(features, [(4, 2, 3)], 0.5)


@pytest.mark.parametrize("features", [None, {}, (), "rows", torch.zeros(3), (torch.zeros(2, 2), (torch.zeros(2, 2),))])
def test_features_of_no_known_form(features):
    with pytest.raises(ModelError, match=r"no \(N, D\) rows are found") as caught:
        prune_features(features, [(1, 2, 1)], 0.5)
    assert "return_dict=True" in caught.value.hint


def test_items_without_grids():
    for items in (
        [SimpleNamespace(feature=rows(24))],
        [item_of(rows(12), (2, 4, 6)), SimpleNamespace(feature=rows(1))],
    ):
        with pytest.raises(ModelError, match="told ServerModel no grid of its videos"):
            ServerModel(config_of(0.5)).get_video_feature(items)


def test_server_method_must_give_a_tensor():
    class Wrong(ServerModel):
        def get_video_feature(self, items):
            return [item.feature for item in items]

    with pytest.raises(ModelError, match="get_video_feature returned list"):
        Wrong(config_of(0.5)).get_video_feature([item_of(rows(24), (4, 4, 6))])


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_class_with_neither_method(rate):
    class Neither(EVS, torch.nn.Module): ...

    with pytest.raises(ModelError, match="Neither cannot prune: it has neither"):
        Neither(config_of(rate))


def test_configuration_without_a_rate():
    with pytest.raises(UsageError, match="SimpleNamespace has no video_pruning_rate"):
        ServerModel(SimpleNamespace())


def test_mixin_without_a_loader():
    with pytest.raises(ModelError, match="cannot load a checkpoint"):
        ServerModel.from_pretrained("somewhere", video_pruning_rate=0.5)


def test_retentions_of_features_that_were_not_pruned():
    for features in (rows(2), (), [rows(2)], SimpleNamespace(pooler_output=rows(2))):
        with pytest.raises(UsageError, match="EVS did not prune them"):
            retentions_of(features)


def test_result_whose_retentions_tell_other_counts():
    pruned = prune_features(rows(24), [(4, 2, 3)], 0.5)
    counts = [6, 6, 0, 0]
    assert retentions_of(pruned)[0].num_tokens_per_frame.tolist() != counts
    with pytest.raises(UsageError, match="their counts are not num_tokens_per_frame"):
        EVSEmbeddingResult(pruned, counts, retentions_of(pruned))


def test_one_span_a_video():
    pruned = prune_features(rows(36), [(4, 2, 3), (2, 2, 3)], 0.5)
    result = EVSEmbeddingResult.of(pruned)
    ids, spans = result.redistribute_pruned_frames_placeholders([0, 0, 8, 0], [(0, 1), (3, 3)], filler_token_id=0)
    assert ids == [0] * 12 + [8] + [0] * 6
    assert spans == [(0, 11), (13, 18)]


def test_disabling_a_model_without_evs_does_nothing():
    model = GridModel()
    disable_evs(model)
    assert model.get_video_features(1) == 1


# ------------------------------------------------------------------------------------------------ the package


def test_every_name_is_there():
    homes = [*evs_cli.integration._HOMES, *evs_cli.integration._CORE_HOMES]
    assert sorted(homes) == sorted(evs_cli.integration.__all__) == dir(evs_cli.integration)
    assert all(getattr(evs_cli.integration, name).__name__ == name for name in evs_cli.integration.__all__)
    assert evs_cli.integration.compute_retention_mask is evs_cli.compute_retention_mask
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        evs_cli.integration.Nothing  # noqa: B018


@pytest.mark.parametrize(
    ("names", "modules"),
    [("", "torch numpy transformers"), ("redistribute_placeholders", "torch transformers"), ("EVS", "transformers")],
)
def test_imports_are_cheap(names, modules):
    code = "import sys, evs_cli.integration as evs\n"
    code += f"for name in {names.split()!r}: getattr(evs, name)\n"
    code += f"print([name for name in {modules.split()!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("model_type", ["video_llama_3", "ernie4_5_vl_moe"])
def test_a_model_that_merges_in_a_way_of_its_own_prunes_by_the_grid_it_makes(model_type):
    from tiny_grid_models import grid_family
    from tiny_models import DrawnClip, make_clip

    family, clip = grid_family(model_type), make_clip(6, 84, 112)
    inputs = family.own(DrawnClip(clip, seed=3))
    whole = family.own_features(inputs).pooler_output[0]
    enable_evs(family.whole, 0.5)
    try:
        pruned = family.own_features(inputs).pooler_output[0]
    finally:
        disable_evs(family.whole)
    plan = family.encoder.plan(clip, EncodeOptions())
    assert len(whole) == plan.total_tokens
    assert len(pruned) == plan.retained_tokens(0.5)


@pytest.mark.parametrize("model_type", ["llava_onevision", "llava_next_video", "video_llava"])
def test_a_model_that_is_told_no_grid_is_refused_at_once(model_type):
    from tiny_frame_models import frame_family

    with pytest.raises(ModelError, match=r"is told no grid of its videos"):
        enable_evs(frame_family(model_type).whole, 0.5)


@pytest.mark.parametrize("model_type", LANGUAGE_FAMILIES)
def test_frames_are_images_for_the_families_that_take_them_so(model_type, tiny_family):
    """Video-LLaVA has its method for videos on the model inside alone: its image tower would give other rows."""
    model = language_family(model_type, tiny_family).whole
    if model_type in {"internvl", "smolvlm"}:
        enable_evs(model, 0.5, frames_as_images=True)
        disable_evs(model)
        return
    with pytest.raises(ModelError, match="does not encode video frames as images") as caught:
        enable_evs(model, 0.5, frames_as_images=True)
    assert "prune_video" in caught.value.hint
    assert not hasattr(model, "get_video_features") or "get_video_features" not in vars(model)
    assert getattr(model, "evs_enabled", False) is False


def test_a_forward_that_takes_videos_does_not_take_them_as_images():
    class Own(torch.nn.Module):
        def get_image_features(self, pixel_values):
            return pixel_values

        def forward(self, pixel_values=None, pixel_values_videos=None):
            return None

    with pytest.raises(ModelError, match="a forward that takes no videos"):
        enable_evs(Own(), 0.5, frames_as_images=True)
