"""Configurations of published models, shortened to what has to do with sizes.

Qwen2.5-VL-7B and Qwen3-VL-8B: their config.json on the Hugging Face hub, from memory, checked against their published
parameter counts. Nemotron Nano 12B v2 and 3 Nano 30B-A3B: their config.json as quoted in public repositories
(Megatron-Bridge's providers agree). Not sure of: the projector (20,480) and tower of Omni, which are as quoted for its
early releases, and the context limits.
"""

QWEN2_5_VL_7B = {  # flat, as it was published
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 128000,
    "max_window_layers": 28,
    "use_sliding_window": False,
    "sliding_window": 32768,
    "vocab_size": 152064,
    "torch_dtype": "bfloat16",
    "vision_config": {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "in_chans": 3,
        "out_hidden_size": 3584,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31],
    },
}
QWEN3_VL_8B = {
    "model_type": "qwen3_vl",
    "text_config": {
        "model_type": "qwen3_vl_text",
        "dtype": "bfloat16",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 262144,
        "vocab_size": 151936,
    },
    "vision_config": {
        "model_type": "qwen3_vl",
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "in_channels": 3,
        "out_hidden_size": 4096,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "deepstack_visual_indexes": [8, 16, 24],
    },
}
_MAMBA = {"model_type": "nemotron_h", "head_dim": 128, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4}
NEMOTRON_NANO_12B_V2 = {  # the language model of Nemotron Nano 12B v2 VL, whose family evs cannot encode
    "model_type": "NemotronH_Nano_VL_V2",
    "llm_config": {
        **_MAMBA,
        "hybrid_override_pattern": "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M-",
        "hidden_size": 5120,
        "intermediate_size": 20480,
        "num_hidden_layers": 62,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "mamba_num_heads": 128,
        "mamba_head_dim": 80,
        "max_position_embeddings": 131072,
        "vocab_size": 131072,
        "torch_dtype": "bfloat16",
    },
}
NEMOTRON_OMNI_30B = {
    "model_type": "nemotron_h_omni",
    "llm_config": {
        **_MAMBA,
        "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        "hidden_size": 2688,
        "intermediate_size": 1856,
        "num_hidden_layers": 52,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "mamba_num_heads": 64,
        "mamba_head_dim": 64,
        "mamba_ssm_cache_dtype": "float32",
        "n_routed_experts": 128,
        "n_shared_experts": 1,
        "num_experts_per_tok": 6,
        "moe_intermediate_size": 1856,
        "moe_shared_expert_intermediate_size": 3712,
        "max_position_embeddings": 262144,
        "vocab_size": 131072,
        "torch_dtype": "bfloat16",
    },
    "vit_hidden_size": 1280,
    "projector_hidden_size": 20480,
    "downsample_ratio": 0.5,
    # The rest of the tower is RadioConfig's defaults.
    "vision_config": {"patch_size": 16, "version": "radio_v2.5-h", "video_temporal_patch_size": 2},
}
PUBLISHED = {
    "qwen2_5_vl_7b": QWEN2_5_VL_7B,
    "qwen3_vl_8b": QWEN3_VL_8B,
    "nemotron_nano_12b_v2": NEMOTRON_NANO_12B_V2,
    "nemotron_omni_30b": NEMOTRON_OMNI_30B,
}
