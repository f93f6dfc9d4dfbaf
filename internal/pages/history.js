// The history of a link.

import { act, ago, el, labels, words, wrong } from "./elements.js";
import { byId, say } from "./page.js";
import { api, ownerText } from "./session.js";

let turn = 0; // only the response to the last request is shown

// showHistory shows what was done to a link. back puts a former long URL back; null: that is not allowed.
export async function showHistory(link, path, back) {
  const mine = ++turn;
  wrong("past-problem", null);
  try {
    const { items } = (await api("GET", `${path}/history`, { has: "items" })).body;
    if (mine !== turn) return;
    let owner = link.owner; // after each change
    byId("past-rows").replaceChildren(...items.map((change) => {
      const [had, has] = ["owner" in change.before ? change.before.owner : owner, owner];
      owner = had;
      return row(change, had, has, link, back);
    }));
    byId("past-empty").hidden = items.length > 0;
  } catch (problem) {
    if (mine === turn) wrong("past-problem", problem, () => showHistory(link, path, back));
  }
}

function row({ at, by, what, before }, had, has, link, back) {
  const members = Object.keys(before).filter((name) => name !== "deletedAtUtc" && name !== "owner");
  const who = by === null ? "whoever had its claim token" : ownerText(by);
  const says = { deleted: "Deleted", restored: "Restored", claimed: has === by ? "Taken over" : `Taken over for ${has && ownerText(has)}`,
    transferred: `Given from ${had ? ownerText(had) : "nobody"} to ${has && ownerText(has)}` }[what]
    ?? (String(members) !== "disabled" ? "Edited" : before.disabled ? "Enabled" : "Disabled");
  return el("li", {}, el("strong", { dir: "auto", textContent: `${says} by ${who}` }), " ", el("span", { className: "quiet" }, ago(at)),
    el("dl", {}, ...members.filter((name) => says === "Edited" || name !== "disabled").map((name) =>
      el("div", {}, el("dt", { textContent: labels[name] ?? name }), el("dd", {}, "was ", el("bdi", { textContent: words(name, before[name]) }),
        name === "longUrl" && back && before.longUrl !== link.longUrl ? putBack(before.longUrl, back) : null)))));
}

function putBack(longUrl, back) {
  const button = el("button", { type: "button", textContent: "Put it back", ariaLabel: `Put it back: ${longUrl}`, onclick: async () => {
    if (!await act(button, "back-problem", () => back(longUrl))) return;
    byId("past").querySelector("summary").focus();
    say("Put back: it leads there again");
  } });
  return button;
}
