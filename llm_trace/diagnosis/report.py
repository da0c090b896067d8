"""A roofline as plain data, and as text within 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from llm_trace.diagnosis import plot
from llm_trace.diagnosis.roofline import ESTIMATE, Roofline

SCHEMA: Final = "llm-trace.roofline/1"
PROMPTS: Final = (128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 131072)
BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Question(NamedTuple):
    """What is asked of a roofline beside the model and the device."""

    model: str
    source: str
    prompts: Sequence[int] = PROMPTS
    batches: Sequence[int] = BATCHES
    context: int = 1024
    """Tokens in the cache of each request of a decode step."""


def document(line: Roofline, asked: Question) -> dict[str, Any]:
    """Everything, in seconds, bytes and operations."""
    shape, device = line.shape, line.device
    return {
        "schema": SCHEMA,
        "estimate": ESTIMATE,
        "model": {
            "name": asked.model,
            "source": asked.source,
            "kind": shape.kind,
            "layers": shape.layers,
            "parameters": shape.parameters,
            "active_parameters": shape.active,
            "precision": line.precision.name,
            "weight_bytes": line.weight_bytes,
            "cache_bytes_per_token": line.cache_bytes_per_token,
            "operations_per_token": line.operations_per_token,
        },
        "device": {
            "name": device.name,
            "source": device.source,
            "peak": device.peak(line.precision.compute),
            "width": line.precision.compute if line.precision.compute in device.peaks else "bf16",
            "bandwidth": device.bandwidth,
            "memory": device.memory or None,
            "tensor_parallel": line.tensor_parallel,
            "pipeline_parallel": line.pipeline_parallel,
        },
        "ridge": line.ridge,
        "prefill_crossover": line.prefill_crossover(),
        "attention_crossover": line.attention_crossover(),
        "cache_crossover": line.cache_crossover(),
        "fits": fits(line),
        "prefill": [_prefill(line, tokens) for tokens in asked.prompts],
        "decode": [_decode(line, batch, asked.context) for batch in asked.batches],
    }


def fits(line: Roofline) -> bool | None:
    """Whether the weights fit into the devices; None where nobody said what they hold."""
    return line.weight_bytes < line.memory if line.memory else None


def _prefill(line: Roofline, tokens: int) -> dict[str, Any]:
    computing, reading = line.prefill_computing(tokens), line.prefill_reading(tokens)
    floor = max(computing, reading)
    pairs = line.attention_operations(tokens)
    return {
        "tokens": tokens,
        "floor": floor,
        "intensity": line.prefill_intensity(tokens),
        "limit": "compute" if computing >= reading else "memory",
        "tokens_per_second": tokens / floor,
        "attention_share": pairs / (pairs + tokens * line.operations_per_token),
    }


def _decode(line: Roofline, batch: int, context: int) -> dict[str, Any]:
    computing, reading = line.decode_computing(batch, context), line.decode_reading(batch, context)
    step = max(computing, reading)
    return {
        "batch": batch,
        "context": context,
        "step": step,
        "intensity": line.decode_intensity(batch, context),
        "limit": "compute" if computing >= reading else "memory",
        "tokens_per_second": batch / step,
        "cache_share": 1 - line.decode_reading(batch, 0) / reading,
    }


def render(found: dict[str, Any]) -> Iterator[str]:
    """The lines of a report."""
    yield from _head(found)
    yield ""
    yield "prefill, one prompt alone"
    yield "  tokens   at least ms     tokens/s   op/byte  limit    attention"
    for row in found["prefill"]:
        yield (
            f"{row['tokens']:>8}{row['floor'] * 1e3:>14.2f}{row['tokens_per_second']:>13,.0f}"
            f"{row['intensity']:>10,.0f}  {row['limit']:<8}{row['attention_share']:>9.0%}"
        )
    yield ""
    yield f"decode, {found['decode'][0]['context']} tokens in the cache of each request"
    yield "   batch   at least ms     tokens/s   op/byte  limit    cache's share"
    for row in found["decode"]:
        yield (
            f"{row['batch']:>8}{row['step'] * 1e3:>14.2f}{row['tokens_per_second']:>13,.0f}"
            f"{row['intensity']:>10,.1f}  {row['limit']:<8}{row['cache_share']:>9.0%}"
        )
    yield ""
    yield from plot.terminal(found)
    yield ""
    yield "An estimate from below: real kernels rarely reach a device's peaks. What you"
    yield "measure is some factor above; a factor under 1 says that the inputs are wrong."


def _head(found: dict[str, Any]) -> Iterator[str]:
    model, device = found["model"], found["device"]
    yield f"{model['name']} on {_count(device)}{device['name']}: estimated floors"
    yield (
        f"  {model['kind']}, {model['precision']}: {model['parameters'] / 1e9:,.2f} B parameters, "
        f"{model['active_parameters'] / 1e9:,.2f} B a token"
    )
    yield (
        f"  weights {model['weight_bytes'] / 1e9:,.1f} GB, cache "
        f"{model['cache_bytes_per_token'] / 1024:,.1f} KiB a token, "
        f"{model['operations_per_token'] / 1e9:,.1f} GFLOP a token"
    )
    if found["fits"] is False:
        yield "  THE WEIGHTS DO NOT FIT into the memory of these devices."
    yield (
        f"  peak {_tera(device['peak'])} TFLOP/s ({device['width']}), memory "
        f"{_tera(device['bandwidth'])} TB/s each: ridge {found['ridge']:,.0f} op/byte"
    )
    yield f"  figures: {device['source']}"[:80]
    yield f"  prefill is limited by arithmetic from {found['prefill_crossover']:,} prompt tokens"
    if found["attention_crossover"] is not None:
        yield f"  attention costs more than the matrices from {_tokens(found, 'attention')}"
    yield f"  the cache is read as long as the weights at {_tokens(found, 'cache')}"


def _tera(number: float) -> str:
    return f"{number / 1e12:.4g}"


def _tokens(found: dict[str, Any], what: str) -> str:
    return f"{found[f'{what}_crossover']:,.0f} tokens of context"


def _count(device: dict[str, Any]) -> str:
    tensor, stages = device["tensor_parallel"], device["pipeline_parallel"]
    if tensor == stages == 1:
        return ""
    return f"{tensor} x " if stages == 1 else f"{tensor} x {stages} x "
