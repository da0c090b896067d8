"""A KV connector inside vLLM whose every transfer takes as long as its request asks.

It brings no numbers: the model is a random one. What vLLM does around it is real.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
)


@dataclass
class Asked(KVConnectorMetadata):
    """Seconds that each transfer begun in this step takes."""

    takes: dict[str, float] = field(default_factory=dict)


class SlowStore(KVConnectorBase_V1):
    """Both sides, as vLLM makes them: one in the scheduler, one in the worker."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._asked = {}
        self._due = {}

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        """All of a prompt that another engine computed, asynchronously."""
        params = request.kv_transfer_params or {}
        missing = request.num_prompt_tokens - num_computed_tokens
        return (missing, True) if params.get("do_remote_prefill") and missing else (0, False)

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        """There is room for it."""
        if num_external_tokens:
            self._asked[request.request_id] = request.kv_transfer_params["takes"]

    def build_connector_meta(self, scheduler_output):
        """What the worker is to do with this step."""
        asked, self._asked = self._asked, {}
        return Asked(asked)

    def start_load_kv(self, forward_context, **kwargs):
        """The worker begins."""
        for key, takes in self._get_connector_metadata().takes.items():
            self._due[key] = time.monotonic() + takes

    def get_finished(self, finished_req_ids):
        """What was sent, which is nothing, and what is here."""
        here = {key for key, due in self._due.items() if due <= time.monotonic()}
        for key in here:
            del self._due[key]
        return None, here or None

    def wait_for_layer_load(self, layer_name):
        """Nothing is loaded by layers."""

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        """Nothing is saved."""

    def wait_for_save(self):
        """Nothing is saved."""
