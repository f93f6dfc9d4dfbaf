// Views of /manage that are rarely shown: API keys and, for admins, blocked hosts and the clean-up.

import { byId, copy, say, time } from "./common.js";
import { unwrapped } from "./drag.js";
import { act, blame, clear, count, el, figures, fromField, wrong } from "./parts.js";
import { api, groupOf, me, ownerText, signOut, used, whose } from "./session.js";

// sayEnd says when a key ends that is made without an end.
function sayEnd() {
  byId("key-end").textContent = groupOf(me.admin ? byId("key-owner").value.trim() : whose || me.owner) ? "a year, the most for a group's key" : "never";
}

export async function showKeys() {
  sayEnd();
  wrong("keys-problem", null);
  byId("keys-empty").hidden = true;
  byId("keys-wait").hidden = !byId("keys-rows").hidden;
  try {
    const { body } = await api("GET", "api/keys", { has: "items" });
    const items = me.admin ? body.items : body.items.filter((key) => key.owner === (whose || me.owner));
    byId("keys-rows").replaceChildren(...items.map(keyRow));
    byId("keys-rows").hidden = items.length === 0;
    byId("keys-empty").hidden = items.length > 0;
  } catch (problem) {
    wrong("keys-problem", problem, showKeys);
  } finally {
    byId("keys-wait").hidden = true;
  }
}

function keyRow(key) {
  const own = used(key);
  const about = [own && "the key you are using", me.admin && key.owner, key.access === "read" && "read only", `ends in ${key.last4}`, key.createdAtUtc && `made ${time(key.createdAtUtc)}${key.createdBy && key.createdBy !== key.owner ? ` by ${ownerText(key.createdBy)}` : ""}`,
    key.lastUsedOn ? `last used on ${key.lastUsedOn} (UTC)` : "never used", key.expiresAtUtc ? `expires ${time(key.expiresAtUtc)}` : "never expires"];
  const revoke = el("button", { type: "button", textContent: "Revoke", ariaLabel: `Revoke ${key.name}` });
  const sure = el("button", { type: "button", className: "delete", textContent: own ? "Revoke and sign out" : "Revoke for good", ariaLabel: `${own ? "Revoke and sign out" : "Revoke for good"}: ${key.name}`, hidden: true });
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
    if (own) return signOut();
    row.remove();
    byId("keys-rows").hidden = byId("keys-rows").children.length === 0;
    byId("keys-empty").hidden = !byId("keys-rows").hidden;
    byId("keys-title").focus();
    say("Revoked");
  });
  return row;
}

byId("key-new").hidden = byId("block").hidden = false; // forms are hidden until this script can handle them
byId("key-new").addEventListener("input", () => { clear(byId("key-new")); sayEnd(); });
byId("key-new").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = byId("key-new");
  const [name, owner, end] = ["name", "owner", "expiresAtUtc"].map((field) => form.elements[field]);
  act(byId("key-make"), "keys-problem", async () => {
    clear(form);
    if (end.validity.badInput) return blame(form, { field: end.name, message: "Complete the date and the time." });
    if (!name.value.trim()) return blame(form, { field: name.name, message: "Give the key a name." });
    const body = { name: name.value.trim(), access: form.elements.access.value };
    const named = me.admin ? owner.value.trim() : whose;
    if (named) body.owner = named;
    if (end.value) body.expiresAtUtc = fromField(end.value);
    try {
      const { body: made } = await api("POST", "api/keys", { body, has: "key" });
      byId("new-key-title").textContent = `The key “${made.name}”`;
      byId("new-key-text").textContent = made.key;
      byId("new-key-assistant").open = false;
      byId("new-key-mcp").textContent = JSON.stringify({ mcpServers: { tiney: { type: "http", url: `${byId("manage").dataset.base}/api/mcp`,
        headers: { Authorization: `Bearer ${made.key}` } } } }, null, 2);
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
byId("new-key-mcp-copy").addEventListener("click", () => copy(byId("new-key-mcp").textContent));
byId("new-key-done").addEventListener("click", () => {
  byId("new-key").hidden = true;
  byId("new-key-text").textContent = byId("new-key-mcp").textContent = "";
  byId("keys-title").focus();
});

let hosts = [];
const most = 200; // rows at once: there may be many thousands of hosts

export async function showBlocked() {
  wrong("blocked-problem", null);
  byId("blocked-wait").hidden = hosts.length > 0;
  try {
    hosts = (await api("GET", "api/blocked", { has: "items" })).body.items;
    list();
  } catch (problem) {
    wrong("blocked-problem", problem, showBlocked);
  } finally {
    byId("blocked-wait").hidden = true;
  }
}

// list shows the hosts that contain what is typed.
function list() {
  const typed = byId("host").value.trim().toLowerCase();
  const found = hosts.filter(({ host }) => host.includes(typed));
  byId("blocked-rows").replaceChildren(...found.slice(0, most).map(row));
  byId("blocked-rows").hidden = found.length === 0;
  byId("blocked-empty").hidden = hosts.length > 0;
  byId("blocked-more").textContent = found.length > most ? `And ${count(found.length - most, "more host")}: type a part of one to find it.` : "";
}

function row({ host, createdAtUtc }) {
  const free = el("button", { type: "button", textContent: "Unblock", ariaLabel: `Unblock ${host}`, onclick: async () => {
    if (!await act(free, "blocked-problem", () => api("DELETE", `api/blocked/${encodeURIComponent(host)}`))) return;
    hosts = hosts.filter((other) => other.host !== host);
    list();
    byId("blocked-title").focus();
    say(`Unblocked ${host}`);
  } });
  return el("li", {}, el("div", { className: "what" }, el("strong", { textContent: host, dir: "ltr" }),
    el("div", { className: "quiet", textContent: createdAtUtc ? `blocked ${time(createdAtUtc)}` : "" })), el("div", { className: "actions" }, free));
}

byId("host").addEventListener("input", list);
byId("block").addEventListener("submit", (event) => {
  event.preventDefault();
  act(byId("block-go"), "blocked-problem", async () => {
    const typed = unwrapped(byId("host").value);
    if (!typed) return byId("host").focus();
    // Somebody may have pasted the URL of a reported link.
    const host = (/^https?:/i.test(typed) && URL.parse?.(typed)?.host) || typed;
    await api("PUT", `api/blocked/${encodeURIComponent(host)}`);
    byId("block").reset();
    say(`Blocked ${host}`);
    await showBlocked();
  });
});

export async function showCleanup() {
  wrong("cleanup-problem", null);
  byId("cleanup-wait").hidden = false;
  try {
    const { body: s } = await api("GET", "api/admin/cleanup/stats", { has: "running" });
    figures("cleanup-figures", [["Last run", s.lastRunAtUtc ? time(s.lastRunAtUtc) : "none yet"], ["Removed then", s.lastDeleted], ["Removed ever", s.deletedTotal],
      ["Runs that succeeded", s.successfulRuns], ["Runs that failed", s.failedRuns], ["A run takes", s.averageMs === null ? "–" : `${s.averageMs} ms`],
      ["Now", s.running ? "running" : "idle"]]);
  } catch (problem) {
    byId("cleanup-figures").replaceChildren();
    wrong("cleanup-problem", problem, showCleanup);
  } finally {
    byId("cleanup-wait").hidden = true;
  }
}
