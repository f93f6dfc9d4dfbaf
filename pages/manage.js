// /manage: which view is shown, and the small views of keys and of the clean-up.

import { busy, byId, copy, say } from "./common.js";
import { leave, restoreDrafts, showLink, showNew } from "./link.js";
import { offerClaims, showList } from "./list.js";
import { act, blame, clear, el, figures, fromField, time, wrong } from "./parts.js";
import { api, me, offerEnd, offerSignIn, resume, signOut, takeDraft } from "./session.js";
import { showTop } from "./stats.js";

// views show what is at an address, #/name/of.
const views = {
  "": { section: "list", title: "Links", show: (_, query) => showList(query) },
  new: { section: "link", title: "New link", show: showNew, focus: "longUrl" },
  link: { section: "link", title: "Link", show: showLink },
  top: { section: "top", title: "Top links", show: showTop },
  keys: { section: "keys", title: "API keys", show: showKeys },
  cleanup: { section: "cleanup", title: "Clean-up", show: showCleanup, admin: true },
};

function view(id) {
  for (const section of document.querySelectorAll(".view")) section.hidden = section.id !== id;
}

// route shows the view of the address. Focus goes to its heading, so that screen readers begin there.
function route({ first = false } = {}) {
  if (!me) return;
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, of = ""] = path.split("/");
  let at = views[name];
  if (!at || at.admin && !me.admin || (name === "link") !== /^[\w-]{1,32}$/.test(of)) at = views[""];
  leave();
  view(at.section);
  document.title = `${name === "link" ? of : at.title} – tiney`;
  for (const a of byId("tabs").children) {
    if (a.hash === `#/${at === views[name] && byId("tabs").querySelector(`[href="#/${name}"]`) ? name : ""}`) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  if (at.section === "list") byId("link-back").href = location.hash || "#/";
  at.show(of, new URLSearchParams(at.section === "list" ? query : ""));
  if (!first || at.focus) byId(at.focus ?? `${at.section}-title`).focus();
  if (!first) scrollTo(0, 0);
}

// enter shows the page to somebody who has signed in.
function enter() {
  byId("tabs").hidden = false;
  byId("cleanup-tab").hidden = byId("owner-field").hidden = byId("key-owner-field").hidden = !me.admin;
  byId("account").replaceWith(el("span", { id: "who", textContent: me.name ?? me.owner, title: me.owner }),
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

async function showKeys() {
  wrong("keys-problem", null);
  byId("keys-empty").hidden = true;
  byId("keys-wait").hidden = !byId("keys-rows").hidden;
  try {
    const { body } = await api("GET", "api/keys");
    byId("keys-rows").replaceChildren(...body.items.map(keyRow));
    byId("keys-rows").hidden = body.items.length === 0;
    byId("keys-empty").hidden = body.items.length > 0;
  } catch (problem) {
    wrong("keys-problem", problem, showKeys);
  } finally {
    byId("keys-wait").hidden = true;
  }
}

function keyRow(key) {
  const about = [me.admin && key.owner, `ends in ${key.last4}`, key.createdAtUtc && `made ${time(key.createdAtUtc)}`,
    key.lastUsedOn ? `last used on ${key.lastUsedOn}` : "never used", key.expiresAtUtc ? `expires ${time(key.expiresAtUtc)}` : "never expires"];
  const revoke = el("button", { type: "button", textContent: "Revoke", ariaLabel: `Revoke ${key.name}` });
  const sure = el("button", { type: "button", className: "primary", textContent: "Revoke for good", ariaLabel: `Revoke for good: ${key.name}`, hidden: true });
  const not = el("button", { type: "button", textContent: "Keep", ariaLabel: `Keep ${key.name}`, hidden: true });
  const asks = (is) => {
    revoke.hidden = is;
    sure.hidden = not.hidden = !is;
    (is ? sure : revoke).focus();
  };
  const row = el("li", {}, el("div", { className: "what" }, el("strong", { textContent: key.name, dir: "auto" }),
    el("div", { className: "quiet", textContent: about.filter(Boolean).join(" · ") })), el("div", { className: "actions" }, revoke, sure, not));
  revoke.addEventListener("click", () => asks(true));
  not.addEventListener("click", () => asks(false));
  sure.addEventListener("click", async () => {
    if (!await act(sure, "keys-problem", () => api("DELETE", `api/keys/${key.id}`))) return;
    row.remove();
    byId("keys-rows").hidden = byId("keys-rows").children.length === 0;
    byId("keys-empty").hidden = !byId("keys-rows").hidden;
    byId("keys-title").focus();
    say("Revoked");
  });
  return row;
}

byId("key-new").addEventListener("input", () => clear(byId("key-new")));
byId("key-new").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = byId("key-new");
  const [name, owner, end] = ["name", "owner", "expiresAtUtc"].map((field) => form.elements[field]);
  act(byId("key-make"), "keys-problem", async () => {
    clear(form);
    if (end.validity.badInput) return blame(form, { field: end.name, message: "Complete the date and the time." });
    const body = { name: name.value.trim() };
    if (owner.value.trim()) body.owner = owner.value.trim();
    if (end.value) body.expiresAtUtc = fromField(end.value);
    try {
      const { body: made } = await api("POST", "api/keys", { body });
      byId("new-key-title").textContent = `The key “${made.name}”`;
      byId("new-key-text").textContent = made.key;
      byId("new-key").hidden = false;
      byId("new-key-copy").focus();
      form.reset();
      await showKeys();
    } catch (problem) {
      if (!problem.field || !blame(form, problem)) throw problem;
    }
  });
});
byId("new-key-copy").addEventListener("click", () => copy(byId("new-key-text").textContent));
byId("new-key-done").addEventListener("click", () => {
  byId("new-key").hidden = true;
  byId("new-key-text").textContent = "";
  byId("keys-title").focus();
});

async function showCleanup() {
  wrong("cleanup-problem", null);
  byId("cleanup-wait").hidden = false;
  try {
    const { body: s } = await api("GET", "api/admin/cleanup/stats");
    figures("cleanup-figures", [["Last run", s.lastRunAtUtc ? time(s.lastRunAtUtc) : "none yet"], ["Removed then", s.lastDeleted], ["Removed ever", s.deletedTotal],
      ["Runs that succeeded", s.successfulRuns], ["Runs that failed", s.failedRuns], ["A run takes", s.averageMs === null ? "–" : `${s.averageMs} ms`],
      ["Now", s.running ? "running" : "at rest"]]);
  } catch (problem) {
    byId("cleanup-figures").replaceChildren();
    wrong("cleanup-problem", problem, showCleanup);
  } finally {
    byId("cleanup-wait").hidden = true;
  }
}

window.addEventListener("hashchange", () => route());
start();
