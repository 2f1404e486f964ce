"""Cells of a session whose language is node: for each name a list of (code, what is expected).

Expected: the text of the value; None, if there is none; Out(standard output); Err(regular expression of standard
error); Fails(name of the error, regular expression of its lines).
"""

from __future__ import annotations

from typing import NamedTuple


class Out(NamedTuple):
    text: str


class Err(NamedTuple):
    pattern: str


class Fails(NamedTuple):
    name: str
    pattern: str


TICK = "await new Promise((r) => setTimeout(r, 50));"
WASM = "new Uint8Array([0,97,115,109,1,0,0,0,1,7,1,96,2,127,127,1,127,3,2,1,0,7,7,1,3,97,100,100,0,0,10,9,1,7,0,32,0,32,1,106,11])"

# All run in one session: names that another case declares otherwise are not used again.
CELLS: dict[str, list[tuple[str, object]]] = {
    # ---- state
    "let": [("let x = 5", None), ("x + 1", "6")],
    "let-again": [("let x = 1", None), ("let x = 2; x", "2")],
    "const-again": [("const k = 1", None), ("const k = 2; k", "2")],
    "const-cannot-be-assigned": [("const k = 1", None), ("k = 2", Fails("TypeError", "constant variable"))],
    "let-as-const": [("let x = 1", None), ("const x = 3", Fails("SyntaxError", "already been declared")), ("x", "1")],
    "class-again": [("class A { f() { return 1; } }", None), ("class A { f() { return 2; } }; new A().f()", "2")],
    "function": [("function f() { return g(); }", None), ("function g() { return 7; }", None), ("f()", "7")],
    "closure": [("let n = 0; const next = () => ++n", None), ("next(); next()", "2"), ("n", "2")],
    "var": [("var v = 1", None), ("globalThis.v", "1")],
    "destructuring": [("const { a, b: [c] } = { a: 1, b: [2] }", None), ("a + c", "3")],
    "twice-in-one-cell": [("let x; let x", Fails("SyntaxError", "already been declared"))],
    "after-an-error": [("let x = 1; throw new Error('e')", Fails("Error", "e")), ("x", "1")],
    "failed-declaration": [("let y = none", Fails("ReferenceError", "none")), ("let y = 1; y", "1")],
    # ---- await
    "await": [("await 3", "3")],
    "await-timer": [(TICK + "'late'", "'late'")],
    "await-const": [("const k = await Promise.resolve(4)", None), ("k", "4")],
    "await-redeclared": [("const k = await 1", None), ("const k = await 2; k", "2")],
    "await-in-for": [("let s = 0; for (const p of [1, 2]) s += await p; s", "3")],
    "for-await": [
        ("async function* g() { yield 1; yield 2; }", None),
        ("let s = []; for await (const x of g()) s.push(x); s", "[ 1, 2 ]"),
    ],
    "rejection": [("await Promise.reject(new RangeError('no'))", Fails("RangeError", "no"))],
    "error-after-await": [("await 1;\nnull.x", Fails("TypeError", r"In\[\d+\]:2"))],
    "await-in-function": [("async function f() { await 1; return 5; }", None), ("await f()", "5")],
    "promise-is-a-value": [("Promise.resolve(1)", "Promise { 1 }")],
    # ---- values
    "no-value": [("const k = 1;", None), ("undefined", None), ("", None), ("// nothing", None)],
    "null": [("null", "null")],
    "string": [("'a\\n'", "'a\\n'")],
    "object": [
        ("({ a: 1, b: [1, 2], c: { d: new Map([[1, 2]]) } })", "{ a: 1, b: [ 1, 2 ], c: { d: Map(1) { 1 => 2 } } }")
    ],
    "bigint": [("2n ** 70n", "1180591620717411303424n")],
    "numbers": [("[NaN, -0, Infinity]", "[ NaN, -0, Infinity ]"), ("NaN", "NaN"), ("-0", "-0")],
    "symbol": [("Symbol('s')", "Symbol(s)")],
    "function-value": [("(function f() {})", "[Function: f]")],
    "last-expression": [("1; 2; 3", "3"), ("if (true) { 4 }", "4")],
    "utf-8": [("'größe €'.length", "7"), ("console.log('größe €')", Out("größe €\n"))],
    "error-as-value": [("new Error('v').message", "'v'")],
    # ---- output
    "console": [("console.log('a', 1, { b: 2 })", Out("a 1 { b: 2 }\n")), ("console.error('e')", Err("^e\n$"))],
    "console-table": [("console.table([[1]]); console.group('g'); console.log('x'); console.groupEnd()", None)],
    "stdout": [("process.stdout.write('a'); undefined", Out("a"))],
    "much": [("for (let i = 0; i < 30000; i++) console.log('x'.repeat(99))", Out(("x" * 99 + "\n") * 30000))],
    "timer": [("setTimeout(() => console.log('late'), 10);" + TICK, Out("late\n"))],
    "throw-in-a-timer": [
        ("setTimeout(() => { throw new Error('late') }, 10);" + TICK + "7", Err("Uncaught Error: late")),
        ("8", "8"),
    ],
    "unhandled-rejection": [("Promise.reject(new Error('lost'));" + TICK, Err("Uncaught .*Error: lost")), ("8", "8")],
    "throw-in-an-immediate": [("setImmediate(() => { throw new Error('soon') });" + TICK, Err("Uncaught Error: soon"))],
    "throw-in-a-listener": [
        (
            "const e = new (require('events'))(); e.on('x', () => { throw new Error('heard') });"
            "setTimeout(() => e.emit('x'), 10);" + TICK,
            Err("Uncaught Error: heard"),
        ),
        ("e.listenerCount('x')", "1"),
    ],
    "stdout-callback": [("await new Promise((r) => process.stdout.write('a', 'utf8', r)); undefined", Out("a"))],
    "stdout-bytes": [("process.stdout.write(new Uint8Array([97, 10])); undefined", Out("a\n"))],
    "stdout-of-a-pipe": [
        ("require('stream').Readable.from(['a', 'b']).pipe(process.stdout);" + TICK, Out("ab")),
        ("console.log('c')", Out("c\n")),
    ],
    "stdout-ended": [("process.stdout.end('a'); console.log('b')", Out("ab\n")), ("console.log('c')", Out("c\n"))],
    # ---- errors
    "throw": [
        (
            "function f() {\n  throw new TypeError('bad');\n}\nf()",
            Fails("TypeError", r"at f \(In\[\d+\]:2:9\)\n.*In\[\d+\]:4"),
        )
    ],
    "only-own-frames": [("throw new Error('e')", Fails("Error", r"^Error: e\n    at In\[\d+\]:1:7$"))],
    "throw-no-error": [("throw 5", Fails("Error", "Uncaught 5")), ("throw { a: 1 }", Fails("Error", "a: 1"))],
    "syntax-error": [("1 +\n 2 3", Fails("SyntaxError", r"In\[\d+\]:2\n 2 3\n   \^\nSyntaxError"))],
    "cause": [("throw new Error('a', { cause: new Error('b') })", Fails("Error", "caused by Error: b"))],
    "own-error": [("class My extends Error { name = 'My'; }", None), ("throw new My('m')", Fails("My", "m"))],
    "unknown-name": [("none", Fails("ReferenceError", "none is not defined"))],
    "deep-recursion": [("function f() { return f() + 1; } f()", Fails("RangeError", "call stack"))],
    "exit": [("process.exit(3)", Fails("ExitStatus", "exit status 3")), ("process.exit(0)", None), ("1", "1")],
    "strict": [("'use strict'; none = 1", Fails("ReferenceError", "none"))],
    "bad-argument": [("new Array(-1)", Fails("RangeError", "Invalid array length"))],
    # ---- modules
    "require": [("require('path').join('a', 'b')", "'a/b'")],
    "import": [("import fs from 'node:fs'", None), ("typeof fs.readFileSync", "'function'")],
    "import-names": [("import { join as j, sep } from 'path'", None), ("j('a', sep)", "'a/'")],
    "import-all": [("import * as os from 'os'; typeof os.cpus", "'function'")],
    "import-default-and-names": [("import p, { join } from 'path'; p.join === join", "true")],
    "import-lines": [("import {\n  join,\n} from 'path'\nthrow new Error('e')", Fails("Error", r"In\[\d+\]:4"))],
    "import-again": [("import { join } from 'path'", None), ("import { join } from 'path'; typeof join", "'function'")],
    "import-call": [
        ("(await import('path')).sep", "'/'"),
        ("const load = (m) => import(m); (await load('path')).sep", "'/'"),
    ],
    "import-in-a-string": [("`import x from 'none'`.length", "20")],
    "import-none": [("import 'none'", Fails("Error", "Cannot find package 'none'"))],
    "import-package": [("import { one } from 'pack'; one", "1"), ("require('common').two", "2")],
    "import-file": [("import { three } from './own.mjs'; three", "3"), ("require('./own.cjs').four", "4")],
    "import-json": [("require('./data.json')", "{ a: 1 }")],
    # ---- Node
    "files": [("require('fs').writeFileSync('f', 'x')", None), ("require('fs').readFileSync('f', 'utf8')", "'x'")],
    "child-process": [("require('child_process').execSync('echo a').toString()", "'a\\n'")],
    "worker": [
        (
            "const { Worker } = require('worker_threads');"
            "await new Promise((r) => new Worker('require(\"worker_threads\").parentPort.postMessage(6 * 7)', { eval: true }).on('message', r))",
            "42",
        )
    ],
    "worker-console": [
        (
            "await new Promise((r) => new (require('worker_threads').Worker)('console.log(1)', { eval: true }).on('exit', r))",
            Out("1\n"),
        )
    ],
    "worker-error": [
        (
            "await new Promise((_, no) => new (require('worker_threads').Worker)('none', { eval: true }).on('error', no))",
            Fails("ReferenceError", "none is not defined"),
        )
    ],
    "worker-exit": [
        (
            "await new Promise((r) => new (require('worker_threads').Worker)('process.exit(3)', { eval: true }).on('exit', r))",
            "3",
        )
    ],
    "shared-memory": [
        (
            "const m = new Int32Array(new SharedArrayBuffer(4));"
            "new (require('worker_threads').Worker)('const m = require(\"worker_threads\").workerData;"
            "Atomics.store(m, 0, 5); Atomics.notify(m, 0)', { eval: true, workerData: m });"
            "Atomics.wait(m, 0, 0, 9000); m[0]",
            "5",
        )
    ],
    "native-add-on": [
        ("require('./native.node').answer", "42"),
        ("process.dlopen(module = { exports: {} }, 'none')", Fails("Error", "none")),
    ],
    "child-with-our-output": [
        (
            "require('child_process').execSync('seq 100000 | tail -1; seq 30000', { stdio: 'inherit' }); undefined",
            Out("100000\n" + "".join(f"{i}\n" for i in range(1, 30001))),
        )
    ],
    "child-that-fails": [("require('child_process').execSync('exit 4', { stdio: 'pipe' })", Fails("Error", "exit 4"))],
    "listener-of-a-signal": [
        (
            "process.once('SIGINT', () => console.log('heard')); process.kill(process.pid, 'SIGINT');" + TICK,
            Out("heard\n"),
        ),
        ("1", "1"),
    ],
    "timers-as-promises": [("await require('timers/promises').setTimeout(5, 'late')", "'late'")],
    "abort": [
        (
            "await require('timers/promises').setTimeout(9e5, 0, { signal: AbortSignal.timeout(10) })",
            Fails("AbortError", "aborted"),
        )
    ],
    "wasm-trap": [
        (
            "const trap = new Uint8Array([0,97,115,109,1,0,0,0,1,4,1,96,0,0,3,2,1,0,7,5,1,1,102,0,0,10,5,1,3,0,0,11]);"
            "(await WebAssembly.instantiate(trap)).instance.exports.f()",
            Fails("RuntimeError", "unreachable"),
        )
    ],
    "wasm": [(f"const m = await WebAssembly.instantiate({WASM}); m.instance.exports.add(2, 3)", "5")],
    "buffer": [("Buffer.from('a').toString('base64')", "'YQ=='")],
    "crypto": [("require('crypto').createHash('sha256').update('').digest('hex').slice(0, 8)", "'e3b0c442'")],
    "folder": [("process.chdir('/usr'); process.cwd()", "'/usr'"), ("process.cwd()", "'/usr'")],
    "environment": [("process.env.X = '1'", "'1'"), ("process.env.X", "'1'")],
    "streams": [
        ("const { Readable } = require('stream'); (await Readable.from(['a', 'b']).toArray()).join()", "'a,b'")
    ],
    "arguments": [("process.argv.length", "1")],
}
