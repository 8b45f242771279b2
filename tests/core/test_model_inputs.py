"""``PrunedVideo.model_inputs()``: what every family's own model makes of it, in ``forward`` and ``generate``."""

import pytest
import torch
from tiny_language_models import LANGUAGE_FAMILIES, RECURRENT_FAMILIES, language_family
from video_files import video

import evs_cli
from evs_cli.core.pruned_video import with_extra_rows
from evs_cli.errors import UsageError

# Sums over fewer keys: logits of up to 5 move by at most 4e-6 in float32 (measured); dropping other tokens, or placing
# them elsewhere, moves them by more than 1e-2.
LOGITS_TOLERANCE = 2e-5


@pytest.fixture(params=LANGUAGE_FAMILIES)
def family(request, tiny_family):
    return language_family(request.param, tiny_family)


def pruned_at(family, q):
    return evs_cli.prune_video(
        video("normal.mp4"), q=q, num_frames=5, model=str(family.folder), prompt="What moves?", batch_frames=5
    )


def logits_of(model, inputs):
    with torch.no_grad():
        return model(**inputs).logits[0]


def test_at_0_two_runs_agree(family):
    """That they equal the plain forward is in each family's own file, on the processor's own pixels."""
    whole = pruned_at(family, 0.0)
    logits = logits_of(family.whole, whole.model_inputs())
    assert logits.shape[0] == whole.sequence_length
    assert logits.isfinite().all()
    assert logits.abs().max() > 0.1
    assert torch.equal(logits, logits_of(family.whole, pruned_at(family, 0.0).model_inputs()))


def test_above_0_they_equal_the_whole_with_the_dropped_tokens_masked(family):
    model_type = family.whole.config.model_type
    whole, pruned = pruned_at(family, 0.0), pruned_at(family, 0.5)
    assert pruned.retained_tokens < whole.retained_tokens
    inputs = pruned.model_inputs()
    logits = logits_of(family.whole, inputs)
    if model_type in RECURRENT_FAMILIES:
        assert logits.isfinite().all()  # encoders/test_nemotron_h_omni.py has the recurrent oracle
        return
    kept = kept_positions(whole, pruned)
    masked = whole.model_inputs()
    masked["attention_mask"] = torch.zeros_like(masked["attention_mask"])
    masked["attention_mask"][0, kept] = 1
    torch.testing.assert_close(logits, logits_of(family.whole, masked)[kept], rtol=0, atol=LOGITS_TOLERANCE)


def kept_positions(whole, pruned):
    """Places of the pruned sequence's ids in the whole one, found from the masks and spans alone."""
    kept = torch.ones(whole.sequence_length, dtype=torch.bool)
    mask = pruned.retention_mask.flatten(1)
    for (start, end), frame in zip(whole.frame_offsets.tolist(), mask, strict=True):
        kept[start : end + 1] = frame
    assert torch.equal(whole.input_ids[kept], pruned.input_ids)
    return kept.nonzero().flatten()


def test_positions_are_the_whole_sequences_at_the_kept_places(family):
    whole, pruned = pruned_at(family, 0.0), pruned_at(family, 0.5)
    kept = kept_positions(whole, pruned)
    if whole.position_ids is None:
        assert pruned.position_ids is None
        assert "position_ids" not in pruned.model_inputs()
        return
    assert torch.equal(pruned.position_ids, whole.position_ids[..., kept])
    assert pruned.position_ids.dtype == torch.int64


def test_generate_continues_as_step_by_step_forwards_do(family):
    pruned = pruned_at(family, 0.5)
    # An untrained model may well answer with a placeholder, which would then want a row of its own.
    never = pruned.placeholder_token_id
    generated = family.whole.generate(
        **pruned.model_inputs(), max_new_tokens=4, do_sample=False, suppress_tokens=[never]
    )
    steps = [int(token) for token in generated[0, pruned.sequence_length :]]
    assert 1 <= len(steps) <= 4
    for count in range(len(steps)):
        inputs = continued(pruned.model_inputs(), steps[:count])
        logits = logits_of(family.whole, inputs)[-1]
        logits[never] = -torch.inf
        assert int(logits.argmax()) == steps[count]


def continued(inputs, tokens):
    """``inputs`` with ``tokens`` behind, at the positions that follow the last."""
    more = torch.tensor([tokens], dtype=torch.int64)
    length = inputs["input_ids"].shape[1]
    for name, value in inputs.items():
        if name == "position_ids":
            steps = torch.arange(1, len(tokens) + 1)
            inputs[name] = torch.cat([value, value[..., -1:] + steps], dim=-1)
        elif isinstance(value, torch.Tensor) and value.shape == (1, length):
            filler = {"input_ids": more, "attention_mask": torch.ones_like(more)}.get(name, torch.zeros_like(more))
            inputs[name] = torch.cat([value, filler], dim=-1)
    return inputs


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_an_artifact_read_back_gives_the_same_logits(family, suffix, tmp_path):
    pruned = pruned_at(family, 0.7)
    evs_cli.save(pruned, tmp_path / f"out{suffix}")
    loaded = evs_cli.load(tmp_path / f"out{suffix}")
    assert torch.equal(logits_of(family.whole, loaded.model_inputs()), logits_of(family.whole, pruned.model_inputs()))


@pytest.mark.parametrize("model_type", ["llava_onevision", "video_llava"])
def test_extra_rows_stand_at_their_placeholders(model_type, tiny_family):
    pruned = pruned_at(language_family(model_type, tiny_family), 0.5)
    assert len(pruned.extra_positions) > 0
    rows = with_extra_rows(pruned)
    places = (pruned.input_ids == pruned.placeholder_token_id).nonzero().flatten().tolist()
    assert rows.shape[0] == len(places)
    for position, row in zip(pruned.extra_positions.tolist(), pruned.extra_embeddings, strict=True):
        assert torch.equal(rows[places.index(position)], row)


def test_beams_and_samples_are_taken(family):
    """transformers repeats the features for each, counting placeholders by the key they come under."""
    pruned = pruned_at(family, 0.5)
    never = [pruned.placeholder_token_id]
    beams = family.whole.generate(**pruned.model_inputs(), max_new_tokens=2, num_beams=2, suppress_tokens=never)
    assert beams.shape[1] > pruned.sequence_length
    several = family.whole.generate(
        **pruned.model_inputs(), max_new_tokens=2, do_sample=True, num_return_sequences=2, suppress_tokens=never
    )
    assert several.shape[0] == 2


def test_a_plain_encoders_rows_are_refused():
    pruned = evs_cli.prune_video(video("normal.mp4"), q=0.5, num_frames=2, size=56)
    with pytest.raises(UsageError, match="a plain encoder's, with generic ids"):
        pruned.model_inputs()
