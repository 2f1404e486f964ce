"""The extension module that _cffi_build.py makes of cellgate.h."""

from typing import Any

ffi: Any
lib: Any
