import { bare, busy, byId, call, claimable, copy, credential, defaultDomain, domain, isBusy, keepMade, keptAt, madeHere, main, most, nameOf, say, until } from "./page.js";

const form = byId("form");
const fields = { longUrl: "url", alias: "alias", expiresInSeconds: "life" };
const button = byId("shorten");

// keep puts a link first. It keeps what else is known about the link, such as its claim token, and no
// name of the default domain, because that may get another one.
function keep({ domain, ...link }) {
  if (domain !== defaultDomain) link.domain = domain;
  const links = madeHere();
  const known = links.find((l) => nameOf(l) === nameOf(link));
  keepMade([{ ...known, ...link }, ...links.filter((l) => l !== known)]);
}

// mark notes when a link was deleted, or null if it is not.
const mark = (name, deletedAtUtc) =>
  keepMade(madeHere().map((l) => (nameOf(l) === name ? { ...l, deletedAtUtc } : l)));

const forget = (name) => keepMade(madeHere().filter((l) => nameOf(l) !== name));

// How many links are listed until somebody asks for all.
let shown = 10;

function list() {
  const links = madeHere();
  byId("links").replaceChildren(...links.slice(0, shown).map(row));
  byId("empty").hidden = links.length > 0;
  byId("claim").hidden = credential() || !claimable(links).length;
  byId("more").hidden = links.length <= shown;
  byId("more").textContent = `Show all ${links.length}`;
}

function row(link) {
  const li = byId("row").content.firstElementChild.cloneNode(true);
  const part = (name) => li.querySelector(`[data-part="${name}"]`);
  const [name, path] = [nameOf(link), `api/links/${nameOf(link)}`];
  part("short").textContent = bare(link.shortUrl);
  part("short").href = link.shortUrl;
  part("long").textContent = part("long").title = link.longUrl;
  part("copy").addEventListener("click", () => copy(link.shortUrl, part("copy")));
  for (const action of ["copy", "delete", "undo"]) part(action).setAttribute("aria-label", `${part(action).textContent} ${bare(link.shortUrl)}`);
  const token = () => link.claimToken || credential();

  function state(deleted, forGood = false) {
    li.classList.toggle("gone", deleted);
    part("until").textContent = forGood ? "Deleted for good" : deleted ? "Deleted" : until(link.expiresAtUtc);
    part("copy").hidden = deleted;
    part("delete").hidden = deleted || !token();
    part("undo").hidden = !deleted || forGood || !token();
  }
  state(Boolean(link.deletedAtUtc));

  // act calls the API, and returns whether that succeeded.
  async function act(by, method, path) {
    if (isBusy(by)) return false;
    busy(by, true);
    part("problem").textContent = "";
    try {
      await call(method, path, { token: token() });
      return true;
    } catch (problem) {
      if (problem.kind !== "not-found") {
        part("problem").textContent = problem.message;
        return false;
      }
      forget(name);
      state(true, true);
      part("short").focus();
      return false;
    } finally {
      busy(by, false);
    }
  }
  part("delete").addEventListener("click", async () => {
    if (!await act(part("delete"), "DELETE", path)) return;
    mark(name, new Date().toISOString());
    state(true);
    part("undo").focus();
    say("Deleted");
    if (byId("result").dataset.alias === name) byId("result").hidden = true;
  });
  part("undo").addEventListener("click", async () => {
    if (!await act(part("undo"), "POST", `${path}/restore`)) return;
    mark(name, null);
    state(false);
    part("delete").focus();
    say("Restored");
  });
  return li;
}

function show(link, isNew) {
  const qr = `api/links/${nameOf(link)}/qr`;
  byId("result-title").textContent = isNew ? "Your short link" : "This URL had a link already";
  byId("short").textContent = bare(link.shortUrl);
  byId("short").href = link.shortUrl;
  byId("long").textContent = byId("long").title = link.longUrl;
  byId("until").textContent = until(link.expiresAtUtc);
  byId("preview").href = `${link.alias}+`;
  byId("qr").src = qr;
  byId("svg").href = `${qr}?size=600`;
  byId("png").href = `${qr}?size=1200&format=png`;
  byId("svg").download = `${link.alias}.svg`;
  byId("png").download = `${link.alias}.png`;
  byId("result").dataset.alias = nameOf(link);
  byId("result").hidden = false;
  offer();
}

// offer shows the buttons that need this script.
function offer() {
  byId("copy").hidden = false;
  byId("share").hidden = !navigator.share;
}

