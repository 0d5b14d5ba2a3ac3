"""The image, built and run without a daemon; see `python -m tests.containers --help`."""
