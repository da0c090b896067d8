"""Every kind of failure that is known from the field has tests by its name, and they are there."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

ASGI = "field_reports/test_asgi_reports.py"
SDK = "field_reports/test_sdk_reports.py"
ENGINE = "field_reports/test_engine_reports.py"
SSE = "asgi/sse/test_sse.py"
EXCHANGE = "asgi/test_exchange.py"

REPORTS = {
    4: (
        "one child span for each chunk of a stream",
        (ASGI, "test_04_the_number_of_spans_does_not_depend_on_messages"),
        ("end_to_end/test_vllm.py", "test_span_count_does_not_depend_on_chunks"),
    ),
    5: (
        "the server span ends when the handler returns, not when the stream ends",
        (ASGI, "test_05_span_and_metric_end_when_the_stream_ends"),
    ),
    6: (
        "background tasks inflate the latency of a request",
        (ASGI, "test_06_background_tasks_are_not_the_requests"),
        ("end_to_end/test_uvicorn_requests.py", "test_background_work_is_not_the_requests_time"),
    ),
    7: (
        "a failure after the first bytes is recorded as status 200",
        (ASGI, "test_07_a_failure_after_the_first_bytes_is_an_error"),
        ("end_to_end/test_uvicorn_requests.py", "test_endpoint_dies_mid_stream"),
    ),
    8: (
        "the middleware reads the body and the endpoint hangs",
        (ASGI, "test_08_the_body_is_only_watched_as_the_app_reads_it"),
        (ASGI, "test_08_a_body_too_large_to_copy_costs_only_the_model"),
        ("asgi/test_transparency.py", "test_app_and_server_cannot_tell_that_we_are_there"),
    ),
    9: (
        "a second listener on receive() steals the disconnect",
        (ASGI, "test_09_receive_is_called_as_often_as_by_the_app"),
        ("end_to_end/test_same_bytes.py", "test_an_answer_is_the_same_byte_for_byte"),
        (
            "end_to_end/test_same_bytes.py",
            "test_a_client_that_leaves_while_the_app_waits_is_seen_at_the_same_moment",
        ),
    ),
    10: (
        "context set inside the app is invisible outside, or the other way round",
        (ASGI, "test_10_the_request_is_found_from_handlers_and_generators"),
        ("asgi/test_middleware.py", "test_overlapping_requests_do_not_mix"),
    ),
    11: (
        "the route template is missing, or wrong behind a mount or a root path",
        (ASGI, "test_11_the_route_is_its_template_below_a_mount"),
        ("asgi/test_routes.py", "test_a_route_is_its_template_under_its_mounts"),
        ("asgi/test_routes.py", "test_a_route_has_the_prefixes_of_its_routers"),
        ("asgi/test_routes.py", "test_a_mount_with_parameters_is_a_template_too"),
        ("asgi/test_routes.py", "test_where_starlette_leaves_no_route_it_is_found_again"),
    ),
    12: (
        "compression delays headers or chunks: TTFT depends on the order of middlewares",
        (ASGI, "test_12_compression_never_makes_a_first_token"),
        (
            EXCHANGE,
            "test_what_a_layer_outside_makes_of_a_message_is_not_what_the_app_sent",
        ),
    ),
    14: (
        "WebSocket and lifespan scopes are treated as HTTP",
        (ASGI, "test_14_websockets_and_lifespan_are_no_requests"),
        ("asgi/test_middleware.py", "test_other_scopes_get_the_servers_own_callables"),
    ),
    15: (
        "probes, preflights and scrapes pollute latency",
        (ASGI, "test_15_probes_preflights_and_scrapes_are_neither_spans_nor_samples"),
        ("asgi/test_middleware.py", "test_probes_preflights_and_scrapes_are_quiet"),
    ),
    16: (
        "the middleware is added twice, or the app is rebuilt",
        (ASGI, "test_16_the_middleware_added_twice_watches_once"),
        ("coexistence/test_coexistence.py", "test_one_server_span_with_the_right_parent"),
        ("coexistence/test_coexistence.py", "test_each_request_has_a_tree_of_its_own"),
        ("end_to_end/test_coexist_auto.py", "test_an_app_is_traced_without_a_line"),
        (
            "end_to_end/test_coexist_neighbours.py",
            "test_no_stale_parent_on_a_kept_connection",
        ),
    ),
    17: (
        "`was created in a different Context` on every stream that is closed early",
        (SDK, "test_17_a_stream_that_is_closed_elsewhere_logs_no_context_error"),
        (EXCHANGE, "test_a_request_torn_down_from_another_context_is_recorded"),
    ),
    18: (
        "no spans from forked workers",
        ("end_to_end/test_fork.py", "test_18_both_sides_of_a_fork_export_and_nothing_twice"),
    ),
    19: (
        "the collector is down: the app blocks, or its exit takes minutes",
        ("end_to_end/test_uvicorn_faults.py", "test_a_dead_collector_costs_no_request"),
        (
            "end_to_end/test_export_providers.py",
            "test_the_end_is_bounded_even_while_an_export_hangs",
        ),
        ("end_to_end/test_export_providers.py", "test_a_dead_collector_is_said_once"),
    ),
    22: (
        "the wall clock steps back: a negative span",
        (SDK, "test_22_a_wall_clock_that_steps_back_makes_no_negative_span"),
        (EXCHANGE, "test_a_wall_clock_that_steps_back_moves_nothing"),
    ),
    23: (
        "an endpoint with or without /v1/traces",
        ("observers/test_export_endpoint.py", "test_our_keyword_ends_at_one_url"),
        ("observers/test_export_endpoint.py", "test_the_variables_keep_their_meaning"),
    ),
    24: (
        "mix-ups of scheme, TLS and protocol fail silently",
        ("observers/test_export_endpoint.py", "test_contradictions_fail_at_start"),
        ("end_to_end/test_uvicorn_faults.py", "test_bad_settings_stop_the_start"),
    ),
    25: (
        "OTLP headers with blanks or padding are lost, or shown",
        ("observers/test_export_endpoint.py", "test_headers_reach_the_exporter_whole"),
        ("observers/test_export_endpoint.py", "test_secrets_are_not_shown"),
    ),
    26: (
        "spans are dropped with no number to look at",
        ("end_to_end/test_uvicorn_faults.py", "test_every_lost_span_is_counted"),
        ("end_to_end/test_export_providers.py", "test_a_full_queue_refuses_and_counts"),
    ),
    27: (
        "attribute values that cannot be used",
        (SDK, "test_27_unusable_values_are_made_usable_or_left_out"),
        ("observers/test_values.py", "test_a_value_is_made_one_that_every_backend_takes"),
    ),
    28: (
        "attributes so large that a whole export is refused",
        (SDK, "test_28_a_full_batch_of_huge_prompts_can_be_received"),
        ("observers/test_values.py", "test_text_is_cut_in_bytes_between_characters"),
        ("asgi/test_content.py", "test_what_is_cut_is_json_within_the_bound"),
    ),
    29: (
        "a malformed or doubled traceparent",
        (SDK, "test_29_a_malformed_parent_is_a_new_root"),
        ("observers/test_tracer.py", "test_a_malformed_parent_starts_a_trace"),
    ),
    30: (
        "an unsampled parent makes everything disappear, metrics too",
        (SDK, "test_30_an_unsampled_parent_costs_spans_and_no_metric"),
        ("observers/test_recorder.py", "test_an_unsampled_request_has_the_same_metrics"),
    ),
    31: (
        "the engine's span is a sibling or glued to a stale one; a thread's retrieval is orphaned",
        (SDK, "test_31_one_trace_from_the_client_to_the_engine"),
        ("observers/test_tracer.py", "test_every_format_that_is_read_names_our_span"),
        ("end_to_end/test_vllm.py", "test_one_trace_holds_both_sides"),
    ),
    49: (
        "a role-only or empty first chunk is taken for the first token",
        (SSE, "test_49_a_role_only_or_empty_first_chunk_is_no_token"),
        (EXCHANGE, "test_roles_comments_and_empty_chunks_are_no_tokens"),
    ),
    50: (
        "a usage chunk without choices raises",
        (SSE, "test_50_a_usage_chunk_needs_no_choices"),
    ),
    51: (
        "an event split over several messages, or several in one",
        (SSE, "test_51_events_cut_or_joined_give_the_same_tokens"),
        (EXCHANGE, "test_an_event_split_over_messages_counts_when_it_is_whole"),
    ),
    52: (
        "a character of UTF-8 cut between messages",
        (SSE, "test_52_characters_may_be_cut_or_invalid"),
    ),
    53: (
        "comments and pings are taken for tokens",
        (SSE, "test_53_comments_and_pings_are_no_tokens"),
        (SSE, "test_53_an_empty_chunk_as_heartbeat_is_no_token"),
    ),
    54: (
        "`data:` without a blank, several data lines, other fields",
        (SSE, "test_54_other_spellings_of_an_event"),
        (SSE, "test_54_data_lines_are_joined"),
    ),
    55: (
        "several tokens in a chunk make times per token wrong",
        (ENGINE, "test_55_several_tokens_in_a_chunk_are_counted_by_usage_or_not_at_all"),
        (SSE, "test_55_several_tokens_in_a_chunk_are_one_event"),
    ),
    56: (
        "0 or 1 output tokens",
        (ENGINE, "test_56_no_token_or_one_has_no_time_per_token"),
        (SSE, "test_56_no_output_token_at_all"),
        ("end_to_end/test_vllm.py", "test_one_token"),
    ),
    57: (
        "answers in one piece are reported with a TTFT equal to the total time",
        (ENGINE, "test_57_an_answer_in_one_piece_has_no_ttft"),
        (SSE, "test_57_an_answer_in_one_piece_has_no_token"),
    ),
    58: (
        "stamps of another clock: TTFT of zero, the last token before the first",
        (ENGINE, "test_58_stamps_of_another_clock_are_never_subtracted"),
        ("core/test_freeze.py", "test_an_engine_with_a_foreign_clock_is_not_believed"),
        ("vllm/test_vllm_clock.py", "test_epoch_stamps_are_moved"),
    ),
    59: (
        "the time between arrival and the queue belongs to nobody",
        (ENGINE, "test_59_the_time_before_the_queue_belongs_to_somebody"),
        ("core/test_freeze.py", "test_any_story_gives_exactly_one_record_that_adds_up"),
    ),
    60: (
        "the prefix cache and disaggregated prefill distort prefill",
        (ENGINE, "test_60_the_prefill_leg_of_a_disaggregated_request_has_no_users_ttft"),
        ("vllm/test_vllm_facts.py", "test_leg_of_a_disaggregated_request"),
        ("vllm/test_vllm_join.py", "test_a_legs_adapters_and_external_tokens_are_kept"),
    ),
    61: (
        "embeddings, pooling, ranks and adapters",
        (ENGINE, "test_61_embeddings_have_neither_ttft_nor_decode"),
        ("vllm/test_vllm_join.py", "test_pooling_has_no_token_and_all_else"),
        ("vllm/test_vllm_facts.py", "test_the_adapter_is_named_and_the_base_model_is_not"),
        ("observers/test_recorder.py", "test_no_client_can_grow_the_labels"),
    ),
}
"""The reports by their numbers: the kind in words, and the tests of it. The sections are ASGI and
streaming (4 to 16), OpenTelemetry (17 to 31), and streams and engines (49 to 61)."""

NUMBERS = (
    *(4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16),
    *(17, 18, 19, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31),
    *range(49, 62),
)


@lru_cache(maxsize=64)
def names_in(path):
    """The names of the tests that a file holds."""
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, kinds)}


def test_every_report_is_there():
    """No kind was left out."""
    assert list(NUMBERS) == list(REPORTS)


@pytest.mark.parametrize("number", REPORTS)
def test_a_report_has_its_tests(number):
    """Each test that the table names is still there, under that name."""
    _, *tests = REPORTS[number]

    gone = [f"{path}::{name}" for path, name in tests if name not in names_in(path)]

    assert tests
    assert [] == gone
