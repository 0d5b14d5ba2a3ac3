"""Tests of `corvo verify`: whole directories, damaged ones, and a running server."""
