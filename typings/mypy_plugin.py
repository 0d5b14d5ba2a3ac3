"""A plugin for mypy: the arguments of `msgspec.structs.replace` are checked.

msgspec declares them as `**changes: Any`: a field that is misspelt, or has a wrong type, would be
found when the line runs. mypy checks `dataclasses.replace` by the fields of a struct, and that
check is used here. mypy finds it by the function's name, so `replace` is never kept in a variable.
"""

from collections.abc import Callable

from mypy.plugin import FunctionSigContext, Plugin
from mypy.plugins.dataclasses import replace_function_sig_callback
from mypy.types import FunctionLike


class CheckedReplace(Plugin):
    """Gives `replace` the signature that follows from its first argument."""

    def get_function_signature_hook(
        self, fullname: str
    ) -> Callable[[FunctionSigContext], FunctionLike] | None:
        """The check for a function; None for a function that mypy checks by itself."""
        return replace_function_sig_callback if fullname == "msgspec.structs.replace" else None


def plugin(_version: str) -> type[Plugin]:
    """The class that mypy makes the plugin of."""
    return CheckedReplace
