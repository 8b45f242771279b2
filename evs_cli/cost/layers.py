"""The parts of a language model's layer, and what each computes and keeps: arithmetic on integers.

A matrix product of a token with a (m, n) matrix is 2 m n FLOPs (a multiplication and an addition each), so a layer's
linear FLOPs a token are twice its parameters in matrices. Norms, biases, rotary angles, softmax, activations and
residual additions are left out everywhere: under 1 % of the above.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Attention:
    """Causal softmax attention with grouped key and value heads (GQA, arXiv 2305.13245)."""

    hidden_size: int
    num_heads: int
    num_key_value_heads: int
    head_dim: int
    window_tokens: int | None = None
    """Keys a token sees, itself among them, in sliding-window attention; None sees all before it."""
    has_output_gate: bool = False
    """Whether the query projection also makes a gate of the queries' width (qwen3_5)."""

    @property
    def matmul_parameters(self) -> int:
        """``hidden * head_dim * (2 heads + 2 kv_heads)``: q and output, k and v; one ``heads`` more with a gate."""
        query_like = 3 if self.has_output_gate else 2
        return self.hidden_size * self.head_dim * (query_like * self.num_heads + 2 * self.num_key_value_heads)

    @property
    def kv_values_per_token(self) -> int:
        """``2 * kv_heads * head_dim``: a key and a value a head."""
        return 2 * self.num_key_value_heads * self.head_dim

    def cached_tokens(self, num_tokens: int) -> int:
        """Tokens whose keys and values stay: all, or the last ``window_tokens``."""
        return num_tokens if self.window_tokens is None else min(num_tokens, self.window_tokens)

    def attended_pairs(self, num_tokens: int) -> int:
        """Query-key pairs of a causal prefill: ``L (L + 1) / 2``; with a window w, ``w (w + 1) / 2 + (L - w) w``."""
        window = self.cached_tokens(num_tokens)
        return window * (window + 1) // 2 + (num_tokens - window) * window

    def attention_flops(self, num_tokens: int) -> int:
        """``4 * heads * head_dim`` a pair: 2 for QK^T, 2 for the weighted sum of V. Only causal pairs are counted."""
        return 4 * self.num_heads * self.head_dim * self.attended_pairs(num_tokens)


@dataclass(frozen=True)
class Mamba2:
    """Mamba-2 (arXiv 2405.21060) as nemotron_h has it: a state of fixed size instead of keys and values."""

    hidden_size: int
    num_heads: int
    head_dim: int
    num_groups: int
    state_size: int
    conv_kernel: int
    state_dtype_bytes: int

    @property
    def _inner_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def conv_channels(self) -> int:
        """``heads * head_dim + 2 * groups * state_size``: x, B and C."""
        return self._inner_size + 2 * self.num_groups * self.state_size

    @property
    def matmul_parameters(self) -> int:
        """``hidden * (inner + conv_channels + heads) + inner * hidden``: in (z, x B C, dt) and out."""
        return self.hidden_size * (2 * self._inner_size + self.conv_channels + self.num_heads)

    @property
    def state_values(self) -> int:
        """``heads * head_dim * state_size``."""
        return self._inner_size * self.state_size

    @property
    def scan_flops_per_token(self) -> int:
        """``5 * state_values + 2 * conv_kernel * conv_channels``, of the recurrence ``h = a h + (dt B) x; y = C h``.

        A state value costs a decay (1), an outer product added (2) and a read (2). The chunked kernels that servers
        run trade this for matrix products of about the chunk's length: more FLOPs, less time; not modelled.
        """
        return 5 * self.state_values + 2 * self.conv_kernel * self.conv_channels


