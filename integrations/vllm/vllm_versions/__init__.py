"""What each version of vLLM offers to the integration; a tool of this repository."""
