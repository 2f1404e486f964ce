"""Completion by jedi, prepared while there is nothing else to do.

jedi first reads the stubs of the standard library, which takes a second; forked processes share the
result. A kernel of the first notebook, and its spare, prepare it when they are idle. Once there are more,
the zygote prepares it between requests, for the kernels that are forked afterwards; those that were forked
before it has finished prepare it after their first completion.
"""

# mypy: allow-untyped-calls
# Most of IPython has no annotations.
from __future__ import annotations

import gc
import importlib
import importlib.util
import threading
from collections.abc import Callable, Iterator
from typing import Any

# Time limit for the types of completions, in milliseconds.
TYPES_MS = 80

# Completing these reads the stubs that most code needs, one at a time so that requests do not wait. Modules whose
# stubs take several MB and are completed less often (asyncio 16, subprocess 5, datetime 3) are read at their first use.
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
)
_done = 0
# Whether an idle kernel prepares it.
wanted = True
_ready = False
_given_up = False
# While a part is prepared, in its thread: "requested" returns True when a request waits, which ends the part.
_part = threading.local()
# Parsing 64 tokens takes less than a millisecond.
_TOKENS = 64


class _RequestedError(BaseException):  # jedi catches Exception
    """A request waits. The files that have been parsed stay in the cache."""


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


def _check() -> None:
    requested = getattr(_part, "requested", None)
    if requested is not None and requested():
        raise _RequestedError


def _give_up_for_requests() -> None:
    """Make parso and jedi look for requests while they parse a file and before each file.

    Both are points at which no cache is half written. Other versions may lack them: parts end by themselves then.
    """
    grammar: Any = importlib.import_module("parso.grammar")
    state: Any = importlib.import_module("jedi.inference").InferenceState
    tokenize, load = getattr(grammar, "tokenize_lines", None), getattr(state, "parse_and_get_code", None)
    if tokenize is None or load is None:
        return

    def tokens(*args: Any, **options: Any) -> Iterator[Any]:
        for i, token in enumerate(tokenize(*args, **options)):
            if not i % _TOKENS:
                _check()
            yield token

    def parse_and_get_code(*args: Any, **options: Any) -> Any:
        _check()
        return load(*args, **options)

    grammar.tokenize_lines = tokens
    state.parse_and_get_code = parse_and_get_code


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


def given_up() -> bool:
    """Return True if the last part ended early."""
    return _given_up


def step(requested: Callable[[], bool]) -> bool:
    """Prepare one part, up to 0.5 s; returns True if there is more. Ends early when `requested` returns True."""
    global _done, _given_up
    if not pending() or not ready():
        return False
    if _given_up:
        gc.collect()
    code = _STEPS[_done]
    _part.requested, _given_up = requested, False
    try:
        jedi: Any = importlib.import_module("jedi")
        for found in jedi.Interpreter(code, [{}]).complete()[:3] if code else ():
            _ = found.type
        if not code:
            _give_up_for_requests()
        _done += 1
    except _RequestedError:
        _given_up = True
    except Exception:  # errors of jedi appear again when it is used
        _done = len(_STEPS)
    finally:
        _part.requested = None
    return pending()
