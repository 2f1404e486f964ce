"""Substitutes for modules of ipykernel, for libraries that import a few names from it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from comm.base_comm import BaseComm

from cellgate_kernel import comms, formatting, frontend, jsontext, shell, streams

NAME = "ipykernel"
# The release of ipykernel that this kernel corresponds to.
_VERSION = (6, 29, 5)


class IPKernelApp:
    """Lets libraries detect the kernel."""

    @classmethod
    def initialized(cls) -> bool:
        return True

    @classmethod
    def instance(cls, *_args: Any, **_options: Any) -> IPKernelApp:
        return cls()

    @property
    def shell(self) -> Any:
        return shell.ZMQInteractiveShell.instance()

    @property
    def kernel(self) -> Any:
        return self.shell.kernel

    @property
    def connection_file(self) -> str:
        return get_connection_file()


def get_connection_file(*_args: Any) -> str:
    """The kernel has no connection file; the process that connects it to front-ends does."""
    raise RuntimeError("this kernel has no connection file: it cannot be connected to from inside")


def get_connection_info(*_args: Any, **_options: Any) -> Any:
    return get_connection_file()


def _json_clean(value: Any) -> Any:
    import json

    return json.loads(jsontext.dumps(value))


def _inline(name: str) -> Callable[[], dict[str, Any]]:
    return lambda: vars(importlib.import_module(name))


# Contents of the modules, by name.
_MODULES: dict[str, Callable[[], dict[str, Any]]] = {
    NAME: lambda: {
        "__version__": ".".join(map(str, _VERSION)),
        "version_info": _VERSION,
        "get_connection_file": get_connection_file,
        "get_connection_info": get_connection_info,
    },
    f"{NAME}.comm": lambda: {"Comm": comms.Comm, "CommManager": comms.Manager, "BaseComm": BaseComm},
    f"{NAME}.comm.comm": lambda: {"Comm": comms.Comm, "BaseComm": BaseComm},
    f"{NAME}.comm.manager": lambda: {"CommManager": comms.Manager},
    f"{NAME}.connect": lambda: {
        "get_connection_file": get_connection_file,
        "get_connection_info": get_connection_info,
    },
    f"{NAME}.zmqshell": lambda: {
        "ZMQInteractiveShell": shell.ZMQInteractiveShell,
        "ZMQDisplayPublisher": formatting.KernelDisplayPublisher,
    },
    f"{NAME}.displayhook": lambda: {"ZMQShellDisplayHook": formatting.KernelDisplayHook},
    f"{NAME}.kernelapp": lambda: {"IPKernelApp": IPKernelApp},
    f"{NAME}.kernelbase": lambda: {"Kernel": frontend.FrontendKernel},
    f"{NAME}.ipkernel": lambda: {"IPythonKernel": frontend.FrontendKernel},
    f"{NAME}.iostream": lambda: {"OutStream": streams.OutStream},
    f"{NAME}.jsonutil": lambda: {"json_clean": _json_clean, "encode_images": lambda data: data},
    f"{NAME}.pylab": dict,
    f"{NAME}.pylab.backend_inline": _inline("matplotlib_inline.backend_inline"),
    f"{NAME}.pylab.config": _inline("matplotlib_inline.config"),
}


class StubFinder:
    """The last finder, so that an installed ipykernel is found first; importlib.abc takes 3 ms to import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _MODULES:
            return None
        root = sys.modules.get(NAME)
        if root is not None and not isinstance(getattr(root.__spec__, "loader", None), StubFinder):
            return None  # ipykernel is installed and has no such module
        has_more = any(n.startswith(fullname + ".") for n in _MODULES)
        loader: Any = self
        return ModuleSpec(fullname, loader, origin="cellgate", is_package=has_more)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        contents = _MODULES[module.__name__]()
        vars(module).update((k, v) for k, v in contents.items() if not k.startswith("__") or k == "__version__")


# Loaded once, in the zygote; a notebook's kernel adds them to sys.modules.
_held: dict[str, ModuleType] = {}


def install() -> None:
    """Make the modules importable."""
    sys.meta_path.append(StubFinder())
    spec = importlib.util.find_spec(NAME)
    if spec is not None and isinstance(spec.loader, StubFinder):
        importlib.import_module(f"{NAME}.zmqshell")
        _held.update((name, sys.modules.pop(name)) for name in (NAME, f"{NAME}.zmqshell"))


def show() -> None:
    """Add the shell's module to sys.modules, by which tqdm detects notebooks."""
    sys.modules.update(_held)
