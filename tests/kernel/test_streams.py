"""Output of Python, C code and subprocesses: complete, in order, bounded, before the reply."""

import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kernel.harness import MAX_STREAM, Kernel

LIBC = "import ctypes, os, subprocess, sys\nlibc = ctypes.CDLL(None)\n"


def test_python_streams_keep_their_order(kernel: Kernel) -> None:
    r = kernel.run("import sys\nfor i in range(3):\n    print('o', i)\n    print('e', i, file=sys.stderr)")
    # On a busy machine one print() may arrive in two messages; only the order matters.
    got = [(flags, b"".join(m.raw for m in group)) for flags, group in itertools.groupby(r.messages, lambda m: m.flags)]
    assert got == [(f, f"{n} {i}\n".encode()) for i in range(3) for f, n in ((0, "o"), (1, "e"))]


def test_prints_are_coalesced(kernel: Kernel) -> None:
    r = kernel.run("for i in range(1000): print(i)")
    assert r.out == "".join(f"{i}\n" for i in range(1000))
    assert len(r.messages) < 20


def test_output_shows_while_the_cell_runs(kernel: Kernel) -> None:
    cell = kernel.execute("import time\nprint('first')\ntime.sleep(60)")
    assert kernel.wait_for_text("first\n") == "first\n"
    kernel.interrupt(cell)
    assert kernel.collect(cell).status == "error"


def test_descriptor_one_and_two(kernel: Kernel) -> None:
    r = kernel.run("import os\nos.write(1, b'one')\nos.write(2, b'two');")
    assert (r.out, r.err) == ("one", "two")


def test_descriptors_and_python_keep_their_order(kernel: Kernel) -> None:
    r = kernel.run("import os\nfor i in range(50):\n    print(i, end=' ')\n    _ = os.write(1, b'w ')")
    assert r.out == "".join(f"{i} w " for i in range(50))


def test_print_right_after_a_system_write(kernel: Kernel) -> None:
    r = kernel.run(
        "import os, sys\nw = sys.stdout.write\nfor i in range(2000):\n    _ = (w('a'), os.write(1, b'b'), w('c'))"
    )
    assert r.out == "abc" * 2000


def test_printf_without_flush(kernel: Kernel) -> None:
    r = kernel.run(LIBC + "print('a')\nlibc.printf(b'no newline %d', 5)\nNone")
    assert r.out == "a\nno newline 5"


def test_subprocess_output(kernel: Kernel) -> None:
    r = kernel.run(LIBC + "print('before')\nsubprocess.run(['echo', 'child'])\nprint('after')")
    assert r.out == "before\nchild\nafter\n"


def test_large_subprocess_output(kernel: Kernel) -> None:
    r = kernel.run("import subprocess\nsubprocess.run('yes 0123456789 | head -c 8000000', shell=True);", timeout=30)
    assert len(r.out) == 8_000_000
    assert r.out == ("0123456789\n" * 727273)[:8_000_000]


def test_buffer(kernel: Kernel) -> None:
    r = kernel.run("import sys\nb = sys.stdout.buffer\nb.write(b'raw \\xe2\\x82')\nb.write(b'\\xac\\n')\nb.flush()")
    assert r.out == "raw \u20ac\n"


def test_text_streams_on_the_buffer(kernel: Kernel) -> None:
    """As programs make them for UTF-8: what they buffer belongs to the cell, and their end closes nothing."""
    code = "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\nprint('a')"
    assert kernel.run(code).out == "a\n"
    assert kernel.run(code + "\n1/0").out == "a\n"
    assert kernel.run("sys.stdout = sys.__stdout__\nsys.stdout.buffer.write(b'b');").out == "b"


