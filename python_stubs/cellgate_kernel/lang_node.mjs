// Runs the cells of a session whose language is node: node lang_node.mjs DESCRIPTOR. See lang_node.py.
//
// Cells are evaluated by V8's inspector in its REPL mode, which knows top-level await and lets `let` and `const` be
// declared again, inside of a script of vm that SIGINT ends. Objects go to the kernel and come from it as JSON, one
// a line. Values of variables follow a line that has their sizes, or precede one (languages.py).

import fs from "node:fs";
import inspector from "node:inspector";
import { createRequire } from "node:module";
import * as nodeModule from "node:module";
import net from "node:net";
import path from "node:path";
import { Writable } from "node:stream";
import { pathToFileURL } from "node:url";
import util from "node:util";
import vm from "node:vm";

const fd = Number(process.argv[2]);
const installed = process.argv.splice(1).slice(2); // folders with node_modules
process.execArgv.splice(0);
const internal = createRequire(import.meta.url);
const socket = new net.Socket({ fd, readable: true, writable: true });
const { startSigintWatchdog, stopSigintWatchdog } = internal("internal/test/binding").internalBinding("contextify");
const session = new inspector.Session();
session.connect();

const OWN_FRAME = /^ +at .*(node:inspector|evalmachine\.<anonymous>|node:vm|\/lang_node\.mjs)/;
const PICTURES = [
  ["image/png", [0x89, 0x50, 0x4e, 0x47]],
  ["image/jpeg", [0xff, 0xd8, 0xff]],
  ["image/gif", [0x47, 0x49, 0x46, 0x38]],
];
const BUNDLE = Symbol.for("Jupyter.display");
const GROUP = { objectGroup: "cell" }; // the inspector keeps the values of a cell until its end
const MAX_LEVELS = 190; // as in values.py

const queue = []; // lines for the kernel
let begun = false; // the first may have been sent in part
const pause = new Int32Array(new SharedArrayBuffer(4));

function write(fd, text, encoding) {
  let data = text instanceof Uint8Array ? text : Buffer.from(text, encoding); // a TypeError for others
  while (data.length) {
    try {
      data = data.subarray(fs.writeSync(fd, data));
    } catch (e) {
      if (e.code !== "EAGAIN") throw e;
      Atomics.wait(pause, 0, 0, 1);
    }
  }
}

/**
 * SIGINT may end this within a cell, at any place, where a stream would wait for ever: the line is sent again when the
 * cell has ended. The kernel ignores a part of a line, and a request that it has got.
 */
function sendAll() {
  while (queue.length) {
    const again = begun;
    begun = true;
    write(fd, `${again ? "\n" : ""}${queue[0]}\n`);
    queue.shift();
    begun = false;
  }
}

function sendLine(line) {
  queue.push(line);
  sendAll();
}

function send(message) {
  sendLine(JSON.stringify(message));
}

/** Standard output or error, also without the state of a stream. */
class Output extends Writable {
  constructor(fd) {
    super();
    this.fd = fd;
  }

  write(chunk, encoding, done) {
    write(this.fd, chunk, typeof encoding === "string" ? encoding : "utf8");
    const then = typeof encoding === "function" ? encoding : done;
    if (then) process.nextTick(then);
    return true;
  }

  end(...last) {
    if (last.length && typeof last[0] !== "function") this.write(...last);
    return this;
  }
}

for (const [name, fd] of [["stdout", 1], ["stderr", 2]])
  Object.defineProperty(process, name, { value: new Output(fd), configurable: true, enumerable: true });

// ---- tools

const requests = new Map();
let lastRequest = 0;

class ToolError extends Error {
  constructor(message, kind) {
    super(message);
    this.name = this.constructor.name;
    this.kind = kind;
  }
}

class RejectedError extends ToolError {}

/** Ask the kernel; rejects with ToolError, RejectedError or Error. */
function request(...what) {
  return new Promise((resolve, reject) => {
    const id = ++lastRequest;
    requests.set(id, { resolve, reject });
    try {
      send({ id, request: what });
    } catch (e) {
      requests.delete(id);
      reject(e);
    }
  });
}

function onAnswer({ id, value, error }) {
  const waiting = requests.get(id);
  requests.delete(id);
  if (!waiting) return;
  if (!error) waiting.resolve(value);
  else if (error.kind === "rejected") waiting.reject(new RejectedError(error.message, error.kind));
  else if (error.kind) waiting.reject(new ToolError(error.message, error.kind));
  else waiting.reject(new Error(error.message));
}

