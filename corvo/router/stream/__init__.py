"""Streams: a WebSocket over which a worker acknowledges, enqueues and fetches in frames."""
