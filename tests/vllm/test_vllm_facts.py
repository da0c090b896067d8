"""What is read off vLLM's objects, in each version's form; nothing where it is not there."""

from types import SimpleNamespace

import pytest

from llm_trace_vllm import facts


def asked(**transfer):
    """A request with parameters of a KV transfer."""
    extra = {"kv_transfer_params": transfer} if transfer else None
    return SimpleNamespace(sampling_params=SimpleNamespace(extra_args=extra))


@pytest.mark.parametrize(
    ("request_", "leg"),
    [
        (asked(do_remote_decode=True, do_remote_prefill=False), "prefill"),
        (asked(do_remote_prefill=True, remote_engine_id="p-1"), "decode"),
        (asked(anything=1), None),
        (asked(), None),
        (SimpleNamespace(sampling_params=None), None),
        (SimpleNamespace(), None),
    ],
)
def test_leg_of_a_disaggregated_request(request_, leg):
    """One engine computes the prompt, another the answer; pooling has no such parameters."""
    assert facts.leg_of(request_) == leg


@pytest.mark.parametrize(
    ("request_", "tokens"),
    [
        (SimpleNamespace(prompt_token_ids=[1, 2]), 2),
        (SimpleNamespace(prompt_token_ids=None, prompt_embeds=[[0.1], [0.2], [0.3]]), 3),
        (SimpleNamespace(), None),
    ],
)
def test_length_of_a_prompt(request_, tokens):
    """As ids, as embeddings, or unknown."""
    assert facts.prompt_tokens(request_) == tokens


@pytest.mark.parametrize(
    ("output", "cached", "external"),
    [
        (SimpleNamespace(prefill_stats=None, num_cached_tokens=5), 5, None),
        (
            SimpleNamespace(
                prefill_stats=SimpleNamespace(num_cached_tokens=9, num_external_cached_tokens=4)
            ),
            9,
            4,
        ),
        (SimpleNamespace(), None, None),
    ],
)
def test_cached_tokens_of_each_version(output, cached, external):
    """On the output itself before 0.24, in its prefill statistics since."""
    assert (facts.cached_tokens(output), facts.external_tokens(output)) == (cached, external)


def engine(policy="fcfs", **client):
    """An engine client with this scheduling policy."""
    config = SimpleNamespace(scheduler_config=SimpleNamespace(policy=policy))
    return SimpleNamespace(vllm_config=config, engine_core=SimpleNamespace(**client))


@pytest.mark.parametrize(
    ("engine_", "in_order", "shared"),
    [
        (engine(client_count=1), True, False),
        (engine("priority"), False, False),
        (engine(client_count=2), True, True),
        (SimpleNamespace(), False, False),
    ],
)
def test_what_a_client_may_infer(engine_, in_order, shared):
    """The order of requests is theirs in the queue only where we alone hand them off, by FCFS."""
    assert (facts.is_in_order(engine_), facts.is_shared(engine_)) == (in_order, shared)


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (SimpleNamespace(model_config=SimpleNamespace(served_model_name=["a", "b"])), ["a", "b"]),
        (SimpleNamespace(model_config=SimpleNamespace(served_model_name="a")), ["a"]),
        (SimpleNamespace(model_config=SimpleNamespace()), []),
        (None, []),
    ],
)
def test_the_names_that_a_server_answers_by(config, names):
    """One name, several, or none."""
    assert facts.served_names(config) == names


def test_what_the_engine_is_asked_for():
    """Pooling makes no tokens; all else does."""
    pooled = SimpleNamespace(sampling_params=None, pooling_params=object())
    sampled = SimpleNamespace(sampling_params=object(), pooling_params=None)

    assert facts.operation_of(pooled) == "embeddings"
    assert facts.operation_of(sampled) == facts.operation_of(object()) == "text_completion"


def test_the_adapter_is_named_and_the_base_model_is_not():
    """The HTTP request names the model."""
    adapted = SimpleNamespace(lora_request=SimpleNamespace(lora_name="sql"))

    assert facts.lora_of(adapted) == "sql"
    assert facts.lora_of(SimpleNamespace(lora_request=None)) == facts.lora_of(object()) == ""
