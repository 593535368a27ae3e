"""The answers on a terminal, with rich. Every text from a trace is untrusted and shown safely."""
