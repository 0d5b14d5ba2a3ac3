"""`corvo verify`: whether a stopped data directory is whole, and whether a running cluster is."""
