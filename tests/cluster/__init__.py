"""Clusters of real nodes on loopback."""
