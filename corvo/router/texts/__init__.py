"""Texts and examples of the API's operations and fields."""
