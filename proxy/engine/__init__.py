"""Engines that answer requests. Only the module `vllm` in here touches vLLM."""
