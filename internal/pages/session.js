// Who is signed in: with an API key, or with an ID token that oidc.js gets. The key or token is in
// the session storage of this tab, and nowhere else.

import { bare, busy, byId, call, credential, credentialAt, isBusy, isName, isToken, keepMade, madeHere, most, Problem } from "./page.js";

const { issuer } = byId("manage").dataset;
const names = { draft: "tiney.draft", out: "tiney.out", unclaimed: "tiney.unclaimed", handed: "tiney.handed" };

let token = credential();

// me is the person who is signed in, as GET /api/me returns them, or null.
export let me = null;

// used reports whether a key is the one that this tab is signed in with.
export const used = (key) => token.startsWith("tny_") && token.endsWith(key.last4);

// domains are the domains of this service, the default one first. They are empty if the service does
// not tell.
export let domains = [];

// whose is the owner whose links the page shows: a group, or for an admin anybody; "" is the person
// who is signed in. The address has it.
export let whose = "";

// choosy reports whether the person may look at the links of other owners.
export const choosy = () => me.admin || me.groups.length > 0;

// groupOf returns a group's own name, without that of its provider, or "" if an owner is no group.
export const groupOf = (owner) => owner.match(/^[^|]*\|group\|(.*)/s)?.[1] ?? "";

// ownerText returns what the page calls an owner.
export const ownerText = (owner) => (owner === me.owner ? "you" : groupOf(owner) ? `the group ${groupOf(owner)}` : owner);

// to returns the address of a view. It names the owner whose links are shown.
export const to = (view = "", query = {}) => {
  const all = new URLSearchParams({ ...(whose && { owner: whose }), ...query });
  return `#/${view}${String(all) && `?${all}`}`;
};

// look sets whose links the page shows.
export function look(owner) {
  const same = owner === whose;
  whose = owner;
  const field = byId("owner");
  if (field.value.trim() !== owner) field.value = owner;
  if (field.value.trim() !== owner) { // of a group that the person does not belong to: the service refuses it
    field.append(new Option(ownerText(owner), owner));
    field.value = owner;
  }
  if (!same) follow();
}

// follow lets the page's links and texts name the owner whose links the page shows.
export function follow() {
  for (const a of document.querySelectorAll(".follows")) a.href = to(a.hash.slice(2).split("?")[0]);
  for (const p of document.querySelectorAll(".of")) p.lastElementChild.textContent = ownerText(whose || me.owner);
}

// session is shared with the module that has forms. draft returns what is typed and not saved, as a
// value for JSON. leaving is set before the page is left on purpose. list is the address of the list
// that was shown last.
export const session = { draft: () => null, leaving: false, list: "#/" };

// store keeps a value in the session storage. Null removes it.
function store(name, value) {
  try {
    if (value === null) sessionStorage.removeItem(name);
    else sessionStorage.setItem(name, JSON.stringify(value));
  } catch { /* the browser stores nothing for pages */ }
}

function read(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}

// takeDraft returns what keepDraft stored, or null if somebody else has signed in since.
export function takeDraft() {
  const draft = read(names.draft);
  store(names.draft, null);
  return draft?.owner === me.owner ? draft.typed : null;
}

// keepDraft stores what is typed before the page is left on purpose, for takeDraft.
export function keepDraft() {
  if (me) store(names.draft, { owner: me.owner, typed: session.draft() });
  session.leaving = true;
}

// declineClaims notes that somebody in this tab does not want to take over links.
export const declineClaims = (does = true) => store(names.unclaimed, does);
export const claimsDeclined = () => read(names.unclaimed);

// The claim tokens that the page of another domain has handed over, as pairs with the links' names.
export const handed = () => read(names.handed) ?? [];
export const keepHanded = (pairs) => store(names.handed, pairs);

// takeHanded takes claim tokens out of the address, #/claims?name=token&…, before anything else can
// see them there, and reports whether it had any. Anybody can make people open such an address. That
// is harmless: a token gives away the link that it is of, and nothing else. The tokens stay in this
// tab, beside those that this browser has, and replace and push out none of them. What people are
// offered is what the service says of the links, not what the address says, and nothing is theirs
// before they press a button. The page tells them that such links may be somebody else's.
export function takeHanded() {
  const [path, query] = location.hash.split("?");
  if (path !== "#/claims") return false;
  history.replaceState(null, "", "#/");
  const given = [...new URLSearchParams(query)].filter(([name, token]) => isName.test(name) && isToken.test(token));
  keepHanded([...new Map([...handed(), ...given])].slice(-most));
  declineClaims(false);
  return true;
}

// api is call with the credential of this session. If that is not valid any more, api waits until
// somebody has signed in again, and repeats the call. A call that the page makes by itself (asks:
// false) fails instead, because a dialog would interrupt people's work.
export async function api(method, path, { asks = true, ...options } = {}) {
  for (;;) {
    const used = token;
    try {
      return await call(method, path, { ...options, token });
    } catch (problem) {
      if (problem.status !== 401 || !asks) throw problem;
      if (used === token || !token) await signInAgain(problem);
    }
  }
}

