// One conversation by the official TypeScript SDK 2.x, in the older era or by server/discover. Arguments: the folder
// of the package, URL, token, code that asks, "legacy" or "auto". Prints JSON.
import { pathToFileURL } from 'node:url';

const [folder, url, token, asking, mode] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport } = await import(pathToFileURL(`${folder}/dist/index.mjs`));
const client = new Client(
  { name: 'test', version: '1' },
  { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode } },
);
const actions = ['decline', 'accept'];
client.setRequestHandler('elicitation/create', async () => {
  const action = actions.shift();
  return action === 'accept' ? { action, content: { decision: 'approve' } } : { action };
});
const requestInit = { headers: { Authorization: `Bearer ${token}` } };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));

let session;
async function run(code) {
  const named = session ? { session_id: session } : {};
  const result = await client.callTool({ name: 'execute_ipython_cell', arguments: { code, ...named } });
  session = result.structuredContent.session_id;
  return [Boolean(result.isError), result.content[0].text];
}

const report = {
  version: client.getNegotiatedProtocolVersion(),
  state: [await run('x = 41'), await run('x + 1')],
  asked: [await run(asking), await run(asking)],
};
await client.close();
console.log(JSON.stringify(report));
