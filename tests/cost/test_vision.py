"""FLOPs of the vision part: equal to what torch counts while transformers' own towers encode a clip."""

import pytest
import tiny_models
import torch
from published_configs import NEMOTRON_OMNI_30B, QWEN2_5_VL_7B, QWEN3_VL_8B
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModel, NemotronH_Omni_Reasoning_V3
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from evs_cli.cost import read_vision_tower
from evs_cli.cost.config_defaults import NO_LANGUAGE_MODEL, PROJECTOR, VISION
from evs_cli.cost.fields import ALIASES
from evs_cli.encoders.base import EncodeOptions
from evs_cli.encoders.registry import FAMILIES, open_encoder
from evs_cli.errors import ModelError, UsageError

TEXT = {
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 64,
    "head_dim": 24,
}
QWEN = {
    "depth": 3,
    "hidden_size": 24,
    "num_heads": 2,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "in_channels": 3,
    "intermediate_size": 40,
}
QWEN3 = {**QWEN, "out_hidden_size": 48, "num_position_embeddings": 64}
FRAME = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "patch_size": 4,
    "image_size": 16,
}
ROPE3 = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 4, 4]}}
GRID_FAMILIES = {  # text, vision: grids of flat patches
    "qwen2_vl": ({}, {**QWEN, "embed_dim": 24, "hidden_size": 48, "mlp_ratio": 3}),
    "qwen2_5_vl": ({}, {**QWEN, "out_hidden_size": 48, "window_size": 16, "fullatt_block_indexes": [1]}),
    "qwen3_vl": ({}, {**QWEN3, "deepstack_visual_indexes": [0, 2]}),
    "qwen3_5": ({"layer_types": ["full_attention"]}, QWEN3),
    "glm4v": ({}, {**QWEN, "out_hidden_size": 48, "image_size": 32}),
    "ernie4_5_vl_moe": (
        {**ROPE3, "moe_num_experts": 3, "moe_k": 2, "moe_intermediate_size": [8, 4]},
        {k: v for k, v in QWEN.items() if k != "temporal_patch_size"},
    ),
    "video_llama_3": ({}, FRAME),
}
FRAME_FAMILIES = {  # text, vision, outer, tokens a frame of 4 x 4 patches
    "internvl": ({}, {**FRAME, "image_size": [16, 16], "patch_size": [4, 4]}, {}, 4),
    "smolvlm": ({}, FRAME, {"scale_factor": 2}, 4),
    "llava_onevision": ({}, {**FRAME, "model_type": "siglip_vision_model", "vision_use_head": False}, {}, 4),
    "llava_next_video": ({}, {**FRAME, "model_type": "clip_vision_model"}, {"vision_feature_layer": [-2, -1]}, 4),
    "video_llava": ({}, {**FRAME, "model_type": "clip_vision_model"}, {}, 16),
    "nemotron_h_omni": (
        {"model_type": "nemotron_h", "layers_block_type": ["full_attention"]},
        {
            "model_type": "radio",
            "hidden_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "patch_size": 4,
            "mlp_ratio": 3.0,
            "max_img_size": 32,
            "num_registers": 2,
            "use_swiglu_ffn": True,
            "video_temporal_patch_size": 2,
        },
        {"vision_hidden_size": 24, "projector_hidden_size": 20},
        4,
    ),
}


def build(family, text, vision, outer):
    config = CONFIG_MAPPING[family](text_config={**TEXT, **text}, vision_config=dict(vision), **outer)
    config._attn_implementation = "eager"
    if family == "nemotron_h_omni":
        return config, NemotronH_Omni_Reasoning_V3._from_config(config, attn_implementation="eager").eval()
    return config, AutoModel.from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize("grid", [(4, 6, 10), (2, 8, 8), (2, 2, 2)])
