"""Language models as the costs see them: the oracle is transformers' own classes, built on the meta device.

Parameters in matrices must equal the model's, and FLOPs those that torch counts in a real forward.
"""

import pytest
import torch
import transformers as tf
from published_configs import NEMOTRON_OMNI_30B, PUBLISHED, QWEN2_5_VL_7B, QWEN3_VL_8B
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.ernie4_5_vl_moe.modeling_ernie4_5_vl_moe import Ernie4_5_VLMoeTextModel

from evs_cli.cost import kv_cache_bytes, prefill_flops, read_language_model, recurrent_state_bytes
from evs_cli.cost.config_defaults import NO_LANGUAGE_MODEL, TEXT, TEXT_TYPES
from evs_cli.cost.fields import ALIASES
from evs_cli.encoders.registry import FAMILIES
from evs_cli.errors import ModelError

SMALL = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
MROPE = {"rope_type": "default", "rope_theta": 10000.0}
DELTA = {
    "head_dim": 16,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
SMALL_CONFIGS = {
    "llama": {},
    "mistral": {"head_dim": 20, "sliding_window": 7},
    "qwen2": {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1},
    "qwen3": {"head_dim": 20},
    "qwen3_moe": {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "mlp_only_layers": [2]},
    "qwen2_vl_text": {"rope_parameters": {**MROPE, "mrope_section": [2, 2, 2]}},
    "qwen2_5_vl_text": {"rope_parameters": {**MROPE, "mrope_section": [2, 2, 2]}},
    "qwen3_vl_text": {"head_dim": 20, "rope_parameters": {**MROPE, "mrope_section": [4, 3, 3]}},
    "qwen3_vl_moe_text": {
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "decoder_sparse_step": 2,
        "rope_parameters": {**MROPE, "mrope_section": [2, 2, 2]},
    },
    "qwen3_5_text": {**DELTA, "num_hidden_layers": 5},
    "qwen3_5_moe_text": {
        **DELTA,
        "layer_types": ["linear_attention", "full_attention", "full_attention", "linear_attention"],
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 20,
    },
    "glm4v_text": {"rope_parameters": {**MROPE, "mrope_section": [2, 2, 2]}},
    "glm4v_moe_text": {
        "n_routed_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "n_shared_experts": 3,
        "first_k_dense_replace": 2,
        "rope_parameters": {**MROPE, "mrope_section": [1, 1, 1]},
    },
    "ernie4_5_vl_moe_text": {
        "moe_num_experts": 6,
        "moe_k": 2,
        "moe_intermediate_size": [24, 12],
        "moe_num_shared_experts": 3,
        "rope_parameters": {**MROPE, "mrope_section": [2, 2, 2]},
    },
    "nemotron_h": {
        "layers_block_type": ["mamba", "moe", "attention", "mlp", "mamba"],
        "head_dim": 20,
        "mamba_num_heads": 4,
        "mamba_head_dim": 10,
        "ssm_state_size": 6,
        "n_groups": 2,
        "n_routed_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "moe_shared_expert_intermediate_size": 28,
        "moe_latent_size": 16,
    },
}


def on_meta(config):
    """A language model without a byte of weights."""
    with torch.device("meta"):
        if config.model_type == "ernie4_5_vl_moe_text":
            return Ernie4_5_VLMoeTextModel._from_config(config)
        return AutoModel.from_config(config)


def matrices(model):
    """Parameters of the layers that tokens are multiplied with: linear layers, routers, stacks of experts.

    Not the depthwise convolutions (part of the scan), nor the routers' correction biases, which have two dimensions.
    """
    return sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if "layers." in name and parameter.ndim >= 2 and "conv1d" not in name and not name.endswith("bias")
    )


def class_of(text_type, values):
    return CONFIG_MAPPING[text_type](**{k: v for k, v in values.items() if k != "model_type"})


# ------------------------------------------------------------------------------------- parameters, against meta models


@pytest.mark.parametrize("text_type", SMALL_CONFIGS)
def test_small_models_have_these_parameters(text_type):
    values = {"model_type": text_type, **SMALL, **SMALL_CONFIGS[text_type]}
    model = read_language_model(values)
    assert model.layer_matmul_parameters == matrices(on_meta(class_of(text_type, values)))
    assert model.head_parameters == 96 * 48


