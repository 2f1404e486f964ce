// A server on version 2 of MCP's TypeScript SDK. usage: typescript_sdk.mjs NODE_MODULES FOLDER [PORT]; without PORT over stdio.
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';

const [modules, folder, port] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { McpServer, createMcpHandler } = require('@modelcontextprotocol/server');
const { z } = require('zod');

function factory(context) {
    const server = new McpServer({ name: 'typescript-sdk', version: '1.0.0' });
    server.registerTool(
        'note',
        {
            description: 'Append a text to the notes.',
            inputSchema: z.object({ text: z.string(), times: z.number().int().min(1).max(10).default(1) }),
            outputSchema: z.object({ text: z.string(), lines: z.number(), era: z.enum(['legacy', 'modern']) })
        },
        async ({ text, times }) => {
            for (let i = 0; i < times; i++) appendFileSync(`${folder}/notes`, `${text}\n`);
            const structuredContent = { text, lines: times, era: context.era };
            return { content: [{ type: 'text', text: JSON.stringify(structuredContent) }], structuredContent };
        }
    );
    server.registerTool(
        'draw',
        { description: 'Draw a picture.', inputSchema: z.object({ size: z.number() }) },
        async ({ size }) => ({
            content: [
                { type: 'text', text: 'a picture' },
                { type: 'image', mimeType: 'image/png', data: Buffer.alloc(size, 1).toString('base64') },
                { type: 'resource', resource: { uri: 'note:///a', mimeType: 'text/plain', text: 'Gr\u00fc\u00dfe' } }
            ]
        })
    );
    server.registerTool('fail', { description: 'Fail.', inputSchema: z.object({ why: z.string() }) }, async ({ why }) => {
        throw new Error(why);
    });
    return server;
}

if (port) {
    const { toNodeHandler } = require('@modelcontextprotocol/node');
    createServer(toNodeHandler(createMcpHandler(factory))).listen(Number(port), '127.0.0.1');
} else {
    require('@modelcontextprotocol/server/stdio').serveStdio(factory);
}
