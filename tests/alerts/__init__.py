"""Alerts and dashboards: their files, and a real Prometheus that evaluates them."""
