"""The app's own calls of engines behind HTTP, traced without code in the app.

`switch` turns it on and off. Behind it `patches` holds what is replaced in the clients' libraries,
`httpx_clients` and `aiohttp_client` know those libraries, `calls` decides what is a call of an
engine, and `attempt` follows one exchange without knowing whose it is: `wire` dresses the request,
`sieve` takes the in-band ledger out of the answer, `said` takes over what the answer says.
"""

from __future__ import annotations

from llm_trace.upstream.switch import switch_off, switch_on

__all__ = ["switch_off", "switch_on"]
