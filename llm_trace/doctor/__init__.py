"""`llm-trace doctor`: why are there no spans? Looks at all between an app and its backend."""
