"""A bounded benchmark of a server: new prefixes against cached ones, cold apart from loaded."""
