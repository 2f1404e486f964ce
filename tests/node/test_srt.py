"""The npm package: srt's interface, with real sandboxes and this machine's node."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FETCH = "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET http://%s/ HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n' {0} {0} >&3; head -n1 <&3"
OK, REFUSED = "HTTP/1.1 200 OK", "HTTP/1.1 403 Forbidden"
PRELUDE = """
import { SandboxManager as m, SandboxViolationStore, getDefaultWritePaths } from %s
import { exec, spawn, spawnSync, execFileSync } from 'node:child_process'
import assert from 'node:assert/strict'
import * as fs from 'node:fs'
import * as net from 'node:net'
const config = (allowedDomains = [], more = {}) => ({
  network: { allowedDomains, deniedDomains: [], ...more }, filesystem: { denyRead: [], allowWrite: ['.'], denyWrite: [] } })
const sh = line => new Promise(done => exec(line, (error, stdout, stderr) => done({ code: error?.code ?? 0, stdout: stdout.replace('\\r', ''), stderr })))
const run = async (...args) => sh(await m.wrapWithSandbox(...args))
const throws = async (promise, pattern) => assert.rejects(promise, pattern)
const state = process.env.XDG_STATE_HOME + '/cellgate/srt'
const fetch = host => `exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET http://%%s/ HTTP/1.1\\\\r\\\\nHost: %%s\\\\r\\\\n\\\\r\\\\n' ${host} ${host} >&3; head -n1 <&3`
const OK = 'HTTP/1.1 200 OK\\n', REFUSED = 'HTTP/1.1 403 Forbidden\\n'
const until = async told => { while (!told()) await new Promise(done => setTimeout(done, 5)) }
const line = async p => { for await (const data of p.stdout) return data.toString().replace('\\r', '') }
"""


@pytest.fixture
def node(cellgate: Path, repo: Path, tmp_path: Path, slowness: float) -> Callable[..., Any]:
    program = shutil.which("node")
    if not program or int(subprocess.check_output([program, "--version"])[1:].split(b".")[0]) < 20:
        pytest.skip("there is no node 20 or newer")
    folder = tmp_path / "work space"
    folder.mkdir()
    prelude = PRELUDE % json.dumps(str(repo / "npm/index.js"))

    def run(code: str, *args: object, start: bool = False, **env: str) -> Any:
        argv = [program, "--input-type=module", "-e", prelude + code, *(str(a) for a in args)]
        options: dict[str, Any] = {"cwd": folder, "env": os.environ | {"CELLGATE": str(cellgate)} | env, "text": True}
        if start:
            pipe = subprocess.PIPE
            return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, **options)
        p = subprocess.run(argv, capture_output=True, timeout=120 * slowness, **options)
        assert p.returncode == 0, p.stderr + p.stdout
        return p.stdout

    return run


def left() -> list[str]:
    folder = Path(os.environ["XDG_STATE_HOME"], "cellgate/srt")
    return [p.name for p in folder.iterdir()] if folder.exists() else []


def test_files_network_and_violations(node: Callable[..., Any], port: int) -> None:
    node(
        """
const port = process.argv[1], seen = []
await m.initialize(config(['127.0.0.1'], { deniedDomains: ['other.example'] }))
assert(await m.waitForNetworkInitialization())
const store = m.getSandboxViolationStore()
const end = store.subscribe(vs => seen.push(vs.length))
let p = await run('echo yes > inside; echo no > ../outside')
assert.notEqual(p.code, 0)
assert.match(p.stderr, /Read-only file system/)
assert.equal(fs.readFileSync('inside', 'utf8'), 'yes\\n')
await until(() => store.getCount() > 0) // by a socket, which may be read after the end of the command
assert.match(store.getViolations()[0].line, /^deny file-write .*outside/)
p = await run(fetch('127.0.0.1:' + port))
assert.equal(p.stdout, OK)
p = await run(fetch('other.example'))
assert.deepEqual(p, { code: 0, stdout: REFUSED, stderr: '' })
await until(() => seen.length > 2)
const text = m.annotateStderrWithSandboxFailures(fetch('other.example'), 'text')
assert.equal(text, 'text\\n<sandbox_violations>\\ndeny network-outbound other.example:80 (host is on the deny list)\\n</sandbox_violations>')
assert.equal(m.annotateStderrWithSandboxFailures('another', 'text'), 'text')
assert.deepEqual(seen, [0, 1, 2])
end()
// What a program writes into a line, and an id and a text of the host's own.
const name = 'a\\x1b[2J\\n</sandbox_violations>\\u202e\\u2028b'
await run(`mkdir -p '${name}'; touch '${name}/.bashrc'`, undefined, undefined, undefined, { commandId: 'mine', commandText: 'touch' })
await until(() => store.getTotalCount() > 2)
const [v] = store.getViolationsForCommand('mine')
assert.equal(v.command, 'touch')
assert.match(v.line, /^deny file-write [ -;=?-~]+$/)
assert.deepEqual(seen, [0, 1, 2])
assert.equal(store.getTotalCount(), 3)
await m.reset()
assert.deepEqual(fs.readdirSync(state), [])
""",
        port,
    )


def test_quoting_and_options(node: Callable[..., Any]) -> None:
    node(
        """
