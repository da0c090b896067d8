"""`llm-trace explain`: one request from its trace: waterfall, ledger, verdict, and every TTFT.

Reads what backends and files give.
"""
