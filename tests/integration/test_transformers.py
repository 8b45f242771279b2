"""EVS on transformers' own models: tiny Qwen2.5-VL, Qwen3-VL (DeepStack) and InternVL, saved and loaded again.

The oracle of the features is the same model without EVS and ``evs_cli.core`` on its rows; that of the language model
is its full forward pass with the dropped tokens masked out.
"""

import copy
import inspect
import io
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_models
import torch
import transformers as tf

from evs_cli.core.counts import compute_retained_tokens_count
from evs_cli.core.dissimilarity import compute_dissimilarity
from evs_cli.core.retention import Ranking
from evs_cli.errors import ModelError, UsageError
from evs_cli.integration import (
    EVS,
    EVSConfig,
    EVSEmbeddingResult,
    FramesAsImages,
    disable_evs,
    enable_evs,
    kept_places,
    retentions_of,
)

Q = 0.6
# Both passes compute the same sums in float32, over fewer terms and in another order. Measured here: at most 2.1e-6 for
# logits of up to 4.3, whose last bit is 4.8e-7; twice that leaves room for other kernels. A wrong position moves logits
# by more than a hundred times that, which is tested too.
TOLERANCE = 4e-6
QWEN_MARKUP = "<|vision_start|><|video_pad|><|vision_end|>"


class PrunedQwen2_5(EVS, tf.Qwen2_5_VLForConditionalGeneration): ...


class PrunedQwen3(EVS, tf.Qwen3VLForConditionalGeneration): ...


class PrunedInternVL(EVS, FramesAsImages, tf.InternVLForConditionalGeneration): ...


MIXED = {"qwen2_5_vl": PrunedQwen2_5, "qwen3_vl": PrunedQwen3, "internvl": PrunedInternVL}
PLAIN = {
    "qwen2_5_vl": tf.Qwen2_5_VLForConditionalGeneration,
    "qwen3_vl": tf.Qwen3VLForConditionalGeneration,
    "internvl": tf.InternVLForConditionalGeneration,
}
QWEN = ["qwen2_5_vl", "qwen3_vl"]
ALL = sorted(MIXED)


# ------------------------------------------------------------------------------------ checkpoints and their inputs


def internvl():
    """A tiny InternVL whose frames are 4 x 4 tokens of 32."""
    named = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>"}
    tokenizer = tiny_models.make_tokenizer(
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *named.values(), "<video>"],
        video="<video>\n",
        image="<IMG_CONTEXT>\n",
        named={**named, "video_token": "<video>"},
    )
    vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = tf.InternVLConfig(
        text_config=tiny_models.text_config(tokenizer, model_type="qwen2"),
        vision_config={**vision, "image_size": [112, 112], "patch_size": [14, 14]},
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=16,
        tie_word_embeddings=False,
    )
    size = {"height": 112, "width": 112}
    processor = tf.InternVLProcessor(
        tf.GotOcr2ImageProcessor(size=size), tokenizer, tf.InternVLVideoProcessor(size=size), image_seq_length=16
    )
    return tf.InternVLForConditionalGeneration(config), processor


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Models of this size lose more to the threads' waiting than they win."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder_of(tiny_model, tmp_path_factory):
    """The folder of a family's tiny checkpoint."""
    folders = {}

    def folder(name):
        if name != "internvl":
            return tiny_model(name)
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                model, processor = internvl()
            tiny_models.blow_up(model)
            model.save_pretrained(folders[name])
            processor.save_pretrained(folders[name])
        return folders[name]

    return folder


@pytest.fixture(scope="module")
def plain_of(folder_of):
    """A family's model without EVS, and its processor; loaded once."""
    loaded = {}

    def plain(name):
        if name not in loaded:
            folder = folder_of(name)
            model = PLAIN[name].from_pretrained(folder).eval()
            model.generation_config.eos_token_id = None  # random weights may say the end at any time
            loaded[name] = model, tf.AutoProcessor.from_pretrained(folder)
        return loaded[name]

    return plain


def video_of(num_frames, height=84, width=112, seed=0):
    """(S, 3, H, W) uint8: noise that stands still, but for a square that changes in two frames of three."""
    generator = torch.Generator().manual_seed(seed)
    frames = torch.randint(0, 256, (1, 3, height, width), generator=generator, dtype=torch.uint8).repeat(
        num_frames, 1, 1, 1
    )
    for t in range(num_frames):
        if t % 6 < 4:
            frames[t, :, 28:56, 28:84] = torch.randint(0, 256, (3, 28, 56), generator=generator, dtype=torch.uint8)
    return frames


