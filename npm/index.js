// The interface of @anthropic-ai/sandbox-runtime (srt) on cellgate: docs/python-package.md, In place of srt.
import { execFileSync } from 'node:child_process'
import * as fs from 'node:fs'
import * as net from 'node:net'
import * as os from 'node:os'
import * as path from 'node:path'

const ASK_SECONDS = 600 // a question that is not answered in this time is a refusal
const FILES_MAX = 1024 // different configurations
const UNREAD_MAX = 16 << 20 // bytes that one command has not read
const KEY = 100 // characters of a command that violations are compared by, as in srt
const NOTHING = { network: { allowedDomains: [], deniedDomains: [] }, filesystem: { denyRead: [], allowWrite: [], denyWrite: [] } }

const encode = text => Buffer.from(text.slice(0, KEY)).toString('base64')
const decode = text => Buffer.from(text, 'base64').toString()
const quote = word => `'${word.replaceAll("'", "'\\''")}'`
// One line of printable characters, without the brackets that end a block of violations.
const clean = text => text.replace(/[<>\p{C}\p{Zl}\p{Zp}]/gu, ' ').slice(0, 1000)
const withoutTail = entry => (typeof entry === 'string' ? entry.replace(/\/\*\*$/, '') : entry)
const isPattern = entry => typeof entry === 'string' && /[*?[\]]/.test(withoutTail(entry))

/** A copy. A function in it would be a rule that no other process can apply, and a URL would become the name of a file. */
function copy(config) {
  return JSON.parse(JSON.stringify(config, function (name, value) {
    const was = this[name]
    const plain = typeof was !== 'object' || was === null || Array.isArray(was) || [Object.prototype, null].includes(Object.getPrototypeOf(was))
    if (typeof was === 'function') throw new Error(`${name}: cellgate takes no functions in a configuration`)
    if (was instanceof URL) throw new Error(`${name}: ${was} is a URL object: give the path of a file as text (fileURLToPath(url) of node:url)`)
    if (!plain) throw new Error(`${name}: cellgate takes only plain objects, arrays and text in a configuration, not ${was.constructor?.name ?? 'this'}`)
    return value
  }))
}

