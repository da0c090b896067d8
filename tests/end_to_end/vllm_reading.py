"""What the tests of a real vLLM server read of it: whole traces, ledgers, and what was counted."""

from __future__ import annotations

from programs import eventually

from llm_trace import semconv as s

LLM_REQUEST = "llm_request"


def trace_of(server, trace_id):
    """A whole trace: vLLM's span comes from another exporter than ours."""

    def complete():
        spans = server.tap.trace(trace_id)
        whole = any(x.is_root for x in spans) and any(x.name == LLM_REQUEST for x in spans)
        return spans if whole else None

    return eventually(complete, f"trace {trace_id} did not arrive whole", log=server.program)


def ns(seconds):
    """Seconds of an attribute as the integer that they were."""
    return round(seconds * 1e9)


def ttft_phases(root):
    """What the time to first token of a root is made of, ns by phase."""
    prefix = s.TTFT_PHASE_PREFIX
    pairs = root.attributes.items()
    return {key.removeprefix(prefix): ns(x) for key, x in pairs if key.startswith(prefix)}


def requests(page):
    """Finished requests by outcome and last phase."""
    sums = {}
    for sample in page.samples(s.REQUESTS.prometheus):
        key = tuple(sample.labels[name] for name in ("llm_trace_outcome", "llm_trace_last_phase"))
        sums[key] = sums.get(key, 0) + sample.value
    return sums


def counted(server, act, number=1):
    """What `act` returns, and by which outcomes and last phases `requests_total` grew."""
    before = requests(server.scrape())
    result = act()

    def grown():
        after = requests(server.scrape())
        told = {k: v - before.get(k, 0) for k, v in after.items() if v != before.get(k, 0)}
        return told if sum(told.values()) >= number else None

    return result, eventually(grown, "no request was counted", log=server.program)


def until_active(server, phases):
    """Wait until just so many requests are in each phase; the page that says so."""
    seen = []

    def active():
        page = server.scrape()
        seen.append(page.by("llm_trace_phase", s.REQUESTS_ACTIVE.prometheus))
        return page if seen[-1] == phases else None

    said = f"active requests were {seen} and never {phases}"
    return eventually(active, said, within=45, log=server.program)
