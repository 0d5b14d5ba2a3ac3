# The part of kubernetes-validate that the tests use; the package itself has no types.

class ValidationError(Exception):
    message: str

class SchemaNotFoundError(Exception): ...

def validate(data: dict[str, object], desired_version: str, strict: bool = False) -> str: ...
