"""What a model can at best do on a device: floors of prefill and decode from two peaks.

A pass over the model reads its weights once and multiplies them with every token in it; it takes at
least as long as the reading and at least as long as the arithmetic. All of it is an estimate from
below: real kernels rarely reach the peaks, devices talk to each other, and engines do other things.
So a measured time is some factor above its floor; a factor under 1 says that the inputs are wrong.

Times are seconds, sizes bytes, operations count a multiplication and its addition as two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from llm_trace.diagnosis.devices import Device
from llm_trace.diagnosis.precision import Precision
from llm_trace.diagnosis.shape import ModelConfigError, Shape

ESTIMATE: Final = (
    "An estimate from below: real kernels rarely reach the peaks of a device. Measured times are "
    "some factor above; a factor under 1 means that the inputs are wrong."
)

MOST_DEVICES: Final = 4096


@dataclass(frozen=True)
class Roofline:
    """A model in a precision on one or more devices of a kind.

    Raises:
        ModelConfigError: A number of devices that cannot be.
    """

    shape: Shape
    precision: Precision
    device: Device
    tensor_parallel: int = 1
    pipeline_parallel: int = 1

    def __post_init__(self) -> None:
        for number in (self.tensor_parallel, self.pipeline_parallel):
            if not 1 <= number <= MOST_DEVICES:
                raise ModelConfigError(f"{number} devices cannot be used: use 1 to {MOST_DEVICES}.")

    # --- sizes --------------------------------------------------------------------------------

    @cached_property
    def weight_bytes(self) -> float:
        """All weights, over all devices."""
        return self.precision.weight_bytes(self.shape)

    @cached_property
    def cache_bytes_per_token(self) -> float:
        """What a token adds to the cache, over all devices, before any window is full.

        Devices of a tensor-parallel group keep copies where there are fewer heads than devices.
        """
        return self._cache_bytes(1)

    def _cache_bytes(self, context: float) -> float:
        return self.shape.reach(context) * self._row_bytes

    @cached_property
    def _row_bytes(self) -> float:
        """One token's row in the cache of one layer."""
        attention = self.shape.attention
        copies = max(1.0, self.tensor_parallel / attention.cache_heads)
        return attention.cache_width * self.precision.cache * copies

    def read_bytes(self, tokens: float) -> float:
        """Weights that a pass of `tokens` reads.

        Experts that nobody chose stay where they are, and of the input embedding only single rows
        are looked up.
        """
        experts = self.shape.experts
        if experts is None:
            return self._common_bytes
        touched = experts.layers * experts.touched(tokens) * experts.weights
        return self._common_bytes + touched * self.precision.expert

    @cached_property
    def _common_bytes(self) -> float:
        """Weights that every pass reads."""
        shape, precision = self.shape, self.precision
        head = (shape.embedding + shape.other) * precision.plain
        return shape.common * precision.dense + head

    @property
    def memory(self) -> float:
        """Bytes of all devices."""
        return self.device.memory * self.tensor_parallel * self.pipeline_parallel

    # --- arithmetic ---------------------------------------------------------------------------

    @cached_property
    def operations_per_token(self) -> float:
        """Of the matrices, for a token in a prefill; its attention comes on top."""
        return 2.0 * self.shape.multiplied

    @cached_property
    def operations_per_output(self) -> float:
        """Of the output matrix, once for each position whose next token is wanted."""
        return 2.0 * self.shape.embedding

    def attention_operations(self, tokens: float, context: float = 0) -> float:
        """Of attention's quadratic part, for `tokens` new ones behind `context` older ones."""
        reach = self.shape.mean_reach(context, context + tokens)
        return 2.0 * self.shape.attention.pair_width * tokens * reach

    # --- floors -------------------------------------------------------------------------------

    @cached_property
    def peak(self) -> float:
        """Operations a second of a tensor-parallel group."""
        return self.device.peak(self.precision.compute) * self.tensor_parallel

    @cached_property
    def _peak_of_attention(self) -> float:
        return self.device.peak("bf16") * self.tensor_parallel

    @cached_property
    def bandwidth(self) -> float:
        """Bytes a second of a tensor-parallel group: the stages of a pipeline read in turn."""
        return self.device.bandwidth * self.tensor_parallel

    @property
    def ridge(self) -> float:
        """Operations a byte from which arithmetic is the limit."""
        return self.peak / self.bandwidth

    def prefill(self, tokens: float, cached: float = 0) -> float:
        """Least seconds to compute `tokens` of a prompt behind `cached` ones, alone.

        The stages of a pipeline can work on different parts of a prompt at once.
        """
        return max(self.prefill_reading(tokens, cached), self.prefill_computing(tokens, cached))

    def prefill_computing(self, tokens: float, cached: float = 0) -> float:
        """The arithmetic's share of `prefill`."""
        matrices = tokens * self.operations_per_token + self.operations_per_output
        work = matrices / self.peak
        # Attention multiplies in 16 bits whatever the weights are kept in.
        work += self.attention_operations(tokens, cached) / self._peak_of_attention
        return work / self.pipeline_parallel

    def prefill_reading(self, tokens: float, cached: float = 0) -> float:
        """The memory's share of `prefill`."""
        size = self.read_bytes(tokens) + self._cache_bytes(cached) + self._cache_bytes(tokens)
        return size / self.bandwidth / self.pipeline_parallel

    def decode_step(self, batch: float = 1, context: float = 0) -> float:
        """Least seconds of a step that gives each of `batch` requests its next token.

        Args:
            batch: Requests in the step.
            context: Tokens in the cache of each.
        """
        return max(self.decode_reading(batch, context), self.decode_computing(batch, context))

    def decode_reading(self, batch: float, context: float) -> float:
        """Weights and every active request's cache, over the bandwidth."""
        return (self.read_bytes(batch) + batch * self._cache_bytes(context)) / self.bandwidth

    def decode_computing(self, batch: float, context: float) -> float:
        """The arithmetic's share of `decode_step`."""
        matrices = self.operations_per_token + self.operations_per_output
        pairs = 2.0 * self.shape.attention.pair_width * self.shape.reach(context)
        return batch * (matrices / self.peak + pairs / self._peak_of_attention)

    # --- intensities and crossovers -----------------------------------------------------------

    def prefill_intensity(self, tokens: float) -> float:
        """Operations a byte of a pass of `tokens`, attention left out: in 16 bits `tokens`."""
        work = tokens * (self.operations_per_token + self.operations_per_output)
        return work / self.read_bytes(tokens)

    def decode_intensity(self, batch: float, context: float = 0) -> float:
        """Operations a byte of a decode step."""
        pairs = 2.0 * self.shape.attention.pair_width * self.shape.reach(context)
        work = batch * (self.operations_per_token + self.operations_per_output + pairs)
        return work / (self.read_bytes(batch) + batch * self._cache_bytes(context))

    def prefill_crossover(self) -> int:
        """Prompt tokens from which arithmetic, not memory, is a prefill's limit."""
        low, high = 1, 1 << 24
        while low < high:
            middle = (low + high) // 2
            if self.prefill_computing(middle) >= self.prefill_reading(middle):
                high = middle
            else:
                low = middle + 1
        return low

    def attention_crossover(self) -> float | None:
        """Context from which attention costs a token more than the matrices; None: never."""
        each = 2.0 * self.shape.attention.pair_width
        full = self.shape.layers - self.shape.windowed_layers
        windowed = each * self.shape.windowed_layers * self.shape.window
        return (self.operations_per_token - windowed) / (each * full) if full else None

    def cache_crossover(self) -> float:
        """Tokens in the cache, over all requests, whose reading costs as much as the weights."""
        return self.read_bytes(1) / self.cache_bytes_per_token


def whole(first: float, step: float, tokens: int) -> float:
    """Seconds of a whole answer: its first token, and a step for each of the others."""
    return first + max(0, tokens - 1) * step
