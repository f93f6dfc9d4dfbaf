import { bare, busy, byId, call, copy, credential, isBusy, keepMade, keptAt, madeHere, most, say, until } from "./common.js";

const form = byId("form");
const fields = { longUrl: "url", alias: "alias", expiresInSeconds: "life" };
const button = byId("shorten");

// keep puts a link first, or where it was. It keeps what is known of the link besides, such as its claim token.
function keep(link, where = 0) {
  const links = madeHere();
  const known = links.find((l) => l.alias === link.alias);
  const others = links.filter((l) => l !== known);
  keepMade(others.toSpliced(where, 0, { ...known, ...link }));
}

const forget = (alias) => keepMade(madeHere().filter((l) => l.alias !== alias));

// How many links are listed before somebody asks for all.
let shown = 10;

function list() {
  const links = madeHere();
  byId("links").replaceChildren(...links.slice(0, shown).map(row));
  byId("empty").hidden = links.length > 0;
  byId("claim").hidden = credential() || !links.some((link) => link.claimToken);
  byId("more").hidden = links.length <= shown;
  byId("more").textContent = `Show all ${links.length}`;
}

function row(link, where) {
  const li = byId("row").content.firstElementChild.cloneNode(true);
  const part = (name) => li.querySelector(`[data-part="${name}"]`);
  const name = bare(link.shortUrl);
  part("short").textContent = name;
  part("short").href = link.shortUrl;
  part("long").textContent = part("long").title = link.longUrl;
  part("copy").addEventListener("click", () => copy(link.shortUrl));
  for (const action of ["copy", "delete", "undo"]) part(action).setAttribute("aria-label", `${part(action).textContent} ${name}`);
  const token = () => link.claimToken || credential();

  function state(deleted) {
    li.classList.toggle("gone", deleted);
    part("until").textContent = deleted ? "Deleted" : until(link.expiresAtUtc);
    part("copy").hidden = deleted;
    part("delete").hidden = deleted || !token();
    part("undo").hidden = !deleted;
  }
  state(false);

  // act calls the API, and returns whether that went well, or the problem is of a kind that says it is done already.
  async function act(by, method, path, done) {
    if (isBusy(by)) return false;
    busy(by, true);
    part("problem").textContent = "";
    try {
      await call(method, path, { token: token() });
    } catch (problem) {
      if (problem.kind !== done) {
        part("problem").textContent = problem.message;
        return false;
      }
    } finally {
      busy(by, false);
    }
    return true;
  }
  part("delete").addEventListener("click", async () => {
    if (!await act(part("delete"), "DELETE", `api/links/${link.alias}`, "not-found")) return;
    forget(link.alias);
    state(true);
    part("undo").focus();
    say("Deleted");
    if (byId("result").dataset.alias === link.alias) byId("result").hidden = true;
  });
  part("undo").addEventListener("click", async () => {
    if (!await act(part("undo"), "POST", `api/links/${link.alias}/restore`)) return;
    keep(link, where);
    state(false);
    part("delete").focus();
    say("It is back");
  });
  return li;
}

function show(link, isNew) {
  const qr = `api/links/${link.alias}/qr`;
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
  byId("result").dataset.alias = link.alias;
  byId("result").hidden = false;
  offer();
  byId("copy").focus(); // so that Enter twice shortens and copies; screen readers read what describes it
}

// offer shows what needs this script.
function offer() {
  byId("copy").hidden = false;
  byId("share").hidden = !navigator.share;
}

function fail(problem) {
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

form.noValidate = true; // the messages are this page's own
form.addEventListener("input", (event) => clear(event.target.id));
window.addEventListener("online", () => byId("problem").replaceChildren());

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (isBusy(button)) return;
  Object.values(fields).forEach(clear);
  let longUrl = byId("url").value.trim();
  const alias = byId("alias").value.trim();
  const seconds = byId("life").value;
  if (!longUrl) return fail({ field: "longUrl", message: "Paste the long URL here first." });
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(longUrl)) longUrl = `https://${longUrl}`; // as browsers do
  const body = { longUrl };
  if (alias) body.alias = alias;
  if (seconds) body.expiresInSeconds = Number(seconds);
  // The token tells that the link is this browser's own. Without it, it would count as one that others were given.
  const token = credential() ?? madeHere().find((l) => l.longUrl === longUrl && l.claimToken)?.claimToken;
  busy(button, true);
  try {
    const { status, body: link } = await call("POST", "api/shorten", { body, token });
    keep({ ...link, own: Boolean(credential()) });
    list();
    show(link, status === 201);
    byId("url").value = byId("alias").value = "";
  } catch (problem) {
    fail(problem);
  } finally {
    busy(button, false);
  }
});

byId("copy").addEventListener("click", () => copy(byId("short").href));
byId("share").addEventListener("click", () => navigator.share({ url: byId("short").href }).catch(() => {}));
byId("more").addEventListener("click", () => { shown = most; list(); });
window.addEventListener("storage", (event) => { if (event.key === keptAt) list(); });
window.addEventListener("pageshow", (event) => { if (event.persisted) list(); }); // they come back to what was here

if (credential()) { // links of people who are signed in end only when they say so
  form.hidden = false;
  byId("members").hidden = true;
  byId("life").options[0].textContent = "never";
  byId("account").textContent = "Your links";
  byId("url").focus();
}
byId("history").hidden = form.hidden;
offer();
list();
