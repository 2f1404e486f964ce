"""The command `cellgate` of a wheel: `cellgate ...` or `python -m cellgate ...`."""

from __future__ import annotations

import os
import sys

from cellgate._core import RUNTIME


def main() -> None:
    """Becomes the program."""
    program = RUNTIME / "bin/cellgate"
    os.environ.setdefault(
        "CELLGATE_PYTHON", sys.executable
    )  # for `mcp serve --compat`: --user has no bin/python beside it
    try:
        os.execv(program, ["cellgate", *sys.argv[1:]])
    except FileNotFoundError:
        sys.exit(f"cellgate: {program} is missing: this package was not installed as a wheel (docs/python.md)")


if __name__ == "__main__":
    main()
