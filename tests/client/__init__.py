"""Tests of the client of the HTTP API."""
