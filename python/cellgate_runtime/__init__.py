"""cellgate's programs: `bin/cellgate`, and those that it starts. Nothing here is Python."""