def test_stream_interface(kernel: Kernel) -> None:
    r = kernel.run(
        "import io, sys\n"
        "s = sys.stdout\n"
        "s.writelines(['a', 'b\\n'])\n"
        "s.reconfigure(encoding='latin-1')\n"
        "s.close()\n"
        "print(s.fileno(), sys.stderr.fileno(), s.isatty(), s.encoding, s.writable(), s.closed)\n"
        "assert isinstance(s, io.TextIOBase)\n"
        "print(s.write('xyz'))"
    )
    assert r.out == "ab\n1 2 False utf-8 True False\nxyz3\n"
    assert kernel.run("sys.stdout.write(b'x')").reply["ename"] == "TypeError"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\xffb", "a\ufffdb"),
        (b"\xc3(", "\ufffd("),
        (b"\xe2\x82\n", "\ufffd\n"),
        (b"\xed\xa0\x80|", "\ufffd\ufffd\ufffd|"),
        (b"\xc0\xaf", "\ufffd\ufffd"),
        (b"end \xf0\x9f", "end \ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
    ],
)
def test_bytes_that_are_not_utf8(kernel: Kernel, data: bytes, text: str) -> None:
    r = kernel.run(f"import os\nos.write(1, {data!r});")
    # How many replacement characters a broken sequence becomes is not promised; the text around it is.
    assert re.sub("\ufffd+", "\ufffd", r.out) == re.sub("\ufffd+", "\ufffd", text)


def test_a_character_split_over_writes(kernel: Kernel) -> None:
    r = kernel.run(
        "import os, time\nfor b in '\u20ac\U0001f600'.encode():\n    os.write(1, bytes([b])); time.sleep(0.03)"
    )
    assert r.out == "\u20ac\U0001f600"


def test_pieces_never_split_a_character(kernel: Kernel) -> None:
    """The harness decodes each message by itself."""
    text = "a" + "\U0001f600" * 100_000
    r = kernel.run(
        "text = 'a' + '\U0001f600' * 100_000\nimport os, sys\nsys.stdout.write(text)\nos.write(1, text.encode());",
        timeout=20,
    )
    assert r.out == text * 2
    assert max(len(m.raw) for m in r.messages) <= MAX_STREAM


def test_ten_megabytes_of_prints(kernel: Kernel) -> None:
    r = kernel.run("for i in range(100_000): print('%099d' % i)", timeout=30)
    assert r.out == "".join(f"{i:099d}\n" for i in range(100_000))


@pytest.mark.slow
@pytest.mark.no_sanitizer  # freed memory stays in its quarantine
def test_slow_reader_and_bounded_memory(kernel: Kernel) -> None:
    """Printing 1 GB without a reader blocks with some MiB in memory; later all of it arrives."""
    kernel.run("chunk = 'x' * 1_000_000 + '\\n'")
    cell = kernel.execute("for i in range(1000): print(chunk, end='')\nopen('/proc/self/status').read()")
    time.sleep(1.0)
    status = Path(f"/proc/{kernel.pid}/task/{kernel.pid}/children").read_text().split()
    rss = {line.split(":")[0]: line for line in Path(f"/proc/{status[0]}/status").read_text().splitlines()}
    assert int(rss["RssAnon"].split()[1]) < 150_000, rss["RssAnon"]
    total = 0
    while True:
        message = kernel.receive(30)
        if message.type == "EXECUTE_RESULT":
            text = message.json["data"]["text/plain"]
        if message.type == "EXECUTE_REPLY":
            break
        if message.type == "STREAM":
            total += len(message.raw)
    assert message.id == cell
    assert total == 1000 * 1_000_001
    (hwm,) = [line for line in text.split("\\n") if line.startswith("VmHWM")]
    assert int(hwm.split(":")[1].replace("\\t", "").split()[0]) < 200_000


def test_interrupt_while_blocked_by_a_slow_reader(kernel: Kernel) -> None:
    cell = kernel.execute("while True: print('x' * 100_000)")
    time.sleep(0.5)
    kernel.interrupt(cell)
    assert kernel.collect(cell, 30).reply["ename"] == "KeyboardInterrupt"


def test_displays_wait_for_a_slow_reader(kernel: Kernel) -> None:
    """Nothing is dropped: 20,000 displays, and the reader sleeps first."""
    cell = kernel.execute("for i in range(20_000): display({'text/plain': str(i)}, raw=True)")
    time.sleep(1.0)
    r = kernel.collect(cell, 60)
    assert [m.json["data"]["text/plain"] for m in r.of("DISPLAY_DATA")] == [str(i) for i in range(20_000)]


def test_threads_that_print_after_the_cell(kernel: Kernel) -> None:
    r = kernel.run(
        "import threading, time\n"
        "go = threading.Event()\n"
        "def work():\n"
        "    go.wait()\n"
        "    for i in range(200): print('late', i)\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "for t in threads: t.start()\n"
    )
    assert r.messages == []
    kernel.execute("go.set()")
    text, ids, replied = "", set(), False
    while text.count("late") < 800 or not replied:
        message = kernel.receive()
        if message.type == "EXECUTE_REPLY":
            replied = True
        else:
            text += message.raw.decode()
            ids.add(message.id)
            assert message.id == 2  # the running or last cell
    assert text.count("\n") == 800


