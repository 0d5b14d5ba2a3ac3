"""Tests of the shard: its formats, its tables and its ops."""
