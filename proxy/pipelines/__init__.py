"""Whole pipelines behind one model name: retrieval, prompt, model, tools."""
