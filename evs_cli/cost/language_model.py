"""The language model behind a family, as far as its costs go, read from ``config.json`` alone.

In: the mapping as it stands, nested (``text_config``, ``llm_config``) or flat. Out: a ``LanguageModel``, a tuple of
layers with their sizes. It knows no weights, no video and no rate, and imports neither torch nor transformers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evs_cli.cost.config_defaults import NO_LANGUAGE_MODEL, TEXT, TEXT_TYPES
from evs_cli.cost.fields import Fields, dtype_bytes, dtype_name, names_of
from evs_cli.cost.layers import Attention, ExpertMixture, FeedForward, GatedDeltaNet, Layer, Mamba2, Mixer
from evs_cli.errors import ModelError

PATTERN = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
"""Letters of nemotron_h's ``hybrid_override_pattern``."""
_OLD_LAYER_TYPES = {"mamba": "linear_attention", "attention": "full_attention"}
_ATTENTION = ("full_attention", "sliding_attention")
_OUTPUT_GATE = frozenset({"qwen3_5_text", "qwen3_5_moe_text"})


@dataclass(frozen=True)
class LanguageModel:
    """Sizes of a language model: all that its cache and its prefill cost depend on."""

    model_type: str
    """``model_type`` of its own configuration (``qwen3_vl_text``)."""
    hidden_size: int
    """Width of a token, and so of an embedding that goes in."""
    vocab_size: int
    context_limit_tokens: int
    """``max_position_embeddings`` as it stands; a ``rope_scaling`` a server may stretch it by is not applied."""
    dtype: str
    """Of weights and activations, a key of ``DTYPE_BYTES``; bfloat16 where the configuration names none."""
    layers: tuple[Layer, ...]
    assumed_fields: tuple[str, ...]
    """Fields the configuration leaves out, taken from transformers' configuration class."""

    @property
    def attention_layers(self) -> tuple[Attention, ...]:
        """The layers that keep keys and values, windowed ones among them."""
        return tuple(layer.mixer for layer in self.layers if isinstance(layer.mixer, Attention))

    @property
    def recurrent_layers(self) -> tuple[Mamba2 | GatedDeltaNet, ...]:
        """The layers that keep a state of fixed size instead."""
        return tuple(layer.mixer for layer in self.layers if isinstance(layer.mixer, (Mamba2, GatedDeltaNet)))

    @property
    def layer_matmul_parameters(self) -> int:
        """Parameters in matrices of all layers, every expert included; embedding and output head apart."""
        return sum(layer.matmul_parameters for layer in self.layers)

    def active_layer_parameters(self, *, is_video: bool = False) -> int:
        """Parameters in matrices of all layers that one token is multiplied with.

        Args:
            is_video: of a video token; it differs from text's where a family has experts for each.
        """
        return sum(layer.active_parameters(is_video=is_video) for layer in self.layers)

    @property
    def head_parameters(self) -> int:
        """``vocab_size * hidden_size`` of the output head, whether or not it shares the embedding's weights."""
        return self.vocab_size * self.hidden_size

    def layer_counts(self) -> dict[str, int]:
        """How many layers mix tokens in which way: ``attention``, ``sliding``, ``recurrent``, ``none``."""
        return dict(Counter(_mixer_name(layer.mixer) for layer in self.layers))


def _mixer_name(mixer: Mixer | None) -> str:
    if mixer is None:
        return "none"
    if not isinstance(mixer, Attention):
        return "recurrent"
    return "attention" if mixer.window_tokens is None else "sliding"


def read_language_model(config: Mapping[str, Any]) -> LanguageModel | None:
    """The language model of a ``config.json``; None for a plain encoder, which has none.

    Raises:
        ModelError: a language model evs does not know, or sizes that are missing or make no sense.
    """
    found = _text_part(config)
    if found is None:
        return None
    text_type, part = found
    fields = Fields(text_type, part, TEXT[text_type])
    kinds = _layer_kinds(fields)
    return LanguageModel(
        model_type=text_type,
        hidden_size=fields.number("hidden_size"),
        vocab_size=fields.number("vocab_size"),
        context_limit_tokens=fields.number("max_position_embeddings"),
        dtype=_dtype(part, config),
        layers=tuple(_layer(fields, i, kind) for i, kind in enumerate(kinds)),
        assumed_fields=_assumed(fields),
    )


