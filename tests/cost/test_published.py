"""Costs of published models, each figure worked out by hand: the arithmetic stands beside the number it gives."""

import copy
import json
from dataclasses import asdict

import pytest
from published_configs import NEMOTRON_OMNI_30B, PUBLISHED, QWEN2_5_VL_7B, QWEN3_VL_8B

from evs_cli.cost import (
    cost_report,
    embedding_bytes,
    kv_cache_bytes,
    prefill_flops,
    prompts_in_budget,
    read_language_model,
    read_vision_tower,
    recurrent_state_bytes,
)

# 8,192 video tokens and nothing else; pruned at q = 0.7 to int(8192 * (1 - 0.7)) = 2457 (facts/peers.md, section 1).
WHOLE, PRUNED = 8192, 2457
PAIRS_WHOLE = 33_558_528  # 8192 * 8193 / 2
PAIRS_PRUNED = 3_019_653  # 2457 * 2458 / 2


def model_of(name):
    model = read_language_model(PUBLISHED[name])
    assert model is not None
    return model


@pytest.mark.parametrize(
    ("name", "stored", "active"),
    [
        # Attention: q and output 3584 x 3584 = 12,845,056 each; k and v 3584 x (4 x 128) = 1,835,008 each: 29,360,128.
        # MLP 3 x 3584 x 18944 = 203,685,888. A layer 233,046,016, times 28.
        ("qwen2_5_vl_7b", 6_525_288_448, 6_525_288_448),
        # q and output 4096 x 4096 = 16,777,216 each; k and v 4096 x 1024 = 4,194,304 each: 41,943,040.
        # MLP 3 x 4096 x 12288 = 150,994,944. A layer 192,937,984, times 36.
        ("qwen3_vl_8b", 6_945_767_424, 6_945_767_424),
        # Mamba x 28: inner 128 x 80 = 10240, convolved 10240 + 2 x 8 x 128 = 12288;
        # in 5120 x (10240 + 12288 + 128) = 115,998,720, out 10240 x 5120 = 52,428,800: 168,427,520.
        # MLP x 28: 2 x 5120 x 20480 = 209,715,200. Attention x 6: 2 x 5120 x 5120 + 2 x 5120 x 1024 = 62,914,560.
        # 4,715,970,560 + 5,872,025,600 + 377,487,360.
        ("nemotron_nano_12b_v2", 10_965_483_520, 10_965_483_520),
        # Mamba x 23: inner 64 x 64 = 4096, convolved 6144; in 2688 x (4096 + 6144 + 64) = 27,697,152,
        # out 4096 x 2688 = 11,010,048: 38,707,200, times 23 = 890,265,600.
        # Attention x 6: 2 x 2688 x 4096 + 2 x 2688 x 256 = 23,396,352, times 6 = 140,378,112.
        # Experts x 23: router 128 x 2688 = 344,064; an expert 2 x 2688 x 1856 = 9,977,856; shared 2 x 2688 x 3712 =
        # 19,955,712. Stored 344,064 + 128 x 9,977,856 + 19,955,712 = 1,297,465,344, times 23 = 29,841,702,912.
        # Active 344,064 + 6 x 9,977,856 + 19,955,712 = 80,166,912, times 23 = 1,843,838,976.
        ("nemotron_omni_30b", 30_872_346_624, 2_874_482_688),
    ],
)
def test_parameters_in_matrices(name, stored, active):
    model = model_of(name)
    assert model.layer_matmul_parameters == stored
    assert model.active_layer_parameters() == model.active_layer_parameters(is_video=True) == active


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("qwen2_5_vl_7b", {"attention": 28}),
        ("qwen3_vl_8b", {"attention": 36}),
        ("nemotron_nano_12b_v2", {"recurrent": 28, "none": 28, "attention": 6}),
        ("nemotron_omni_30b", {"recurrent": 23, "none": 23, "attention": 6}),
    ],
)
def test_which_layers_have_attention(name, counts):
    assert model_of(name).layer_counts() == counts


