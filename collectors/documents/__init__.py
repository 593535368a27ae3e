"""Documents that pipelines search: chunks, words and vectors in one ClickHouse table."""
