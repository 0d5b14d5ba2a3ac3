"""Questions: from a filter or a query to statements, and to an answer."""
