// Calls the tools at a URL as an assistant does, with one of the clients that package.json pins, and
// prints what it got as JSON: node client.mjs PACKAGE URL KEY
// Without a KEY it knows nothing but the URL, and USER signs in: node client.mjs PACKAGE URL "" USER
import { createRequire } from "node:module";
import { Assistant } from "./assistant.mjs";

const [, , name, url, key, user] = process.argv;
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = name === "@modelcontextprotocol/sdk"
  ? { ...await import(`${name}/client/index.js`), ...await import(`${name}/client/streamableHttp.js`), ...await import(`${name}/client/auth.js`) }
  : await import(name);

const { version } = createRequire(import.meta.url)(`./node_modules/${name}/package.json`);
const assistant = new Assistant();
const transport = () => new StreamableHTTPClientTransport(new URL(url),
  key ? { requestInit: { headers: { Authorization: `Bearer ${key}` } } } : { authProvider: assistant });
const client = new Client({ name: "test", version }, { versionNegotiation: { mode: "auto" } }); // of version 2
const first = transport();
try {
  await client.connect(first);
} catch (error) {
  if (key || !(error instanceof UnauthorizedError)) throw error;
  const back = await assistant.signIn(user);
  await first.finishAuth(version < "2" ? back.get("code") : back);
  await client.connect(transport());
}

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
