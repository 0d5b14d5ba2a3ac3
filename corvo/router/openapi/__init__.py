"""The OpenAPI document, and the page at `/docs` that is made from it."""
