"""Settings in the environment: ours, the standard one about content, and what is not for us."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import Field
from typing import Any, Final

from llm_trace.settings.kinds import FALSE, TRUE
from llm_trace.settings.refusals import unknown, unusable
from llm_trace.settings.row import read, shown

PREFIX: Final = "LLM_TRACE_"

FOREIGN: Final = frozenset({"LLM_TRACE_VLLM_PYTHON"})
"""Variables of our commands, which the middleware does not read."""

_SERVICE_LINK: Final = re.compile(
    r"(?:\w+_)?(?:SERVICE_HOST=|SERVICE_PORT\w*=|PORT_\d+_(?:TCP|UDP|SCTP)\w*=|PORT=\w+://).*"
)
"""What Kubernetes sets in every pod for a Service whose name begins with `llm-trace`."""

_EMPTY_SAYS: Final = frozenset({"metrics_path", "quiet_paths", "retrieval_stores"})
"""Settings for which empty means none at all; an empty variable of any other counts as unset."""

CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ON_SPANS: Final = frozenset({"span_only", "span_and_event"})
_NOT_ON_SPANS: Final = frozenset({"event_only", "no_content"})


def values(environ: Mapping[str, str], known: Mapping[str, Field[Any]]) -> dict[str, Any]:
    """What `environ` says of the `known` settings, by their names.

    Raises:
        SettingsError: An unknown name or a value that cannot be used.
    """
    found = {}
    for variable, given in environ.items():
        if not variable.startswith(PREFIX) or _is_foreign(variable, given):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in known:
            raise unknown(f"environment variable {variable}", name, known, PREFIX)
        text = given.strip()
        if text or name in _EMPTY_SAYS:
            found[name] = read(known[name], text, f"{variable}={shown(known[name], given)}")
    if "capture_content" not in found:
        found |= _standard(environ)
    return found


def _is_foreign(variable: str, text: str) -> bool:
    link = _SERVICE_LINK.match(f"{variable.removeprefix(PREFIX)}={text}")
    return variable in FOREIGN or link is not None


def _standard(environ: Mapping[str, str]) -> dict[str, Any]:
    """What the standard variable says of content; where it speaks of events, it is not of spans."""
    text = environ.get(CAPTURE, "").strip()
    if not text:
        return {}
    if text.lower() in _ON_SPANS | TRUE:
        return {"capture_content": True}
    if text.lower() in _NOT_ON_SPANS | FALSE:
        return {"capture_content": False}
    raise unusable(
        f"{CAPTURE}={text!r}",
        "use true or false, or one of span_only, span_and_event, event_only and no_content",
    )