/** The last violations. */
export class SandboxViolationStore {
  #violations = []
  #total = 0
  #listeners = new Set()
  addViolation(violation, more = 0) {
    this.#violations = [...this.#violations, violation].slice(-100)
    this.#total += 1 + more
    this.#notify()
  }
  getViolations(limit) {
    return limit === undefined ? [...this.#violations] : this.#violations.slice(Math.max(this.#violations.length - limit, 0))
  }
  getCount() { return this.#violations.length }
  getTotalCount() { return this.#total }
  getViolationsForCommand(command) { return this.#violations.filter(v => v.encodedCommand === encode(command)) }
  clear() {
    this.#violations = []
    this.#notify()
  }
  subscribe(listener) {
    this.#listeners.add(listener)
    listener(this.getViolations())
    return () => this.#listeners.delete(listener)
  }
  #notify() {
    for (const listener of this.#listeners) {
      try { listener(this.getViolations()) } catch (e) { console.error('a listener for sandbox violations failed:', e) }
    }
  }
}

const store = new SandboxViolationStore()
// Masked values are made in each command, not in this process: it has none, and can make none.
const noValues = what => () => {
  throw new Error(`${what}: cellgate makes masked values itself, in each command: leave the real value where it is, and name the ` +
    'variable or file in "credentials" of the configuration with "mode": "mask"')
}
const registry = {
  size: 0,
  register: noValues('register()'),
  registerWithSentinel: noValues('registerWithSentinel()'),
  lookupReal: () => undefined,
  namesInjectableAt: () => [],
  sentinelsForHost: () => [],
  substituteInHeaders() {},
  entries: () => [].values(),
  clear() {},
}
const fileStore = { dirPath: undefined, write: noValues('write()'), dispose() {} }

let config, ask, watchFiles = false, program = process.env.CELLGATE
let initialized // promise of initialize(), until reset()
let serving // promise of
let host // {folder, server, files: Map, connections: Set}: serves the commands of this process

/** Settings for commands with this configuration, which may leave out what the program's has. */
function settingsOf(own) {
  const base = config ?? NOTHING
  return {
    ...base, ...own,
    network: networkOf(own),
    filesystem: { ...NOTHING.filesystem, ...base.filesystem, ...(own?.filesystem && { disabled: false }), ...own?.filesystem },
  }
}

/** Hosts that the program's configuration denies are denied to all commands. */
function networkOf(own) {
  const base = { ...NOTHING.network, ...config?.network }
  const denied = [...base.deniedDomains, ...(own?.network?.deniedDomains ?? [])]
  return { ...base, ...own?.network, deniedDomains: [...new Set(denied)] }
}

function stateFolder() {
  const state = process.env.XDG_STATE_HOME ?? ''
  return path.join(state.startsWith('/') ? state : path.join(os.homedir(), '.local/state'), 'cellgate')
}

/** A private folder, which every sandbox hides, and in it the socket that commands connect to. */
async function serve() {
  const above = path.join(stateFolder(), 'srt')
  fs.mkdirSync(path.dirname(stateFolder()), { recursive: true })
  for (const folder of [stateFolder(), above]) if (!fs.existsSync(folder)) fs.mkdirSync(folder, { mode: 0o700 })
  const state = fs.lstatSync(above)
  if (!state.isDirectory() || state.uid !== process.geteuid() || state.mode & 0o077) {
    throw new Error(`${above} is not a folder of this user with mode 0700: chmod or remove it`)
  }
  await Promise.all(fs.readdirSync(above).map(name => removeAbandoned(path.join(above, name))))
  const folder = fs.mkdtempSync(above + '/')
  host = { folder, server: net.createServer(accept), files: new Map(), connections: new Set() }
  process.once('exit', close)
  await new Promise((done, fail) => {
    host.server.once('error', fail)
    host.server.listen({ path: path.join(folder, 'socket'), exclusive: true, backlog: 4096 }, done)
  })
  host.server.unref()
}

function ready() {
  serving ??= serve().catch(e => {
    close()
    serving = undefined
    throw e
  })
  return serving
}

/** Removes the folder of a program that was killed. */
function removeAbandoned(folder) {
  return new Promise(done => {
    const socket = net.connect(path.join(folder, 'socket'))
    socket.once('connect', () => done(socket.destroy()))
    socket.once('error', e => {
      const old = e.code === 'ENOENT' && Date.now() - fs.statSync(folder, { throwIfNoEntry: false })?.mtimeMs > 60_000
      if (e.code === 'ECONNREFUSED' || old) fs.rmSync(folder, { recursive: true, force: true })
      done()
    })
  })
}

function close() {
  if (!host) return
  const { folder, server, connections } = host
  host = serving = undefined
  process.off('exit', close)
  server.close()
  for (const connection of connections) connection.socket.destroy()
  fs.rmSync(folder, { recursive: true, force: true })
}

/** The settings file of a command. A configuration has one, whatever the program's rules for the network are. */
function fileOf(own) {
  const settings = settingsOf(own)
  const key = JSON.stringify([{ ...settings, network: null }, own?.network ?? null])
  if (!host.files.has(key)) {
    if (host.files.size === FILES_MAX) throw new Error(`more than ${FILES_MAX} configurations: call SandboxManager.reset()`)
    const name = String(host.files.size)
    // The state folder is hidden anyway, but a command may be started with another HOME.
    settings.filesystem = { ...settings.filesystem, denyRead: [...settings.filesystem.denyRead, host.folder] }
    const file = { name, path: path.join(host.folder, name + '.json'), own, settings, changed: false }
    host.files.set(key, file)
    write(file)
  }
  return host.files.get(key)
}

function write(file) {
  fs.writeFileSync(file.path + '.new', JSON.stringify(file.settings), { mode: 0o600 })
  fs.renameSync(file.path + '.new', file.path)
}

function send(connection, message) {
  if (connection.socket.writableLength > UNREAD_MAX) connection.socket.destroy()
  else connection.socket.write(JSON.stringify(message) + '\n')
}

function accept(socket) {
  const connection = { socket, file: undefined, id: '', text: '' }
  socket.unref()
  socket.on('error', () => {}) // a command that was killed
  socket.once('close', () => host?.connections.delete(connection))
  let rest = ''
  socket.setEncoding('utf8').on('data', data => {
    const lines = (rest + data).split('\n')
    rest = lines.pop()
    try {
      for (const line of lines) receive(connection, JSON.parse(line))
    } catch {
      socket.destroy() // not a command of this process
    }
    if (rest.length > 1 << 20) socket.destroy()
  })
}

function receive(connection, message) {
  if (!connection.file) {
    const [name, id, text] = message.id.split(':')
    const file = [...host.files.values()].find(f => f.name === name)
    if (message.type !== 'start' || !file) throw new Error('unknown settings')
    Object.assign(connection, { file, id, text: decode(text) })
    host.connections.add(connection)
    if (connection.file.changed) send(connection, connection.file.settings)
  } else if (message.type === 'denied') {
    const line = clean(message.denial.line)
    for (const [part, texts] of Object.entries(config?.ignoreViolations ?? {})) {
      if ((part === '*' || connection.text.includes(part)) && texts.some(t => line.includes(t))) return
    }
    store.addViolation({ line, command: connection.text, encodedCommand: connection.id, timestamp: new Date() }, message.unsent)
  } else if (message.type === 'egress_request') {
    const answer = (decision, reason) => send(connection, { type: 'answer', id: message.id, decision, reason })
    Promise.resolve({ host: message.host, port: message.port }).then(ask).then(
      a => answer(a === true ? 'once' : 'no', a?.allow === false && clean(String(a.reason)).slice(0, 500).trim() || 'user denied'),
      () => answer('no', 'user denied'))
  }
}

/** Runs `cellgate sandbox` with these settings; what it prints. */
function runWith(settings, ...words) {
  if (typeof program !== 'string' || !program.startsWith('/')) {
    throw new Error('CELLGATE in the environment, or {cellgate} of initialize(), must be the path of the program cellgate')
  }
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'cellgate-'))
  const file = path.join(folder, 'settings.json')
  try {
    fs.writeFileSync(file, JSON.stringify(settings), { mode: 0o600 })
    const options = { timeout: 60_000, maxBuffer: 64 << 20, stdio: ['ignore', 'pipe', 'pipe'] }
    return execFileSync(program, ['sandbox', '-q', '-s', file, ...words, '--', 'true'], options).toString()
  } finally {
    fs.rmSync(folder, { recursive: true, force: true })
  }
}

/** Why no command can run with these settings; undefined if it can. */
function failure(settings) {
  try {
    runWith(settings)
  } catch (e) {
    // 126, 127: these settings hide `true` itself.
    return [126, 127].includes(e.status) ? undefined : e.stderr?.toString().trim() || e.message
  }
}

/** Paths that these settings hide, each with the entry that does it, as `filesystem.denyRead.0`. */
function hiddenBy(settings) {
  return JSON.parse(runWith(settings, '--explain=json')).mounts.filter(m => m.view === 'hidden' && m.rule)
}

/** Entries as paths: patterns as what matches them now. */
function expand(entries) {
  const patterns = entries.filter(isPattern)
  const filesystem = { ...NOTHING.filesystem, denyRead: patterns }
  const found = patterns.length ? hiddenBy({ ...NOTHING, filesystem }) : []
  const of = entry => found.filter(m => m.rule === `filesystem.denyRead.${patterns.indexOf(entry)}`).map(m => m.path)
  return [...new Set(entries.flatMap(e => (isPattern(e) ? of(e) : [withoutTail(e.path ?? e)])))]
}

/** Files of credentials that no command can read; a masked one whose secret is not found may be among them. */
function deniedCredentials() {
  const files = config.credentials?.files ?? []
  const denied = files.filter(f => f.mode === 'deny').map(f => f.path)
  const mayBe = files.some(f => f.onExtractNoMatch === 'deny')
  const hidden = mayBe ? hiddenBy({ ...config, filesystem: NOTHING.filesystem }).filter(m => m.rule === 'credentials.files') : []
  return [...denied, ...hidden.map(m => m.path)]
}

function replaceConfig(wanted) {
  config = wanted
  for (const file of host?.files.values() ?? []) {
    file.settings.network = networkOf(file.own)
    file.changed = true
    write(file)
  }
  for (const connection of host?.connections ?? []) send(connection, connection.file.settings)
}

async function start(wanted, sandboxAskCallback, enableLogMonitor) {
  const reason = failure(wanted)
  if (reason) throw new Error(`Sandbox dependencies are not available on this system. ${reason}`)
  await ready()
  ask = sandboxAskCallback
  watchFiles = enableLogMonitor
  replaceConfig(wanted)
}

/** Runs commands of this program in sandboxes. */
export const SandboxManager = {
  askCallbackDenyReason: true,
  async initialize(runtimeConfig, sandboxAskCallback, enableLogMonitor = false, options = {}) {
    if (initialized) return initialized
    program = options.cellgate ?? program
    const mine = start(copy(runtimeConfig), sandboxAskCallback, enableLogMonitor)
    initialized = mine
    try {
      await mine
    } catch (e) {
      if (initialized === mine) initialized = undefined
      throw e
    }
  },
  async wrapWithSandboxArgv(command, binShell, customConfig, abortSignal, cwd, options) {
    abortSignal?.throwIfAborted()
    if ((command + (binShell ?? '')).includes('\0')) throw new TypeError('a command cannot contain NUL')
    await ready()
    const file = fileOf(customConfig && copy(customConfig))
    const id = [file.name, encode(options?.commandId ?? command), encode(options?.commandText ?? command)].join(':')
    const argv = [program ?? '/CELLGATE is not set', 'sandbox', '--quiet', '--settings', file.path]
    argv.push('--control-socket', path.join(host.folder, 'socket'), '--control-id', id)
    if (ask) argv.push(`--ask=${ASK_SECONDS}`)
    if (watchFiles) argv.push('--watch-files')
    if (!binShell) argv.push('-c', command)
    else argv.push('--', binShell, '-c', ...(command.startsWith('-') ? ['--'] : []), command)
    return { argv, env: process.env }
  },
  async wrapWithSandbox(command, binShell, customConfig, abortSignal, options) {
    const { argv } = await SandboxManager.wrapWithSandboxArgv(command, binShell, customConfig, abortSignal, undefined, options)
    return argv.map(quote).join(' ')
  },
  /** An Error, and nothing changes, if no command could run with it. */
  updateConfig(newConfig) {
    const wanted = copy(newConfig)
    const reason = failure(wanted)
    if (reason) throw new Error(`updateConfig: the configuration is not changed. ${reason}`)
    replaceConfig(wanted)
  },
  async reset() {
    close()
    ask = initialized = undefined
  },
  checkDependencies: () => ({ errors: [failure(NOTHING)].filter(Boolean), warnings: [] }),
  checkDependenciesAsync: async () => SandboxManager.checkDependencies(),
  annotateStderrWithSandboxFailures(command, stderr) {
    const lines = config ? store.getViolationsForCommand(command).map(v => v.line) : []
    return lines.length ? [stderr, '<sandbox_violations>', ...lines, '</sandbox_violations>'].join('\n') : stderr
  },
  getLinuxGlobPatternWarnings: () => (config?.filesystem.disabled ? [] : config?.filesystem.allowWrite ?? []).filter(isPattern),
  getSandboxViolationStore: () => store,
  getConfig: () => config,
  isSupportedPlatform: () => process.platform === 'linux',
  isSandboxingEnabled: () => config !== undefined,
  waitForNetworkInitialization: async () => config !== undefined && host !== undefined,
  cleanupAfterCommand() {}, // commands clean up after themselves
  getFsReadConfig() {
    const rules = config?.filesystem
    if (!rules || rules.disabled) return { denyOnly: [], allowWithinDeny: [] }
    const denyOnly = [...new Set([...expand(rules.denyRead), ...deniedCredentials()])]
    return { denyOnly, allowWithinDeny: expand(rules.allowRead ?? []) }
  },
  getFsWriteConfig() {
    const rules = config?.filesystem
    if (rules?.disabled) return { allowOnly: ['/'], denyWithinAllow: [] }
    const allowed = (rules?.allowWrite ?? []).filter(e => !isPattern(e)).map(e => withoutTail(e.path ?? e))
    return { allowOnly: [...getDefaultWritePaths(), ...allowed], denyWithinAllow: expand(rules?.denyWrite ?? []) }
  },
  getNetworkRestrictionConfig() {
    if (!config) return {}
    const { allowedDomains: allowedHosts, deniedDomains: deniedHosts } = config.network
    return { allowedHosts, ...(deniedHosts.length && { deniedHosts }) }
  },
  getAllowUnixSockets: () => config?.network.allowUnixSockets,
  getAllowLocalBinding: () => config?.network.allowLocalBinding,
  getAllowMachLookup: () => config?.network.allowMachLookup,
  getIgnoreViolations: () => config?.ignoreViolations,
  getEnableWeakerNestedSandbox: () => config?.enableWeakerNestedSandbox,
  getProxyPort: () => (host ? config?.network.httpProxyPort ?? 3128 : undefined), // inside of every sandbox
  getSocksProxyPort: () => (host ? config?.network.socksProxyPort ?? 1080 : undefined),
  getProxyAuthToken: () => undefined, // only its sandbox reaches a proxy
  getLinuxHttpSocketPath: () => undefined,
  getLinuxSocksSocketPath: () => undefined,
  getSentinelRegistry: () => registry,
  getMaskedFileStore: () => fileStore,
  getAwsPairRegistry: () => ({ size: 0, clear() {} }),
  getMitmCA: () => undefined, // cellgate ends no TLS
}

/** What every command can write: devices, and a folder for temporary files of its own. */
export const getDefaultWritePaths = () => ['/dev/stdout', '/dev/stderr', '/dev/null', '/dev/tty', `/tmp/claude-${process.geteuid()}`]
