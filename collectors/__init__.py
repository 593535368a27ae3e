"""The way in to the store: OTLP receiver, counted queue, ClickHouse schema and writer."""
