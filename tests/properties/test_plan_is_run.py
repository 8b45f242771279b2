"""Plan equals run, for every family there is: what ``evs plan`` and ``evs fit`` count is what encoding gives."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_language_models import LANGUAGE_FAMILIES, language_family

from evs_cli.core.dissimilarity import compute_dissimilarity
from evs_cli.core.retention import Ranking
from evs_cli.encoders.base import Clip, EncodeOptions
from evs_cli.encoders.registry import open_encoder
from evs_cli.encoders.runtime import resolve_runtime

PLAIN = ["dinov2", "siglip", "clip"]
# 20 families of 11 cases: 220 drawn cases in all.
PROFILE = settings(
    max_examples=11, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def drawn_clips(draw):
    num_frames = draw(st.integers(1, 9))
    gaps = draw(st.lists(st.floats(0.03, 1.2), min_size=num_frames, max_size=num_frames))
    pts = draw(st.sampled_from([0.0, 3.2])) + np.cumsum([0.0, *gaps[1:]])
    window = float(pts[-1] - pts[0] + gaps[0])
    return Clip(draw(st.integers(28, 150)), draw(st.integers(28, 150)), np.asarray(pts, dtype=np.float64), window)


@pytest.fixture(scope="module")
def encoders(tiny_family, tiny_model):
    """Encoders with weights, by family."""
    opened = {}

    def encoder_of(model_type):
        if model_type not in opened:
            if model_type in PLAIN:
                runtime = resolve_runtime("cpu", "float32")
                opened[model_type] = open_encoder(str(tiny_model(model_type)))
                opened[model_type].load(runtime.device, runtime.dtype)
            else:
                opened[model_type] = language_family(model_type, tiny_family).encoder
        return opened[model_type]

    return encoder_of


@pytest.mark.parametrize("model_type", [*LANGUAGE_FAMILIES, *PLAIN])
@PROFILE
@given(data=st.data())
def test_plan_equals_run(model_type, encoders, data):
    encoder = encoders(model_type)
    clip, q = data.draw(drawn_clips()), data.draw(st.sampled_from([0.0, 0.3, 0.7, 0.8, 0.95]))
    prompt = data.draw(st.sampled_from([None, "What moves?"])) if encoder.has_language_model else None
    plan = encoder.plan(clip, EncodeOptions(prompt=prompt))
    noise = np.random.default_rng(clip.num_frames).integers(0, 256, (clip.num_frames, 3, clip.height, clip.width))
    frames = encoder.mark_frames(torch.from_numpy(noise.astype(np.uint8)), clip.pts_seconds)
    tokens = encoder.encode(frames, plan)

    assert tuple(tokens.levels[0].shape[:3]) == plan.token_grid_thw
    assert all(level.shape[:3] == tokens.levels[0].shape[:3] for level in tokens.levels)
    closing = encoder.closing_rows()
    num_extra = (0 if tokens.extra is None else len(tokens.extra)) + (0 if closing is None else len(closing))
    assert num_extra == len(plan.layout.extra_positions)
    assert len(plan.prompt_seconds) == len(plan.frame_pts_seconds) == plan.token_grid_thw[0]

    retention = Ranking(compute_dissimilarity(list(tokens.levels))).at(q)
    assert retention.retained_tokens == plan.retained_tokens(q)
    sequence = plan.layout.prune(retention.retention_mask.numpy())
    assert len(sequence.input_ids) == plan.sequence_length(q)
    positions = encoder.position_ids(plan)
    assert positions is None or positions.shape[-1] == plan.layout.sequence_length
