// An assistant as the clients of MCP see it (OAuthClientProvider): it keeps what they get, and opens
// a browser.
const redirectUrl = "http://127.0.0.1/callback"; // nobody listens there

export class Assistant {
  redirectUrl = redirectUrl;
  clientMetadata = { client_name: "An assistant", redirect_uris: [redirectUrl], token_endpoint_auth_method: "none" };
  #client; #tokens; #verifier; #page;

  clientInformation() { return this.#client; }
  saveClientInformation(client) { this.#client = client; }
  tokens() { return this.#tokens; }
  saveTokens(tokens) { this.#tokens = tokens; }
  codeVerifier() { return this.#verifier; }
  saveCodeVerifier(verifier) { this.#verifier = verifier; }
  redirectToAuthorization(page) { this.#page = page; }

  // Opens the page as a browser does. The user signs in at the form of the tests' provider. It
  // returns the parameters that the browser is sent back with.
  async signIn(user) {
    const cookies = new Map();
    let page = this.#page;
    for (let form, pages = 0; !page.href.startsWith(redirectUrl); pages++) {
      if (pages === 10) throw new Error(`signing in goes on and on, now at ${page}`);
      const response = await fetch(page, { redirect: "manual", method: form ? "POST" : "GET", body: form,
        headers: { Cookie: [...cookies].map((cookie) => cookie.join("=")).join("; ") } });
      for (const cookie of response.headers.getSetCookie()) {
        const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie);
        cookies.set(name, value);
      }
      if (response.status >= 400) throw new Error(`${page}: ${response.status} ${await response.text()}`);
      form = response.status === 200 ? new URLSearchParams({ user, roles: "" }) : undefined;
      page = new URL(response.headers.get("Location") ?? page, page);
    }
    return page.searchParams;
  }
}
