"""Whole nodes, brought into trouble: killed, filled and flooded, with clients who keep count."""
