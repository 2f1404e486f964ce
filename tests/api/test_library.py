"""The shared library as a C program uses it: sizes of options, arguments that may be missing, and who frees what.

The other tests here call it through the Python package's binding; tests/threads/client-threads.c uses it in threads.
"""

from __future__ import annotations

import ctypes as C
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cellgate_api import E_INVAL, PREFIX

OLDEST = (8).to_bytes(8, "little") + b"\xff" * 1000  # of the options, a program of the first version has the size alone
STREAM, RESULT = b"stream", b"result"


class Err(C.Structure):
    _fields_ = [("code", C.c_int), ("sys_errno", C.c_int), ("msg", C.c_char * 1000)]


@pytest.fixture(scope="module")
def lib() -> C.CDLL:
    lib = C.CDLL(str(next(PREFIX.glob("lib/**/libcellgate.so"))))
    for name in ("cg_client_close", "cg_session_free", "cg_event_free", "cg_event_text", "cg_event_json"):
        getattr(lib, name).restype = C.c_void_p
    for name in ("cg_version", "cg_event_type_name", "cg_session_id"):
        getattr(lib, name).restype = C.c_char_p
    return lib


@pytest.fixture(scope="module")
def client(lib: C.CDLL) -> Iterator[C.c_void_p]:
    ptr, err = C.c_void_p(), Err()
    assert lib.cg_client_open(None, C.byref(ptr), C.byref(err)) == 0, err.msg
    yield ptr
    assert lib.cg_client_close(ptr) is None


@pytest.fixture
def session(lib: C.CDLL, client: C.c_void_p, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[C.c_void_p]:
    monkeypatch.chdir(tmp_path)
    ptr, err = C.c_void_p(), Err()
    assert lib.cg_session_new(client, OLDEST, C.byref(ptr), C.byref(err)) == 0, err.msg
    yield ptr
    assert lib.cg_session_free(ptr) is None


def next_event(lib: C.CDLL, session: C.c_void_p, type: bytes) -> C.c_void_p:
    """The first event of that type; those before are freed."""
    event = C.c_void_p()
    while lib.cg_session_next_event(session, C.c_int64(30000), C.byref(event), None) == 0:
        if lib.cg_event_type_name(lib.cg_event_type(event)) == type:
            return event
        lib.cg_event_free(event)
    raise AssertionError(f"no {type!r}")


def test_the_version_is_that_of_the_program(lib: C.CDLL, cellgate: Path) -> None:
    said = subprocess.run([cellgate, "--version"], capture_output=True, check=True).stdout
    assert said.split()[1] == lib.cg_version()


def test_nothing_can_be_freed(lib: C.CDLL) -> None:
    for name in ("cg_client_close", "cg_session_free", "cg_event_free"):
        assert getattr(lib, name)(None) is None
    lib.cg_free(None)


TAKE_OPTIONS: dict[str, Callable[[C.CDLL, C.c_void_p, C.c_void_p, bytes, Err], int]] = {
    "cg_client_options": lambda lib, c, s, o, e: lib.cg_client_open(o, C.byref(C.c_void_p()), C.byref(e)),
    "cg_session_options": lambda lib, c, s, o, e: lib.cg_session_new(c, o, C.byref(C.c_void_p()), C.byref(e)),
    "cg_execute_options": lambda lib, c, s, o, e: lib.cg_session_execute(s, b"1", C.c_size_t(1), o, None, C.byref(e)),
    "cg_request_options": lambda lib, c, s, o, e: lib.cg_session_request(
        s, b"is_complete_request", b'{"code":"1"}', C.c_size_t(12), o, None, C.byref(e)
    ),
    "cg_exec_options": lambda lib, c, s, o, e: lib.cg_session_exec(s, o, None, C.byref(e)),
    "cg_functions_options": lambda lib, c, s, o, e: lib.cg_session_add_functions(
        s, b"f", b"[]", C.c_size_t(2), o, None, C.byref(e)
    ),
}


@pytest.mark.parametrize("size", [0, 7, 1 << 20])
@pytest.mark.parametrize("name", TAKE_OPTIONS)
def test_options_of_no_version(lib: C.CDLL, client: C.c_void_p, session: C.c_void_p, name: str, size: int) -> None:
    """Without a size they were not initialized; larger ones are of a later version, which this one does not understand."""
    err = Err()
    assert (
        TAKE_OPTIONS[name](lib, client, session, size.to_bytes(8, "little") + bytes(1000), err) == E_INVAL == err.code
    )
    assert f"set opts->size to sizeof(struct {name})" in err.msg.decode()


def test_of_older_options_no_more_is_read_than_their_size(lib: C.CDLL, session: C.c_void_p) -> None:
    """The fixture opens the session with such."""
    err = Err()
    for name in ("cg_execute_options", "cg_request_options"):
        assert TAKE_OPTIONS[name](lib, C.c_void_p(), session, OLDEST, err) == 0, err.msg
    lib.cg_event_free(next_event(lib, session, RESULT))
    lib.cg_event_free(next_event(lib, session, b"reply"))


def test_arguments_that_may_be_missing(lib: C.CDLL, session: C.c_void_p) -> None:
    assert lib.cg_session_execute(session, b"\xff", C.c_size_t(1), None, None, None) < 0
    assert lib.cg_session_execute(session, b"print(5)", C.c_size_t(8), None, None, None) == 0
    stream = next_event(lib, session, STREAM)
    assert C.string_at(lib.cg_event_text(stream, None)) == b"5\n"
    lib.cg_event_free(stream)


def test_texts_live_as_long_as_their_event(lib: C.CDLL, session: C.c_void_p) -> None:
    assert lib.cg_session_execute(session, b"print('held')\n1/0", C.c_size_t(17), None, None, None) == 0
    stream = next_event(lib, session, STREAM)
    error, result = next_event(lib, session, b"error"), next_event(lib, session, RESULT)
    lib.cg_event_free(result)
    n = C.c_size_t()
    assert C.string_at(lib.cg_event_text(stream, C.byref(n))) == b"held\n" and n.value == 5
    assert json.loads(C.string_at(lib.cg_event_json(error, C.byref(n))))["ename"] == "ZeroDivisionError"
    for event in (stream, error):
        assert lib.cg_event_free(event) is None
