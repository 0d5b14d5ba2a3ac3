"""Fetching jobs, and the operations on jobs under their leases."""
