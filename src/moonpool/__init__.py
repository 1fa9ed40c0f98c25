"""Moonpool: one shared KV cache for all the LLM engines of a cluster."""
