"""``generate`` on a pruned video, however it is asked: the tokens of the plain pipeline, or of the masked whole.

At q = 0 the oracle is the whole model on its own processor's pixels. Above 0 it is the same ``generate`` on the whole
sequence with the dropped tokens masked, which is defined for models whose layers are all attention.
"""

import copy

import pytest
import torch
from tiny_language_models import LANGUAGE_FAMILIES, RECURRENT_FAMILIES, language_family
from tiny_models import DrawnClip
from video_files import video

import evs_cli
from evs_cli.encoders.base import Clip
from evs_cli.errors import ModelError
from evs_cli.video.info import probe_video
from evs_cli.video.reader import read_frames

Q = 0.5
PROMPT = "What moves?"
NEW_TOKENS = 4
GREEDY = {"do_sample": False}
WAYS = {
    "with a cache": GREEDY,
    "without a cache": {**GREEDY, "use_cache": False},
    "in prefill chunks": {**GREEDY, "prefill_chunk_size": 16},
    "with beams": {**GREEDY, "num_beams": 3},
    "with beams, without a cache": {**GREEDY, "num_beams": 3, "use_cache": False},
    "by sampling": {"do_sample": True, "num_return_sequences": 2},
}
ATTENTION_FAMILIES = sorted(set(LANGUAGE_FAMILIES) - RECURRENT_FAMILIES)
NEEDS_A_CACHE = {"ernie4_5_vl_moe"}
"""Their own ``generate`` fails without a cache: it adds no entry to ``moe_mm_token_type_ids`` for a new token."""
ONE_SEQUENCE_ALONE = {"glm4v", "glm46v", "glm4v_moe"}
"""Their own pixels cannot be taken several times: features are counted by an id that the sequence does not hold."""
CLIPS = {}


@pytest.fixture(params=LANGUAGE_FAMILIES)
def family(request, tiny_family):
    return language_family(request.param, tiny_family)


@pytest.fixture(params=ATTENTION_FAMILIES)
def attention_family(request, tiny_family):
    return language_family(request.param, tiny_family)


def pruned_at(family, q, dtype="float32"):
    key = family.folder, q, dtype
    if key not in CLIPS:
        CLIPS[key] = evs_cli.prune_video(
            video("normal.mp4"),
            q=q,
            num_frames=5,
            model=str(family.folder),
            prompt=PROMPT,
            batch_frames=5,
            dtype=dtype,
            device="cpu",
        )
    return CLIPS[key]


def plain_inputs(family, pruned):
    """What the family's own processor makes of the same frames."""
    indices = pruned.frame_indices.numpy()
    with read_frames(probe_video(video("normal.mp4")), indices, chunk_frames=len(indices)) as stream:
        frames = torch.cat([batch.frames for batch in stream])
    pts = pruned.pts_seconds.numpy()
    frames = family.encoder.mark_frames(frames, pts)
    drawn = DrawnClip(Clip(*frames.shape[-2:], pts, pruned.provenance["sampling"]["window_seconds"]), seed=0)
    inputs = family.own(drawn, PROMPT, frames=frames)
    assert torch.equal(inputs["input_ids"][0], pruned.input_ids)
    return inputs


def masked_inputs(whole, pruned):
    """The whole sequence's inputs with the tokens that ``pruned`` dropped masked out."""
    inputs = whole.model_inputs()
    kept = torch.ones(whole.sequence_length, dtype=torch.int64)
    for (start, end), frame in zip(whole.frame_offsets.tolist(), pruned.retention_mask.flatten(1), strict=True):
        kept[start : end + 1] = frame
    assert torch.equal(whole.input_ids[kept.bool()], pruned.input_ids)
    return inputs | {"attention_mask": kept[None]}


