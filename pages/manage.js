// The page /manage: chooses which view is shown.

import { byId } from "./common.js";
import { leave, restoreDrafts, showAll, showLink, showNew } from "./link.js";
import { goBack, leaveList, offerClaims, showList } from "./list.js";
import { el, later, wrong, zone } from "./parts.js";
import { called, me, offerEnd, offerSignIn, resume, signOut, takeDraft } from "./session.js";

// views has the view of each address #/name/of, by name.
const views = {
  "": { section: "list", title: "Links", show: (_, query) => showList(query) },
  new: { section: "link", title: "New link", show: showNew, focus: "longUrl" },
  link: { section: "link", title: "Link", show: showLink },
  clicks: { section: "link", title: "All clicks", show: showAll },
  top: { section: "top", title: "Top links", show: () => showLater(import("./stats.js"), "showTop", "top") },
  keys: { section: "keys", title: "API keys", show: () => showLater(import("./seldom.js"), "showKeys", "keys") },
  blocked: { section: "blocked", title: "Blocked hosts", show: () => showLater(import("./seldom.js"), "showBlocked", "blocked"), admin: true },
  cleanup: { section: "cleanup", title: "Clean-up", show: () => showLater(import("./seldom.js"), "showCleanup", "cleanup"), admin: true },
};

// showLater shows a view of a module that is loaded on demand.
async function showLater(loading, show, section) {
  byId(`${section}-wait`).hidden = false;
  const module = await later(loading, `${section}-problem`);
  byId(`${section}-wait`).hidden = true;
  module?.[show]();
}

function view(id) {
  for (const section of document.querySelectorAll(".view")) section.hidden = section.id !== id;
}

// route shows the view of the current address. It focuses the heading, so that screen readers begin
// there.
function route({ first = false } = {}) {
  if (!me) return;
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, of = ""] = path.split("/");
  let at = Object.hasOwn(views, name) && views[name];
  if (!at || at.admin && !me.admin || (name === "link") !== /^[\w-]{1,32}$/.test(of)) at = views[""];
  leave();
  if (!byId("list").hidden) leaveList(of);
  view(at.section);
  document.title = `${name === "link" ? of : at.title} – tiney`;
  for (const a of byId("tabs").children) {
    if (a.hash === `#/${at === views[name] && byId("tabs").querySelector(`[href="#/${name}"]`) ? name : ""}`) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  if (at.section === "list") byId("link-back").href = location.hash || "#/";
  at.show(of, new URLSearchParams(at.section === "list" ? query : ""));
  if (at.section === "list" && goBack()) return;
  if (!first || at.focus) byId(at.focus ?? `${at.section}-title`).focus();
  if (!first) scrollTo(0, 0);
}

// enter shows the page to somebody who has signed in.
function enter() {
  byId("tabs").hidden = false;
  byId("blocked-tab").hidden = byId("cleanup-tab").hidden = byId("owner-field").hidden = byId("key-owner-field").hidden = !me.admin;
  const title = [me.name, me.owner].filter(Boolean).join(", ");
  byId("account").replaceWith(el("span", { id: "who", textContent: called(), title }),
    el("button", { id: "sign-out", type: "button", textContent: "Sign out", onclick: signOut }));
  offerClaims();
}

async function start() {
  byId("account").hidden = true;
  const left = history.state ?? {};
  history.replaceState(null, "", location.href);
  try {
    if (await resume()) {
      enter();
      restoreDrafts(takeDraft());
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
  document.title = "Sign in – tiney";
  view("signin");
  offerSignIn(says, () => { enter(); route(); });
  byId(byId("provider").hidden ? "key" : "provider-go").focus();
}

history.scrollRestoration = "manual"; // only this page knows when the list is shown again
for (const name of document.querySelectorAll(".zone")) name.textContent = zone;
window.addEventListener("hashchange", () => route());
start();
