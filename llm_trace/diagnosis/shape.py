"""A model's shape, read from its `config.json`: parameters, arithmetic and cache, layer by layer.

The names are those of the Hugging Face configurations. Only what costs is counted: matrices,
embeddings, biases and norms. A model whose layers keep no cache of every token (state space,
linear attention) is refused, since nothing below would be true of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from llm_trace.errors import LlmTraceError

Config = Mapping[str, Any]

MOST: Final = 10**9
"""Above it no dimension of a model is meant."""


class ModelConfigError(LlmTraceError):
    """A configuration that is none, or one of a model that this cannot count."""


class Attention(NamedTuple):
    """One layer's attention."""

    weights: int
    pair_width: int
    """Numbers multiplied for each pair of tokens: all heads, keys and values."""
    cache_width: int
    """Numbers cached for each token."""
    cache_heads: int
    """Over how many devices the cache can be split; 1 for a latent one, which each device keeps."""


class Experts(NamedTuple):
    """The mixture-of-experts layers."""

    layers: int
    number: int
    chosen: int
    """Experts that a token is sent to."""
    weights: int
    """Of one expert."""
    shared: int
    """Of a layer's router and its shared experts, which every token passes."""

    def touched(self, tokens: float) -> float:
        """Experts of a layer that a batch is expected to touch, its tokens being independent."""
        missed: float = (1 - self.chosen / self.number) ** tokens
        return self.number * (1 - missed)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a decoder is made of."""

    kind: str
    layers: int
    hidden: int
    vocabulary: int
    tied: bool
    """The output matrix is the input embedding."""
    attention: Attention
    dense_layers: int
    """Layers with one feed-forward block for every token."""
    feed_forward: int
    """Weights of such a block."""
    experts: Experts | None
    other: int
    """Norms and position embeddings of the whole model."""
    window: int = 0
    """How far back a windowed layer looks, in tokens; 0: none does."""
    windowed_layers: int = 0

    @property
    def embedding(self) -> int:
        """Weights of one embedding matrix."""
        return self.vocabulary * self.hidden

    @property
    def expert_weights(self) -> int:
        """Weights of all experts, those that every token passes left out."""
        moe = self.experts
        return moe.layers * moe.number * moe.weights if moe else 0

    @property
    def common(self) -> int:
        """Weights of the layers' matrices that every token passes."""
        moe = self.experts
        shared = moe.layers * moe.shared if moe else 0
        return self.layers * self.attention.weights + self.dense_layers * self.feed_forward + shared

    @property
    def parameters(self) -> int:
        """All parameters."""
        embeddings = self.embedding * (1 if self.tied else 2)
        return self.common + self.expert_weights + embeddings + self.other

    @property
    def active(self) -> int:
        """Parameters that one token passes, both embeddings included, as model cards count."""
        return self.parameters - self.expert_weights + self.chosen_weights

    @property
    def chosen_weights(self) -> int:
        """Weights of the experts that one token is sent to."""
        moe = self.experts
        return moe.layers * moe.chosen * moe.weights if moe else 0

    @property
    def multiplied(self) -> int:
        """Weights that a token is multiplied with in the layers: embeddings are looked up."""
        return self.common + self.chosen_weights

    def reach(self, context: float) -> float:
        """Tokens that all layers together look back at, `context` tokens in."""
        full = self.layers - self.windowed_layers
        return full * context + self.windowed_layers * min(context, self.window)

    def mean_reach(self, start: float, end: float) -> float:
        """The mean of `reach` from the token `start` to the token `end`."""
        full = self.layers - self.windowed_layers
        return full * (start + end) / 2 + self.windowed_layers * self._mean_window(start, end)

    def _mean_window(self, start: float, end: float) -> float:
        window = self.window
        if end <= window:
            return (start + end) / 2
        if start >= window:
            return window
        growing = (window**2 - start**2) / 2
        return (growing + window * (end - window)) / (end - start)


