// The page /manage: chooses which view is shown.

import { byId, isName } from "./common.js";
import { goBack, leaveList, offerClaims, showList } from "./list.js";
import { el, later, wrong, zone } from "./parts.js";
import { called, choosy, domains, groupOf, look, me, offerEnd, offerSignIn, resume, session, signOut, takeDraft, takeHanded, to } from "./session.js";

// one is the module of a single link, once it was loaded.
let one = null;
const loadOne = async () => (one ??= await import("./link.js"));

// views has the view of each address #/name/of, by name. Modules are loaded on demand. Owned
// views are about one owner, whom the address names unless that is the person who is signed in.
const views = {
  "": { section: "list", title: "Links", load: async () => ({ showList }), show: "showList", owned: true },
  new: { section: "link", title: "New link", load: loadOne, show: "showNew", focus: "longUrl", owned: true },
  link: { section: "link", title: "Link", load: loadOne, show: "showLink" },
  clicks: { section: "link", title: "All clicks", load: loadOne, show: "showAll", owned: true },
  top: { section: "top", title: "Top links", load: () => import("./stats.js"), show: "showTop", owned: true },
  keys: { section: "keys", title: "API keys", load: () => import("./seldom.js"), show: "showKeys", owned: true },
  blocked: { section: "blocked", title: "Blocked hosts", load: () => import("./seldom.js"), show: "showBlocked", admin: true },
  cleanup: { section: "cleanup", title: "Clean-up", load: () => import("./seldom.js"), show: "showCleanup", admin: true },
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
  const [name, of = ""] = path.split("/");
  let at = Object.hasOwn(views, name) && views[name];
  if (!at || at.admin && !me.admin || (name === "link") !== isName.test(of)) at = views[""];
  one?.leave();
  if (!byId("list").hidden) leaveList(of);
  view(at.section);
  byId("owner-field").hidden = !at.owned || !choosy() || me.admin && name === "keys"; // admins see all keys
  if (at.owned && choosy()) look(asked.get("owner") ?? "");
  byId("owner").placeholder = name === "top" ? "everybody" : "you";
  document.title = `${name === "link" ? of : at.title} – tiney`;
  const tabs = [...byId("tabs").children];
  const tab = tabs.find((a) => at === views[name] && a.hash.split("?")[0] === `#/${name}`) ?? tabs[0];
  for (const a of tabs) a.removeAttribute("aria-current");
  tab.setAttribute("aria-current", "page");
  if (at.section === "list") byId("link-back").href = location.hash || "#/";
  byId(`${at.section}-wait`).hidden = false;
  const module = await later(at.load(), `${at.section}-problem`);
  if (mine !== turn) return;
  byId(`${at.section}-wait`).hidden = true;
  module?.[at.show](of, asked);
  if (stays || at.section === "list" && goBack()) return;
  if (!first || at.focus) byId(at.focus ?? `${at.section}-title`).focus();
  if (!first) scrollTo(0, 0);
}

// enter shows the page to somebody who has signed in.
function enter() {
  byId("tabs").hidden = false;
  byId("blocked-tab").hidden = byId("cleanup-tab").hidden = byId("key-owner-field").hidden = !me.admin;
  if (domains.length > 1) {
    for (const field of document.querySelectorAll(".several")) {
      field.hidden = false;
      field.querySelector("select").append(...domains.map(({ domain }) => el("option", { textContent: domain })));
    }
  }
  for (const p of document.querySelectorAll(".of")) p.hidden = !choosy();
  if (choosy() && !me.admin) {
    const choice = el("select", { id: "owner", name: "owner" }, new Option("You", ""), ...me.groups.map((group) => new Option(`Group ${groupOf(group)}`, group)));
    choice.setAttribute("form", "filters");
    byId("owner").replaceWith(choice);
  }
  const title = [me.name, me.owner].filter(Boolean).join(", ");
  byId("account").replaceWith(el("span", { id: "who", textContent: called(), title }),
    el("button", { id: "sign-out", type: "button", textContent: "Sign out", onclick: signOut }));
  offerClaims();
}

async function start() {
  byId("account").hidden = true;
  const left = history.state ?? {};
  history.replaceState(null, "", location.href);
  takeHanded();
  try {
    if (await resume()) {
      enter();
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
  document.title = "Sign in – tiney";
  view("signin");
  offerSignIn(says, () => { enter(); route(); });
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
for (const name of document.querySelectorAll(".zone")) name.textContent = zone;
window.addEventListener("hashchange", () => {
  if (takeHanded() && me) offerClaims();
  route();
});
start();