def tokens_of(model, inputs, **how):
    """The new tokens of each sequence that comes back, seeded."""
    # An untrained model may well answer with a placeholder, which would then want a row of its own.
    config = model.config.to_dict()
    placeholders = [config[name] for name in ("image_token_id", "video_token_id") if config.get(name) is not None]
    torch.manual_seed(0)
    with torch.no_grad():
        ids = model.generate(
            **inputs,
            max_new_tokens=NEW_TOKENS,
            suppress_tokens=placeholders,
            eos_token_id=None,
            pad_token_id=0,
            **how,
        )
    new = ids[:, inputs["input_ids"].shape[1] :]
    assert new.shape[1] == NEW_TOKENS
    return new.tolist()


def without_chunks(how):
    """The same way of asking for an oracle: pixels and masked wholes go in at once."""
    return {name: value for name, value in how.items() if name != "prefill_chunk_size"}


@pytest.mark.parametrize("way", WAYS)
def test_at_0_they_are_the_plain_pipelines_tokens(family, way):
    pruned, how = pruned_at(family, 0.0), WAYS[way]
    inputs, plain = pruned.model_inputs(model=family.whole), plain_inputs(family, pruned)
    if "use_cache" in how and family.whole.config.model_type in NEEDS_A_CACHE:
        for each in (inputs, plain):
            with pytest.raises(IndexError, match="shape of the mask"):
                tokens_of(family.whole, each, **how)
        return
    if {"num_beams", "num_return_sequences"} & how.keys() and family.whole.config.model_type in ONE_SEQUENCE_ALONE:
        with pytest.raises(ValueError, match="expected a non-empty list"):
            tokens_of(family.whole, plain, **how)
        whole = masked_inputs(pruned, pruned)  # the best oracle that is left: a mask that is given and drops nothing
        assert tokens_of(family.whole, inputs, **how) == tokens_of(family.whole, whole, **how)
        return
    assert tokens_of(family.whole, inputs, **how) == tokens_of(family.whole, plain, **without_chunks(how))


@pytest.mark.parametrize("way", WAYS)
def test_above_0_they_are_the_masked_wholes_tokens(attention_family, way):
    family, how = attention_family, WAYS[way]
    whole, pruned = pruned_at(family, 0.0), pruned_at(family, Q)
    if "use_cache" in how and family.whole.config.model_type in NEEDS_A_CACHE:
        with pytest.raises(IndexError, match="shape of the mask"):
            tokens_of(family.whole, pruned.model_inputs(), **how)
        return
    oracle = {**without_chunks(how), "use_cache": True}
    expected = tokens_of(family.whole, masked_inputs(whole, pruned), **oracle)
    assert tokens_of(family.whole, pruned.model_inputs(model=family.whole), **how) == expected


@pytest.mark.parametrize("way", ["without a cache", "in prefill chunks"])
@pytest.mark.parametrize("model_type", sorted(RECURRENT_FAMILIES))
def test_above_0_recurrent_models_say_the_same_in_every_way(model_type, way, tiny_family):
    family = language_family(model_type, tiny_family)
    inputs = pruned_at(family, Q).model_inputs(model=family.whole)
    cached = tokens_of(family.whole, inputs, **GREEDY)
    assert tokens_of(family.whole, pruned_at(family, Q).model_inputs(), **WAYS[way]) == cached


def test_in_bfloat16_as_well(family):
    """Both sides in bfloat16: equal tokens at q = 0; above, sums over fewer keys could round to another token."""
    model = type(family.whole).from_pretrained(family.folder, dtype=torch.bfloat16).eval()
    whole, pruned = pruned_at(family, 0.0, "bfloat16"), pruned_at(family, Q, "bfloat16")
    assert whole.embeddings.dtype == torch.bfloat16
    plain = {
        name: value.to(torch.bfloat16) if value.is_floating_point() else value
        for name, value in plain_inputs(family, whole).items()
        if isinstance(value, torch.Tensor)
    }
    assert tokens_of(model, whole.model_inputs(model=model), **GREEDY) == tokens_of(model, plain, **GREEDY)
    if family.whole.config.model_type not in RECURRENT_FAMILIES:
        expected = tokens_of(model, masked_inputs(whole, pruned), **GREEDY)
        assert tokens_of(model, pruned.model_inputs(model=model), **GREEDY) == expected


# ------------------------------------------------------------------------------------------------ the mask


