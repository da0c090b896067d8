"""The ledger, pure: no I/O, no asyncio, no OpenTelemetry.

ASGI messages, app phases and engine moments meet in a `Timeline`, one a request. When the request
ends the timeline is frozen into a `RequestRecord`, which is all that observers ever see.
"""
