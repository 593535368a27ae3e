"""The server in front of clients: engines, stream reading, one finished record a request."""
