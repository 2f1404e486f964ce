// Runs a notebook through @jupyterlab/services, JupyterLab's own client library, then tries what else a front-end does.
// node services.cjs SERVER_URL KERNELSPEC NOTEBOOK_NAME IN_FOLDER; prints one line of JSON. soak_clients.py starts it.
const fs = require('fs');
const path = require('path');
const { ServerConnection, KernelManager, KernelAPI, KernelSpecManager } = require('@jupyterlab/services');

const [url, spec, name, folder] = process.argv.slice(2);
const address = new URL(url);
const base = `${address.protocol}//${address.host}/`;
const serverSettings = ServerConnection.makeSettings({
  baseUrl: base,
  wsUrl: base.replace('http', 'ws'),
  token: address.searchParams.get('token'),
  appendToken: true
});

function limited(promise, what, seconds = 60) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: nothing in ${seconds} s`)), seconds * 1000);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// Outputs of a cell in the notebook format.
class Outputs {
  constructor() {
    this.list = [];
    this.displays = new Map();
    this.clearNext = false;
  }

  add(output) {
    if (this.clearNext) {
      this.list.length = 0;
      this.clearNext = false;
    }
    const last = this.list[this.list.length - 1];
    if (output.output_type === 'stream' && last && last.output_type === 'stream' && last.name === output.name) {
      last.text += output.text;
    } else {
      this.list.push(output);
    }
  }

  message(msg) {
    const { msg_type: type } = msg.header;
    const c = msg.content;
    if (type === 'stream') {
      this.add({ output_type: 'stream', name: c.name, text: c.text });
    } else if (type === 'display_data' || type === 'execute_result') {
      const output = { output_type: type, data: c.data, metadata: c.metadata };
      if (type === 'execute_result') {
        output.execution_count = c.execution_count;
      }
      const id = c.transient && c.transient.display_id;
      if (id) {
        this.displays.set(id, [...(this.displays.get(id) || []), output]);
      }
      this.add(output);
    } else if (type === 'update_display_data') {
      for (const output of this.displays.get(c.transient.display_id) || []) {
        output.data = c.data;
        output.metadata = c.metadata;
      }
    } else if (type === 'clear_output') {
      if (c.wait) {
        this.clearNext = true;
      } else {
        this.list.length = 0;
      }
    } else if (type === 'error') {
      this.add({ output_type: 'error', ename: c.ename, evalue: c.evalue, traceback: c.traceback });
    }
  }
}

async function run(kernel, code, options = {}) {
  const outputs = new Outputs();
  const future = kernel.requestExecute({ code, stop_on_error: false, ...options });
  future.onIOPub = msg => outputs.message(msg);
  if (options.onStdin) {
    future.onStdin = options.onStdin;
  }
  const reply = await limited(future.done, code);
  return { reply: reply.content, outputs: outputs.list };
}

async function notebook(kernel) {
  const content = JSON.parse(fs.readFileSync(path.join(folder, name)));
  for (const cell of content.cells.filter(c => c.cell_type === 'code')) {
    const { reply, outputs } = await run(kernel, cell.source);
    cell.execution_count = reply.execution_count;
    cell.outputs = outputs;
  }
  fs.writeFileSync(path.join(folder, name.replace('.ipynb', '-services.ipynb')), JSON.stringify(content));
}

async function interrupt(kernel) {
  const outputs = [];
  const future = kernel.requestExecute({ code: "import time\nprint('on')\ntime.sleep(600)" });
  const started = new Promise(resolve => {
    future.onIOPub = msg => {
      outputs.push(msg);
      if (msg.header.msg_type === 'stream') {
        resolve();
      }
    };
  });
  await limited(started, 'the cell to interrupt');
  await limited(kernel.interrupt(), 'interrupt');
  return (await limited(future.done, 'the interrupted cell')).content.ename;
}

async function comm(kernel) {
  await run(
    kernel,
    `from comm import get_comm_manager
def opened(comm, message):
    def on_message(m):
        if m['content']['data'] == 'close':
            comm.close({'closed': True})
        else:
            comm.send({'echo': m['content']['data']}, buffers=[bytes(m['buffers'][0])[::-1]])
    comm.on_msg(on_message)
get_comm_manager().register_target('echo', opened)`
  );
  const seen = [];
  const c = kernel.createComm('echo');
  const closed = new Promise(resolve => {
    c.onClose = msg => {
      seen.push(msg.content.data);
      resolve();
    };
  });
  const answered = new Promise(resolve => {
    c.onMsg = msg => {
      seen.push(msg.content.data);
      resolve(Buffer.from(msg.buffers[0].buffer || msg.buffers[0]).toString());
    };
  });
  await limited(c.open().done, 'comm_open');
  await limited(c.send(1, {}, [new Uint8Array(Buffer.from('abc')).buffer]).done, 'comm_msg');
  const buffer = await limited(answered, 'the answer on the comm');
  await limited(c.send('close').done, 'comm_msg to close');
  await limited(closed, 'comm_close');
  return { seen, buffer };
}

async function main() {
  const specs = new KernelSpecManager({ serverSettings });
  await limited(specs.ready, 'the list of kernelspecs');
  if (!specs.specs.kernelspecs[spec]) {
    throw new Error(`no kernelspec ${spec} among ${Object.keys(specs.specs.kernelspecs)}`);
  }
  const manager = new KernelManager({ serverSettings });
  const kernel = await limited(manager.startNew({ name: spec }), 'the kernel');
  const statuses = [];
  kernel.statusChanged.connect((_, status) => statuses.push(status));
  const info = await limited(kernel.info, 'kernel_info');
  await notebook(kernel);
  const report = { language: info.language_info.name };
  const asked = await run(kernel, "print('hello', input('who? '))", {
    allow_stdin: true,
    onStdin: msg => kernel.sendInputReply({ value: 'Ada', status: 'ok' }, msg.header)
  });
  report.input = asked.outputs.map(o => o.text).join('').trim();
  report.completions = (await limited(kernel.requestComplete({ code: 'zi', cursor_pos: 2 }), 'complete')).content.matches;
  const inspected = await limited(kernel.requestInspect({ code: 'zip', cursor_pos: 3, detail_level: 0 }), 'inspect');
  report.inspected = inspected.content.found;
  const history = await limited(kernel.requestHistory({ hist_access_type: 'tail', n: 5, raw: true, output: false }), 'history');
  report.history = history.content.history.length;
  const talk = await comm(kernel);
  report.comm = talk.seen;
  report.buffer = talk.buffer;
  report.interrupted = await interrupt(kernel);
  await limited(kernel.restart(), 'restart');
  report.restarted = (await run(kernel, 'times')).reply.ename;
  report.statuses = statuses;
  await limited(kernel.shutdown(), 'shutdown');
  console.log(JSON.stringify(report));
}

main().then(
  () => process.exit(0),
  error => {
    console.error(error);
    process.exit(1);
  }
);
