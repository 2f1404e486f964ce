"""Requests other than cells: completion, inspection, history, comms, variables. Each has exactly one reply."""

# mypy: allow-untyped-calls
# Most of IPython has no annotations.
from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.utils.tokenutil import token_at_cursor

from cellgate_kernel import comms, completion, errors, values
from cellgate_kernel.request import BadRequest, Request, field, parse_object

if TYPE_CHECKING:
    from IPython.core.completer import Completion

    from cellgate_kernel.frontend import FrontendKernel
    from cellgate_kernel.languages import Language
    from cellgate_kernel.shell import ZMQInteractiveShell

Content = dict[str, Any]

# Most entries of a history reply, and most completions of a reply.
_MAX_ENTRIES = 10_000
_MAX_COMPLETIONS = 5_000

# Requests about Python's code.
_PYTHON = ("kernel_info_request", "complete_request", "inspect_request", "is_complete_request")

# A name at the end, of which nothing is an attribute.
_NAME = re.compile(r"(?<![\w.])[^\W\d]\w*\Z")


def error_content(error: BaseException) -> Content:
    """The content of an error reply."""
    content = {
        "status": "error",
        "ename": errors.name_of(type(error)),
        "evalue": errors.text_of(error),
        "traceback": [],
    }
    return content | error.content if isinstance(error, values.ValueProblem) else content


def _cursor(content: Content, code: str) -> int:
    """The position of the cursor in characters, limited to the text."""
    pos = field(content, "cursor_pos", int, None)
    return len(code) if pos is None else max(0, min(int(pos), len(code)))


