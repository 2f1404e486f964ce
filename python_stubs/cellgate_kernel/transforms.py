"""IPython's syntax in cells: code that cannot contain any is not tokenized."""

# mypy: allow-untyped-calls
# Most of IPython has no annotations.
from __future__ import annotations

import re

from IPython.core.inputtransformer2 import TransformerManager

# IPython syntax found by tokens contains one of the former or begins a line with one of the latter.
_SIGNS = re.compile(r"[%!?]|^\s*[,;/]", re.MULTILINE)


class KernelTransformerManager(TransformerManager):
    """Skips tokenizing, which takes longer than compiling; most cells are plain Python."""

    def __init__(self) -> None:
        super().__init__()
        self._known = list(self.token_transformers)

    def do_token_transforms(self, lines: list[str]) -> list[str]:
        if self.token_transformers == self._known and not any(map(_SIGNS.search, lines)):
            return lines
        transformed: list[str] = super().do_token_transforms(lines)
        return transformed


def may_wait(code: str) -> bool:
    """False if `code` cannot have `await` outside of functions; saves compiling it."""
    return "await" in code or "async" in code