@dataclass(frozen=True)
class GatedDeltaNet:
    """Gated DeltaNet (arXiv 2412.06464) as qwen3_5 has it: a state of fixed size instead of keys and values."""

    hidden_size: int
    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    state_dtype_bytes: int

    @property
    def conv_channels(self) -> int:
        """``2 * key_heads * key_dim + value_heads * value_dim``: queries, keys and values."""
        return 2 * self.num_key_heads * self.key_head_dim + self.num_value_heads * self.value_head_dim

    @property
    def matmul_parameters(self) -> int:
        """``hidden * (conv_channels + 2 * value_width + 2 * value_heads)``: q k v in, z in and out, beta and decay."""
        value_width = self.num_value_heads * self.value_head_dim
        return self.hidden_size * (self.conv_channels + 2 * value_width + 2 * self.num_value_heads)

    @property
    def state_values(self) -> int:
        """``value_heads * key_dim * value_dim``."""
        return self.num_value_heads * self.key_head_dim * self.value_head_dim

    @property
    def scan_flops_per_token(self) -> int:
        """``7 * state_values + 2 * conv_kernel * conv_channels``, of the recurrent form of the gated delta rule.

        A state value costs a decay (1), a read by the key (2), an outer product added (2) and a read by the query (2).
        Chunked kernels differ, as with ``Mamba2``.
        """
        return 7 * self.state_values + 2 * self.conv_kernel * self.conv_channels


@dataclass(frozen=True)
class FeedForward:
    """A feed-forward part: gated (gate, up, down: 3 matrices) or plain (up, down: 2)."""

    hidden_size: int
    intermediate_size: int
    num_projections: int

    @property
    def matmul_parameters(self) -> int:
        """``num_projections * hidden * intermediate``."""
        return self.num_projections * self.hidden_size * self.intermediate_size

    def active_parameters(self, *, is_video: bool) -> int:
        """All of them, for every token."""
        return self.matmul_parameters


@dataclass(frozen=True)
class ExpertMixture:
    """A feed-forward part of many experts of which a router picks a few for each token, beside shared ones."""

    hidden_size: int
    num_experts: int
    num_experts_per_token: int
    expert_size: int
    """Intermediate size of one expert."""
    num_projections: int
    """Matrices of an expert: 3 gated, 2 plain."""
    shared_size: int = 0
    """Intermediate size of all shared experts together; 0 where there are none."""
    has_shared_gate: bool = False
    """Whether one more row of ``hidden`` weighs the shared expert (qwen3_5_moe)."""
    latent_size: int | None = None
    """Width the experts work in, with a projection to it and one back; None is the hidden size."""
    video_expert_size: int | None = None
    """Intermediate size of a second set of as many experts, router too, for video tokens alone (ernie4_5_vl_moe)."""

    def _expert(self, size: int) -> int:
        return self.num_projections * (self.latent_size or self.hidden_size) * size

    @property
    def _every_token(self) -> int:
        """Shared experts and their gate, latent projections, one router."""
        shared = self.num_projections * self.hidden_size * self.shared_size
        gate = self.hidden_size if self.has_shared_gate else 0
        latent = 2 * self.hidden_size * (self.latent_size or 0)
        return shared + gate + latent + self.hidden_size * self.num_experts

    @property
    def matmul_parameters(self) -> int:
        """``experts * projections * width * expert_size`` + shared + router (twice, with experts for video)."""
        total = self._every_token + self.num_experts * self._expert(self.expert_size)
        if self.video_expert_size is not None:
            total += self.num_experts * (self._expert(self.video_expert_size) + self.hidden_size)
        return total

    def active_parameters(self, *, is_video: bool) -> int:
        """``experts_per_token * projections * width * expert_size`` + shared + router: what one token multiplies."""
        size = self.video_expert_size if is_video and self.video_expert_size is not None else self.expert_size
        return self._every_token + self.num_experts_per_token * self._expert(size)


Mixer = Attention | Mamba2 | GatedDeltaNet


@dataclass(frozen=True)
class Layer:
    """One layer: what mixes tokens, then what works on each; nemotron_h has only one of the two in a layer."""

    mixer: Mixer | None
    feed_forward: FeedForward | ExpertMixture | None

    @property
    def matmul_parameters(self) -> int:
        """Parameters in matrices, all experts included."""
        return sum(part.matmul_parameters for part in (self.mixer, self.feed_forward) if part is not None)

    def active_parameters(self, *, is_video: bool) -> int:
        """Parameters in matrices that one token is multiplied with."""
        mixer = 0 if self.mixer is None else self.mixer.matmul_parameters
        return mixer + (0 if self.feed_forward is None else self.feed_forward.active_parameters(is_video=is_video))
