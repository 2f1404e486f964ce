"""Completion by jedi, prepared while there is nothing else to do.

jedi first reads the stubs of the standard library, which takes a second; forked processes share the
result. The zygote of notebooks prepares it between requests. A notebook's kernel that was forked
before that continues when it is idle.
"""

# mypy: allow-untyped-calls
# Most of IPython has no annotations.
from __future__ import annotations

import importlib
import importlib.util
from typing import Any

# Time limit for the types of completions, in milliseconds.
TYPES_MS = 80

# Completing these reads the stubs that most code needs, one at a time so that requests do not wait.
_STEPS = (
    "",
    "x = 1\nx.re",
    "import os\nos.path.jo",
    "import os\nos.env",
    "from os import pat",
    "import re\nre.compile('a').mat",
    "'a'.spl",
    "{}.it",
    "[1].ap",
    "open('x').re",
    "import json\njson.du",
    "import pathlib\npathlib.Path('.').ex",
    "import collections\ncollections.de",
    "import sys\nsys.pa",
    "import datetime\ndatetime.datetime.no",
    "import subprocess\nsubprocess.ru",
    "import asyncio\nasyncio.sl",
)
_done = 0
_ready = False

installed = importlib.util.find_spec("jedi") is not None


def _keep_no_files() -> None:
    """Keep jedi's cache in memory: on disk it is pickles, which later processes load.

    Old files of its folder would be removed, also through links in it, and the zygote is in no sandbox.
    """
    cache: Any = importlib.import_module("parso.cache")
    for name in ("_load_from_file_system", "_save_to_file_system", "_remove_cache_and_update_lock"):
        if not hasattr(cache, name):
            raise ImportError(f"parso.cache has no {name}")
        setattr(cache, name, lambda *_args, **_options: None)


def configure(completer: Any) -> None:
    """Make IPython's completer use jedi if it is installed."""
    completer.use_jedi = installed
    completer.jedi_compute_type_timeout = TYPES_MS


def ready() -> bool:
    """Import jedi if possible; returns True if it can be used."""
    global installed, _ready
    if installed and not _ready:
        try:
            _keep_no_files()
            _ready = True
        except ImportError:
            installed = False
    return installed


def pending() -> bool:
    """Return True if there is something to prepare."""
    return installed and _done < len(_STEPS)


def step() -> bool:
    """Prepare one part, about 100 ms; returns True if there is more."""
    global _done
    if not pending() or not ready():
        return False
    code = _STEPS[_done]
    _done += 1
    try:
        jedi: Any = importlib.import_module("jedi")
        for found in jedi.Interpreter(code, [{}]).complete()[:3] if code else ():
            _ = found.type
    except Exception:  # errors of jedi appear again when it is used
        _done = len(_STEPS)
    return pending()