/** The module of a server: a function for each tool, which takes an object and returns a promise of its result. */
async function serverModule(server) {
  const tools = await request("tools", server);
  const module = { __proto__: null };
  for (const [name, doc] of Object.entries(tools)) {
    const call = async (params = {}) => request("call", server, name, params);
    module[name] = Object.defineProperties(call, { name: { value: name }, doc: { value: doc } });
  }
  return Object.freeze(module);
}

const mcptools = Object.freeze({
  RejectedError,
  ToolError,
  servers: () => request("servers"),
  search: (words) => request("search", String(words)),
  types: (...server) => request("types", ...server.slice(0, 1).map(String)),
  help: (server, tool) => request("help", String(server), tool === undefined ? "" : String(tool)),
});

// ---- import

/** What import does in a cell: modules are looked for from the current folder. */
async function importModule(specifier, options) {
  const name = String(specifier);
  if (name === "mcptools") return mcptools;
  if (name.startsWith("mcptools/")) return serverModule(name.slice("mcptools/".length));
  let error;
  for (const folder of [process.cwd(), ...installed]) {
    try {
      return import(import.meta.resolve(name, pathToFileURL(path.join(folder, "cell.mjs")).href), options);
    } catch (e) {
      error ??= e;
    }
  }
  let file;
  try {
    file = globalThis.require.resolve(name); // also NODE_PATH, and packages for require()
  } catch {
    throw error;
  }
  return import(pathToFileURL(file).href, options);
}

/** Lets require() find them, without a variable that programs of cells would get. */
function addInstalled() {
  const before = process.env.NODE_PATH;
  process.env.NODE_PATH = [before, ...installed.map((folder) => path.join(folder, "node_modules"))].filter(Boolean).join(":");
  nodeModule._initPaths();
  if (before === undefined) delete process.env.NODE_PATH;
  else process.env.NODE_PATH = before;
}

let parser;

function parse(code) {
  parser ??= {
    ...internal("internal/deps/acorn/acorn/dist/acorn"),
    walk: internal("internal/deps/acorn/acorn-walk/dist/walk"),
  };
  for (const sourceType of ["module", "script"]) {
    try {
      return parser.parse(code, { ecmaVersion: "latest", sourceType, allowAwaitOutsideFunction: true });
    } catch {
      // V8 reports what is wrong
    }
  }
  return undefined;
}

function declarationOf(node, code) {
  const from = `await __cellgate_import(${node.source.raw})`;
  const names = [];
  let all = "";
  for (const s of node.specifiers) {
    if (s.type === "ImportNamespaceSpecifier") all = s.local.name;
    else if (s.type === "ImportDefaultSpecifier") names.push(`default: ${s.local.name}`);
    else names.push(`${code.slice(s.imported.start, s.imported.end)}: ${s.local.name}`);
  }
  const parts = [];
  if (all) parts.push(`const ${all} = ${from};`);
  if (names.length) parts.push(`const { ${names.join(", ")} } = ${all || from};`);
  const text = parts.join(" ") || `${from};`;
  // As many lines as before: errors name the lines of the cell.
  return text + "\n".repeat(code.slice(node.start, node.end).split("\n").length - 1);
}

/** The code with calls in place of import, which scripts do not have. */
function withImports(code) {
  if (!/\bimport\b/.test(code)) return code;
  const tree = parse(code);
  if (!tree) return code;
  const changes = [];
  parser.walk.full(tree, (node) => {
    if (node.type === "ImportDeclaration") changes.push([node.start, node.end, declarationOf(node, code)]);
    else if (node.type === "ImportExpression")
      changes.push([node.start, node.start + "import".length, "__cellgate_import"]);
  });
  changes.sort((a, b) => b[0] - a[0]);
  for (const [start, end, text] of changes) code = code.slice(0, start) + text + code.slice(end);
  return code;
}

function withoutTypes(code) {
  if (!nodeModule.stripTypeScriptTypes)
    throw new SyntaxError(`node ${process.version} does not strip types: TypeScript needs 22.13 or later`);
  return nodeModule.stripTypeScriptTypes(code);
}

// ---- values and errors

const held = { value: undefined };

/** The object that a RemoteObject of the inspector stands for. */
function objectOf(remote) {
  held.value = undefined;
  const call = { functionDeclaration: "function () { __cellgate_hold(this); }", objectId: remote.objectId, ...GROUP };
  session.post("Runtime.callFunctionOn", call);
  const { value } = held;
  held.value = undefined;
  return value;
}

function valueOf(remote) {
  if (remote.objectId && remote.type !== "symbol") return objectOf(remote);
  if (remote.unserializableValue?.endsWith("n")) return BigInt(remote.unserializableValue.slice(0, -1));
  return remote.unserializableValue ? Number(remote.unserializableValue) : remote.value;
}

