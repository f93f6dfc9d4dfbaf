// Calls the tools at a URL as an assistant does, with one of the clients that package.json pins, and
// prints what it got as JSON: node client.mjs PACKAGE URL KEY
import { createRequire } from "node:module";

const [, , name, url, key] = process.argv;
const { Client, StreamableHTTPClientTransport } = name === "@modelcontextprotocol/sdk"
  ? { ...await import(`${name}/client/index.js`), ...await import(`${name}/client/streamableHttp.js`) }
  : await import(name);

const { version } = createRequire(import.meta.url)(`./node_modules/${name}/package.json`);
const client = new Client({ name: "test", version }, { versionNegotiation: { mode: "auto" } }); // of version 2
await client.connect(new StreamableHTTPClientTransport(new URL(url),
  { requestInit: { headers: { Authorization: `Bearer ${key}` } } }));

const { tools } = await client.listTools();
const results = [];
// Clients check a result against the tool's outputSchema.
const call = async (tool, args) => {
  const result = await client.callTool({ name: tool, arguments: args });
  results.push({ tool, ...result });
  return result;
};
const alias = `mcp-${Date.now().toString(36)}`;
await call("shorten", { longUrl: "https://example.com/mcp", alias });
const { structuredContent } = await call("getLink", { alias });
await call("editLink", { alias, title: "By an assistant", ifMatch: structuredContent?.etag });
await call("editLink", { alias, title: "Too late", ifMatch: structuredContent?.etag });
await call("listLinks", { q: "assistant", tag: [] });
await call("getLinkStatistics", { alias });
await call("getTopLinks", { window: "7d" });
await call("deleteLink", { alias });
await call("restoreLink", { alias });
await call("getLink", { alias: "../keys" });
console.log(JSON.stringify({ version, protocol: client.getNegotiatedProtocolVersion?.() ?? null,
  server: client.getServerVersion(), capabilities: client.getServerCapabilities(), tools: tools.map((tool) => tool.name), results }));
await client.close();
