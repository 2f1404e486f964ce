"""Tools of other servers, by their documented interfaces: `cellgate mcp serve --compat NAME` (docs/surfaces.md)."""
