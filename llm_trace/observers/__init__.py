"""Those who hear of finished requests: spans and metrics, each from the same record.

`providers` alone imports the OpenTelemetry SDK; the other modules use the API or none of it.
"""