@pytest.mark.parametrize(
    ("name", "bytes_per_token", "whole", "pruned"),
    [
        # layers x (K and V) x kv_heads x head_dim x 2 bytes, times 8192 and 2457.
        ("qwen2_5_vl_7b", 57_344, 469_762_048, 140_894_208),  # 28 x 2 x 4 x 128 x 2: 448 MiB
        ("qwen3_vl_8b", 147_456, 1_207_959_552, 362_299_392),  # 36 x 2 x 8 x 128 x 2: 1.125 GiB
        ("nemotron_nano_12b_v2", 24_576, 201_326_592, 60_383_232),  # 6 x 2 x 8 x 128 x 2
        ("nemotron_omni_30b", 6_144, 50_331_648, 15_095_808),  # 6 x 2 x 2 x 128 x 2
    ],
)
def test_kv_cache(name, bytes_per_token, whole, pruned):
    model = model_of(name)
    assert kv_cache_bytes(model, 1) == bytes_per_token
    assert kv_cache_bytes(model, WHOLE) == whole
    assert kv_cache_bytes(model, PRUNED) == pruned
    assert kv_cache_bytes(model, WHOLE, "fp8") == whole // 2
    assert kv_cache_bytes(model, WHOLE, "float32") == whole * 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen2_5_vl_7b", 0),
        ("qwen3_vl_8b", 0),
        # 28 layers of 128 x 80 x 128 values in float32 = 5,242,880 and 12288 x 3 in bfloat16 = 73,728: 5,316,608 each.
        ("nemotron_nano_12b_v2", 148_865_024),
        # 23 layers of 64 x 64 x 128 x 4 = 2,097,152 and 6144 x 3 x 2 = 36,864: 2,134,016 each.
        ("nemotron_omni_30b", 49_082_368),
    ],
)
def test_recurrent_state_is_told_apart(name, expected):
    assert recurrent_state_bytes(model_of(name)) == expected


@pytest.mark.parametrize(
    ("name", "whole", "pruned"),
    [
        # linear 2 x L x active + 2 x vocab x hidden; attention pairs x layers x 4 x heads x head_dim; scan L x a token
        (
            "qwen2_5_vl_7b",
            # 2 x 8192 x 6,525,288,448 = 106,910,325,932,032, head 2 x 152064 x 3584 = 1,089,994,752;
            # 33,558,528 x 28 x 4 x 28 x 128 = 33,558,528 x 401,408
            (106_911_415_926_784, 13_470_661_607_424, 0),
            # 2 x 2457 x 6,525,288,448 = 32,065,267,433,472; 3,019,653 x 401,408
            (32_066_357_428_224, 1_212_112_871_424, 0),
        ),
        (
            "qwen3_vl_8b",
            # 2 x 8192 x 6,945,767,424 = 113,799,453,474,816, head 2 x 151936 x 4096 = 1,244,659,712;
            # 33,558,528 x 36 x 4 x 32 x 128 = 33,558,528 x 589,824
            (113_800_698_134_528, 19_793_625_219_072, 0),
            # 2 x 2457 x 6,945,767,424 = 34,131,501,121,536; 3,019,653 x 589,824
            (34_132_745_781_248, 1_781_063_811_072, 0),
        ),
        (
            "nemotron_nano_12b_v2",
            # 2 x 8192 x 10,965,483,520 = 179,658,481,991,680, head 2 x 131072 x 5120 = 1,342,177,280;
            # 33,558,528 x 6 x 4 x 40 x 128 = 33,558,528 x 122,880; a scan costs 28 layers of
            # 5 x 128 x 80 x 128 = 6,553,600 and 2 x 4 x 12288 = 98,304 a token: 186,253,312, times 8192
            (179_659_824_168_960, 4_123_671_920_640, 1_525_787_131_904),
            # 2 x 2457 x 10,965,483,520 = 53,884,386,017,280; 3,019,653 x 122,880; 2457 x 186,253,312
            (53_885_728_194_560, 371_054_960_640, 457_624_387_584),
        ),
        (
            "nemotron_omni_30b",
            # 2 x 8192 x 2,874,482,688 = 47,095,524,360,192, head 2 x 131072 x 2688 = 704,643,072;
            # 33,558,528 x 6 x 4 x 32 x 128 = 33,558,528 x 98,304; a scan costs 23 layers of
            # 5 x 64 x 64 x 128 = 2,621,440 and 2 x 4 x 6144 = 49,152 a token: 61,423,616, times 8192
            (47_096_229_003_264, 3_298_937_536_512, 503_182_262_272),
            # 2 x 2457 x 2,874,482,688 = 14,125,207,928,832; 3,019,653 x 98,304; 2457 x 61,423,616
            (14_125_912_571_904, 296_843_968_512, 150_917_824_512),
        ),
    ],
)
def test_prefill(name, whole, pruned):
    model = model_of(name)
    for length, (linear, attention, scan) in ((WHOLE, whole), (PRUNED, pruned)):
        flops = prefill_flops(model, length)
        assert flops.prefill_linear_flops == linear
        assert flops.prefill_attention_flops == attention
        assert flops.prefill_scan_flops == scan
        assert flops.prefill_flops == linear + attention + scan


