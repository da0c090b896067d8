"""Diagnosis: what a request should have cost, what it waited for, and what to look at next.

Pure: it reads records, configurations and tables, and knows no telemetry library and no server.
"""