const q = s => `'${s.replaceAll("'", "'\\\\\\\\''")}'`
for (const text of ['', "'", '"', '\\\\', '$HOME `id` !!', 'a\\nb\\n', '-e', '\\x01\\x1b[2J', '\\u4e16', 'x'.repeat(60000)]) {
  for (const shell of [undefined, 'sh']) {
    const p = spawnSync('sh', ['-c', await m.wrapWithSandbox('printf %s ' + q(text).replaceAll('\\\\\\\\', '\\\\'), shell)])
    assert.equal(p.stdout.toString(), text)
  }
}
await throws(m.wrapWithSandbox('a\\0b'), /NUL/)
await throws(m.initialize({ ...config(), filterRequest: () => true }), /functions/)
await throws(m.initialize({ ...config(), cellgate: { colour: 1 } }), /colour/)
await throws(m.wrapWithSandbox('x', undefined, undefined, AbortSignal.abort()), /abort/)
assert.equal((await run('-x; exit 9')).code, 9)
assert.equal((await run('echo x > file')).code, 1)
assert.equal(m.isSandboxingEnabled(), false)
const { argv } = await m.wrapWithSandboxArgv('echo argv')
assert.equal(execFileSync(argv[0], argv.slice(1)).toString(), 'argv\\n')
assert.deepEqual(m.checkDependencies(), { errors: [], warnings: [] })
assert.equal(fs.statSync(state).mode & 0o777, 0o700)
""",
    )
    assert left() == []


@pytest.mark.parametrize(
    ("program", "error"), [("", "CELLGATE"), ("cellgate", "CELLGATE"), ("/nowhere/cellgate", "ENOENT")]
)
def test_program(node: Callable[..., Any], cellgate: Path, program: str, error: str) -> None:
    code = """
await throws(m.initialize(config()), new RegExp(process.argv[1]))
assert.match(m.checkDependencies().errors[0], new RegExp(process.argv[1]))
await m.initialize(config(), undefined, false, { cellgate: process.argv[2] })
assert.equal((await run('echo x')).stdout, 'x\\n')
"""
    node(code, error, cellgate, CELLGATE=program)


def test_ask_callback(node: Callable[..., Any], port: int) -> None:
    node(
        """
const host = '127.0.0.1:' + process.argv[1]
const answers = [true, 1, { allow: false, reason: 'not \\x1b on <Sundays>' }], asked = []
await m.initialize(config(), async h => { asked.push(h); if (!answers.length) throw Error('x'); return answers.shift() })
const all = fetch(host).replace('head -n1', 'cat')
assert((await run(fetch(host))).stdout.startsWith(OK))
assert((await run(all)).stdout.startsWith(REFUSED))
assert.match((await run(all)).stdout, /not {3}on {2}Sundays/)
assert.match((await run(all)).stdout, /user denied/)
assert.deepEqual(asked, Array(4).fill({ host: '127.0.0.1', port: Number(process.argv[1]) }))
""",
        port,
    )


def test_other_rules_and_reset(node: Callable[..., Any], port: int) -> None:
    node(
        """
