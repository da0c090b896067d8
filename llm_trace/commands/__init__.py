"""The commands that read and print; each is one row of `llm_trace.cli.COMMANDS`."""