function fail(problem) {
  byId("result").hidden = true; // it shows another URL
  const id = fields[problem.field] ?? { "alias-taken": "alias", "target-disabled": "url", "target-blocked": "url" }[problem.kind];
  if (id) {
    byId(id).setAttribute("aria-invalid", "true");
    byId(`${id}-error`).textContent = problem.message;
    byId(id).focus();
    return;
  }
  const title = document.createElement("strong");
  title.textContent = problem.title;
  byId("problem").replaceChildren(title, problem.detail);
  if (problem.status === 401) {
    const a = document.createElement("a");
    a.href = "manage";
    a.textContent = "Sign in";
    byId("problem").append(" ", a);
  }
}

function clear(id) {
  byId(id).removeAttribute("aria-invalid");
  byId(`${id}-error`).textContent = "";
  byId("problem").replaceChildren();
}

form.noValidate = true; // this page shows its own messages
form.addEventListener("input", (event) => clear(event.target.id));
window.addEventListener("online", () => byId("problem").replaceChildren());

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (isBusy(button)) return;
  Object.values(fields).forEach(clear);
  const typed = new Map(["url", "alias"].map((id) => [id, byId(id).value]));
  const seconds = byId("life").value;
  if (!typed.get("url").trim()) return fail({ field: "longUrl", message: "Paste the long URL here first." });
  busy(button, true);
  let longUrl, alias;
  try {
    const { complete, unwrapped } = await longUrls();
    [longUrl, alias] = [complete(typed.get("url")), unwrapped(typed.get("alias"))];
  } catch {
    busy(button, false);
    return fail({ title: "No response", detail: "The service did not respond. Try again in a moment." });
  }
  const body = { longUrl };
  if (domain) body.domain = domain;
  if (alias) body.alias = alias;
  if (seconds) body.expiresInSeconds = Number(seconds);
  // The token proves that the link belongs to this browser. Without it, the link would be marked as
  // shared with others.
  const token = credential()
    ?? claimable(madeHere()).find((l) => l.longUrl === longUrl)?.claimToken;
  try {
    const { status, body: link } = await call("POST", "api/shorten", { body, token, has: "shortUrl" });
    keep({ ...link, own: Boolean(credential()), deletedAtUtc: null });
    list();
    show(link, status === 201);
    // Text that was typed meanwhile is for the next link.
    const done = [...typed].filter(([id, value]) => byId(id).value === value);
    for (const [id] of done) byId(id).value = "";
    // So pressing Enter twice shortens and copies. Screen readers read the button's description.
    if (done.length === typed.size) byId("copy").focus();
  } catch (problem) {
    fail(problem);
  } finally {
    busy(button, false);
  }
});

byId("copy").addEventListener("click", () => copy(byId("short").href, byId("copy")));
byId("share").addEventListener("click", () => navigator.share({ url: byId("short").href }).catch(() => {}));
byId("more").addEventListener("click", () => {
  const first = byId("links").children.length; // of the links that are added
  shown = most;
  list();
  byId("links").children[first].querySelector("a").focus();
});
// People sign in at the default domain. A click on a link there takes the claim tokens of this page
// along, in the fragment, which is sent to no server. Before the click the link does not have them:
// people may copy its address.
if (main) document.addEventListener("click", ({ target }) => {
  const a = target.closest("a");
  if (a?.href !== byId("account").href) return;
  const tokens = claimable(madeHere()).map((link) => [nameOf(link), link.claimToken]);
  a.href = `${main}/manage${tokens.length ? `#/claims?${new URLSearchParams(tokens)}` : ""}`;
  setTimeout(() => { a.href = "manage"; });
});
window.addEventListener("storage", (event) => { if (event.key === keptAt) list(); });
// The browser may have kept this page and show it again, with an old list.
window.addEventListener("pageshow", (event) => { if (event.persisted) list(); });

if (credential()) { // links of people who are signed in end only if they ask for it
  form.hidden = false;
  byId("members").hidden = true;
  byId("life").options[0].textContent = "never";
  byId("account").textContent = "Your links";
  byId("url").focus();
}
// What comes from elsewhere loads when it is asked for.
const longUrls = () => import("./longurl.js");
if (/[?#&](longUrl|url|text)=/.test(location.href)) longUrls().then(({ given }) => {
  byId("url").value ||= given(location).longUrl;
  history.replaceState(null, "", location.pathname);
});
byId("drag").addEventListener("toggle", () => import("./bookmarklet.js").then(({ offer }) => offer("#longUrl=")), { once: true });
byId("history").hidden = byId("drag").hidden = form.hidden;
offer();
list();