def _text_part(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """The language model's ``model_type`` and its part of the configuration."""
    family = str(config.get("model_type") or "")
    if family in NO_LANGUAGE_MODEL:
        return None
    nested = [config[key] for key in ("text_config", "llm_config") if isinstance(config.get(key), Mapping)]
    part = nested[0] if nested else config
    named = str(part.get("model_type") or family)
    text_type = TEXT_TYPES.get(named, named)  # early Qwen configurations name the family inside, too
    if text_type not in TEXT:
        raise ModelError(
            f"cannot tell the cost of {family or 'this model'}: evs does not know the language model "
            f"{text_type or '(no model_type)'!r}. Known: {', '.join(TEXT)}."
        )
    return text_type, part


def _dtype(part: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    for mapping in (part, config):
        for key in names_of("dtype"):
            if isinstance(mapping.get(key), str) and mapping[key] != "auto":
                return dtype_name(mapping[key])
    return "bfloat16"


def _assumed(fields: Fields) -> tuple[str, ...]:
    """What the class filled in and a figure depends on; a null default is derived, not assumed."""
    settled = {"layer_types", "num_hidden_layers"} if "hybrid_override_pattern" in fields.values else set()
    if fields.model_type == "nemotron_h":
        settled.add("num_hidden_layers")  # its list of layers says how many
    return tuple(name for name in fields.assumed if fields.defaults[name] is not None and name not in settled)


def _layer_kinds(fields: Fields) -> list[str]:
    """The kind of every layer: a name of transformers' ``layer_types``, or ``mlp`` and ``moe`` of nemotron_h."""
    kinds = _listed_kinds(fields)
    if fields.model_type == "nemotron_h":
        known: tuple[str, ...] = ("full_attention", "linear_attention", "mlp", "moe")
    else:
        known = (*_ATTENTION, *(["linear_attention"] if "linear_key_head_dim" in fields.defaults else []))
        count = fields.number("num_hidden_layers", at_least=0)
        kinds = _derived_kinds(fields, count) if kinds is None else kinds
        if len(kinds) != count:
            raise ModelError(
                f"cannot tell the cost of {fields.model_type}: its config.json lists {len(kinds)} layer_types for "
                f"{count} layers."
            )
    for kind in kinds or []:
        if kind not in known:
            raise ModelError(
                f"cannot tell the cost of {fields.model_type}: evs does not know its layers of type {kind!r}. "
                f"Known: {', '.join(known)}."
            )
    return kinds or []


def _listed_kinds(fields: Fields) -> list[str] | None:
    """The layers as the configuration lists them, old names made new; None where it lists none."""
    pattern = fields.values.get("hybrid_override_pattern")
    if "layer_types" not in fields.defaults or (isinstance(pattern, str) and not _has_list(fields)):
        return [PATTERN.get(letter, letter) for letter in pattern] if isinstance(pattern, str) else None
    listed = fields.get("layer_types")
    if listed is None:
        return None
    if not isinstance(listed, (list, tuple)):
        raise ModelError(
            f"cannot tell the cost of {fields.model_type}: layer_types of its config.json is {listed!r}. "
            "Expected a list of names."
        )
    return [_OLD_LAYER_TYPES.get(str(kind), str(kind)) for kind in listed]


def _has_list(fields: Fields) -> bool:
    return any(fields.values.get(key) is not None for key in names_of("layer_types"))


def _derived_kinds(fields: Fields, count: int) -> list[str]:
    """The layers of a configuration without a list, by the rules of transformers' classes."""
    if "full_attention_interval" in fields.defaults:
        interval = fields.number("full_attention_interval")
        return ["linear_attention" if (i + 1) % interval else "full_attention" for i in range(count)]
    first = fields.number("max_window_layers", at_least=0) if "max_window_layers" in fields.defaults else 0
    windowed = "sliding_window" in fields.defaults and _window(fields) is not None
    return ["sliding_attention" if windowed and i >= first else "full_attention" for i in range(count)]


def _window(fields: Fields) -> int | None:
    if "use_sliding_window" in fields.defaults and not fields.get("use_sliding_window"):
        return None
    return fields.optional("sliding_window")


def _layer(fields: Fields, index: int, kind: str) -> Layer:
    if kind == "mlp":
        return Layer(None, _plain(fields, num_projections=2))
    if kind == "moe":
        return Layer(None, _experts(fields, num_projections=2))
    mixer = _recurrence(fields) if kind == "linear_attention" else _attention(fields, kind)
    if fields.model_type == "nemotron_h":
        return Layer(mixer, None)
    sparse = "num_experts" in fields.defaults and _is_sparse(fields, index)
    return Layer(mixer, _experts(fields, num_projections=3) if sparse else _plain(fields, num_projections=3))


def _attention(fields: Fields, kind: str) -> Attention:
    hidden, heads = fields.number("hidden_size"), fields.number("num_attention_heads")
    # Most classes without the field still read head_dim where a configuration has it.
    head_dim = fields.optional("head_dim") if "head_dim" in {*fields.defaults, *fields.values} else None
    return Attention(
        hidden_size=hidden,
        num_heads=heads,
        num_key_value_heads=fields.optional("num_key_value_heads") or heads,
        head_dim=head_dim or hidden // heads,
        window_tokens=fields.number("sliding_window") if kind == "sliding_attention" else None,
        has_output_gate=fields.model_type in _OUTPUT_GATE,
    )


def _recurrence(fields: Fields) -> Mamba2 | GatedDeltaNet:
    hidden = fields.number("hidden_size")
    if fields.model_type == "nemotron_h":
        return Mamba2(
            hidden_size=hidden,
            num_heads=fields.number("mamba_num_heads"),
            head_dim=fields.number("mamba_head_dim"),
            num_groups=fields.number("n_groups"),
            state_size=fields.number("ssm_state_size"),
            conv_kernel=fields.number("conv_kernel"),
            state_dtype_bytes=dtype_bytes(str(fields.get("mamba_ssm_cache_dtype"))),
        )
    return GatedDeltaNet(
        hidden_size=hidden,
        num_key_heads=fields.number("linear_num_key_heads"),
        num_value_heads=fields.number("linear_num_value_heads"),
        key_head_dim=fields.number("linear_key_head_dim"),
        value_head_dim=fields.number("linear_value_head_dim"),
        conv_kernel=fields.number("linear_conv_kernel_dim"),
        state_dtype_bytes=dtype_bytes(str(fields.get("mamba_ssm_dtype"))),
    )


def _is_sparse(fields: Fields, index: int) -> bool:
    """Whether a layer of a mixture-of-experts model has experts, by the rule of its class."""
    if "mlp_layer_types" in fields.defaults:
        listed = fields.get("mlp_layer_types")
        return bool(listed[index] == "sparse") if listed else index > 0
    if "first_k_dense_replace" in fields.defaults:
        return index >= fields.number("first_k_dense_replace", at_least=0)
    if "decoder_sparse_step" in fields.defaults:
        due = (index + 1) % fields.number("decoder_sparse_step") == 0
        return due and index not in fields.numbers("mlp_only_layers")
    return True


def _plain(fields: Fields, *, num_projections: int) -> FeedForward:
    return FeedForward(fields.number("hidden_size"), fields.number("intermediate_size"), num_projections)


def _experts(fields: Fields, *, num_projections: int) -> ExpertMixture:
    video_size = None
    if "moe_num_shared_experts" in fields.defaults:  # ernie4_5_vl_moe: sizes of text's and of video's experts
        sizes = fields.numbers("moe_intermediate_size")
        if len(sizes) != 2:
            raise ModelError(
                f"cannot tell the cost of {fields.model_type}: moe_intermediate_size of its config.json is "
                f"{list(sizes)}. Expected two sizes, of text's experts and of video's."
            )
        size, video_size = sizes
        shared = size * fields.number("moe_num_shared_experts", at_least=0)
    else:
        size = fields.number("moe_intermediate_size")
        shared = _shared_size(fields, size)
    return ExpertMixture(
        hidden_size=fields.number("hidden_size"),
        num_experts=fields.number("num_experts"),
        num_experts_per_token=fields.number("num_experts_per_tok"),
        expert_size=size,
        num_projections=num_projections,
        shared_size=shared,
        has_shared_gate="shared_expert_intermediate_size" in fields.defaults,
        latent_size=fields.optional("moe_latent_size") if "moe_latent_size" in fields.defaults else None,
        video_expert_size=video_size,
    )


def _shared_size(fields: Fields, expert_size: int) -> int:
    if "n_shared_experts" in fields.defaults:
        return expert_size * fields.number("n_shared_experts", at_least=0)
    for name in ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"):
        if name in fields.defaults:
            return fields.number(name, at_least=0)
    return 0
