// The same by the official TypeScript SDK, whose requests end after 60 s. Arguments: the modules of Client and of the
// transport, URL, token, code.
const [clients, transports, url, token, code] = process.argv.slice(2);
const { Client } = await import(clients);
const { StreamableHTTPClientTransport } = await import(transports);
const client = new Client({ name: 'test', version: '1' });
const requestInit = { headers: { Authorization: `Bearer ${token}` } };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
let call = { name: 'execute_ipython_cell', arguments: { code, timeout: 600 } };
let data;
do {
  data = (await client.callTool(call)).structuredContent;
  call = { name: 'cell_result', arguments: { execution_id: data.execution_id } };
} while (data.status === 'running');
process.stdout.write(data.stdout);
await client.close();
