"""What the app asks an engine for, read from the request's body; never content."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from llm_trace.asgi.body import MAX_TEXT, BodyCopy, model_of, request_facts
from llm_trace.asgi.sse.facts import as_word

_END: Final = 4096
_MODEL: Final = re.compile(rb'(?<!\\)"model"\s*:\s*"([^"\\]{1,256})"')
"""The key at any depth: inside of a string its quotes would be escaped."""


Body = bytes | Mapping[str, Any]
"""As it goes over the wire, or the document that the client is given."""


class Asked(NamedTuple):
    """What is known of a request by its body."""

    model: str
    """Empty where the body does not say."""
    attributes: dict[str, object]
    """`gen_ai.request.*`."""


def asked(body: Body, limit: int) -> Asked:
    """Read `body`; of one longer than `limit` bytes only the model, where it stands at an end."""
    if not isinstance(body, bytes):
        return Asked(model_of(body) or "", request_facts(body)) if limit else Asked("", {})
    copy = BodyCopy(limit)
    copy.feed(body)
    document = copy.document()
    if document is None:
        return Asked(_model_at_an_end(body) if limit else "", {})
    return Asked(model_of(document) or "", request_facts(document))


def _model_at_an_end(body: bytes) -> str:
    found = _MODEL.search(body, 0, _END) or _MODEL.search(body[-_END:])
    return (as_word(found[1].decode("utf-8", "replace"), MAX_TEXT) or "") if found else ""