def test_pairs_are_causal():
    layer = model_of("qwen3_vl_8b").attention_layers[0]
    assert (layer.attended_pairs(WHOLE), layer.attended_pairs(PRUNED)) == (PAIRS_WHOLE, PAIRS_PRUNED)
    assert [layer.attended_pairs(n) for n in range(5)] == [0, 1, 3, 6, 10]


def test_qwen2_5_vl_vision_in_windows():
    tower = read_vision_tower(QWEN2_5_VL_7B, 3584)
    # 4 x 1280^2 + 3 x 1280 x 3420 = 6,553,600 + 13,132,800
    assert tower.block_parameters == 19_686_400
    assert tower.patch_parameters == 1_505_280  # 3 x 2 x 14 x 14 x 1280
    assert tower.token_parameters == 44_564_480  # 5120 x 5120 + 5120 x 3584
    assert (tower.window_patches, tower.num_full_blocks) == (8, 4)  # 112 // 2 // 14 = 4 tokens
    flops = tower.flops((32, 32, 32), 8192)
    # 32 frames of 1024 patches x 2 x (1,505,280 + 32 x 19,686,400 = 631,470,080)
    assert flops.vision_linear_flops == 41_384_023_162_880
    # A frame: 4 blocks of 1024^2 pairs = 4,194,304, and 28 of 16 windows of 64^2 = 65,536: 1,835,008.
    # 4 x 1280 x 32 x 6,029,312
    assert flops.vision_attention_flops == 987_842_478_080
    assert flops.vision_projector_flops == 730_144_440_320  # 2 x 8192 x 44,564,480
    assert flops.vision_flops == 43_102_010_081_280


def test_qwen3_vl_vision_with_deepstack():
    tower = read_vision_tower(QWEN3_VL_8B, 4096)
    assert tower.block_parameters == 15_224_832  # 4 x 1152^2 + 2 x 1152 x 4304 = 5,308,416 + 9,916,416
    assert tower.patch_parameters == 1_769_472  # 3 x 2 x 16 x 16 x 1152
    # Four mergers of 4608 x 4608 + 4608 x 4096 = 40,108,032
    assert tower.token_parameters == 160_432_128
    flops = tower.flops((32, 32, 32), 8192)
    # 2 x 32768 x (1,769,472 + 27 x 15,224,832 = 412,839,936)
    assert flops.vision_linear_flops == 27_055_878_045_696
    assert flops.vision_attention_flops == 4_174_708_211_712  # 4 x 1152 x 32 x 27 x 1024^2
    assert flops.vision_projector_flops == 2_628_519_985_152  # 2 x 8192 x 160,432,128