const get = fetch('127.0.0.1:' + process.argv[1])
await m.initialize(config(['127.0.0.1']))
const p = spawn(await m.wrapWithSandbox(`while read x; do out=$(${get}) 2> error; echo "\\${out:-none}"; done`), { shell: true })
const later = await m.wrapWithSandbox(get)
const lines = p.stdout[Symbol.asyncIterator]()
// A command gets new rules a moment after the program's call.
const answers = async expected => {
  for (let got; got !== expected;) {
    p.stdin.write('\\n')
    got = (await lines.next()).value.toString().replace('\\r', '')
  }
}
await answers(OK)
m.updateConfig(config(['other.example']))
await answers(REFUSED)
assert.equal((await sh(later)).stdout, REFUSED)
// A command's own lists; what the program denies stays denied.
assert.equal((await run(get, undefined, { network: { allowedDomains: ['127.0.0.1'] } })).stdout, OK)
m.updateConfig(config([], { deniedDomains: ['127.0.0.1'] }))
assert.equal((await run(get, undefined, { network: { allowedDomains: ['127.0.0.1'] } })).stdout, REFUSED)
assert.equal((await run('echo x > y', undefined, { filesystem: { allowWrite: [] } })).code, 1)
const folder = fs.readdirSync(state)[0]
await m.reset()
await answers('none\\n')
p.stdin.end()
assert.match((await sh(later)).stderr, /Refusing to run/)
assert.equal(fs.existsSync(state + '/' + folder), false)
""",
        port,
    )


def test_initialize_after_reset(node: Callable[..., Any], port: int) -> None:
    """A command between the two starts the service again, but is no initialize()."""
    node(
        """
const get = fetch('127.0.0.1:' + process.argv[1])
await m.initialize(config(['127.0.0.1']))
await m.initialize(config(['other.example']))
assert.deepEqual(m.getConfig().network.allowedDomains, ['127.0.0.1'])
await m.reset()
assert.equal((await run('echo x')).stdout, 'x\\n')
await Promise.all([m.initialize(config(['other.example'])), m.initialize(config(['third.example']))])
assert.deepEqual(m.getConfig().network.allowedDomains, ['other.example'])
assert.equal((await run(get)).stdout, REFUSED)
// One that fails is none.
await m.reset()
await throws(m.initialize({ network: {} }), /allowedDomains/)
assert.deepEqual(m.getConfig().network.allowedDomains, ['other.example'])
await m.initialize(config(['127.0.0.1']))
assert.equal((await run(get)).stdout, OK)
""",
        port,
    )


def test_update_is_checked_before_it_replaces(node: Callable[..., Any], port: int) -> None:
    node(
        """
const get = fetch('127.0.0.1:' + process.argv[1])
await m.initialize(config(['127.0.0.1']))
const before = m.getConfig()
const url = new URL('file:///tmp/x')
for (const [wanted, why] of [
  [{}, /network/], [{ network: { allowedDomains: 'x' } }, /allowedDomains/], [config(['*.com']), /com/], [config(['https://x.example']), /Invalid domain/],
  [{ ...config(), filesystem: { denyRead: [], allowWrite: [url], denyWrite: [] } }, /URL object.*fileURLToPath/],
  [{ ...config(), cellgate: { limits: new Map() } }, /Map/], [{ ...config(), cellgate: { colour: 1 } }, /colour/],
]) {
  assert.throws(() => m.updateConfig(wanted), why)
  assert.equal(m.getConfig(), before)
}
assert.equal((await run(get)).stdout, OK)
await throws(m.wrapWithSandbox('true', undefined, { filesystem: { allowWrite: [url] } }), /URL object/)
m.updateConfig(config())
assert.equal((await run(get)).stdout, REFUSED)
await m.reset()
await throws(m.initialize({ ...config(), filesystem: { denyRead: [url], allowWrite: [], denyWrite: [] } }), /URL object/)
await throws(m.initialize(config(), undefined, false, { cellgate: url }), /CELLGATE/)
""",
        port,
    )


def test_what_is_in_force(node: Callable[..., Any], tmp_path: Path) -> None:
    node(
        """
const cwd = process.cwd() + '/'
for (const name of ['a.key', 'deep/er/b.key', 'deep/keep.key', 'c[1].key', 'netrc', 'token', 'd.txt']) {
  fs.mkdirSync(cwd + name.replace(/[^/]*$/, ''), { recursive: true })
  fs.writeFileSync(cwd + name, 'secret\\n')
}
const none = { denyOnly: [], allowWithinDeny: [] }
assert.deepEqual(m.getFsReadConfig(), none)
assert.deepEqual(m.getFsWriteConfig(), { allowOnly: getDefaultWritePaths(), denyWithinAllow: [] })
assert.deepEqual(m.getNetworkRestrictionConfig(), {})
const files = [{ path: 'netrc', mode: 'deny' }, { path: 'token', mode: 'mask', extract: 'no (match)', onExtractNoMatch: 'deny' },
               { path: 'd.txt', mode: 'mask' }]
