"""The pages of the documentation that a reader follows, and the examples."""
