"""IPython's syntax in cells: what has none of it is not searched for it token by token."""

# mypy: allow-untyped-calls
# Most of IPython has no annotations.
from __future__ import annotations

import re

from IPython.core.inputtransformer2 import TransformerManager

# All of IPython's syntax that is found by tokens has one of these characters, or begins a line with one of those.
_SIGNS = re.compile(r"[%!?]|^\s*[,;/]", re.MULTILINE)


class KernelTransformerManager(TransformerManager):
    """Tokenizing a cell takes longer than to compile it, and most cells are plain Python."""

    def __init__(self) -> None:
        super().__init__()
        self._known = list(self.token_transformers)

    def do_token_transforms(self, lines: list[str]) -> list[str]:
        if self.token_transformers == self._known and not any(map(_SIGNS.search, lines)):
            return lines
        transformed: list[str] = super().do_token_transforms(lines)
        return transformed


def may_wait(code: str) -> bool:
    """False where `code` can have no `await` outside of functions: then it need not be compiled to know."""
    return "await" in code or "async" in code
