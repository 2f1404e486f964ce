"""Makes the C source of the extension module _cellgate from the public header: _cffi_build.py HEADER OUTPUT."""

import re
import sys
from pathlib import Path

import cffi  # type: ignore[import-untyped]


def declarations(header: str) -> str:
    """What cffi's parser needs of cellgate.h: everything but comments, directives and attributes."""
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    header = re.sub(r"#ifdef __cplusplus.*?#endif", "", header, flags=re.DOTALL)
    header = re.sub(r"^#.*$", "", header, flags=re.MULTILINE)
    return header.replace("CG_API", "")


def main(header: str, output: str) -> None:
    ffi = cffi.FFI()
    ffi.cdef(declarations(Path(header).read_text(encoding="utf-8")))
    ffi.set_source("cellgate._cellgate", '#include "cellgate.h"')
    ffi.emit_c_code(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
