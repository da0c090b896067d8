"""`llm-trace roofline`: the command around `llm_trace.diagnosis.roofline`."""
