// An OpenID Connect provider on a port of this machine.
//
// Each line of its input is a configuration, {"issuer", "keys", "alg", "clients", "life"}, that takes the place of the one before;
// its response is a line with the port. It ends with its input, so that it outlives no test. oidcprovider.go runs it.

import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import Provider from "oidc-provider";

let provider;
const accounts = new Map(); // what users said of themselves when they signed in, by their subject

const scopes = "links.read links.write"; // of access tokens, which are for any address that a client names

const configured = ({ issuer, keys, alg, clients, life }) => new Provider(issuer, {
  clients,
  clientDefaults: { id_token_signed_response_alg: alg },
  jwks: { keys },
  ttl: { IdToken: life },
  cookies: { keys: ["not a secret"] },
  pkce: { required: () => true },
  clientBasedCORS: () => true, // pages of the service fetch their tokens from here
  scopes: ["openid", "offline_access", ...scopes.split(" ")], // that clients may register
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    resourceIndicators: { getResourceServerInfo: () => ({ scope: scopes, accessTokenFormat: "jwt", jwt: { sign: { alg } } }) },
  },
  interactions: { url: (_, { uid }) => `/interaction/${uid}` },
  claims: { openid: ["sub", "preferred_username", "roles", "hasgroups"], groups: ["groups"] },
  conformIdTokenClaims: false, // all of them are in the ID token
  findAccount: (_, accountId) => ({ accountId, claims: () => ({ sub: accountId, ...accounts.get(accountId) }) }),
  // Nobody is asked for consent.
  loadExistingGrant: async ({ oidc }) => {
    const grant = new oidc.provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
    grant.addOIDCScope(`openid groups ${scopes}`);
    for (const resource of Object.keys(oidc.resourceServers)) grant.addResourceScope(resource, scopes);
    await grant.save();
    return grant;
  },
});

const signIn = `<!DOCTYPE html><title>Sign in</title><form method="post">
<input name="user" placeholder="user" autofocus> <input name="roles" placeholder="roles"> <input name="claims" placeholder="{}"> <button>Sign in</button></form>`;

async function respond(req, res) {
  if (!req.url.startsWith("/interaction/")) return provider.callback()(req, res);
  if (req.method !== "POST") return res.setHeader("Content-Type", "text/html").end(signIn);
  const form = new URLSearchParams(await text(req));
  const accountId = form.get("user");
  accounts.set(accountId, { preferred_username: accountId, roles: form.get("roles").split(" ").filter(Boolean), ...JSON.parse(form.get("claims") || "{}") });
  await provider.interactionFinished(req, res, { login: { accountId }, consent: {} });
}

const server = createServer((req, res) => respond(req, res).catch((err) => {
  console.error(err);
  res.writeHead(500).end();
}));

server.listen(0, "127.0.0.1", async () => {
  for await (const line of createInterface({ input: process.stdin })) {
    provider = configured(JSON.parse(line));
    console.log(server.address().port);
  }
  process.exit();
});
