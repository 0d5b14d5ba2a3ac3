# The part of jq that the tests use; the package itself has no types.

class _Result:
    def all(self) -> list[object]: ...
    def first(self) -> object: ...

class _Program:
    def input_text(self, text: str) -> _Result: ...

def compile(program: str) -> _Program: ...  # noqa: A001 -- that is its name