@pytest.mark.parametrize("text_type", TEXT)
def test_default_models_have_these_parameters(text_type):
    """An empty config.json: every size is the class's default."""
    model = read_language_model({"model_type": text_type})
    assert model.layer_matmul_parameters == matrices(on_meta(class_of(text_type, {})))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_have_these_parameters(name):
    config = PUBLISHED[name]
    if name == "nemotron_nano_12b_v2":
        text = class_of("nemotron_h", config["llm_config"])
    else:
        text = CONFIG_MAPPING[config["model_type"]].from_dict(config).get_text_config()
    model = read_language_model(config)
    assert model.layer_matmul_parameters == matrices(on_meta(text))
    assert model.context_limit_tokens == text.max_position_embeddings
    assert len(model.layers) == text.num_hidden_layers


DERIVED = {"num_key_value_heads", "head_dim", "layer_types", "mlp_only_layers", "mlp_layer_types", "intermediate_size"}
"""What a class works out where nothing is written; the models with its defaults, above, hold how."""
OF_SERVERS = {"full_attention_interval": 4, "mamba_ssm_dtype": "float32"}
"""Read out of a ``config.json`` by servers: not kept by the class."""


@pytest.mark.parametrize("text_type", TEXT)
def test_defaults_are_those_of_the_class(text_type):
    """By the transformers that is installed: equal in 5.16.0, 5.20.0, 5.23.0 and 5.24.0."""
    config = class_of(text_type, {})
    windowed = class_of(text_type, {"use_sliding_window": True})  # else the class sets the window to None
    for name, default in TEXT[text_type].items():
        part = windowed if name == "sliding_window" else config
        found = [getattr(part, key) for key in (name, *ALIASES.get(name, ())) if hasattr(part, key)]
        if not found:
            assert OF_SERVERS.get(name) == default, name
        elif default is None and found[0] is not None:
            assert name in DERIVED, name
        else:
            assert found[0] == default, name


@pytest.mark.parametrize("family", TEXT_TYPES)
def test_families_default_to_these_language_models(family):
    assert CONFIG_MAPPING[family]().get_text_config().model_type == TEXT_TYPES[family]
    assert read_language_model({"model_type": family, "text_config": {}}).model_type == TEXT_TYPES[family]


def test_every_family_of_the_registry_is_known():
    for family in FAMILIES:
        if FAMILIES[family].verified == "counts alone":
            with pytest.raises(ModelError):  # never run: its plan has no costs
                read_language_model({"model_type": family})
            continue
        assert (read_language_model({"model_type": family}) is None) == (family in NO_LANGUAGE_MODEL), family


@pytest.mark.parametrize("text_type", SMALL_CONFIGS)
def test_config_json_as_transformers_writes_it(text_type, tmp_path):
    """Written with all that equals a default left out, it reads the same."""
    import json

    values = {"model_type": text_type, **SMALL, **SMALL_CONFIGS[text_type]}
    class_of(text_type, values).save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert read_language_model(written).layers == read_language_model(values).layers


# ---------------------------------------------------------------------------------------- FLOPs, against torch's count

COUNTED = [t for t in SMALL_CONFIGS if t not in ("qwen3_5_text", "qwen3_5_moe_text", "nemotron_h")]


def counted_flops(config, num_tokens):
    """FLOPs torch counts in a forward of eager attention, which multiplies the whole square."""
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    cls = Ernie4_5_VLMoeTextModel if config.model_type == "ernie4_5_vl_moe_text" else None
    model = (cls._from_config(config) if cls else AutoModel.from_config(config)).eval()
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        model(input_ids=torch.arange(num_tokens)[None] % 90, use_cache=False)
    return counter.get_total_flops()


@pytest.mark.parametrize("text_type", COUNTED)
def test_prefill_flops_are_those_torch_counts(text_type):
    values = {"model_type": text_type, **SMALL, **SMALL_CONFIGS[text_type]}
    model, length = read_language_model(values), 13
    flops = prefill_flops(model, length)
    square = sum(4 * a.num_heads * a.head_dim * length**2 for a in model.attention_layers)
    head = 2 * model.head_parameters  # AutoModel has none
    assert flops.prefill_linear_flops - head + square == counted_flops(class_of(text_type, values), length)
    assert flops.prefill_scan_flops == 0
    if not any(a.window_tokens for a in model.attention_layers):
        assert flops.prefill_attention_flops == square * (length + 1) // (2 * length)