def test_the_mask_masks_nothing_and_is_not_dropped(attention_family):
    """``generate`` makes None of a mask equal to 1 everywhere; without it, gaps would part the sequence."""
    pruned = pruned_at(attention_family, Q)
    mask = pruned.model_inputs()["attention_mask"]
    assert mask.shape == (1, pruned.sequence_length)
    assert mask.bool().all()
    assert (mask.long() == 1).all()
    assert torch.equal(mask.long().cumsum(-1)[0], torch.arange(1, pruned.sequence_length + 1))
    assert bool((mask == 1).all()) == (pruned.position_ids.ndim == 2)  # mrope counts the ids in a row without gaps


def test_a_sequence_without_gaps_has_a_mask_of_ones(family):
    mask = pruned_at(family, 0.0).model_inputs()["attention_mask"]
    assert mask.dtype == torch.int64
    assert (mask == 1).all()


# ------------------------------------------------------------------------------------------------ the model it is for


def with_attention(model, name):
    """A copy of the model that says it runs another attention, without having its kernels."""
    model = copy.deepcopy(model)
    model.config.get_text_config()._attn_implementation_internal = name
    return model


@pytest.mark.parametrize("attention", ["flash_attention_2", "kernels-community/flash-attn3"])
def test_flash_attention_is_refused_where_it_reads_gaps_as_seams(attention_family, attention):
    """Its check looks at the positions alone (asked here): 1-d ones of a pruned video would be packed sequences."""
    from transformers.modeling_flash_attention_utils import _is_packed_sequence

    pruned = pruned_at(attention_family, Q)
    model = with_attention(attention_family.whole, attention)
    positions = pruned.model_inputs()["position_ids"]
    if positions.ndim == 3:
        assert not _is_packed_sequence(positions[0], batch_size=1)
        pruned.model_inputs(model=model)
    else:
        assert _is_packed_sequence(positions, batch_size=1)
        with pytest.raises(ModelError, match=rf"would give other tokens: {attention} reads the gaps") as caught:
            pruned.model_inputs(model=model)
        assert 'attn_implementation="sdpa"' in caught.value.hint
    pruned_at(attention_family, 0.0).model_inputs(model=model)


def test_another_model_is_refused(tiny_family):
    pruned = pruned_at(language_family("qwen2_vl", tiny_family), Q)
    other = copy.deepcopy(language_family("qwen2_vl", tiny_family).whole)
    other.config.video_token_id += 1
    with pytest.raises(ModelError, match="is another model than the video's: its video placeholder has id"):
        pruned.model_inputs(model=other)
    other.config.video_token_id -= 1
    other.config.text_config.hidden_size = 48
    with pytest.raises(ModelError, match=r"it takes rows of 48 numbers\. Expected 32"):
        pruned.model_inputs(model=other)


def test_everything_goes_to_the_models_device(family):
    """A device that needs no hardware stands for it; every tensor is asked, the levels' too."""
    pruned = pruned_at(family, Q)
    inputs = pruned.model_inputs(model=copy.deepcopy(family.whole).to("meta"))
    (features,) = inputs["mm_encoder_outputs"].values()
    tensors = [value for value in inputs.values() if isinstance(value, torch.Tensor)]
    tensors += [*features.pooler_output, *(rows for level in features.get("deepstack_features", ()) for rows in level)]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert len(tensors) >= 3 + len(pruned.deepstack_embeddings)


@pytest.mark.parametrize("model_type", LANGUAGE_FAMILIES)
def test_the_rows_come_in_the_output_class_of_the_family(model_type, tiny_family):
    """Chunked prefill makes another of the same class out of slices."""
    family = language_family(model_type, tiny_family)
    pruned = pruned_at(family, 0.0)
    (features,) = pruned.model_inputs()["mm_encoder_outputs"].values()
    own = getattr(family.whole, "get_video_features", None)
    if own is None or not pruned.deepstack_embeddings:
        assert type(features).__name__ == "BaseModelOutputWithPooling"
        return
    assert type(features) is type(family.own_features(plain_inputs(family, pruned)))
