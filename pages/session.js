// Who is signed in: by an API key, or by an ID token that oidc.js gets. Either is in the session storage of this tab, and
// nowhere else.

import { bare, busy, byId, call, credential, isBusy, keepMade, madeHere, Problem } from "./common.js";

const { issuer } = byId("manage").dataset;
const names = { credential: "tiney.credential", draft: "tiney.draft", unclaimed: "tiney.unclaimed" };

let token = credential();

// me is who is signed in, as GET /api/me says, and null if nobody is.
export let me = null;

// session is what this module shares with the one that has forms: draft returns what has been typed and not saved, as JSON
// can hold it; leaving is set where a page is left on purpose.
export const session = { draft: () => null, leaving: false };

// store keeps a value in the session storage.
function store(name, value) {
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch { /* the browser keeps nothing for pages */ }
}

// take returns a value of the session storage, and removes it.
function take(name) {
  try {
    const value = JSON.parse(sessionStorage.getItem(name));
    sessionStorage.removeItem(name);
    return value;
  } catch {
    return null;
  }
}

// takeDraft returns what they had typed before the provider's page took the place of this one. Another may have signed in there.
export function takeDraft() {
  const draft = take(names.draft);
  return draft?.owner === me.owner ? draft.typed : null;
}

// Somebody in this tab did not want to take links over.
export const declineClaims = () => store(names.unclaimed, true);
export function claimsDeclined() {
  try {
    return sessionStorage.getItem(names.unclaimed) !== null;
  } catch {
    return false;
  }
}

// api is call with the credential of who is signed in. If that is not valid any more, it waits until they have signed in
// again, and repeats the call. What the page does by itself (asks: false) must not open a dialog over their work: it fails.
export async function api(method, path, { asks = true, ...options } = {}) {
  for (;;) {
    const used = token;
    try {
      return await call(method, path, { ...options, token });
    } catch (problem) {
      if (problem.status !== 401 || !asks) throw problem;
      if (used === token) await signInAgain(problem);
    }
  }
}

// signIn finds out who has a token, and keeps it. A problem is thrown.
async function signIn(given) {
  const { body } = await call("GET", "api/me", { token: given, has: "owner" });
  if (!body.owner) throw new Problem(403, { title: "No API key", detail: "This is the claim token of a single link. Sign in with an API key." });
  const before = me;
  token = given;
  me = body;
  try {
    sessionStorage.setItem(names.credential, token);
  } catch { /* kept in this page, then */ }
  if (before && before.owner !== me.owner) { // nothing of somebody else's stays
    session.leaving = true;
    location.reload();
  }
}

// byProvider reports whether who is signed in came from the provider: only ID tokens begin so.
const byProvider = () => token.startsWith("eyJ");

// called returns what the page calls who is signed in: the owner, unless that is a provider's number of
// somebody who has a name.
export const called = () => byProvider() && me.name || me.owner;

// signOut signs out of this service, and forgets what is theirs. They are asked first if something is
// typed and not saved. The provider may still know them: other services of theirs rely on that, so the
// page only offers to end it there too.
export function signOut() {
  if (session.draft()?.length && !confirm("What you typed is not saved. Sign out, and lose it?")) return;
  try {
    Object.values(names).forEach((name) => sessionStorage.removeItem(name));
  } catch { /* then nothing was kept */ }
  keepMade(madeHere().filter((link) => !link.own));
  history.replaceState({ signedOut: true, provider: byProvider() }, "", location.pathname);
  session.leaving = true;
  location.reload(); // nothing of theirs stays in the page
}

// A page that the browser kept, and that they come back to, may be of somebody who has signed out since.
window.addEventListener("pageshow", (event) => {
  if (event.persisted && credential() !== token) location.reload();
});

// resume signs in with what the tab has: the provider's response, or a credential. It returns whether somebody is signed in,
// and throws a problem.
export async function resume() {
  const response = new URLSearchParams(location.search);
  if (response.has("state")) await signIn(await (await import("./oidc.js")).finish(response));
  else if (token) await signIn(token);
  return Boolean(me);
}

// The parts of signing in, which stand in the page, and in a dialog once a session has ended.
let done = () => {};

export function offerSignIn(says, whenDone) {
  done = whenDone;
  byId("signin-says").textContent = says;
  byId("key-error").textContent = "";
  byId("provider").hidden = !issuer;
  byId("provider-go").textContent = `Sign in with ${bare(issuer).split("/")[0]}`;
}

byId("key-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [field, button, error] = ["key", "key-go", "key-error"].map(byId);
  if (isBusy(button)) return;
  error.textContent = "";
  const key = field.value.trim();
  busy(button, true);
  try {
    if (!key) throw new Problem(401, { title: "", detail: "Paste your API key here." });
    if (/[^!-~]/.test(key)) throw new Problem(401, { title: "", detail: "A key has no spaces, and only letters, digits and signs of ASCII." });
    await signIn(key);
    field.value = "";
    field.removeAttribute("aria-invalid");
    done();
  } catch (problem) {
    error.textContent = problem.kind === "credentials-invalid" ? "This key is not valid: it is mistyped, revoked or expired." : problem.message;
    field.setAttribute("aria-invalid", "true");
    field.focus();
  } finally {
    busy(button, false);
  }
});

byId("provider-go").addEventListener("click", async () => {
  const button = byId("provider-go");
  if (isBusy(button)) return;
  busy(button, true);
  try {
    const { begin } = await import("./oidc.js");
    const url = await begin();
    if (me) store(names.draft, { owner: me.owner, typed: session.draft() });
    session.leaving = true;
    location.assign(url);
  } catch (problem) {
    busy(button, false);
    byId("signin-says").textContent = problem.message;
  }
});

// offerEnd says that the provider may sign them in again at once, and offers to end that, where it can be ended.
export async function offerEnd() {
  const says = byId("signin-says");
  says.append(` ${bare(issuer).split("/")[0]} may still know you.`);
  const href = await import("./oidc.js").then(({ ending }) => ending()).catch(() => null);
  if (!href) return;
  const a = document.createElement("a");
  Object.assign(a, { id: "end", href, textContent: "Sign out there too" });
  says.append(" ", a);
}

let ended = null; // the promise of all calls that wait until somebody has signed in again

function signInAgain(problem) {
  const [dialog, parts] = ["again", "signin-parts"].map(byId);
  ended ??= new Promise((resolve, reject) => {
    byId("again-parts").append(parts);
    offerSignIn("", () => {
      dialog.onclose = null;
      dialog.close();
      resolve();
    });
    dialog.onclose = () => reject(new Problem(401, { title: "Not signed in", detail: "Your session has ended, so this was not done. What you typed is still here." }));
    dialog.showModal();
    byId(issuer && problem ? "provider-go" : "key").focus();
  }).finally(() => {
    byId("signin-card").append(parts);
    ended = null;
  });
  return ended;
}

byId("again-not").addEventListener("click", () => byId("again").close());
