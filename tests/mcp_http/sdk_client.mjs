// One conversation by the official TypeScript SDK. Arguments: its folder, URL, token, code that asks. Prints JSON.
const [, , sdk, url, token, asking] = process.argv;
const { Client } = await import(`${sdk}/dist/esm/client/index.js`);
const { StreamableHTTPClientTransport } = await import(`${sdk}/dist/esm/client/streamableHttp.js`);
const { ElicitRequestSchema } = await import(`${sdk}/dist/esm/types.js`);

const actions = ['decline', 'accept'];
const client = new Client({ name: 'test', version: '1' }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, async () => {
    const action = actions.shift();
    return action === 'accept' ? { action, content: { decision: 'approve' } } : { action };
});
const headers = { Authorization: `Bearer ${token}` };
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
await client.connect(transport);
const run = async code => {
    const result = await client.callTool({ name: 'execute_ipython_cell', arguments: { code } });
    return [Boolean(result.isError), result.content[0].text];
};
const report = {
    tools: (await client.listTools()).tools.map(t => t.name),
    state: [await run('x = 41'), await run('x + 1')],
    asked: [await run(asking), await run(asking)],
};
await transport.terminateSession();
await client.close();
console.log(JSON.stringify(report));
