"""Completion by jedi, prepared while nothing else is to be done.

jedi reads the stubs of the standard library first, which takes a second; what it has read, forked processes share.
The zygote of notebooks prepares it between requests, and a notebook's kernel that was forked before goes on when it is
idle.
"""

# mypy: allow-untyped-calls
# Most of IPython has no annotations.
from __future__ import annotations

import importlib
import importlib.util
from typing import Any

# For types of completions, in milliseconds: those that take longer have none.
TYPES_MS = 80

# Code whose completion reads the stubs that most others need. A step is one of them: no request waits for longer.
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
    """What has been read stays in memory: files of it would be pickles, which the next process believes."""
    cache: Any = importlib.import_module("parso.cache")
    for name in ("_load_from_file_system", "_save_to_file_system"):
        if not hasattr(cache, name):
            raise ImportError(f"parso.cache has no {name}")
        setattr(cache, name, lambda *_args, **_options: None)


def configure(completer: Any) -> None:
    """Let IPython's completer use jedi where that is installed."""
    completer.use_jedi = installed
    completer.jedi_compute_type_timeout = TYPES_MS


def ready() -> bool:
    """Call it before jedi is used; returns whether it can be."""
    global installed, _ready
    if installed and not _ready:
        try:
            _keep_no_files()
            _ready = True
        except ImportError:
            installed = False
    return installed


def pending() -> bool:
    """Whether there is something to prepare."""
    return installed and _done < len(_STEPS)


def step() -> bool:
    """Do a part of it, some 100 ms long; returns whether there is more."""
    global _done
    if not pending() or not ready():
        return False
    code = _STEPS[_done]
    _done += 1
    try:
        jedi: Any = importlib.import_module("jedi")
        for found in jedi.Interpreter(code, [{}]).complete()[:3] if code else ():
            _ = found.type
    except Exception:  # a jedi that cannot is seen when it is asked
        _done = len(_STEPS)
    return pending()
