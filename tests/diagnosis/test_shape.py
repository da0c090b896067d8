"""Parameters, cache and arithmetic of models, from their configurations."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.diagnosis import catalogue
from llm_trace.diagnosis.precision import precision_of, width_of
from llm_trace.diagnosis.shape import ModelConfigError, shape_of

SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize("name", catalogue.table())
def test_parameters_are_the_published_ones(name):
    """Within 1 % of what the model's own repository says; the table names its source."""
    model = catalogue.find(name)

    assert shape_of(model.config).parameters == pytest.approx(model.parameters, rel=0.01)
    assert model.source.startswith("https://")


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Mixtral-8x7B-v0.1", 12.9),
        ("Qwen3-30B-A3B", 3.3),
        ("Qwen3-235B-A22B", 22),
        ("DeepSeek-V3", 37),
    ],
)
def test_a_token_passes_the_published_part_of_a_mixture(name, billions):
    """The active parameters are those of the model's card, within 2 %."""
    assert shape_of(catalogue.find(name).config).active / 1e9 == pytest.approx(billions, rel=0.02)


def test_a_small_model_is_counted_by_hand():
    """Embeddings, attention, feed-forward and norms, each written out."""
    shape = shape_of(SMALL)

    attention = 64 * 64 + 2 * 64 * 32 + 64 * 64
    assert shape.parameters == 2 * 100 * 64 + 2 * (attention + 3 * 64 * 128 + 2 * 64) + 64
    assert shape.attention == (attention, 2 * 64, 2 * 32, 2)


def test_a_latent_cache_is_one_row_for_all_heads():
    """MLA caches its rank and its rotary part, whatever the number of heads."""
    attention = shape_of(catalogue.find("DeepSeek-V3").config).attention

    assert (attention.cache_width, attention.cache_heads) == (512 + 64, 1)


def test_experts_touched_by_a_batch_grow_towards_all():
    """One token touches those it chose; a large batch touches nearly every one."""
    experts = shape_of(catalogue.find("Mixtral-8x7B-v0.1").config).experts

    assert experts.touched(1) == pytest.approx(2)
    assert experts.touched(4) == pytest.approx(8 * (1 - 0.75**4))
    assert experts.touched(1000) == pytest.approx(8)


def test_windowed_layers_look_back_no_further_than_their_window():
    """gpt-oss has a window of 128 in every other of 24 layers."""
    shape = shape_of(catalogue.find("gpt-oss-20b").config)

    assert shape.reach(100) == 24 * 100
    assert shape.reach(1000) == 12 * 1000 + 12 * 128
    assert shape.mean_reach(0, 256) == 12 * 128 + 12 * (64 * 0.5 + 128 * 0.5)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ([], "expected a JSON object"),
        ({}, "hidden_size"),
        ({**SMALL, "hidden_size": "64"}, "'64'"),
        ({**SMALL, "num_hidden_layers": True}, "num_hidden_layers"),
        ({**SMALL, "vocab_size": -1}, "vocab_size"),
        ({**SMALL, "model_type": "mamba"}, "keep a state"),
        ({**SMALL, "layer_types": ["linear_attention"]}, "keep a state"),
    ],
)
def test_what_cannot_be_counted_is_refused_with_the_reason(config, says):
    """The message names the field and its value, or the kind of model."""
    with pytest.raises(ModelConfigError, match=says):
        shape_of(config)


@given(
    st.dictionaries(
        st.sampled_from([*SMALL, "num_experts", "kv_lora_rank", "sliding_window", "text_config"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.none()),
    )
)
def test_any_configuration_is_counted_or_refused(fields):
    """No value of a field makes anything but a shape or our error."""
    try:
        assert shape_of({**SMALL, **fields}).parameters > 0
    except ModelConfigError as refusal:
        assert str(refusal)  # noqa: PT017 - either is right


@pytest.mark.parametrize(
    ("quantised", "width", "compute"),
    [
        (None, 2, "bf16"),
        ({"quant_method": "fp8"}, 1, "fp8"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 0.51953125, "bf16"),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32}, 1.09375, "bf16"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5625, "bf16"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 8, "type": "int"},
                        "input_activations": {"num_bits": 8, "type": "int"},
                    }
                },
            },
            1,
            "int8",
        ),
    ],
)
def test_quantisation_sets_the_width_of_weights_and_of_arithmetic(quantised, width, compute):
    """Scales and zero points are part of a weight's width."""
    precision = precision_of({**SMALL, "quantization_config": quantised})

    assert (precision.dense, precision.compute) == (width, compute)


def test_a_given_precision_beats_the_configured_one():
    """Weights and cache can be asked for apart; embeddings stay as wide as they are."""
    precision = precision_of(SMALL, weights="fp8", cache="fp8_e4m3")

    assert (precision.dense, precision.plain, precision.cache) == (1, 2, 1)


def test_an_unknown_precision_is_refused():
    """With what is known."""
    with pytest.raises(ModelConfigError, match=r"'int3' is unknown: use one of"):
        precision_of(SMALL, weights="int3")
    with pytest.raises(ModelConfigError, match="float32, "):
        width_of("torch.complex64")


def test_a_model_is_found_by_directory_file_and_name(tmp_path):
    """A directory's config.json, that file itself, a public name, or its last part."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(SMALL))

    assert catalogue.find(str(tmp_path)).config == catalogue.find(str(file)).config == SMALL
    assert catalogue.find("qwen/qwen3-8b") == catalogue.find("Qwen3-8B")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "expected a JSON object"),
        ("\xff", "is no JSON"),
    ],
)
def test_a_broken_file_is_refused(tmp_path, text, says):
    """With its path and what is wrong."""
    file = tmp_path / "config.json"
    file.write_bytes(text.encode("latin-1"))

    with pytest.raises(ModelConfigError, match=says):
        catalogue.find(str(file))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Llama-3.1-9B", "did you mean meta-llama/Llama-3.1"),
        ("\0", "null byte|neither"),
        ("x" * 5000, "neither|too long"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name, says):
    """Whatever the name is."""
    with pytest.raises(ModelConfigError, match=says):
        catalogue.find(name)


def test_an_empty_directory_is_refused(tmp_path):
    """It names the file that is missing."""
    with pytest.raises(ModelConfigError, match="holds no config"):
        catalogue.find(str(tmp_path))
