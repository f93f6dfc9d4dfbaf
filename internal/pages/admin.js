// The views of admins: blocked hosts, and maintenance.

import { act, count, el, figures, wrong } from "./elements.js";
import { unwrapped } from "./longurl.js";
import { byId, say, time } from "./page.js";
import { api } from "./session.js";

byId("block").hidden = false; // it is hidden until this script can handle it

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
