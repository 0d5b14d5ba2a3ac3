# The part of tzdata that is used here; tzdata itself has no types.

__version__: str
