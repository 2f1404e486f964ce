"""`python -m cellgate.surfaces --compat NAME ...`, which `cellgate mcp serve --compat NAME ...` becomes."""

from __future__ import annotations

import importlib
import sys

from cellgate._errors import CellgateError
from cellgate.surfaces._serve import RefusedOptionError, parse, serve

SURFACES = {"context-forge": "cellgate.surfaces.context_forge", "srt": "cellgate.surfaces.srt"}


def main() -> None:
    """Serves until the client ends it."""
    try:
        options = parse(sys.argv[1:], list(SURFACES))
        server = importlib.import_module(SURFACES[options.surface]).build(options)
    except (RefusedOptionError, CellgateError, OSError) as e:
        print(f"cellgate mcp serve: {e}", file=sys.stderr)
        sys.exit(2)
    serve(server, options)


if __name__ == "__main__":
    main()