def test_nemotron_omni_vision():
    tower = read_vision_tower(NEMOTRON_OMNI_30B, 2688)
    assert tower.block_parameters == 19_660_800  # 4 x 1280^2 + 2 x 1280 x 5120
    assert tower.patch_parameters == 1_966_080  # 3 x 2 x 16 x 16 x 1280
    assert tower.prefix_tokens == 10  # 3 class tokens, 7 registers
    assert tower.token_parameters == 159_907_840  # 5120 x 20480 + 20480 x 2688
    flops = tower.flops((32, 32, 32), 8192)
    # 64 x (1024 x 1,966,080 + 1034 x 32 x 19,660,800 = 2,013,265,920 + 650,536,550,400)
    assert flops.vision_linear_flops == 41_763_188_244_480
    assert flops.vision_attention_flops == 5_605_456_609_280  # 4 x 1280 x 32 x 32 x 1034^2 = 5,242,880 x 1,069,156
    assert flops.vision_projector_flops == 2_619_930_050_560  # 2 x 8192 x 159,907,840


def test_embeddings_on_disk():
    # Qwen3-VL-8B: the main level and three of DeepStack's, 4 x 4096 x 2 bytes = 32 KiB a token.
    assert embedding_bytes(1, 4096, 4, "bfloat16") == 32_768
    report = report_of(QWEN3_VL_8B)
    assert (report.embedding_size, report.embedding_levels) == (4096, 4)
    assert report.embedding_bytes == 80_510_976  # 2457 x 32,768
    assert report.unpruned_embedding_bytes == 268_435_456  # 8192 x 32,768: 256 MiB
    assert report_of(QWEN2_5_VL_7B).embedding_bytes == 17_611_776  # 2457 x 3584 x 2
    assert report_of(NEMOTRON_OMNI_30B).embedding_bytes == 13_208_832  # 2457 x 2688 x 2


def report_of(config, **more):
    return cost_report(config, unpruned_tokens=WHOLE, pruned_tokens=PRUNED, retained_video_tokens=PRUNED, **more)


def test_report_says_it_all():
    report = report_of(QWEN3_VL_8B, patch_grid_thw=(32, 32, 32), kv_budget_bytes=40 * 2**30, kv_dtype="fp8")
    # A budget of 40 GiB over 603,979,776 bytes a prompt (half of the above: 1 byte a value) is 71.1.
    assert report.unpruned.kv_cache_bytes == 603_979_776
    assert report.unpruned.prompts_in_kv_budget == 71
    assert report.pruned.prompts_in_kv_budget == 237  # 42,949,672,960 / 181,149,696 = 237.09
    assert report.unpruned.context_share == 8192 / 262144 == 0.03125
    assert report.kv_cache_ratio == 2457 / 8192
    assert report.prefill_attention_ratio == PAIRS_PRUNED / PAIRS_WHOLE
    assert report.prefill_linear_ratio == 34_132_745_781_248 / 113_800_698_134_528
    assert report.vision_flops == 27_055_878_045_696 + 4_174_708_211_712 + 2_628_519_985_152
    assert (report.kv_dtype, report.embedding_dtype) == ("float8", "bfloat16")
    assert json.loads(json.dumps(asdict(report), allow_nan=False))["pruned"]["sequence_tokens"] == PRUNED


def test_state_counts_towards_the_budget():
    report = report_of(NEMOTRON_OMNI_30B, kv_budget_bytes=10**9)
    assert report.unpruned.prompts_in_kv_budget == 10  # 10^9 / (50,331,648 + 49,082,368) = 10.06
    assert report.pruned.prompts_in_kv_budget == 15  # 10^9 / (15,095,808 + 49,082,368) = 15.6
    assert prompts_in_budget(99, 100) == 0
    assert prompts_in_budget(100, 100) == 1


@pytest.mark.parametrize("name", PUBLISHED)
def test_reading_changes_nothing(name):
    before = copy.deepcopy(PUBLISHED[name])
    report_of(PUBLISHED[name], patch_grid_thw=(2, 4, 4))
    assert PUBLISHED[name] == before
