// Signs people in with an OpenID Connect provider, in the page, by the authorization code flow with
// PKCE (RFC 7636). It is loaded only when somebody signs in or out with the provider.

import { byId, Problem } from "./page.js";

const { base, issuer, client, scopes } = byId("manage").dataset;
const page = `${base}/manage`; // the redirect URI that the provider knows
const key = "tiney.flow"; // stores what ties the provider's response to this tab

// unable returns the problem that people cannot sign in with the provider.
const unable = (detail) => new Problem(0, { title: "You cannot sign in now", detail });

// ask returns the provider's response, parsed as JSON.
async function ask(url, options) {
  try {
    const response = await fetch(url, { credentials: "omit", signal: AbortSignal.timeout(20_000), ...options });
    const body = await response.json();
    if (response.ok) return body;
    throw unable(`The provider says: ${body.error_description ?? body.error ?? response.status}`);
  } catch (error) {
    throw error instanceof Problem ? error : unable(`${new URL(url).host} did not respond. Try again in a moment, or use an API key.`);
  }
}

// metadata returns the provider's endpoints (OpenID Connect Discovery 1.0).
async function metadata() {
  const found = await ask(`${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`);
  if (found.issuer !== issuer || ![found.authorization_endpoint, found.token_endpoint].every((url) => /^https?:\/\//.test(url))) {
    throw unable("The provider's metadata are not those of the issuer that this service trusts. Whoever runs it has to look at OIDC_ISSUER.");
  }
  return found;
}

const encode = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const random = () => encode(crypto.getRandomValues(new Uint8Array(32)));

// begin returns the URL of the provider's page that signs people in. That page leads back to this
// one.
export async function begin() {
  if (location.origin + location.pathname.replace(/\/$/, "") !== page) return page; // the provider knows only this URL
  if (!crypto.subtle) throw unable("Signing in needs https. Use an API key here.");
  const { authorization_endpoint: endpoint } = await metadata();
  const flow = { state: random(), nonce: random(), verifier: random(), hash: location.hash };
  try {
    sessionStorage.setItem(key, JSON.stringify(flow));
  } catch {
    throw unable("Your browser keeps nothing for pages, which this needs. Use an API key.");
  }
  const challenge = encode(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(flow.verifier))));
  const url = new URL(endpoint);
  for (const [name, value] of Object.entries({ client_id: client, redirect_uri: page, response_type: "code", scope: scopes, state: flow.state,
    nonce: flow.nonce, code_challenge: challenge, code_challenge_method: "S256" })) url.searchParams.set(name, value);
  return url;
}

// ending returns the URL of the provider's page that signs people out (OpenID Connect RP-Initiated
// Logout 1.0), or null. That page asks people first, because it gets no token: nobody has kept one.
// It does not lead back, because not every provider allows that.
export async function ending() {
  const { end_session_endpoint: endpoint } = await metadata();
  if (!/^https?:\/\//.test(endpoint)) return null;
  const url = new URL(endpoint);
  url.searchParams.set("client_id", client);
  return url;
}

// finish exchanges the code that the provider has sent for an ID token, and returns the token. The
// service checks its signature. Only the page can check the nonce, which ties it to this sign-in.
export async function finish(response) {
  const flow = JSON.parse(sessionStorage.getItem(key));
  sessionStorage.removeItem(key);
  history.replaceState(null, "", location.pathname + (flow?.hash ?? ""));
  if (!flow || response.get("state") !== flow.state || (response.get("iss") ?? issuer) !== issuer) {
    throw unable("This sign-in did not begin in this tab, or was completed before. Begin again.");
  }
  if (!response.get("code")) throw unable(`The provider says: ${response.get("error_description") ?? response.get("error")}`);
  const { token_endpoint: endpoint } = await metadata();
  const { id_token: given } = await ask(endpoint, { method: "POST", body: new URLSearchParams({
    grant_type: "authorization_code", client_id: client, redirect_uri: page, code: response.get("code"), code_verifier: flow.verifier }) });
  let nonce;
  try {
    nonce = JSON.parse(atob(given.split(".")[1].replaceAll("-", "+").replaceAll("_", "/"))).nonce;
  } catch { /* the token has no nonce */ }
  if (nonce !== flow.nonce) throw unable("The provider's token is not of this sign-in. Begin again.");
  return given;
}
