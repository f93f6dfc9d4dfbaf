// API keys.

import { act, blame, clear, el, fromField, wrong } from "./elements.js";
import { byId, copy, say, time } from "./page.js";
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
  const about = [own && "the key you are using", me.admin && key.owner && `owner ${key.owner}`, key.access === "read" ? "read only" : "read and write", `ends in ${key.last4}`, key.createdAtUtc && `made ${time(key.createdAtUtc)}${key.createdBy && key.createdBy !== key.owner ? ` by ${ownerText(key.createdBy)}` : ""}`,
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

byId("key-new").hidden = false; // it is hidden until this script can handle it
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
byId("new-key-copy").addEventListener("click", () => copy(byId("new-key-text").textContent, byId("new-key-copy")));
byId("new-key-mcp-copy").addEventListener("click", () => copy(byId("new-key-mcp").textContent, byId("new-key-mcp-copy")));
byId("new-key-done").addEventListener("click", () => {
  byId("new-key").hidden = true;
  byId("new-key-text").textContent = byId("new-key-mcp").textContent = "";
  byId("keys-title").focus();
});