def shape_of(config: Config) -> Shape:
    """The shape that a parsed `config.json` describes.

    Raises:
        ModelConfigError: It is no configuration of a decoder that can be counted.
    """
    if not isinstance(config, Mapping):
        raise ModelConfigError("this is no model configuration: expected a JSON object.")
    inner = config.get("text_config") or config.get("llm_config")
    text = _Text({**config, **inner} if isinstance(inner, Mapping) else config)
    _refuse(text)
    hidden, layers = text.number("hidden_size"), text.number("num_hidden_layers")
    attention = _latent(text) if text.get("kv_lora_rank") else _grouped(text)
    experts = _experts(text, hidden, layers)
    windowed, window = _windows(text, layers)
    return Shape(
        kind="mixture of experts" if experts else "dense",
        layers=layers,
        hidden=hidden,
        vocabulary=text.number("vocab_size"),
        tied=bool(text.get("tie_word_embeddings", text.family in _TIED)),
        attention=attention,
        dense_layers=layers - (experts.layers if experts else 0),
        feed_forward=_feed_forward(text, hidden, _dense_width(text)),
        experts=experts,
        other=_norms(text, hidden, layers),
        window=window,
        windowed_layers=windowed,
    )


_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "hidden_size": ("n_embd", "d_model"),
    "num_hidden_layers": ("n_layer", "num_layers", "n_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size"),
    "num_experts": ("n_routed_experts", "num_local_experts"),
    "num_experts_per_tok": ("experts_per_token", "moe_topk"),
    "max_position_embeddings": ("n_positions",),
}
_TIED: Final = frozenset({"gemma", "gemma2", "gemma3", "gemma3_text", "gpt2", "opt", "phi4"})
"""Families whose configurations leave the sharing of their embeddings unsaid."""
_QKV_BIAS: Final = frozenset({"qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl"})
_QK_NORM: Final = frozenset({"qwen3", "qwen3_moe", "gemma3", "gemma3_text"})
_FOUR_NORMS: Final = frozenset({"gemma2", "gemma3", "gemma3_text"})
_UNGATED: Final = frozenset(
    {"gpt2", "gpt_neox", "gptj", "opt", "phi", "falcon", "starcoder2", "bloom", "mpt", "nemotron"}
)
"""Families whose feed-forward blocks are two matrices, with biases, rather than three."""
_LEARNED_POSITIONS: Final[Mapping[str, int]] = {"gpt2": 0, "opt": 2}
"""Families with a table of positions, and how many rows more than positions it has."""
_GPT_OSS: Final = "gpt_oss"
_STATEFUL: Final = frozenset(
    {"mamba", "mamba2", "jamba", "bamba", "zamba", "zamba2", "falcon_h1", "qwen3_next", "rwkv"}
)


