"""Makes the C source of the extension module _cellgate from its headers: _cffi_build.py HEADER... OUTPUT."""

import re
import sys
from pathlib import Path

import cffi  # type: ignore[import-untyped]


def declarations(header: str) -> str:
    """What cffi's parser needs of a header: everything but comments, directives and attributes."""
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    header = re.sub(r"#ifdef __cplusplus.*?#endif", "", header, flags=re.DOTALL)
    header = re.sub(r"^#.*$", "", header, flags=re.MULTILINE)
    return header.replace("CG_API", "")


def main(*arguments: str) -> None:
    *headers, output = map(Path, arguments)
    ffi = cffi.FFI()
    for header in headers:
        ffi.cdef(declarations(header.read_text(encoding="utf-8")))
    ffi.set_source("cellgate._cellgate", "\n".join(f'#include "{header.name}"' for header in headers))
    ffi.emit_c_code(str(output))


if __name__ == "__main__":
    main(*sys.argv[1:])
