// What every page needs: calls of the API, the links that this browser has made, and short texts. No
// text from elsewhere becomes markup: texts are set as textContent, and the policy of the pages refuses
// everything else.

export const byId = (id) => document.getElementById(id);

// The service's own URL, with any path that a proxy in front puts before its paths.
const root = new URL("../", import.meta.url);

// What the page knows of domains: the name of the default one, and, on the page of another one, the
// name of that and the URL of the default one. schemes are those that owners may use besides http.
export const { default: defaultDomain, domain, main, schemes } = document.querySelector("main").dataset;

// nameOf returns the name of a link in paths. isName matches such names. The path with "bulk" alone
// is that of many edits.
export const nameOf = ({ alias, domain }) => (domain && (domain !== defaultDomain || /^bulk$/i.test(alias)) ? `${alias}@${domain}` : alias);
export const isName = /^[\w-]{1,100}(@[a-z0-9._:[\]-]{1,259})?$/;
export const isToken = /^tnc_\w{43}$/;

// Problem is the error of a call: a problem (RFC 9457) of the API. Its status is 0 if there was no
// response. After so many seconds another call may succeed.
export class Problem extends Error {
  constructor(status, { type = "", title, detail = "", field = "", after = 0 }) {
    super(detail || title);
    Object.assign(this, { status, kind: type.replace("/problems/", ""), title, detail, field, after });
  }
}

// signedOut replaces the API's text, which tells programs which header to send.
const signedOut = { title: "You are signed out",
  detail: "Your session has ended, or your key is not valid any more. Sign in again." };

// call sends a request to the API, and returns the status, the headers and the body of its
// response. read parses the body, which must have the member that has names. raw is a body that is
// no JSON. The only error is a Problem.
export async function call(method, path,
  { body, raw, token, headers = {}, seconds = 20, read = JSON.parse, has } = {}) {
  if (token) headers = { ...headers, Authorization: `Bearer ${token}` };
  if (body !== undefined) headers = { "Content-Type": "application/json", ...headers };
  let response, text;
  try {
    response = await fetch(new URL(path, root), {
      method, headers, body: body === undefined ? raw : JSON.stringify(body),
      credentials: "omit", cache: "no-store", signal: AbortSignal.timeout(seconds * 1000),
    });
    text = await response.text();
  } catch {
    throw new Problem(0, navigator.onLine
      ? { title: "No response", detail: "The service did not respond. Try again in a moment." }
      : { title: "You are offline", detail: "Try again when you are connected." });
  }
  let parsed = {};
  try {
    if (response.status !== 204) parsed = (response.ok ? read : JSON.parse)(text);
    if (response.ok && has && !(has in parsed)) throw parsed;
  } catch {
    if (response.ok) throw new Problem(response.status, { title: "Unreadable response",
      detail: "The response is empty, or not one of this service: something in between, such as a proxy, "
        + "has changed it. What you asked for may be done all the same." });
  }
  if (!response.ok) throw new Problem(response.status, { title: `The service responded with ${response.status}`, ...parsed,
    ...(response.status === 401 && signedOut), after: Number(response.headers.get("Retry-After")) });
  return { status: response.status, headers: response.headers, body: parsed };
}

// credential returns the key or token that this tab is signed in with, or null. Its name has the time
// of the last sign-out in this browser, so that the next one ends it everywhere.
export const credentialAt = () => `tiney.credential${localStorage["tiney.out"] ?? ""}`;
export function credential() {
  try {
    return sessionStorage.getItem(credentialAt());
  } catch {
    return null; // the browser stores nothing for pages
  }
}

// The last links of this browser, newest first, with their claim tokens. A token lets people
// delete its link, and take it over. One call takes over at most 100. A link that was made while
// signed in is marked as own. Deleted links stay while they can be restored, for as many seconds as
// the page at / says.
export const keptAt = "tiney.links";
export const most = 100;
const restorable = 1000 * (byId("links")?.dataset.keep ?? Infinity);
let kept = []; // used if the browser stores nothing for pages

export function madeHere() {
  try {
    kept = JSON.parse(localStorage.getItem(keptAt) ?? "[]");
  } catch { /* kept stays as it is */ }
  if (!Array.isArray(kept)) kept = [];
  return kept = kept.filter((l) => l && isName.test(nameOf(l)) && /^https?:/.test(l.shortUrl) && typeof l.longUrl === "string" &&
    (!l.claimToken || isToken.test(l.claimToken)) && (!l.expiresAtUtc || Date.parse(l.expiresAtUtc) > Date.now()) &&
    (!l.deletedAtUtc || Date.parse(l.deletedAtUtc) + restorable > Date.now()));
}

// claimable returns those of the links that can be taken over.
export const claimable = (links) => links.filter((l) => l.claimToken && !l.deletedAtUtc);

export function keepMade(links) {
  kept = links.slice(0, most);
  try {
    localStorage.setItem(keptAt, JSON.stringify(kept));
  } catch { /* full, or not allowed */ }
}

let toastEnds;

// say shows a short text for a moment. Screen readers read it.
export function say(text) {
  const toast = byId("toast");
  clearTimeout(toastEnds);
  toast.textContent = text;
  toast.dataset.at = location.hash;
  toastEnds = setTimeout(() => { toast.textContent = ""; }, 4000);
}

// copy puts a text into the clipboard. A button that has a text only says so.
export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not allowed, or not a secure context: an intranet's service may have no certificate
    const field = document.createElement("textarea");
    const before = document.activeElement;
    field.value = text;
    document.body.append(field);
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    before?.focus();
    if (!copied) return say("The browser does not allow that. Select the link, and copy it.");
  }
  say("Copied");
  if (!button || button.textContent === "Copied ✓") return;
  const [before, { width }] = [button.textContent, button.getBoundingClientRect()];
  button.style.minWidth = `${width}px`;
  button.textContent = "Copied ✓";
  setTimeout(() => { button.textContent = before; }, 2000);
}

// busy shows that a button is at work. The button is not disabled, so that it keeps the focus;
// isBusy tells. Starting work clears the message about the last one.
export function busy(button, is) {
  if (is) say("");
  button.toggleAttribute("aria-busy", is);
  if (is) button.setAttribute("aria-busy", "true");
}
export const isBusy = (button) => button.hasAttribute("aria-busy");

const times = new Intl.DateTimeFormat(undefined,
  { year: "numeric", month: "short", day: "numeric", hour: "numeric", minute: "2-digit", timeZoneName: "short" });

// time returns a time in the reader's time zone, which it names.
export const time = (utc) => times.format(new Date(utc));

// until says when a link ends.
export const until = (expiresAtUtc) => (expiresAtUtc ? `Until ${time(expiresAtUtc)}` : "Never expires");

// bare returns a URL as people read it.
export const bare = (url) => url.replace(/^https?:\/\//, "");