@pytest.mark.parametrize("text_type", ["qwen3_5_text", "qwen3_5_moe_text", "nemotron_h"])
def test_hybrid_models_state_is_what_the_cache_holds(text_type):
    values = {"model_type": text_type, **SMALL, **SMALL_CONFIGS[text_type]}
    network = AutoModel.from_config(class_of(text_type, values)).eval()
    with torch.inference_mode():
        output = network(input_ids=torch.arange(70)[None], use_cache=True)
    cache = output.past_key_values if hasattr(output, "past_key_values") else output.cache
    model = read_language_model({**values, "dtype": "float32"})
    recurrent = keys = columns = 0
    for layer in cache.layers:
        if getattr(layer, "recurrent_states", None):
            recurrent += sum(s.numel() for s in layer.recurrent_states.values() if s is not None)
            columns += sum(s.numel() for s in layer.conv_states.values() if s is not None)
        if getattr(layer, "keys", None) is not None:
            keys += layer.keys.numel() + layer.values.numel()
    assert recurrent == sum(layer.state_values for layer in model.recurrent_layers)
    # transformers keeps conv_kernel columns, vLLM and we one less.
    assert columns == sum(layer.conv_channels * layer.conv_kernel for layer in model.recurrent_layers)
    assert 4 * keys == kv_cache_bytes(model, 70)


# --------------------------------------------------------------------------------------------------------------- edges


def test_windows_bound_cache_and_pairs():
    model = read_language_model({"model_type": "qwen2", **SMALL, **SMALL_CONFIGS["qwen2"]})
    assert model.layer_counts() == {"attention": 1, "sliding": 3}
    windowed = model.attention_layers[1]
    # Tokens 1 to 7 see 1, 2, … 7 keys, the other three 7: 28 + 21.
    assert windowed.attended_pairs(10) == sum(min(i, 7) for i in range(1, 11)) == 49
    assert windowed.attended_pairs(3) == 6
    # A value is 2 bytes, a token 2 x 2 heads x 12 = 48 values: one layer keeps 10, three keep 7.
    assert kv_cache_bytes(model, 10) == 2 * 48 * (10 + 3 * 7)
    off = read_language_model({"model_type": "qwen2", **SMALL, "sliding_window": 7, "max_window_layers": 1})
    assert off.layer_counts() == {"attention": 4}
    assert read_language_model({"model_type": "mistral", **SMALL, "sliding_window": None}).layer_counts() == {
        "attention": 4
    }
    assert read_language_model({"model_type": "mistral", **SMALL}).attention_layers[0].window_tokens == 4096


def test_hybrid_layers_by_interval_list_or_pattern():
    by_interval = read_language_model({"model_type": "qwen3_5_text", **SMALL, "full_attention_interval": 2})
    assert by_interval.layer_counts() == {"recurrent": 2, "attention": 2}
    config = NEMOTRON_OMNI_30B["llm_config"]
    names = {"M": "mamba", "*": "attention", "E": "moe"}
    listed = {**config, "layers_block_type": [names[c] for c in config["hybrid_override_pattern"]]}
    del listed["hybrid_override_pattern"]
    assert read_language_model(listed).layers == read_language_model(config).layers


def test_video_tokens_have_experts_of_their_own():
    model = read_language_model(
        {"model_type": "ernie4_5_vl_moe_text", **SMALL, **SMALL_CONFIGS["ernie4_5_vl_moe_text"]}
    )
    # Three sparse layers of 2 experts: 3 x 48 x (24 - 12) less each.
    assert model.active_layer_parameters() - model.active_layer_parameters(is_video=True) == 3 * 2 * 3 * 48 * 12
    text, video = prefill_flops(model, 10), prefill_flops(model, 10, 4)
    assert text.prefill_linear_flops - video.prefill_linear_flops == 2 * 4 * (3 * 2 * 3 * 48 * 12)


