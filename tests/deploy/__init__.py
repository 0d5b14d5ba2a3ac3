"""Tests of what an operator installs outside of Kubernetes: image, compose files, unit."""
