"""What things cost: `python -m bench`, or `make bench`."""