def test_nested_flat_and_old_names_read_the_same():
    part = {k: v for k, v in QWEN2_5_VL_7B.items() if k not in ("model_type", "vision_config")}
    flat = read_language_model(QWEN2_5_VL_7B)
    for config in (
        {"model_type": "qwen2_5_vl", "text_config": part},
        {"model_type": "qwen2_5_vl", "text_config": {"model_type": "qwen2_5_vl_text", **part}},
        {"model_type": "qwen2_5_vl", "text_config": {"model_type": "qwen2_5_vl", **part}},
        {"model_type": "some_wrapper", "llm_config": {"model_type": "qwen2_5_vl_text", **part}},
    ):
        assert read_language_model(config).layers == flat.layers


def test_what_was_assumed_is_said():
    assert read_language_model(QWEN3_VL_8B).assumed_fields == ()
    without = {k: v for k, v in QWEN3_VL_8B["text_config"].items() if k not in ("head_dim", "vocab_size")}
    assert read_language_model(without).assumed_fields == ("head_dim", "vocab_size")
    assert read_language_model(NEMOTRON_OMNI_30B).assumed_fields == ()


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ({}, {}, "bfloat16"),
        ({"torch_dtype": "float32"}, {}, "float32"),
        ({"dtype": "float32"}, {"dtype": "float16"}, "float16"),
        ({"torch_dtype": "torch.float16"}, {"torch_dtype": "auto"}, "float16"),
    ],
)
def test_dtype(outer, inner, expected):
    model = read_language_model({"model_type": "internvl", **outer, "text_config": {"model_type": "qwen2", **inner}})
    assert model.dtype == expected


@pytest.mark.parametrize("family", sorted(NO_LANGUAGE_MODEL))
def test_plain_encoders_have_no_language_model(family):
    assert read_language_model({"model_type": family, "text_config": {"hidden_size": 512}}) is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, r"cannot tell the cost of this model: evs does not know the language model '\(no model_type\)'"),
        ({"model_type": "gpt9"}, "does not know the language model 'gpt9'. Known: llama, mistral"),
        ({"model_type": "internvl", "text_config": {"model_type": "gpt9"}}, "cost of internvl: .* 'gpt9'"),
        ({"model_type": "qwen3", "hidden_size": "4096"}, "hidden_size of its config.json is '4096'. Expected a whole"),
        ({"model_type": "qwen3", "hidden_size": True}, "hidden_size of its config.json is True"),
        (
            {"model_type": "qwen3", "hidden_size": None},
            "hidden_size of its config.json is null. Expected .* at least 1",
        ),
        ({"model_type": "qwen3", "hidden_size": 0}, "hidden_size of its config.json is 0. Expected .* at least 1"),
        ({"model_type": "qwen3", "vocab_size": -1}, "vocab_size of its config.json is -1"),
        ({"model_type": "qwen3", "num_hidden_layers": 2.5}, "num_hidden_layers of its config.json is 2.5"),
        (
            {"model_type": "qwen2", "num_hidden_layers": 2, "layer_types": ["full_attention"]},
            "lists 1 layer_types for 2",
        ),
        ({"model_type": "qwen2", "layer_types": "full"}, "layer_types of its config.json is 'full'. Expected a list"),
        (
            {"model_type": "qwen2", "num_hidden_layers": 1, "layer_types": ["conv"]},
            "layers of type 'conv'. Known: full_",
        ),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M?"}, r"layers of type '\?'"),
        ({"model_type": "ernie4_5_vl_moe", "moe_intermediate_size": [1536]}, r"is \[1536\]. Expected two sizes"),
        ({"model_type": "qwen3_moe", "mlp_only_layers": 3}, "mlp_only_layers of its config.json is 3. Expected a list"),
    ],
)
def test_configurations_that_make_no_sense(config, message):
    with pytest.raises(ModelError, match=message):
        read_language_model(config)


def test_an_empty_stack_costs_its_head_alone():
    model = read_language_model({"model_type": "llama", **SMALL, "num_hidden_layers": 0})
    assert (model.layers, kv_cache_bytes(model, 100), recurrent_state_bytes(model)) == ((), 0, 0)
    assert prefill_flops(model, 100).prefill_flops == 2 * 96 * 48


def test_transformers_is_the_one_the_defaults_are_from():
    assert tf.__version__.startswith("5."), "config_defaults.py holds the defaults of transformers 5.24"