@pytest.mark.parametrize("family", GRID_FAMILIES)
def test_flops_of_towers_that_take_patches(family, grid):
    text, vision = GRID_FAMILIES[family]
    config, model = build(family, text, vision, {})
    frames, height, width = grid
    values = 3 * 16 * vision.get("temporal_patch_size", 1)
    arguments = {"video_merge_sizes": torch.tensor([2])} if family == "video_llama_3" else {}
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        output = model.get_video_features(
            pixel_values_videos=torch.randn(frames * height * width, values),
            video_grid_thw=torch.tensor([grid]),
            **arguments,
        )
    num_tokens = sum(len(rows) for rows in output.pooler_output)
    assert num_tokens == frames * height * width // 4 // (2 if family == "ernie4_5_vl_moe" else 1)
    flops = read_vision_tower(config.to_dict(), 48).flops(grid, num_tokens)
    assert flops.vision_flops == counter.get_total_flops()
    assert min(flops.vision_linear_flops, flops.vision_attention_flops, flops.vision_projector_flops) > 0


@pytest.mark.parametrize("family", FRAME_FAMILIES)
def test_flops_of_towers_that_take_frames(family):
    text, vision, outer, per_frame = FRAME_FAMILIES[family]
    config, model = build(family, text, vision, outer)
    frames, pixels = 3, torch.randn(1, 3, 6 if family == "nemotron_h_omni" else 3, 16, 16)
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        if family in ("internvl", "smolvlm"):
            model.get_image_features(pixel_values=pixels[0] if family == "internvl" else pixels)
        else:
            model.get_video_features(pixel_values_videos=pixels)
    flops = read_vision_tower(config.to_dict(), 48).flops((frames, 4, 4), frames * per_frame)
    assert flops.vision_flops == counter.get_total_flops()


@pytest.mark.parametrize("family", tiny_models.PLAIN_BUILDERS)
def test_flops_of_plain_encoders_through_evs(family, tiny_model):
    """Planned from config.json and the plan's grid, run by evs' own encoder."""
    encoder = open_encoder(str(tiny_model(family)))
    clip = tiny_models.make_clip(3, 50, 90)
    plan = encoder.plan(clip, EncodeOptions())
    encoder.load("cpu", torch.float32)
    encoder._model.set_attn_implementation("eager")  # torch does not count the fused kernels of a CPU
    tower = read_vision_tower(encoder.source.config, None)
    with FlopCounterMode(display=False) as counter:
        encoder.encode(torch.zeros((3, 3, 50, 90), dtype=torch.uint8), plan)
    counts = counter.get_flop_counts()
    pooling_head = sum(counts.get("SiglipVisionModel.head", {}).values())  # run, but left out: it makes no token
    assert (pooling_head > 0) == family.startswith("siglip")
    assert tower.flops(plan.model_grid_thw, plan.total_tokens).vision_flops == counter.get_total_flops() - pooling_head


@pytest.mark.parametrize(
    ("config", "text_size", "family"),
    [
        (QWEN2_5_VL_7B, 3584, "qwen2_5_vl"),
        (QWEN3_VL_8B, 4096, "qwen3_vl"),
        (NEMOTRON_OMNI_30B, 2688, "nemotron_h_omni"),
    ],
    ids=["qwen2_5_vl", "qwen3_vl", "nemotron_h_omni"],
)
def test_published_towers_have_these_parameters(config, text_size, family):
    settings = CONFIG_MAPPING[family].from_dict(config)
    settings.audio_config = None
    text = settings.text_config
    if family == "nemotron_h_omni":
        text.layers_block_type = []
        with torch.device("meta"):
            model = NemotronH_Omni_Reasoning_V3(settings)
    else:
        text.num_hidden_layers, text.layer_types = 0, []
        with torch.device("meta"):
            model = AutoModel.from_config(settings)
    parameters = {
        name: p.numel()
        for name, p in model.named_parameters()
        if p.ndim >= 2 and ("visual." in name or "vision_model." in name or "projector" in name)
    }
    blocks = sum(n for name, n in parameters.items() if ".blocks." in name or ".encoder.layer." in name)
    joints = sum(n for name, n in parameters.items() if "merger" in name or "projector" in name)
    patches = next(n for name, n in parameters.items() if "patch_embed" in name or "video_patch_projection" in name)
    tower = read_vision_tower(config, text_size)
    assert tower.block_parameters_in_all == blocks
    assert tower.token_parameters == joints
    assert tower.patch_parameters == patches