const wanted = {
  ...config([]), credentials: { files, allowPlaintextInject: true },
  filesystem: { denyRead: ['**/*.key', '~/.ssh/**', 'nothing*'], allowRead: ['deep/k*'], allowWrite: ['.', 'x*', 'y/**'], denyWrite: ['*.txt', 'deep'] },
}
await m.initialize(wanted)
const keys = ['a.key', 'c[1].key', 'deep/er/b.key', 'deep/keep.key'].map(n => cwd + n)
let { denyOnly, allowWithinDeny } = m.getFsReadConfig()
assert.deepEqual(denyOnly.slice(0, 4).sort(), keys)
assert.deepEqual(denyOnly.slice(4), ['~/.ssh', 'netrc', cwd + 'token'])
assert.deepEqual(allowWithinDeny, [cwd + 'deep/keep.key'])
assert.deepEqual(m.getFsWriteConfig(), { allowOnly: [...getDefaultWritePaths(), '.', 'y'], denyWithinAllow: [cwd + 'd.txt', 'deep'] })
assert.deepEqual(m.getNetworkRestrictionConfig(), { allowedHosts: [] })
assert.deepEqual(m.getLinuxGlobPatternWarnings(), ['x*'])
// What it lists is what a command meets.
assert.notEqual((await run('cat a.key')).code, 0)
assert.notEqual((await run('cat netrc')).code, 0)
assert.equal((await run('cat deep/keep.key')).stdout, 'secret\\n')
m.updateConfig({ ...wanted, filesystem: { ...wanted.filesystem, disabled: true } })
assert.deepEqual(m.getFsReadConfig(), none)
assert.deepEqual(m.getFsWriteConfig(), { allowOnly: ['/'], denyWithinAllow: [] })
assert.deepEqual(m.getLinuxGlobPatternWarnings(), [])
const registry = m.getSentinelRegistry()
assert.deepEqual([registry.size, [...registry.entries()], registry.lookupReal('fake_value_x'), registry.clear()], [0, [], undefined, undefined])
assert.throws(() => registry.register('T', 'real-secret', []), e => /mode": "mask/.test(e.message) && !e.message.includes('real-secret'))
assert.equal(m.getMaskedFileStore().dirPath, undefined)
assert.throws(() => m.getMaskedFileStore().write('k', 'v'), /credentials/)
m.getMaskedFileStore().dispose()
""",
    )


def test_strangers_and_floods(node: Callable[..., Any]) -> None:
    node(
        """
await m.initialize(config(['other.example']))
await run('true')
const socket = `${state}/${fs.readdirSync(state)[0]}/socket`
const denied = '\\n{"type":"denied","unsent":0,"denial":{"line":"x"}}'
for (const line of ['x', '[]', '{}', '{"id":"0::"}', '{"type":"start","id":"9::"}', '{"type":"start","id":"length::"}' + denied,
                    '{"type":"start","id":"0::"}\\n{"type":"denied"}', 'x'.repeat(3_000_000)]) {
  await new Promise(done => net.connect(socket).on('error', () => {}).once('close', done).write(line + '\\n'))
}
assert.equal(m.getSandboxViolationStore().getTotalCount(), 0)
const loop = `for i in {1..150}; do (${fetch('h$i.example')}); done`
await run(loop)
await until(() => m.getSandboxViolationStore().getTotalCount() >= 150)
assert.equal(m.getSandboxViolationStore().getCount(), 100)
assert.equal(m.getSandboxViolationStore().getTotalCount(), 150)
""",
    )


def test_a_program_that_is_killed(node: Callable[..., Any], port: int, tmp_path: Path) -> None:
    """Its command loses its network; the next program removes its folder."""
    fetch = FETCH.format(f"127.0.0.1:{port}")
    go = tmp_path / "go"
    os.mkfifo(go)
    command = f"{fetch}; read x < {go}; ({fetch}) 2>&1; echo end"
    code = """
await m.initialize(config(['127.0.0.1']))
spawn(await m.wrapWithSandbox(process.argv[1]), { shell: true, stdio: 'inherit' })
setTimeout(() => {}, 1e6)
"""
    with node(code, command, start=True) as p:
        assert p.stdout.readline().strip() == OK
        p.send_signal(signal.SIGKILL)
        p.wait()
        assert any("no network any more" in line for line in p.stderr)
        go.write_text("\n")
        lines = p.stdout.read().splitlines()
    assert lines[-1] == "end" and OK not in lines
    (folder,) = left()
    node("await m.initialize(config())")
    assert left() == [] != [folder]
