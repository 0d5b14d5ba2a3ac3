"""What tests of several parts lean on: a disk that fails, and a dumb twin of a log."""
