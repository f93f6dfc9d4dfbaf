// The page /manage: chooses which view is shown.

import { el, part, prepare, style, wrong } from "./elements.js";
import { goBack, leaveList, showList, windows } from "./list.js";
import { byId, claimable, isName, madeHere, say } from "./page.js";
import { called, choosy, groupOf, handed, keepDraft, look, me, offerEnd, offerSignIn, resume, session, signOut, takeDraft, takeHanded, to } from "./session.js";

const reads = () => me.access === "read"; // the key can only read

// one is the module of a single link, once it was loaded.
let one = null;

const loadOne = () => Promise.all([part("./link.html"), style("./link.css")]).then(async () => (one ??= await import("./link.js")));
const loadMove = () => Promise.all([part("./importexport.html"), style("./link.css")]).then(() => import("./importexport.js"));
const loadKeys = () => part("./keys.html").then(() => import("./keys.js"));
const loadAdmin = () => part("./admin.html").then(() => import("./admin.js"));

// offerClaims loads the claims if there may be links to take over.
async function offerClaims() {
  if (reads()) return;
  if (!claimable(madeHere()).length && !handed().length) return;
  await part("./claims.html").then(() => import("./claims.js")).then((module) => module.offerClaims(), () => {}); // they stay for the next time
}

// views has the view of each address #/name/of, by name. Parts and modules are loaded on demand. Owned
// views are about one owner, whom the address names unless that is the person who is signed in.
const views = {
  "": { section: "list", title: "Links", load: async () => ({ showList }), show: "showList", owned: true },
  new: { section: "link", title: "New link", load: loadOne, show: "showNew", focus: "longUrl", owned: true },
  link: { section: "link", title: "Link", load: loadOne, show: "showLink" },
  clicks: { section: "link", title: "Statistics", load: loadOne, show: "showAll", owned: true },
  keys: { section: "keys", title: "API keys", load: loadKeys, show: "showKeys", owned: true },
  move: { section: "move", title: "Import and export", load: loadMove, show: "showMove", owned: true },
  blocked: { section: "blocked", title: "Blocked hosts", load: loadAdmin, show: "showBlocked", admin: true },
  cleanup: { section: "cleanup", title: "Maintenance", load: loadAdmin, show: "showCleanup", admin: true },
};

function view(id) {
  for (const section of document.querySelectorAll(".view")) section.hidden = section.id !== id;
}

let turn = 0; // only the last address is shown

// route shows the view of the current address. It focuses the heading, so that screen readers begin
// there, unless stays is set: somebody looks at the same view of another owner.
async function route({ first = false, stays = false } = {}) {
  if (!me) return;
  const mine = ++turn;
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const asked = new URLSearchParams(query);
  if (path === "top") return location.replace(to("", { order: "24h" })); // it was a view of its own
  const [name, of = ""] = path.split("/");
  let at = Object.hasOwn(views, name) && views[name];
  if (!at || at.admin && !me.admin || name === "new" && reads() || (name === "link") !== isName.test(of)) at = views[""];
  one?.leave();
  if (!byId("list").hidden) leaveList(of);
  view(byId(at.section) ? at.section : "waiting");
  byId("owner-field").hidden = !at.owned || !choosy() || me.admin && name === "keys"; // admins see all keys
  if (at.owned && choosy()) look(asked.get("owner") ?? "");
  byId("owner").placeholder = asked.get("order") in windows ? "everybody" : "you";
  document.title = `${name === "link" ? of : at.title} – ${byId("manage").dataset.name}`;
  const tabs = [...byId("tabs").children];
  const tab = tabs.find((a) => at === views[name] && a.hash.split("?")[0] === `#/${name}`) ?? tabs[0];
  for (const a of tabs) a.removeAttribute("aria-current");
  tab.setAttribute("aria-current", "page");
  if (at.section === "list") session.list = location.hash || "#/";
  let module;
  try {
    module = await at.load();
  } catch {
    if (mine !== turn) return;
    view("failed");
    return wrong("failed-problem", { title: "No response", detail: "The service did not respond. Try again in a moment." }, () => {
      keepDraft(); // a browser loads a module that failed only with a new page
      location.reload();
    });
  }
  if (mine !== turn) return;
  view(at.section);
  if (at.section === "link") byId("link-back").href = session.list;
  module[at.show](of, asked);
  if (stays || at.section === "list" && goBack()) return;
  if (!first || at.focus) byId(at.focus ?? `${at.section}-title`).focus();
  if (!first) scrollTo(0, 0);
}

// enter shows the page to somebody who has signed in.
async function enter() {
  byId("tabs").hidden = false;
  document.body.toggleAttribute("data-reads", reads());
  byId("reads").hidden = !reads();
  prepare(document);
  if (choosy() && !me.admin) {
    const choice = el("select", { id: "owner", name: "owner" }, new Option("You", ""), ...me.groups.map((group) => new Option(`Group ${groupOf(group)}`, group)));
    choice.setAttribute("form", "filters");
    byId("owner").replaceWith(choice);
  }
  const title = [me.name, me.owner].filter(Boolean).join(", ");
  byId("account").replaceWith(el("span", { id: "who", textContent: called(), title }),
    el("button", { id: "sign-out", type: "button", textContent: "Sign out", onclick: signOut }));
  await offerClaims(); // before the list, which they would move
}

async function start() {
  byId("account").hidden = true;
  const left = history.state ?? {};
  history.replaceState(null, "", location.href);
  takeHanded();
  if (/[?&](longUrl|url|text)=/.test(location.search)) { // shared by an app
    const { given } = await import("./longurl.js");
    history.replaceState(null, "", `${location.pathname}#/new?${new URLSearchParams(given({ search: location.search, hash: "" }))}`);
  }
  try {
    if (await resume()) {
      await enter();
      const draft = takeDraft(); // which link.js goes on with
      session.draft = () => draft;
      route({ first: true });
      return;
    }
    askIn(left.signedOut ? "You are signed out." : "");
    if (left.provider) offerEnd();
  } catch (problem) {
    if (problem.kind === "credentials-invalid") return askIn("Your session has ended. Sign in again.");
    if ([429, 503].includes(problem.status) || problem.title === "No response" || problem.title === "You are offline") {
      view("failed");
      return wrong("failed-problem", problem, () => location.reload());
    }
    askIn(problem.message);
  }
}

function askIn(says) {
  document.title = `Sign in – ${byId("manage").dataset.name}`;
  view("signin");
  offerSignIn(says, () => enter().then(route));
  byId(byId("provider").hidden ? "key" : "provider-go").focus();
}

// The list follows while somebody types (see list.js). Other views follow when the field changes.
byId("owner-field").addEventListener("change", ({ target }) => {
  if (!byId("list").hidden) return;
  look(target.value.trim());
  history.replaceState(null, "", to(location.hash.slice(2).split("?")[0]));
  route({ stays: true });
});

history.scrollRestoration = "manual"; // only this page knows when the list is shown again
window.addEventListener("hashchange", () => {
  if (takeHanded() && me) offerClaims();
  if (byId("toast").dataset.at !== location.hash) say(""); // it is about the view before
  route();
});
start();