/** A MIME bundle of what display() gets, or of a cell's value. */
function bundleOf(value) {
  if (value instanceof Uint8Array) {
    for (const [mime, magic] of PICTURES)
      if (magic.every((byte, i) => value[i] === byte))
        return { [mime]: Buffer.from(value).toString("base64"), "text/plain": `<${mime}>` };
  }
  const own = value !== null && typeof value === "object" ? value[BUNDLE] : undefined;
  if (typeof own === "function") return encoded(own.call(value));
  return { "text/plain": util.inspect(value) };
}

function encoded(bundle) {
  const found = {};
  for (const [mime, data] of Object.entries(bundle))
    found[mime] = data instanceof Uint8Array ? Buffer.from(data).toString("base64") : data;
  return found;
}

/** display(value), or display({MIME type: data, ...}): bytes become base64. */
function display(value) {
  const keys = value !== null && typeof value === "object" ? Object.keys(value) : [];
  const isBundle = keys.length > 0 && keys.every((key) => /^[\w.+-]+\/[\w.+-]+$/.test(key));
  send({ display: isBundle ? encoded(value) : bundleOf(value) });
}

class ExitError extends Error {
  constructor(code) {
    super(`process.exit(${code})`);
    this.code = code;
  }
}

function linesOf(error) {
  const lines = String(error.stack ?? error).split("\n");
  const own = lines.findIndex((line) => OWN_FRAME.test(line));
  return own < 0 ? lines : lines.slice(0, own);
}

function errorOf(error, details, code) {
  if (!(error instanceof Error)) return { name: "Error", message: util.inspect(error), lines: [`Uncaught ${util.inspect(error)}`] };
  const lines = linesOf(error);
  for (let cause = error.cause; cause instanceof Error && lines.length < 200; cause = cause.cause)
    lines.push(...linesOf(cause).map((line, i) => (i ? line : `caused by ${line}`)));
  if (error instanceof SyntaxError && details && !lines.some((line) => line.includes(details.url))) {
    const { lineNumber, columnNumber, url } = details;
    lines.unshift(`${url}:${lineNumber + 1}`, code.split("\n")[lineNumber] ?? "", " ".repeat(columnNumber) + "^");
  }
  return { name: String(error.name), message: String(error.message), lines, refused: error instanceof RejectedError };
}

// ---- cells

let running; // {number}
let evaluates = false;

function evaluate(expression, done) {
  globalThis.__cellgate_run = () =>
    session.post("Runtime.evaluate", { expression, replMode: true, generatePreview: false, ...GROUP }, done);
  // With a listener, vm has its own way, which includes moments in which SIGINT ends node.
  const listens = process.listenerCount("SIGINT") > 0;
  evaluates = true;
  if (listens) stopSigintWatchdog();
  try {
    vm.runInThisContext("__cellgate_run()", { breakOnSigint: true });
  } finally {
    if (listens) startSigintWatchdog();
    evaluates = false;
    sendAll();
  }
}

function settle(number, reply) {
  if (running?.number !== number) return;
  send({ done: number, ...reply }); // first: SIGINT may end this
  running = undefined;
  session.post("Runtime.releaseObjectGroup", GROUP);
}

/** The kernel interrupts the cell; by SIGINT as well if this is not read. */
function interrupt({ interrupt: number }) {
  if (running?.number === number) settle(number, { interrupted: true });
  else Atomics.wait(pause, 0, 0, 5); // it has ended: the signal may be on its way to vm's thread, and is for no other cell
}

function showResult(number, name, code, error, result) {
  // A signal that node sends to itself takes its inspector down: it ends, if not by the signal.
  if (/context/i.test(error?.message)) return void setImmediate(() => process.reallyExit(1));
  let reply;
  try {
    if (error) throw new Error(error.message);
    const { exceptionDetails: details } = result;
    if (details) {
      const thrown = valueOf(details.exception);
      if (thrown instanceof ExitError) reply = { exit: thrown.code };
      else reply = { error: errorOf(thrown, { ...details, url: name }, code) };
    } else if (result.result.type !== "undefined") {
      const remote = result.result;
      reply = { value: remote.type === "symbol" ? { "text/plain": remote.description } : bundleOf(valueOf(remote)) };
    }
  } catch (e) {
    reply = { error: errorOf(e) };
  }
  settle(number, reply ?? {});
}