// signIn finds out who a token belongs to, and stores the token. It throws a Problem.
async function signIn(given) {
  const asked = call("GET", "api/domains", { token: given, has: "items" }).catch(() => ({ body: { items: [] } }));
  const { body } = await call("GET", "api/me", { token: given, has: "owner" });
  if (!body.owner) throw new Problem(403, { title: "No API key", detail: "This is the claim token of a single link. Sign in with an API key." });
  domains = (await asked).body.items;
  const before = me;
  token = given;
  me = { groups: [], ...body };
  store(names.out, null);
  try {
    sessionStorage.setItem(credentialAt(), token);
  } catch { /* the token is kept in this page only */ }
  if (before && before.owner !== me.owner) { // nothing of the other person may stay
    session.leaving = true;
    location.reload();
  }
}

// byProvider reports whether the provider has signed them in: only ID tokens begin like this.
const byProvider = () => /^eyJ/.test(token);

// called returns the name that the page shows for who is signed in. That is the owner. If the owner
// is only a provider's number for a person, it is the person's name, if known.
export const called = () => byProvider() && me.name || me.owner;

// signOut signs out of this service, and removes what belongs to the person. It asks first if
// something is typed and not saved. The person stays signed in with the provider, because their
// other services rely on that. The page only offers to sign out there too.
export function signOut() {
  if (session.draft()?.length && !confirm("What you typed is not saved. Sign out, and lose it?")) return;
  try {
    localStorage.setItem(names.out, Date.now()); // which other tabs hear
  } catch { // full, or not allowed
    tabs.postMessage({ out: true });
  }
  forgetMe();
  reload();
}

// stored returns what this tab has stored of the person, by name.
function stored() {
  try {
    return Object.keys(sessionStorage).filter((name) => /^tiney\.(?!flow)/.test(name));
  } catch {
    return [];
  }
}

// forgetMe removes that.
function forgetMe(address = location.pathname) {
  stored().forEach((name) => store(name, null));
  keepMade(madeHere().filter((link) => !link.own));
  store(names.out, true); // so that this tab does not ask others when it is loaded again
  history.replaceState({ signedOut: true, provider: byProvider() }, "", address);
}

function reload() {
  session.leaving = true;
  location.reload(); // nothing of the person stays in the page
}

// The browser may show a page again that it kept for somebody who has signed out since.
window.addEventListener("pageshow", (event) => {
  if (event.persisted && credential() !== token) location.reload();
});

// resume signs in with what this tab has: the provider's response, or a credential. A tab that was not
// signed out also asks the others. resume returns whether somebody is signed in. It throws a Problem.
export async function resume() {
  const response = new URLSearchParams(location.search);
  if (response.has("state")) return signIn(await (await import("./oidc.js")).finish(response)).then(() => true);
  token ??= read(names.out) || location.search.includes("error=") ? null : await fromOtherTab(); // error: the provider has refused somebody
  if (token) await signIn(token);
  return Boolean(me);
}

// Tabs of this page tell each other who is signed in. The storage of each stays its own.
const tabs = new BroadcastChannel(`tiney ${new URL("../", import.meta.url).pathname}`);

let heard = () => {}; // gets the credential that another tab tells

// fromOtherTab returns the credential of another tab, or null.
const fromOtherTab = () => new Promise((resolve) => {
  heard = resolve;
  tabs.postMessage({ asks: true });
  setTimeout(() => resolve(null), 300);
});

// Any page of this origin can ask: tabs tell for a minute after they were visible, and never the
// admin key.
let seen = 0;
document.addEventListener("visibilitychange", () => { seen = Date.now(); });
const tells = () => me && me.owner !== "admin" && (!document.hidden || Date.now() - seen < 60_000);

tabs.onmessage = ({ data }) => {
  if (data.asks && tells()) tabs.postMessage({ credential: token });
  if (data.credential) heard(data.credential);
  if (data.out && token) leave();
};

window.addEventListener("storage", ({ key }) => key === names.out && token && leave());

// leave is called when another tab was signed out. What is typed here stays, but nothing of the
// service can be called until somebody signs in.
function leave() {
  const typed = session.draft();
  forgetMe();
  if (!typed?.length) return reload();
  token = null;
  signInAgain().catch(reload);
}

// The form to sign in. It is in the page, and in a dialog once a session has ended.
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
    keepDraft();
    location.assign(url);
  } catch (problem) {
    busy(button, false);
    byId("signin-says").textContent = problem.message;
  }
});

// offerEnd says that the provider may sign people in again at once, and offers to sign out there,
// if the provider can do that.
export async function offerEnd() {
  const says = byId("signin-says");
  says.append(` ${bare(issuer).split("/")[0]} may still know you.`);
  const href = await import("./oidc.js").then(({ ending }) => ending()).catch(() => null);
  if (!href) return;
  const a = document.createElement("a");
  Object.assign(a, { id: "end", href, textContent: "Sign out there too" });
  says.append(" ", a);
}

let ended = null; // the promise for all calls that wait until somebody has signed in again

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

// Another tab was signed out while this one was elsewhere. With a state, somebody signs in anew.
if (!token && stored().join().includes("tiney.credential") && !location.search.includes("state=")) forgetMe(location.href);
