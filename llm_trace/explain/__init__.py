"""`llm-trace explain`: one request from its trace: waterfall, ledger, verdict, and every TTFT.

Reads what backends and files give; what they give is data of strangers, so nothing of it is trusted
to be of any type, in any order, or bounded.
"""
