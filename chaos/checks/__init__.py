"""The stages of the checker."""
