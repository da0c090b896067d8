"""The OpenTelemetry SDK, in one room: the provider that spans go to, and the OTLP exporters.

A provider that the app has set is used as it is. Otherwise, when an endpoint is configured, spans
go through a private provider: nothing global is touched. Spans arrive here finished, so no span
object lives while a request runs.
"""