class _Text:
    """A decoder's configuration, its fields found under any of their names."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.family = str(config.get("model_type", ""))

    def get(self, name: str, default: Any = None) -> Any:
        for key in (name, *_ALIASES.get(name, ())):
            if self._config.get(key) is not None:
                return self._config[key]
        return default

    def number(self, name: str, default: int | None = None) -> int:
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST:
            names = " or ".join((name, *_ALIASES.get(name, ())))
            raise ModelConfigError(
                f"the model configuration cannot be used: {names} is {_shown(value)}, and a whole "
                "number above 0 is needed. Give the config.json of a decoder."
            )
        return value

    def count(self, name: str) -> int:
        """A number that may be absent or 0."""
        return self.number(name) if self.get(name) else 0


def _shown(value: object) -> str:
    return "absent" if value is None else repr(value)[:40]


def _refuse(text: _Text) -> None:
    kinds = text.get("layer_types")
    linear = isinstance(kinds, list) and any("linear" in str(kind) for kind in kinds)
    if text.family in _STATEFUL or linear:
        raise ModelConfigError(
            f"models of type {text.family!r} keep a state in place of a cache of every token: "
            "the roofline knows attention only."
        )


def _grouped(text: _Text) -> Attention:
    """Multi-head and grouped-query attention."""
    hidden, heads = text.number("hidden_size"), text.number("num_attention_heads")
    groups = 1 if text.get("multi_query") else text.number("num_key_value_heads", heads)
    width = text.number("head_dim", max(1, hidden // heads))
    queries, keys = heads * width, groups * width
    weights = 2 * hidden * queries + 2 * hidden * keys
    if text.family in _QKV_BIAS or text.get("attention_bias") or text.family in _UNGATED:
        weights += queries + 2 * keys
    if text.family not in _QKV_BIAS and text.get("attention_bias"):
        weights += hidden
    if text.family in _QK_NORM:
        weights += 2 * width
    if text.family == _GPT_OSS:
        weights += heads  # a sink for each
    return Attention(weights, 2 * queries, 2 * keys, groups)


def _latent(text: _Text) -> Attention:
    """Multi-head latent attention: one compressed row a token, which all heads share."""
    hidden, heads = text.number("hidden_size"), text.number("num_attention_heads")
    rank, rotary = text.number("kv_lora_rank"), text.number("qk_rope_head_dim")
    plain, values = text.number("qk_nope_head_dim"), text.number("v_head_dim")
    query, squeezed = heads * (plain + rotary), text.count("q_lora_rank")
    weights = squeezed * (hidden + 1 + query) if squeezed else hidden * query
    weights += hidden * (rank + rotary) + rank + rank * heads * (plain + values)
    weights += heads * values * hidden
    return Attention(weights, heads * (plain + rotary + values), rank + rotary, 1)


def _dense_width(text: _Text) -> int:
    return text.number(
        "intermediate_size_mlp" if text.get("intermediate_size_mlp") else "intermediate_size",
        4 * text.number("hidden_size"),
    )


def _feed_forward(text: _Text, hidden: int, width: int) -> int:
    if text.family in _UNGATED:
        return 2 * hidden * width + hidden + width
    biases = hidden + 2 * width if text.get("mlp_bias") or text.family == _GPT_OSS else 0
    return 3 * hidden * width + biases


def _experts(text: _Text, hidden: int, layers: int) -> Experts | None:
    number = text.count("num_experts")
    if number <= 1:
        return None
    width = text.number("moe_intermediate_size", text.number("intermediate_size"))
    router = number * hidden + (number if text.family == _GPT_OSS else 0)
    return Experts(
        layers=_expert_layers(text, layers),
        number=number,
        chosen=min(number, text.number("num_experts_per_tok")),
        weights=_feed_forward(text, hidden, width),
        shared=router + _shared(text, hidden, width),
    )


def _shared(text: _Text, hidden: int, width: int) -> int:
    beside = text.count("shared_expert_intermediate_size")
    if beside:
        return _feed_forward(text, hidden, beside) + hidden  # and the gate before it
    always = text.count("n_shared_experts") or int(text.family.startswith("llama4"))
    return _feed_forward(text, hidden, always * width) if always else 0


def _expert_layers(text: _Text, layers: int) -> int:
    plain = text.get("mlp_only_layers")
    only = len(plain) if isinstance(plain, list) else 0
    step = text.number("decoder_sparse_step", text.number("interleave_moe_layer_step", 1))
    return max(1, (layers - min(layers, text.count("first_k_dense_replace") + only)) // step)


def _norms(text: _Text, hidden: int, layers: int) -> int:
    norms = hidden * ((4 if text.family in _FOUR_NORMS else 2) * layers + 1)
    if text.family in _UNGATED:
        norms *= 2  # each with a bias
    if text.family in _LEARNED_POSITIONS:
        rows = text.number("max_position_embeddings") + _LEARNED_POSITIONS[text.family]
        norms += rows * hidden
    return norms


def _windows(text: _Text, layers: int) -> tuple[int, int]:
    """How many layers look back only so far, and how far."""
    if not text.get("sliding_window") or text.get("use_sliding_window") is False:
        return 0, 0
    window = text.number("sliding_window")
    kinds = text.get("layer_types")
    if isinstance(kinds, list):
        return sum("sliding" in str(kind) for kind in kinds[:layers]), window
    every = text.count("sliding_window_pattern") or (2 if text.family == "gemma2" else 0)
    return (layers - layers // every if every else layers), window