def test_threads_print_all_their_lines(kernel: Kernel) -> None:
    r = kernel.run(
        "import threading\n"
        "def work(n):\n"
        "    for i in range(2000): print(f'<{n}:{i}>', end='')\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]\n"
        "for t in threads: t.start()\n"
        "for t in threads: t.join()\n",
        timeout=20,
    )
    assert sorted(r.out.strip("<>").split("><")) == sorted(f"{n}:{i}" for n in range(8) for i in range(2000))


def test_background_process_does_not_hold_the_reply(kernel: Kernel) -> None:
    r = kernel.run("import subprocess\np = subprocess.Popen(['yes'])", timeout=10)
    assert r.status == "ok"
    assert kernel.run("p.kill(); p.wait()").status == "ok"


@pytest.mark.parametrize(
    "code", ["os.fork() or os._exit(0)", "pid = os.fork()\nif not pid: print('child'); raise ValueError"]
)
def test_forked_child_does_not_speak_for_the_kernel(kernel: Kernel, code: str) -> None:
    r = kernel.run(f"import os\n{code}\nos.waitpid(-1, 0)\nprint('parent')")
    assert r.status == "ok"
    assert r.out.endswith("parent\n")
    assert kernel.run("1").result == "1"


def test_forked_child_prints_and_ends_with_the_cell(kernel: Kernel) -> None:
    r = kernel.run("import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('child' if not pid else 'parent')")
    assert r.out == "child\nparent\n"
    assert kernel.run("1").result == "1"


@pytest.mark.parametrize(("end", "status"), [("sys.exit(3)", 3), ("sys.exit()", 0), ("1 / 0", 1), ("sys.exit('x')", 1)])
def test_status_of_a_forked_child(kernel: Kernel, end: str, status: int) -> None:
    code = f"import os, sys\nif not (pid := os.fork()): {end}\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
    assert kernel.run(code).result == str(status)


def test_multiprocessing(kernel: Kernel) -> None:
    r = kernel.run(
        "import multiprocessing as mp\n"
        "def f(x):\n    print('in', x, flush=True)\n    return x * x\n"
        "with mp.get_context('fork').Pool(2) as pool: print(pool.map(f, range(4)))",
        timeout=20,
    )
    assert "[0, 1, 4, 9]" in r.out and r.out.count("in ") == 4


def test_faulty_stdout_replacement_does_not_stop_the_kernel(kernel: Kernel) -> None:
    kernel.run(
        "import sys\nclass Bad:\n    def write(self, t): raise ValueError\n    flush = write\n"
        "sys.stdout = sys.stderr = Bad()"
    )
    assert kernel.run("print(1)").status == "error"
    assert kernel.run("sys.stdout = sys.__stdout__\nsys.stderr = sys.__stderr__").status == "ok"
    assert kernel.run("print(2)").out == "2\n"


def test_output_of_logging_and_warnings(kernel: Kernel) -> None:
    r = kernel.run("import logging, warnings\nlogging.warning('logged')\nwarnings.warn('warned')")
    assert "logged" in r.err and "warned" in r.err


def test_limit_of_file_size_is_not_met_by_output(spawn: Callable[..., Kernel]) -> None:
    kernel = spawn(limits={"file_bytes": 1000})
    assert len(kernel.run("print('x' * 100_000)").out) == 100_001
    assert kernel.run("with open('f', 'w') as f: f.write('x' * 5000)").status == "error"


def test_a_limit_of_few_open_files(kernel: Kernel) -> None:
    """Fewer than the kernel's own thread waits for; a cell can wait for its output all the same."""
    code = (
        "import resource, time\nlimits = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))\n"
        "for i in range(50):\n    print(i, flush=True); time.sleep(0.002)\n"
        "print('x' * 16_000_000)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, limits)"
    )
    r = kernel.run(code)
    assert r.status == "ok", r.error
    assert r.out.split() == [*map(str, range(50)), "x" * 16_000_000]
    assert kernel.run("1").result == "1"
