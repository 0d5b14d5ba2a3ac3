"""Enqueueing: jobs alone, in batches, from webhooks."""