function runCell({ cell: number, code, name, typescript }) {
  running = { number };
  try {
    const text = withImports(typescript ? withoutTypes(code) : code);
    evaluate(`${text}\n//# sourceURL=${name}`, (error, result) => showResult(number, name, code, error, result));
  } catch (e) {
    settle(number, e?.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED" ? { interrupted: true } : { error: errorOf(e) });
  }
}

// ---- variables that the host sets and reads

class Problem extends Error {
  constructor(text, value, path) {
    super(text);
    this.kind = value === null ? "null" : (typeof value === "object" && value.constructor?.name) || typeof value;
    this.path = path.map((step) => `[${JSON.stringify(step)}]`).join("");
  }
}

function post(method, options = {}) {
  return new Promise((resolve, reject) =>
    session.post(method, options, (error, found) => (error ? reject(new Error(error.message)) : resolve(found))),
  );
}

async function evaluateNow(expression) {
  const { result, exceptionDetails } = await post("Runtime.evaluate", { expression, replMode: true, silent: true, ...GROUP });
  if (exceptionDetails) throw new Error(String(exceptionDetails.exception.description).split("\n", 1)[0]);
  return result;
}

const isDefined = async (name) => name in globalThis || (await evaluateNow(`typeof ${name}`)).value !== "undefined";

// Set by check(): JSON.stringify() writes a float beyond 2^53 as Python writes an integer, which the kernel corrects.
let large = false;

/** Throws Problem unless JSON has exactly this value, or, if that is not wanted, some form of it. */
function check(value, lossy, path = []) {
  const fail = (text) => {
    if (!lossy) throw new Problem(text, value, path);
  };
  if (value === null || typeof value === "boolean") return;
  if (typeof value === "string") {
    if (!(value.isWellFormed?.() ?? !/\p{Surrogate}/u.test(value))) fail("is a text with half of a surrogate pair, which JSON readers do not keep");
    return;
  }
  if (typeof value === "number") {
    if (!Number.isFinite(value)) fail(`is ${value}, which JSON does not have`);
    large ||= Number.isInteger(value) && !Number.isSafeInteger(value);
    return;
  }
  if (path.length === MAX_LEVELS)
    throw new Problem(`is ${MAX_LEVELS} levels deep: the value contains itself, or is too deep for JSON`, value, path);
  const isArray = Array.isArray(value);
  const prototype = typeof value === "object" ? Object.getPrototypeOf(value) : value;
  if (prototype !== (isArray ? Array.prototype : Object.prototype) && prototype !== null)
    fail(`is of type ${new Problem("", value, []).kind}, which has no exact form in JSON`);
  if (typeof value !== "object") return;
  if (typeof value.toJSON === "function") fail("has a method toJSON()");
  if (Object.getOwnPropertySymbols(value).length) fail("has a symbol as a key");
  for (const key of isArray ? value.keys() : Object.keys(value)) {
    const member = value[key];
    if (!isArray) check(key, lossy, path);
    if (typeof member === "boolean" || (typeof member === "number" && Math.abs(member) <= Number.MAX_SAFE_INTEGER)) continue;
    path.push(key);
    check(member, lossy, path);
    path.pop();
  }
}

const lossyValue = (key, value) => {
  if (value instanceof Set) return [...value];
  if (value instanceof Map) return Object.fromEntries(value);
  return typeof value === "bigint" ? String(value) : value;
};

function take({ take: number, names, lossy }) {
  return exchange(number, "NotJSON", async (at) => {
    const texts = new Map();
    large = false;
    for (const name of names) {
      at(name);
      if (!(await isDefined(name))) continue;
      await evaluateNow(`void __cellgate_hold(${name})`); // the inspector would copy a text several times
      const { value } = held;
      held.value = undefined;
      check(value, lossy);
      texts.set(name, JSON.stringify(value, lossy ? lossyValue : undefined) ?? "null");
    }
    for (const text of texts.values()) sendLine(`=${text}`);
    return `${JSON.stringify([...texts.keys()])},"large":${large}`;
  });
}

/** Sets all, or none: names that cannot be set are found before. */
function put({ put: number, names, sizes }, data) {
  return exchange(number, "NotSet", async (at) => {
    for (const name of names) {
      at(name);
      if (own.has(name)) throw new Error("is a name of node");
      if (await isDefined(name)) await evaluateNow(`${name} = ${name}; undefined`);
    }
    let end = 0;
    const values = sizes.map((size) => JSON.parse(data.toString("utf8", end, (end += size))));
    for (const [i, name] of names.entries()) {
      globalThis.__cellgate_value = values[i];
      await evaluateNow(`${name} = __cellgate_value; undefined`);
    }
    globalThis.__cellgate_value = undefined;
    return "{}";
  });
}

/** Names and members that may stand at the end of the code. Runs no getters: members are looked up by descriptors. */
function complete({ complete: number, code }) {
  return exchange(number, "Error", async () => {
    const [, path = "", word] = /(?:^|[^\w$.])((?:[\w$]+\.)*)([\w$]*)$/.exec(code) ?? [];
    if (word === undefined) return "[]"; // a member of something that would have to be run
    const names = new Set();
    let object = globalThis;
    const [first, ...steps] = path.split(".").slice(0, -1);
    if (first === undefined) {
      const { names: declared } = await post("Runtime.globalLexicalScopeNames");
      for (const name of declared) names.add(name);
    } else {
      const found = /^\d/.test(first) ? undefined : await evaluateNow(first).catch(() => undefined);
      object = found && valueOf(found);
    }
    for (const step of steps) object = descriptorOf(object, step)?.value;
    for (const o of chainOf(object)) for (const name of Object.getOwnPropertyNames(o)) names.add(name);
    const found = [...names].filter((name) => name.startsWith(word) && /^[A-Za-z_$][\w$]*$/.test(name));
    return `${JSON.stringify(found.filter((name) => !name.startsWith("__cellgate_")).sort())},"word":${JSON.stringify(word)}`;
  }, "matches");
}

function* chainOf(object) {
  if (object === undefined || object === null || util.types.isProxy(object)) return;
  for (let o = Object(object); o && !util.types.isProxy(o); o = Object.getPrototypeOf(o)) yield o;
}

function descriptorOf(object, name) {
  for (const o of chainOf(object)) if (Object.hasOwn(o, name)) return Object.getOwnPropertyDescriptor(o, name);
  return undefined;
}

async function exchange(number, ename, act, member = "values") {
  let name;
  try {
    const values = await act((next) => (name = next));
    sendLine(`{"done":${number},"${member}":${values}}`);
  } catch (e) {
    const { message: text, kind: type = "", path = "" } = e;
    send({ done: number, problem: { ename, name, text, type, path } });
  }
  session.post("Runtime.releaseObjectGroup", GROUP);
}

function uncaught(error, origin) {
  if (error instanceof ExitError) return;
  const what = origin === "unhandledRejection" ? "Uncaught (in promise) " : "Uncaught ";
  process.stderr.write(`${what}${errorOf(error).lines.join("\n")}\n`);
}

process.on("uncaughtException", uncaught);
// vm's thread for SIGINT stays: one that begins and ends with each cell loses signals, or keeps one for a later cell.
startSigintWatchdog();
process.on("removeListener", (name) => {
  if (name !== "SIGINT" || evaluates || process.listenerCount(name)) return;
  stopSigintWatchdog();
  startSigintWatchdog();
});
process.exit = (code = process.exitCode ?? 0) => {
  throw new ExitError(Number(code));
};

for (const [name, value] of Object.entries({
  display,
  __cellgate_import: importModule,
  __cellgate_hold: (value) => (held.value = value),
  __cellgate_run: undefined,
  __cellgate_value: undefined,
}))
  Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
addInstalled();
globalThis.require = createRequire(path.join(process.cwd(), "cell.js"));
globalThis.__dirname = process.cwd();
globalThis.__filename = path.join(process.cwd(), "cell.js");

// Names that node defines itself; another value would break it.
const own = new Set([...Object.getOwnPropertyNames(globalThis), "exports", "module", "__proto__"]);

let parts = []; // of a line, or of data, that has not ended
let length = 0; // of the parts
let header; // a message whose data comes next
let size = 0; // of this data
socket.on("data", (bytes) => {
  parts.push(bytes);
  length += bytes.length;
  if (header ? length < size : !bytes.includes(10)) return;
  let rest = Buffer.concat(parts);
  for (;;) {
    if (header && rest.length < size) break;
    if (header) {
      put(header, rest.subarray(0, size));
      rest = rest.subarray(size);
      header = undefined;
    }
    const end = rest.indexOf(10);
    if (end < 0) break;
    const message = JSON.parse(rest.subarray(0, end));
    rest = rest.subarray(end + 1);
    if ("cell" in message) runCell(message);
    else if ("interrupt" in message) interrupt(message);
    else if ("take" in message) take(message);
    else if ("complete" in message) complete(message);
    else if ("put" in message) {
      header = message;
      size = message.sizes.reduce((sum, n) => sum + n, 0);
    } else onAnswer(message);
  }
  parts = rest.length ? [rest] : [];
  length = rest.length;
});
socket.on("end", () => process.reallyExit(0));
socket.on("error", () => process.reallyExit(1));