def inputs_of(processor, text, videos):
    """What the family's processor makes of videos of 2 frames a second."""
    metadata = [
        {"fps": 2.0, "frames_indices": list(range(len(v))), "total_num_frames": len(v), "duration": len(v) / 2}
        for v in videos
    ]
    return processor(
        text=[text],
        videos=list(videos),
        video_metadata=metadata,
        do_sample_frames=False,
        return_tensors="pt",
        videos_kwargs={"input_data_format": "channels_first"},
    )


class Request(SimpleNamespace):
    """A prompt with one video or several: the processor's tensors, and how to ask a model for their features."""

    def features(self, model):
        with torch.no_grad():
            return model.get_video_features(*self.pixels)

    def original(self, model):
        """Without EVS, by the method the family has."""
        with torch.no_grad():
            if self.name == "internvl":
                return model.get_image_features(pixel_values=self.pixels[0])
            return model.get_video_features(*self.pixels)

    @property
    def key(self):
        return "image" if self.name == "internvl" else "video"

    def positions(self, model):
        """(3, 1, L) or (1, L) of the unpruned sequence, by the model's own word."""
        if self.name == "internvl":
            return torch.arange(self.ids.shape[1])[None]
        names = ("video_grid_thw", "second_per_grid_ts")
        more = {name: self.inputs[name] for name in names if name in self.inputs}
        return model.model.get_rope_index(self.ids, self.inputs["mm_token_type_ids"], **more)[0]


REQUESTS = {}


def request_of(plain_of, name, lengths=(9,)):
    """A prompt with a video of each length, no two after each other of one size; made once, nobody writes to it."""
    if (name, lengths) not in REQUESTS:
        REQUESTS[name, lengths] = make_request(plain_of(name)[1], name, lengths)
    return REQUESTS[name, lengths]


