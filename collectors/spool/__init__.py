"""The spool: bodies on disk before they are acknowledged, and what became of them."""
