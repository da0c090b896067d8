"""An assistant that answers from a company's handbook: an app as a team would have written it.

Keys, limits, a full-text index in SQLite, an engine behind HTTP, work after the answer. All that it
knows of llm_trace is one line in `app.py`.
"""
