"""Event streams: server-sent events for clients, and the topics of dashboards."""