@pytest.mark.parametrize("family", VISION)
def test_defaults_are_those_of_the_class(family):
    config = CONFIG_MAPPING[family]()
    part = getattr(config, "vision_config", config)
    defaults = dict(VISION[family])
    if defaults["temporal_patch_size"] == 1:
        del defaults["temporal_patch_size"]
    for name, default in defaults.items():
        found = [getattr(part, key) for key in (name, *ALIASES.get(name, ())) if hasattr(part, key)]
        assert found, name
        value = found[0][0] if name == "patch_size" and isinstance(found[0], (list, tuple)) else found[0]
        assert value == default or list(value) == list(default), name
    for name, default in PROJECTOR.get(family, {}).items():
        assert getattr(config, name) == default


@pytest.mark.parametrize("family", sorted({*VISION} - NO_LANGUAGE_MODEL - {"nemotron_h_omni"}))
def test_an_empty_vision_config_means_the_towers_own_defaults(family):
    """Not the family's, which hold where there is none at all: llava_next_video's 12 blocks of 768, not 24 of 1024."""
    written = CONFIG_MAPPING[family](vision_config={}).to_dict()
    assert read_vision_tower({"model_type": family, "vision_config": {}}, 64) == read_vision_tower(written, 64)


def test_a_llava_may_have_another_tower():
    config = {"model_type": "llava_next_video", "vision_config": {"model_type": "siglip_vision_model"}}
    assert read_vision_tower(config, 64).prefix_tokens == 0
    assert read_vision_tower({**config, "vision_config": {}}, 64).prefix_tokens == 1


def test_every_family_of_the_registry_has_a_tower():
    for family in FAMILIES:
        if FAMILIES[family].verified == "counts alone":
            continue  # never run, so its work is nobody's
        text_size = None if family in NO_LANGUAGE_MODEL else 64
        assert read_vision_tower({"model_type": family}, text_size) is not None, family


def test_unknown_towers_are_left_out():
    assert read_vision_tower({"model_type": "NemotronH_Nano_VL_V2"}, 5120) is None
    assert read_vision_tower({}, None) is None


def test_edges_of_grids():
    tower = read_vision_tower(QWEN2_5_VL_7B, 3584)
    assert tower.flops((0, 32, 32), 0).vision_flops == 0
    # 10 x 12 patches in windows of 8: 8 + 2 by 8 + 4, so (64 + 4) x (64 + 16) pairs a windowed block.
    flops = tower.flops((1, 10, 12), 30)
    assert flops.vision_attention_flops == 4 * 1280 * (4 * 120**2 + 28 * 68 * 80)
    with pytest.raises(UsageError, match=r"Invalid patch grid \(-1, 2, 2\) of 4 tokens"):
        tower.flops((-1, 2, 2), 4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "dinov2", "patch_size": [14]}, r"patch_size of its config.json is \[14\]"),
        ({"model_type": "dinov2", "patch_size": 0}, "patch_size of its config.json is 0"),
        ({"model_type": "dinov2", "mlp_ratio": "4"}, "mlp_ratio of its config.json is '4'"),
        ({"model_type": "internvl", "downsample_ratio": 0}, "downsample_ratio of its config.json is 0"),
        ({"model_type": "qwen3_vl", "vision_config": {"depth": None}}, "depth of its config.json is null"),
        ({"model_type": "qwen3_vl", "vision_config": {"deepstack_visual_indexes": 3}}, "Expected a list of whole"),
    ],
)
def test_configurations_that_make_no_sense(config, message):
    with pytest.raises(ModelError, match=message):
        read_vision_tower(config, 64)
