"""`python -m cellgate.surfaces --compat NAME ...`, which `cellgate mcp serve --compat NAME ...` becomes."""

from __future__ import annotations

import importlib
import sys

from cellgate._errors import CellgateError
from cellgate.surfaces._options import RefusedOptionError, parse

# "host" and "web" are servers of tools for cellgate itself, which asks about each call (docs/host-web.md).
SURFACES = ("context-forge", "host", "sandboxmcp", "srt", "web")


def main() -> None:
    """Serves until the client ends it."""
    try:
        options = parse(sys.argv[1:], SURFACES)
        from cellgate.surfaces._serve import serve, together

        modules = {name: f"cellgate.surfaces.{name.replace('-', '_')}" for name in options.surfaces}
        servers = {name: importlib.import_module(module).build(options) for name, module in modules.items()}
        server = servers.popitem()[1] if len(servers) == 1 else together(servers)
    except (RefusedOptionError, CellgateError, OSError) as e:
        print(f"cellgate mcp serve: {e}", file=sys.stderr)
        sys.exit(2)
    serve(server, options)


if __name__ == "__main__":
    main()