class Requests:
    """Answers requests in the main thread, where an interrupt raises KeyboardInterrupt."""

    def __init__(self, shell: ZMQInteractiveShell, kernel: FrontendKernel) -> None:
        self._shell = shell
        self._kernel = kernel
        self._table: dict[str, Callable[[Content], Content]] = {
            "complete_request": self._complete,
            "inspect_request": self._inspect,
            "is_complete_request": self._is_complete,
            "history_request": self._history,
            "comm_info_request": self._comm_info,
        }

    def answer(self, request: Request) -> tuple[Content, tuple[bytes, ...]]:
        """The reply's content and buffers. May raise."""
        language = self._kernel.cellgate.language
        if request.text == "set_variables":
            self._kernel.set_request(request)
            made, lossy = values.read_variables(request.frames, language)
            if language is None:
                self._shell.user_ns.update(made)
            else:
                language.set_values(made, lossy)
            return {"status": "ok"}, ()
        content = parse_object(request.frames[0], "the content")
        if request.text in ("comm_open", "comm_msg", "comm_close"):
            return self._comm(request, content), ()
        self._kernel.set_request(request)
        if request.text == "get_variables":
            want = values.wanted(content, language)
            found = self._shell.user_ns if language is None else language.get_values(want.names, want.lossy)
            return values.get_variables(want, found)
        if language is not None and request.text in _PYTHON:
            return self._foreign(request.text, content, language), ()
        function = self._table.get(request.text)
        if function is None:
            raise NotImplementedError(f"this kernel does not know {request.text}")
        return function(content), ()

    def _foreign(self, kind: str, content: Content, language: Language) -> Content:
        """For a session of another language."""
        if (reply := language.forward(kind, content)) is not None:
            return reply
        if kind == "complete_request":
            code = field(content, "code", str)
            pos = _cursor(content, code)
            word, matches = language.completions(code[:pos])
            begin = {"cursor_start": pos - len(word), "cursor_end": pos}
            return {"status": "ok", "matches": matches[:_MAX_COMPLETIONS], **begin, "metadata": {}}
        if kind == "inspect_request":
            return {"status": "ok", "found": False, "data": {}, "metadata": {}}
        return {"status": "unknown"}

    # ---------------------------------------------------------------- code

    def _complete(self, content: Content) -> Content:
        code = field(content, "code", str)
        pos = _cursor(content, code)
        found: list[Any] = []
        from IPython.core.completer import provisionalcompleter, rectify_completions

        completer: Any = self._shell.Completer
        interrupted = False
        hook = sys.excepthook

        def on_error(kind: type[BaseException], *rest: Any) -> None:
            """IPython reports here, and goes on, what is raised while it looks for completions."""
            nonlocal interrupted
            if issubclass(kind, KeyboardInterrupt):
                interrupted = True
            else:
                hook(kind, *rest)

        sys.excepthook = on_error
        completion.wanted = True
        try:
            if completer.use_jedi and not completion.ready():
                completer.use_jedi = False
            with provisionalcompleter():
                for c in rectify_completions(code, completer.completions(code, pos)):
                    found.append(c)
                    if len(found) == _MAX_COMPLETIONS:
                        break
        except KeyboardInterrupt:  # time limit reached: keep what was found
            interrupted = True
        except Exception:  # user code such as a property or __dir__() raised: no completions
            found = []
        finally:
            sys.excepthook = hook
        if interrupted and not found:
            found = self._names(code[:pos])
        start, end = (found[0].start, found[0].end) if found else (pos, pos)
        types = [
            {"start": c.start, "end": c.end, "text": c.text, "type": c.type, "signature": c.signature} for c in found
        ]
        return {
            "status": "ok",
            "matches": [c.text for c in found],
            "cursor_start": start,
            "cursor_end": end,
            "metadata": {"_jupyter_types_experimental": types},
        }

    def _names(self, code: str) -> list[Completion]:
        """Completions of a plain name at the end of the code, without jedi and without any code of the user."""
        from IPython.core.completer import Completion, provisionalcompleter

        name = _NAME.search(code)
        if not name:
            return []
        # In a cell the local namespace is the global one: each name is found twice.
        matches = [*dict.fromkeys(self._shell.Completer.global_matches(name.group()))]
        with provisionalcompleter():
            return [Completion(name.start(), len(code), m, type="") for m in matches[:_MAX_COMPLETIONS]]

    def _inspect(self, content: Content) -> Content:
        code = field(content, "code", str)
        detail = field(content, "detail_level", int, 0)
        omit = field(content, "omit_sections", list, [])
        name = token_at_cursor(code, _cursor(content, code))
        reply: Content = {"status": "ok", "found": False, "data": {}, "metadata": {}}
        try:
            data = self._shell.object_inspect_mime(name, detail_level=1 if detail else 0, omit_sections=omit)
        except KeyError:
            return reply
        return reply | {"found": True, "data": data}

    def _is_complete(self, content: Content) -> Content:
        manager = self._shell.input_transformer_manager
        status, indent = manager.check_complete(field(content, "code", str))
        reply: Content = {"status": status}
        if status == "incomplete":
            reply["indent"] = " " * (indent or 0)
        return reply

    # ---------------------------------------------------------------- history

    def _history(self, content: Content) -> Content:
        history: Any = self._shell.history_manager
        access = field(content, "hist_access_type", str)
        raw = bool(field(content, "raw", bool, True))
        output = bool(field(content, "output", bool, False))
        n = field(content, "n", int, None)
        found: Any
        if access == "tail":
            found = history.get_tail(
                _MAX_ENTRIES if n is None else max(0, n), raw=raw, output=output, include_latest=True
            )
        elif access == "range":
            session = field(content, "session", int, 0)
            stop = field(content, "stop", (int, type(None)), None)
            found = history.get_range(session, field(content, "start", int, 1), stop, raw=raw, output=output)
            # The current session is 0 here, but has its number in get_tail().
            found = ((number or history.session_number, line, text) for number, line, text in found)
        elif access == "search":
            pattern = field(content, "pattern", str, "*")
            unique = bool(field(content, "unique", bool, False))
            found = history.search(pattern, raw=raw, output=output, n=n, unique=unique)
        else:
            raise BadRequest(f'"hist_access_type" is {access!r}: there are tail, range and search')
        return {"status": "ok", "history": list(found)[-_MAX_ENTRIES:]}

    # ---------------------------------------------------------------- comms

    def _comm_info(self, content: Content) -> Content:
        name = field(content, "target_name", (str, type(None)), None)
        return {"status": "ok", "comms": comms.manager.info(name)}

    def _comm(self, request: Request, content: Content) -> Content:
        field(content, "comm_id", str)
        if request.text == "comm_open":
            field(content, "target_name", str)
        metadata = field(content, "metadata", dict, {})
        header = field(content, "header", dict, {})
        self._kernel.set_request(request, header, metadata)
        content.setdefault("data", {})
        message = dict(self._kernel.get_parent())
        message["content"] = {k: v for k, v in content.items() if k not in ("metadata", "header")}
        message["buffers"] = [memoryview(b) for b in request.frames[1:]]
        comms.manager.handle(request.text, message)
        return {"status": "ok"}
