"""The extension module that _cffi_build.py makes of cellgate.h and _batch.h."""

from typing import Any

ffi: Any
lib: Any
