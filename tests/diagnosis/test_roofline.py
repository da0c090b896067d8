"""Floors: the worked examples, and what must hold of any model and device."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.diagnosis import catalogue, devices
from llm_trace.diagnosis.devices import DEVICES, DeviceError
from llm_trace.diagnosis.precision import precision_of
from llm_trace.diagnosis.roofline import Roofline, whole
from llm_trace.diagnosis.shape import ModelConfigError, shape_of

A100 = devices.find("A100 SXM 80GB")
LLAMA = "Llama-3.1-8B"

models = st.sampled_from(sorted(catalogue.table()))
sizes = st.integers(1, 100_000)


def line(name=LLAMA, device=A100, *, weights=None, cache=None, **more):
    """The roofline of a public model."""
    config = catalogue.find(name).config
    precision = precision_of(config, weights=weights, cache=cache)
    return Roofline(shape_of(config), precision, device, **more)


def test_a_sixteen_bit_pass_does_about_an_operation_a_byte_for_each_token():
    """T tokens, two operations a weight, two bytes a weight: T operations a byte."""
    for tokens in (1, 100, 1000):
        assert line().prefill_intensity(tokens) == pytest.approx(tokens, rel=0.001)


def test_the_ridge_of_an_a100():
    """312 TFLOP/s over 2.039 TB/s is about 153 operations a byte."""
    assert A100.ridge() == pytest.approx(153, abs=0.1)


def test_fourteen_gigabytes_are_read_in_seven_milliseconds():
    """14 GB over 2.039 TB/s: about 6.9 ms a token, about 145 tokens a second at batch 1."""
    step = A100.seconds_to_read(14e9)

    assert step * 1e3 == pytest.approx(6.9, abs=0.05)
    assert 1 / step == pytest.approx(145, abs=1)


def test_most_of_a_long_answer_is_decode():
    """45 ms and 199 steps of 7 ms: 1,438 ms, of which 97 % are decode."""
    total = whole(0.045, 0.007, 200)

    assert total == pytest.approx(1.438)
    assert round((total - 0.045) / total, 2) == 0.97


def test_a_decode_step_reads_the_weights_and_every_requests_cache():
    """8 B weights but the embedding's, and 128 KiB a token of cache, over the bandwidth."""
    one = line()
    weights = (8_030_261_248 - 128_256 * 4096) * 2

    assert one.cache_bytes_per_token == 131_072
    assert one.decode_step(16, 2000) == pytest.approx(
        (weights + 16 * 2000 * 131_072) / 2.039e12, rel=1e-9
    )


def test_attentions_part_of_a_prefill_is_quadratic():
    """Twice the tokens, four times the pairs; a cached prefix adds its own."""
    one = line()

    assert one.attention_operations(2000) == pytest.approx(4 * one.attention_operations(1000))
    assert one.attention_operations(1000, 1000) == pytest.approx(
        one.attention_operations(2000) - one.attention_operations(1000)
    )


def test_a_prefill_becomes_compute_bound_at_its_crossover():
    """One token fewer is limited by memory; in 16 bits it lies near the ridge."""
    one = line()
    crossover = one.prefill_crossover()

    assert one.prefill_computing(crossover) >= one.prefill_reading(crossover)
    assert one.prefill_computing(crossover - 1) < one.prefill_reading(crossover - 1)
    assert crossover == pytest.approx(one.ridge, rel=0.1)


def test_attention_and_cache_have_crossovers_of_their_own():
    """The context from which attention costs a token more, and from which its cache does."""
    one = line()
    context = one.attention_crossover()

    pairs = 2 * one.shape.attention.pair_width * one.shape.reach(context)
    assert pairs == pytest.approx(one.operations_per_token)
    cache = one.decode_reading(1, one.cache_crossover()) - one.decode_reading(1, 0)
    assert cache == pytest.approx(one.decode_reading(1, 0))
    assert line("Mistral-7B-v0.1").attention_crossover() is None


def test_a_mixture_reads_the_experts_that_its_batch_touches():
    """A single token reads far less than the weights; a large batch all of them."""
    one = line("Qwen3-30B-A3B")

    assert one.read_bytes(1) < one.weight_bytes / 8
    assert one.read_bytes(4096) == pytest.approx(
        one.weight_bytes - one.shape.embedding * 2, rel=1e-3
    )


def test_tensor_parallel_devices_share_and_pipeline_stages_take_turns():
    """Two devices halve a step; two stages do not, but hold twice the memory."""
    one, two = line(), line(tensor_parallel=2)
    staged = line(pipeline_parallel=2)

    assert two.decode_step(4, 1000) == pytest.approx(one.decode_step(4, 1000) / 2)
    assert staged.decode_step(4, 1000) == one.decode_step(4, 1000)
    assert staged.memory == two.memory == 2 * one.memory


def test_more_devices_than_cache_heads_keep_copies():
    """Eight heads on sixteen devices are kept twice; a latent cache on each."""
    assert line(tensor_parallel=16).cache_bytes_per_token == 2 * line().cache_bytes_per_token
    latent = [line("DeepSeek-V3", tensor_parallel=n).cache_bytes_per_token for n in (1, 8)]
    assert latent[1] == 8 * latent[0]


def test_narrow_weights_and_caches_are_read_faster():
    """fp8 weights halve the matrices, an fp8 cache halves the cache; arithmetic speeds up too."""
    h100 = devices.find("H100 SXM")
    wide, narrow = line(device=h100), line(device=h100, weights="fp8", cache="fp8")

    assert narrow.weight_bytes < 0.6 * wide.weight_bytes
    assert narrow.cache_bytes_per_token == wide.cache_bytes_per_token / 2
    assert narrow.prefill(8000) < 0.7 * wide.prefill(8000)
    assert line(weights="fp8").peak == A100.peak("bf16")  # an A100 has no units for it


@given(name=models, tokens=sizes, cached=sizes, batch=st.integers(1, 1000))
def test_floors_grow_with_work_and_are_above_each_part(name, tokens, cached, batch):
    """More tokens, more context or a larger batch never take less."""
    one = line(name)

    assert 0 < one.prefill(tokens) <= one.prefill(tokens + 1) <= one.prefill(tokens + 1, cached)
    assert 0 < one.decode_step(batch) <= one.decode_step(batch + 1, cached)
    assert one.decode_step(batch, cached) >= one.decode_computing(batch, cached)


@pytest.mark.parametrize("number", [0, -1, 5000])
def test_impossible_numbers_of_devices_are_refused(number):
    """With what can be used."""
    with pytest.raises(ModelConfigError, match="use 1 to"):
        line(tensor_parallel=number)


def test_every_device_has_a_source_and_plausible_figures():
    """Each figure of the table says whose it is."""
    for device in DEVICES:
        assert device.source
        assert 100e12 < device.peak("bf16") < 1e16
        assert 10 < device.ridge() < 1000


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("AMD Instinct MI300X", "MI300X"),
        ("h100-nvl", "H100 NVL"),
    ],
)
def test_a_device_is_found_as_its_driver_names_it(reported, name):
    """Case, hyphens and the maker's name do not matter."""
    assert devices.find(reported).name == name


def test_a_device_may_be_two_figures():
    """TFLOP/s and TB/s of what is not in the table."""
    assert devices.find("312:2.039").ridge() == A100.ridge()


@pytest.mark.parametrize("name", ["", "H1000", "0:1", "nan:1", "1:-1", "inf:1", "1:2:3", "\ud800"])
def test_an_unknown_device_is_refused(name):
    """It says what is known."""
    with pytest.raises(DeviceError):
        devices.find(name)
