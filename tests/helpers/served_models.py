"""Checkpoints as servers know them, drawn sources, and a tokenizer that counts times as Qwen's does."""

from dataclasses import replace

from drawn_cases import tried_on
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from evs_cli.dialects.base import NemotronModel, QwenModel, ServerSource

QWEN25 = QwenModel(
    patch_size=14,
    merge_size=2,
    temporal_patch_size=2,
    min_pixels=3136,
    max_pixels=12_845_056,
    image_max_pixels=12_845_056,
    fps=None,
    min_frames=4,
    max_frames=768,
    do_sample_frames=False,
    cap_pixels_per_frame=False,
    max_video_tokens=128_000,
    tells_times=False,
    start="<|vision_start|>",
    end="<|vision_end|>",
    placeholder="<|video_pad|>",
)
"""Qwen2.5-VL-7B, by its preprocessor_config.json."""
QWEN3 = replace(
    QWEN25,
    patch_size=16,
    min_pixels=4096,
    max_pixels=25_165_824,
    image_max_pixels=16_777_216,
    fps=2.0,
    do_sample_frames=True,
    max_video_tokens=768,
    tells_times=True,
)
"""Qwen3-VL-8B, by its video_preprocessor_config.json."""
NEMOTRON_12B = NemotronModel(
    patch_size=16,
    merge_size=2,
    image_size=512,
    temporal_patch_size=1,
    target_num_patches=None,
    keeps_aspect=False,
    config_pruning_rate=0.7,
    start="<img>",
    end="</img>",
    placeholder="<image>",
)
NEMOTRON_OMNI = replace(NEMOTRON_12B, temporal_patch_size=2, target_num_patches=1024, keeps_aspect=True)

RATES = st.one_of(
    st.sampled_from([24.0, 25.0, 30.0, 60.0, 24000 / 1001, 30000 / 1001, 60000 / 1001, 10.0, 12.5, 1.0, 29.833333]),
    st.floats(0.3, 240.0, allow_subnormal=False),
)
SIDES = st.one_of(st.integers(16, 2200), st.sampled_from([240, 360, 480, 720, 1080, 1280, 1920, 2160, 3840]))
SOURCES = st.builds(ServerSource, num_frames=st.integers(1, 20_000), average_fps=RATES, height=SIDES, width=SIDES)

CLIPS = st.builds(
    ServerSource, num_frames=st.integers(1, 20_000), average_fps=RATES, height=st.just(360), width=st.just(640)
)
"""Sources whose size no rule refuses."""


def cases(count, daily=None):
    """So many drawn cases (see ``tried_on``), the same in every run; no shrinking."""
    return tried_on(
        count,
        daily=daily,
        deadline=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


def qwen_like_tokenizer(specials):
    """A tokenizer that cuts text as Qwen's does where times are told: each digit alone, `` seconds`` one token.

    So that ``<12.5 seconds>`` is 7 ids, as with the real vocabulary, which no test can fetch.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {byte: index for index, byte in enumerate(alphabet)}
    merges = []
    word = "Ġseconds"
    for end in range(2, len(word) + 1):
        merges.append((word[: end - 1], word[end - 1]))
        vocabulary[word[:end]] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    pattern = Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in specials])
    return tokenizer