def make_request(processor, name, lengths):
    videos = [video_of(n, *((84, 112), (56, 140))[i % 2], seed=i) for i, n in enumerate(lengths)]
    if name == "internvl":
        # Its processor refuses videos of unequal length together, so the prompt is put together of parts.
        parts = [inputs_of(processor, f"A<video>\nthen{i}", [video]) for i, video in enumerate(videos)]
        inputs = {
            name: torch.cat([part[name] for part in parts], dim=-1 if name == "input_ids" else 0)
            for name in ("input_ids", "pixel_values")
        }
        placeholder = processor.image_token_id
        pixels = (inputs["pixel_values"], list(lengths))
        grids = [(n, 4, 4) for n in lengths]
    else:
        text = "A" + "".join(f"{QWEN_MARKUP}then" for _ in videos) + "what?"
        inputs = inputs_of(processor, text, videos)
        placeholder = processor.video_token_id
        pixels = (inputs["pixel_values_videos"], inputs["video_grid_thw"])
        grids = [(t, h // 2, w // 2) for t, h, w in inputs["video_grid_thw"].tolist()]
    ids = inputs["input_ids"]
    return Request(name=name, inputs=inputs, ids=ids, pixels=pixels, grids=grids, places=(ids[0] == placeholder))


def levels_of(features, grids):
    """[level][video] of (N, D) rows, however the family returns them."""
    sizes = [t * h * w for t, h, w in grids]
    levels = [features.pooler_output, *(getattr(features, "deepstack_features", None) or [])]
    flat = [level.flatten(0, -2) if isinstance(level, torch.Tensor) else torch.cat(list(level)) for level in levels]
    return [list(level.split(sizes)) for level in flat]


def expected(features, grids, q=Q):
    """Masks and rows of each video by the core, from features without EVS."""
    levels = levels_of(features, grids)
    retentions, kept = [], [[] for _ in levels]
    for video, grid in enumerate(grids):
        rows = [level[video].view(*grid, -1) for level in levels]
        retention = Ranking(compute_dissimilarity(rows)).at(q)
        retentions.append(retention)
        for level, row in zip(kept, rows, strict=True):
            level.append(row[retention.retention_mask])
    return retentions, kept


def assert_pruned(features, original, grids, q=Q):
    retentions, kept = expected(original, grids, q)
    assert type(features) is type(original)
    assert features.keys() == original.keys()
    got = [features.pooler_output, *(getattr(features, "deepstack_features", None) or [])]
    assert len(got) == len(kept)
    for level, videos in zip(got, kept, strict=True):
        if isinstance(level, torch.Tensor):
            level = level.split([len(rows) for rows in videos])
        assert all(torch.equal(a, b) for a, b in zip(level, videos, strict=True))
    for mine, theirs, (t, h, w) in zip(retentions_of(features), retentions, grids, strict=True):
        assert torch.equal(mine.retention_mask, theirs.retention_mask)
        assert torch.equal(mine.num_tokens_per_frame, theirs.num_tokens_per_frame)
        assert mine.retained_tokens == compute_retained_tokens_count(h * w, t, q)


# ------------------------------------------------------------------------------------------------ two added lines


MODELS = {}


@pytest.fixture(params=["enable_evs", "mixin"])
def pruned_of(request, folder_of, plain_of):
    """A family's model with EVS, made by either way; made once, to be copied by who writes to it."""

    def pruned(name, q=Q):
        key = request.param, name, q
        if key not in MODELS:
            MODELS[key] = make(name, q)
        return MODELS[key]

    def make(name, q):
        if request.param == "mixin":
            model = MIXED[name].from_pretrained(folder_of(name), video_pruning_rate=q).eval()
        else:
            model = copy.deepcopy(plain_of(name)[0])
            enable_evs(model, q, frames_as_images=name == "internvl")
        model.generation_config.eos_token_id = None
        return model

    return pruned


@pytest.mark.parametrize("lengths", [(9,), (9, 5), (2, 12, 7)])
@pytest.mark.parametrize("name", ALL)
def test_rows_are_the_cores_mask_on_the_models_own(pruned_of, plain_of, name, lengths):
    """Each video its own K, grid and mask; every DeepStack level under the same one."""
    request = request_of(plain_of, name, lengths)
    model, (plain, _) = pruned_of(name), plain_of(name)
    features, original = request.features(model), request.original(plain)
    assert_pruned(features, original, request.grids)
    assert isinstance(features.pooler_output, type(original.pooler_output))
    assert len(getattr(features, "deepstack_features", None) or []) == (2 if name == "qwen3_vl" else 0)
    if lengths == (9,) and name == "internvl":  # a tubelet of Qwen holds a change more often than not
        assert 0 in retentions_of(features)[0].num_tokens_per_frame.tolist()


@pytest.mark.parametrize("name", QWEN)
def test_one_frame_passes_through(pruned_of, plain_of, name):
    request = request_of(plain_of, name, (2, 9))
    features, original = request.features(pruned_of(name)), request.original(plain_of(name)[0])
    assert request.grids[0][0] == 1
    assert torch.equal(features.pooler_output[0], original.pooler_output[0])
    assert retentions_of(features)[0].retention_mask.all()
    assert len(features.pooler_output[1]) < len(original.pooler_output[1])


@pytest.mark.parametrize("name", ALL)
def test_rate_zero_leaves_the_model_as_it_is(pruned_of, plain_of, name):
    request = request_of(plain_of, name)
    model, (plain, _) = pruned_of(name, q=0.0), plain_of(name)
    if name == "internvl":
        assert model.get_video_features.__func__ is FramesAsImages.get_video_features
    else:
        assert model.get_video_features == type(plain).get_video_features.__get__(model)
        assert "get_video_features" not in vars(model) | vars(model.model)
    assert model.evs_config.enabled is False
    features, original = request.features(model), request.original(plain)
    assert not hasattr(features, "evs")
    for mine, theirs in zip(levels_of(features, request.grids), levels_of(original, request.grids), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_calls_are_told_apart_from_images(pruned_of, plain_of):
    """InternVL: a batch of images is never taken for a video, whatever the rate."""
    request = request_of(plain_of, "internvl")
    model = pruned_of("internvl")
    assert model.get_image_features == tf.InternVLForConditionalGeneration.get_image_features.__get__(model)
    with torch.no_grad():
        images = model.get_image_features(pixel_values=request.pixels[0])
        inner = model.model.get_image_features(pixel_values=request.pixels[0])
    assert images.pooler_output.shape == inner.pooler_output.shape == (9, 16, 32)
    for wrong in ([8], [], [9, 0], [10, -1]):
        with pytest.raises(UsageError, match="Invalid frames_per_video"):
            model.get_video_features(request.pixels[0], wrong)


@pytest.mark.parametrize("name", QWEN)
def test_images_of_qwen_are_untouched(pruned_of, plain_of, name):
    """An image's grid has one frame, and qwen3_vl encodes videos by its image method."""
    request = request_of(plain_of, name)
    with torch.no_grad():
        mine = pruned_of(name).get_image_features(*request.pixels)
        theirs = plain_of(name)[0].get_image_features(*request.pixels)
    assert torch.equal(mine.pooler_output[0], theirs.pooler_output[0])


# ------------------------------------------------------------------------------------------------ language models


def pruned_arguments(request, model):
    """Ids, positions and features for ``forward`` and ``generate``, and which places were kept."""
    features = request.features(model)
    masks = [retention.retention_mask.numpy() for retention in retentions_of(features)]
    keep = torch.from_numpy(kept_places(request.places, masks))
    positions = request.positions(model)[..., keep]
    arguments = {"input_ids": request.ids[:, keep], "mm_encoder_outputs": {request.key: features}}
    return arguments | {"position_ids": positions}, keep


def full_logits(request, plain, keep, ids, positions):
    """(1, L, V) of the whole sequence, longer by what was generated, with the dropped tokens masked out."""
    mask = torch.cat([keep.long()[None], torch.ones(1, ids.shape[1] - len(keep), dtype=torch.long)], dim=1)
    names = ("pixel_values", "pixel_values_videos", "video_grid_thw")
    pixels = {name: request.inputs[name] for name in names if name in request.inputs}
    with torch.no_grad():
        return plain(input_ids=ids, attention_mask=mask, position_ids=positions, **pixels).logits


@pytest.mark.parametrize("lengths", [(9,), (9, 5)])
@pytest.mark.parametrize("name", ALL)
def test_forward_is_the_full_one_with_dropped_tokens_masked(pruned_of, plain_of, name, lengths):
    request = request_of(plain_of, name, lengths)
    model, (plain, _) = pruned_of(name), plain_of(name)
    arguments, keep = pruned_arguments(request, model)
    with torch.no_grad():
        logits = model(**arguments).logits
    full = full_logits(request, plain, keep, request.ids, request.positions(plain))
    assert logits.shape[1] == int(keep.sum()) < len(keep)
    assert float((logits - full[:, keep]).abs().max()) < TOLERANCE
    assert float(full.abs().max()) > 0.5
    # It can fail: the same tokens at positions of a sequence that never held more.
    wrong = torch.arange(logits.shape[1]).expand_as(arguments["position_ids"])
    with torch.no_grad():
        moved = model(**arguments | {"position_ids": wrong}).logits
    assert float((moved - full[:, keep]).abs().max()) > 100 * TOLERANCE


@pytest.mark.parametrize("name", ALL)
def test_generate_goes_on_as_the_full_model_would(pruned_of, plain_of, name):
    request = request_of(plain_of, name)
    model, (plain, _) = pruned_of(name), plain_of(name)
    arguments, keep = pruned_arguments(request, model)
    positions = arguments.pop("position_ids")
    if name != "internvl":  # generate wants the text's own counting in front of the three axes
        positions = torch.cat([torch.arange(positions.shape[-1]).view(1, 1, -1), positions])
    with torch.no_grad():
        got = model.generate(**arguments, position_ids=positions, max_new_tokens=5, do_sample=False)
    ids, places = request.ids, request.positions(plain)
    for _ in range(5):
        token = full_logits(request, plain, keep, ids, places)[:, -1:].argmax(-1)
        ids = torch.cat([ids, token], dim=1)
        places = torch.cat([places, places[..., -1:] + 1], dim=-1)
    assert got[0, -5:].tolist() == ids[0, -5:].tolist()
    assert len(set(got[0, -5:].tolist())) > 1


@pytest.mark.parametrize("name", QWEN)
def test_pixels_given_to_generate_and_forward_are_pruned_inside(pruned_of, plain_of, name):
    """The model underneath is the one they ask; ids that were not pruned do not fit and are refused."""
    request = request_of(plain_of, name)
    model = pruned_of(name)
    arguments, _ = pruned_arguments(request, model)
    pixels = {"pixel_values_videos": request.pixels[0], "video_grid_thw": request.pixels[1]}
    given = {"input_ids": arguments["input_ids"], "position_ids": arguments["position_ids"], **pixels}
    with torch.no_grad():
        assert torch.equal(model(**given).logits, model(**arguments).logits)
        with pytest.raises(ValueError, match="do not match"):
            model(**dict(request.inputs))
        positions = arguments.pop("position_ids")
        positions = torch.cat([torch.arange(positions.shape[-1]).view(1, 1, -1), positions])
        given["position_ids"] = positions
        greedy = {"max_new_tokens": 3, "do_sample": False}
        inside = model.generate(**given, **greedy)
        assert torch.equal(inside, model.generate(**arguments, position_ids=positions, **greedy))


@pytest.mark.parametrize("name", QWEN)
def test_redistribution_gives_the_ids_the_mask_gives(pruned_of, plain_of, name):
    """Spans of the unpruned sequence to the real ones: one a video (qwen2_5_vl), one a frame (qwen3_vl)."""
    request = request_of(plain_of, name, (9, 5))
    model = pruned_of(name)
    arguments, _ = pruned_arguments(request, model)
    result = EVSEmbeddingResult.of(arguments["mm_encoder_outputs"]["video"])
    places = request.places.nonzero().flatten().numpy()
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    spans = [(int(run[0]), int(run[-1])) for run in runs]
    assert len(spans) == (2 if name == "qwen2_5_vl" else sum(t for t, _, _ in request.grids))
    ids, offsets = result.redistribute_pruned_frames_placeholders(
        request.ids[0], spans, filler_token_id=int(request.ids[0, places[0]])
    )
    assert torch.equal(ids, arguments["input_ids"][0])
    counts = [end - start + 1 for start, end in offsets]
    kept = [r.retained_tokens for r in result.retentions] if name == "qwen2_5_vl" else result.num_tokens_per_frame
    assert counts == list(kept)


# ------------------------------------------------------------------------------------------------ loading and state


@pytest.mark.parametrize("name", ALL)
def test_mixin_loads_every_weight(folder_of, plain_of, name, tmp_path):
    """transformers renames weights for its own classes alone: a bare subclass loads the language model at random."""
    model, info = MIXED[name].from_pretrained(folder_of(name), video_pruning_rate=Q, output_loading_info=True)
    assert not any(info.values())
    weights = plain_of(name)[0].state_dict()
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert type(model) is MIXED[name]
    model.save_pretrained(tmp_path)
    again = MIXED[name].from_pretrained(tmp_path)  # the rate is in the configuration now
    assert again.evs_config == model.evs_config == EVSConfig(Q, 1 if name == "internvl" else 2)
    assert all(torch.equal(value, weights[key]) for key, value in again.state_dict().items())


def test_mixin_on_a_bare_configuration(folder_of):
    config = tf.AutoConfig.from_pretrained(folder_of("qwen2_5_vl"))
    with pytest.raises(UsageError, match="Qwen2_5_VLConfig has no video_pruning_rate"):
        PrunedQwen2_5(config)
    with pytest.raises(UsageError, match="Expected 0 <= q < 1"):
        PrunedQwen2_5(config, video_pruning_rate=1.0)
    with pytest.raises(UsageError, match="Expected 0 <= q < 1"):
        PrunedQwen2_5.from_pretrained(folder_of("qwen2_5_vl"), video_pruning_rate=-1)
    assert PrunedQwen2_5(config, video_pruning_rate=0.3).evs_config == EVSConfig(0.3, 2)
    assert config.video_pruning_rate == 0.3


def test_mixin_with_an_init_of_its_own_is_not_loaded_without_it(folder_of):
    class Other(PrunedQwen2_5):
        def __init__(self, config):
            super().__init__(config)

    with pytest.raises(ModelError, match="an __init__ of its own"):
        Other.from_pretrained(folder_of("qwen2_5_vl"), video_pruning_rate=Q)


@pytest.mark.parametrize("name", ALL)
def test_rate_can_change_and_be_taken_back(plain_of, name):
    request = request_of(plain_of, name)
    model, plain = copy.deepcopy(plain_of(name)[0]), plain_of(name)[0]
    before = dict(vars(model)), dict(vars(model.model))
    more = {"frames_as_images": name == "internvl"}
    for q in (0.7, 0.2, 0.5):  # pruning what is pruned already would leave less
        enable_evs(model, q, **more)
        assert_pruned(request.features(model), request.original(plain), request.grids, q)
    disable_evs(model)
    assert model.evs_enabled is False
    del model.evs_config, model.evs_enabled
    assert [sorted(vars(model)), sorted(vars(model.model))] == [sorted(state) for state in before]
    disable_evs(model)


def test_copies_and_pickles_prune_with_themselves(pruned_of, plain_of):
    request = request_of(plain_of, "qwen2_5_vl")
    model = pruned_of("qwen2_5_vl")
    wanted = request.features(model).pooler_output[0]
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    for other in (copy.deepcopy(model), torch.load(buffer, weights_only=False)):
        assert torch.equal(request.features(other).pooler_output[0], wanted)
        assert torch.equal(request.features(other.model).pooler_output[0], wanted)
        with torch.no_grad():
            other.model.visual.merger.mlp[2].weight.zero_()
            other.model.visual.merger.mlp[2].bias.fill_(1.0)
        assert torch.equal(request.features(other).pooler_output[0], torch.ones_like(wanted))
    assert torch.equal(request.features(model).pooler_output[0], wanted)


def test_signature_is_the_models_own(pruned_of, plain_of):
    """generate picks its keyword arguments by it."""
    for one, other in ((pruned_of("qwen3_vl"), plain_of("qwen3_vl")[0]),):
        assert inspect.signature(one.get_video_features) == inspect.signature(other.get_video_features)
        assert inspect.signature(one.model.get_video_features) == inspect.signature(other.model.get_video_features)


def test_result_of_the_model_is_not_written_to(plain_of):
    """A model may keep its features (a cache): they stay whole."""
    request = request_of(plain_of, "qwen3_vl")
    model = copy.deepcopy(plain_of("qwen3_vl")[0])
    kept = request.original(model)
    sizes = [len(kept.pooler_output[0]), *(len(level[0]) for level in kept.deepstack_features)]
    model.get_video_features = lambda pixel_values_videos, video_grid_thw: kept
    enable_evs(model, Q)
    first, second = request.features(model), request.features(model)
    assert torch.equal(first.pooler_output[0], second.pooler_output[0])
    assert [len(kept.pooler_output[0]), *(len(level[0]) for level in kept.deepstack_features)] == sizes
    assert not hasattr(kept, "evs")
    assert first.last_hidden_state is kept.last_hidden_state
    disable_evs(model)
    assert request.features(model) is kept


# ------------------------------------------------------------------------------------------------ refusals


def test_models_that_cannot_prune(plain_of):
    """A rate that is accepted and ignored would be the worst answer."""
    internvl_model = plain_of("internvl")[0]
    with pytest.raises(ModelError, match="has neither get_video_feature nor get_video_features"):
        enable_evs(internvl_model, Q)
    with pytest.raises(ModelError, match="has neither"):
        enable_evs(torch.nn.Linear(2, 2), 0.0)
    for model in (plain_of("qwen2_5_vl")[0], torch.nn.Linear(2, 2)):
        with pytest.raises(ModelError, match="does not encode video frames as images"):
            enable_evs(model, Q, frames_as_images=True)
    with pytest.raises(UsageError, match="Expected 0 <= q < 1"):
        enable_evs(plain_of("qwen2_5_vl")[0], 1.0)
    assert "evs_config" not in vars(internvl_model) | vars(plain_of("qwen2_5_vl")[0])


def test_model_that_prunes_by_itself_is_not_pruned_twice(tiny_model):
    config = tf.AutoConfig.from_pretrained(tiny_model("nemotron_h_omni"))
    config.video_pruning_rate = 0.5
    model = tf.NemotronH_Omni_Reasoning_V3(config)
    with pytest.raises(ModelError, match=r"prunes by itself, at 0\.5, and would prune twice"):
        enable_evs(model, Q)


def test_tuple_results_are_refused(pruned_of, plain_of):
    request = request_of(plain_of, "qwen2_5_vl")
    with pytest.raises(UsageError, match="return_dict=False"):
        pruned_of("qwen2_5_vl").get_video_features(*request.pixels, return_dict=False)


def test_call_without_a_grid_is_refused(pruned_of, plain_of):
    request = request_of(plain_of, "qwen2_5_vl")
    model = copy.deepcopy(pruned_of("qwen2_5_vl"))
    model.get_video_features.__wrapped__ = lambda pixel_values_videos, **kwargs: request.original(
        plain_of("qwen2_5_vl")[0]
    )
    with pytest.raises(ModelError, match=r"told .* no grid of its videos"):
        model.get_video_features(request.pixels[0])


def test_non_finite_features_name_video_and_frame(pruned_of, plain_of):
    request = request_of(plain_of, "qwen2_5_vl", (9, 5))
    model = copy.deepcopy(pruned_of("qwen2_5_vl"))
    original = request.original(plain_of("qwen2_5_vl")[0])
    _, h, w = request.grids[1]
    original.pooler_output[1][2 * h * w] = float("nan")
    model.get_video_features.__wrapped__ = lambda pixel_values_videos, video_grid_thw: original
    with pytest.raises(ModelError, match=r"video 1 of 2 .*frame 2: its float32 embeddings hold NaN") as caught:
        request.features(model)
    assert "float16 overflow" in caught.value.hint
