"""How wide weights, arithmetic and cache are: bytes a number, from a model's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from llm_trace.diagnosis.shape import Config, ModelConfigError, Shape

_GROUP: Final = 128
"""Weights that share a scale where a configuration does not say how many."""

WIDTHS: Final[Mapping[str, float]] = {
    "float32": 4,
    "float": 4,
    "bfloat16": 2,
    "float16": 2,
    "half": 2,
    "fp8": 1,
    "int8": 1,
}
"""Bytes of a number, by the names of data types; any `fp8_…` counts as `fp8`."""


class Precision(NamedTuple):
    """What the numbers of a model take."""

    dense: float
    """Bytes of a weight of the layers that every token passes, its share of a scale included."""
    expert: float
    """Bytes of an expert's weight."""
    plain: float
    """Bytes of an embedding's weight, which quantisation leaves alone."""
    cache: float
    """Bytes of a cached number."""
    compute: str
    """The width in which matrices are multiplied: a key of `Device.peaks`."""
    name: str

    def weight_bytes(self, shape: Shape) -> float:
        """All weights in memory."""
        other = shape.parameters - shape.common - shape.expert_weights
        matrices = shape.common * self.dense + shape.expert_weights * self.expert
        return matrices + other * self.plain


def precision_of(
    config: Config, *, weights: str | None = None, cache: str | None = None
) -> Precision:
    """The precision that a configuration asks for, or the one given.

    Args:
        config: The parsed `config.json`.
        weights: A data type or quantisation that beats it: `bfloat16`, `fp8`, `int8`, `int4`…
        cache: The cache's data type; None or `auto`: the model's.

    Raises:
        ModelConfigError: A data type or quantisation that is not known.
    """
    inner = config.get("text_config")
    config = {**config, **inner} if isinstance(inner, Mapping) else config
    plain = _plain(config)
    dense, expert, compute, name = _matrices(config, weights, plain)
    wide = plain if cache in {None, "auto"} else width_of(str(cache))
    return Precision(dense, expert, plain, wide, compute, name)


def _plain(config: Config) -> float:
    """What engines load: float32 checkpoints are run in 16 bits."""
    said = config.get("torch_dtype") or config.get("dtype") or "bfloat16"
    return min(2, width_of(str(said)))


def width_of(name: str) -> float:
    """Bytes of a number of the data type `name`.

    Raises:
        ModelConfigError: It is not known.
    """
    short = name.removeprefix("torch.")
    short = "fp8" if short.startswith(("fp8", "float8")) else short
    if short not in WIDTHS:
        known = ", ".join(WIDTHS)
        raise ModelConfigError(f"data type {name[:40]!r} is unknown: use one of {known}.")
    return WIDTHS[short]


_UNQUANTISED: Final = ("bfloat16", "float16", "half", "float32", "float")
"""Weights that may be asked for and are no quantisation."""


def _matrices(config: Config, given: str | None, plain: float) -> tuple[float, float, str, str]:
    """Bytes of dense and of expert weights, the width of arithmetic, and a name for it all."""
    if given in _UNQUANTISED:
        return width_of(given), width_of(given), "bf16", str(given)
    quantised = config.get("quantization_config") or {}
    if given is None and not quantised:
        return plain, plain, "bf16", "16-bit"
    said = quantised if given is None else {"quant_method": given}
    method = str(said.get("quant_method", "")).replace("-", "_")
    if method not in _METHODS:
        names = sorted(_METHODS) if given is None else [*_UNQUANTISED, *sorted(_METHODS)]
        raise ModelConfigError(
            f"quantisation {method[:40]!r} is unknown: use one of {', '.join(names)}."
        )
    width, compute = _METHODS[method](said)
    return (plain if method == "mxfp4" else width), width, compute, method


def _fixed(width: float, compute: str) -> Any:
    return lambda _said: (width, compute)


def _packed(said: Mapping[str, Any]) -> tuple[float, str]:
    """Whole numbers of few bits in groups, each with a 16-bit scale and a zero point."""
    bits = _number(said.get("bits", said.get("w_bit")), 4)
    group = _number(said.get("group_size", said.get("q_group_size")), _GROUP)
    return (bits + (16 + bits) / group) / 8, "bf16"


def _number(value: object, otherwise: int) -> int:
    return (
        value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else otherwise
    )


def _bitsandbytes(said: Mapping[str, Any]) -> tuple[float, str]:
    return (0.5 + 4 / 64, "bf16") if said.get("load_in_4bit") else (1.0, "int8")


def _compressed(said: Mapping[str, Any]) -> tuple[float, str]:
    """The first group of a compressed-tensors configuration stands for all."""
    groups = said.get("config_groups")
    first: Any = next(iter(groups.values()), {}) if isinstance(groups, Mapping) else {}
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        return 1.0, "bf16"
    bits = _number(weights.get("num_bits"), 8)
    inputs = first.get("input_activations")
    group = _number(weights.get("group_size"), 0)
    width = (bits + (16 / group if group else 0)) / 8
    if not isinstance(inputs, Mapping):
        return width, "bf16"
    floating = str(weights.get("type")) == "float"
    if _number(inputs.get("num_bits"), 8) <= 4:  # noqa: PLR2004 - four bits
        return width, "fp4" if floating else "int8"
    return width, "fp8" if floating else "int8"


_METHODS: Final[Mapping[str, Any]] = {
    "fp8": _fixed(1.0, "fp8"),
    "fbgemm_fp8": _fixed(1.0, "fp8"),
    "int8": _fixed(1.0, "int8"),
    "int4": _packed,
    "gptq": _packed,
    "gptq_marlin": _packed,
    "awq": _packed,
    "awq_marlin": _packed,
    "bitsandbytes": _bitsandbytes,
    "compressed_tensors": _compressed,
    "mxfp4": _fixed(4.25 / 8, "bf16"),
    "modelopt_fp4": _fixed(4.5 / 8, "fp4"),
    "nvfp4": _fixed(4.5 / 8, "fp4"),
}
"""Bytes of a weight and the width of arithmetic, by the names of `quantization_config`."""
