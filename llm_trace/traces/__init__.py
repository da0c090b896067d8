"""Traces as they are read back: spans from OTLP and from Jaeger, and a trace as a tree.

What backends and files give is data of strangers, so nothing of it is trusted to be of any type,
in any order, or bounded.
"""
