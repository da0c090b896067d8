"""A middleware that breaks llm_trace's own state, for requests that ask for it with a header."""

from __future__ import annotations

import llm_trace


class Sabotage:
    """Passes everything on; what llm_trace keeps of a marked request becomes nonsense."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        """Serve one scope."""
        if (b"x-test-sabotage", b"yes") in scope.get("headers", ()):
            llm_trace.current().intervals = None
        await self.app(scope, receive, send)
