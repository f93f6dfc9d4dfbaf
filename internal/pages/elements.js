// Small parts of /manage.

import { busy, byId, isBusy, time } from "./page.js";
import { choosy, domains, follow, me, ownerText } from "./session.js";

// el returns a new element with properties and children. It skips children that are null.
export function el(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null));
  return element;
}

const numbers = new Intl.NumberFormat();
export const number = (n) => numbers.format(n);
export const count = (n, one) => `${number(n)} ${one}${n === 1 ? "" : "s"}`;

// split returns the parts of a text that are not empty, such as tags between commas.
export const split = (text, by) => text.split(by).map((one) => one.trim()).filter(Boolean);

export const tries = 5; // of a call while storage does not respond

// patiently repeats a call while the service asks to wait, and says how long that takes. A call that
// is too early for a limit (429) does not count as a try. patiently returns null if stopped() is true
// after a wait.
export async function patiently(call, says, stopped) {
  for (let n = 1;;) {
    try {
      return await call();
    } catch (problem) {
      if (problem.status !== 429 && (problem.status !== 503 || n++ === tries)) throw problem;
      for (let left = Math.max(1, problem.after); left > 0 && !stopped(); left--) {
        says(`The service asks to wait. It goes on in ${count(left, "second")}.`);
        await new Promise((resolve) => setTimeout(resolve, 1000));
      }
      says("");
      if (stopped()) return null;
    }
  }
}

// zone is the time zone of all times. Days are in UTC.
export const zone = new Intl.DateTimeFormat().resolvedOptions().timeZone;

// stateOf returns the state of a link, as lists filter by it.
export const stateOf = (link) =>
  link.deletedAtUtc ? "deleted" : Date.parse(link.expiresAtUtc) <= Date.now() ? "expired" : link.disabled ? "disabled" : Date.parse(link.startsAtUtc) > Date.now() ? "scheduled" : "live";

// badge shows a link's state. A list shows that of a live link only if live is set.
export function badge(where, link, live = "") {
  const state = link.locked ? "locked" : stateOf(link);
  where.dataset.state = state;
  where.textContent = { locked: "Taken down", deleted: "Deleted", expired: "Expired", disabled: "Disabled", scheduled: "Scheduled", live }[state];
}

// labels has the names of a link's members for people. words returns a member's value for people.
export const labels = { longUrl: "Long URL", title: "Title", tags: "Tags", expiresAtUtc: "Expires", startsAtUtc: "Starts", goneUrl: "Leads afterwards to", rules: "Rules", password: "Password", maxOpens: "Openings", statusCode: "Redirect", forward: "Appended", disabled: "Disabled",
  locked: "Taken down", owner: "Owner", deletedAtUtc: "Deleted" };
export const words = (name, value) => (value === null || value?.length === 0 ? name === "expiresAtUtc" ? "never" : "none" : Array.isArray(value) ? value.map((one) => (name === "rules" ? ruleWords(one) : one)).join(name === "rules" ? "; " : ", ")
  : value === true ? "yes" : value === false ? "no" : name.endsWith("AtUtc") ? time(value) : name === "owner" ? ownerText(value) : String(value));

const ruleWords = (r) => `${r.name}: ${[...[r.countries, r.systems, r.devices, r.languages].flat(), r.fromUtc && `from ${time(r.fromUtc)}`,
  r.untilUtc && `until ${time(r.untilUtc)}`, r.percent && `${r.percent} %`].filter(Boolean).join(", ")} → ${r.longUrl}`;

// toField converts a time in UTC to the local time of a field, and fromField converts it back. An
// empty field is null.
export function toField(utc) {
  if (!utc) return "";
  const at = new Date(utc);
  return new Date(at - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
export const fromField = (local) => (local ? new Date(local).toISOString().replace(".000", "") : null);

// wrong shows a problem in a notice, with a button if again is given. A null problem clears the
// notice.
export function wrong(notice, problem, again) {
  const where = byId(notice);
  where.replaceChildren();
  if (!problem) return;
  where.append(el("strong", { textContent: problem.title }), problem.detail);
  if (again) where.append(el("br"), el("button", { type: "button", textContent: "Try again", onclick: again }));
}

// later returns a module that is loaded on demand. If that fails, a notice says so.
export const later = (loading, notice) => loading.catch(() =>
  wrong(notice, { title: "No response", detail: "The service did not respond. Reload this page in a moment." }));

// act does what a button is for, and shows a problem in a notice. It returns whether it succeeded.
export async function act(button, notice, does) {
  if (isBusy(button)) return false;
  busy(button, true);
  wrong(notice, null);
  try {
    await does();
    return true;
  } catch (problem) {
    if (!("status" in problem)) throw problem; // a bug in these scripts
    wrong(notice, problem);
    return false;
  } finally {
    busy(button, false);
  }
}

// filled returns the values of a form that are not empty, for a query.
export const filled = (form) => new URLSearchParams([...new FormData(form)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value));

// describe lets an element be described by its message, as blame shows it, and returns it.
export function describe(element) {
  element.setAttribute("aria-describedby", `${element.id}-error`);
  return element;
}

// unread says what is wrong with a field that holds something the browser cannot read.
export const unread = (field) => (field.type === "number" ? "Write a whole number, or clear it." : "Complete the date and the time, or clear it.");

// blame shows a problem at the field it is about, and returns false if there is none. Fields have
// their names from the API. The id of a field's message is the field's id and "-error".
export function blame(form, problem) {
  const name = { "alias-taken": "alias", "target-disabled": "longUrl" }[problem.kind] ?? problem.field;
  const field = form.elements.namedItem(name) ?? form.elements.namedItem(name.split(".")[0]);
  if (!field) return false;
  field.setAttribute("aria-invalid", "true");
  if (field.closest("details")) field.closest("details").open = true;
  byId(`${field.id}-error`).textContent = problem.message;
  field.focus();
  return true;
}

export function clear(form) {
  for (const field of form.elements) {
    if (field.removeAttribute("aria-invalid"), byId(`${field.id}-error`)) byId(`${field.id}-error`).textContent = "";
  }
}

// prepare fits elements to who is signed in. Elements for several domains get the domains once.
export function prepare(element) {
  for (const name of element.querySelectorAll(".zone")) name.textContent = zone;
  for (const one of element.querySelectorAll(".admins")) one.hidden = !me.admin;
  for (const p of element.querySelectorAll(".of")) p.hidden = !choosy();
  for (const field of element.querySelectorAll(".several[hidden]")) {
    if (domains.length < 2) break;
    field.hidden = false;
    field.querySelector("select").append(...domains.map(({ domain }) => el("option", { textContent: domain })));
  }
  follow();
}

const parts = new Map(); // promises for the parts of the page that were asked for, by address

// part adds a part of the page that it loads on demand, for the modules that need it. A request for
// a document may parse markup, which the policy of pages forbids to scripts.
export function part(address) {
  if (!parts.has(address)) {
    parts.set(address, new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      request.open("GET", new URL(address, import.meta.url));
      request.responseType = "document";
      request.onloadend = () => {
        if (request.status !== 200 || !request.response) return reject(new Error(address));
        const main = byId("manage");
        main.append(...request.response.body.children);
        prepare(main);
        resolve();
      };
      request.send();
    }).catch((error) => {
      parts.delete(address); // the next call asks again
      throw error;
    }));
  }
  return parts.get(address);
}

// style adds a style sheet, and waits until it is there.
export const style = (href) => new Promise((resolve) => {
  const link = el("link", { rel: "stylesheet", href: new URL(href, import.meta.url).href, onload: resolve, onerror: resolve });
  if ([...document.head.children].some((one) => one.href === link.href)) resolve();
  else document.head.append(link);
});

const percents = new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 1 });

// shares returns list items with a name, a number, its part of all, and a bar each.
export function shares(items, all) {
  const most = Math.max(...items.map((item) => item.clicks));
  return items.map(({ name, clicks }) => {
    const li = el("li", {}, el("span", { className: "name" }, name), el("b", { textContent: number(clicks) }), el("span", { className: "part", textContent: percents.format(clicks / all) }));
    li.style.setProperty("--share", `${100 * clicks / most}%`);
    return li;
  });
}

// figures fills a description list with terms and their values: numbers, texts or elements.
export function figures(id, all) {
  byId(id).replaceChildren(...all.map(([term, value]) => el("div", {}, el("dt", { textContent: term }),
    el("dd", { className: typeof value === "number" ? "" : "text" }, typeof value === "number" ? number(value) : value))));
}

const spans = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });

// ago returns an element that says how long ago a time was. Its title is the time.
export function ago(utc) {
  const seconds = Math.max(0, (Date.now() - Date.parse(utc)) / 1000);
  const [unit, length] = [["day", 86_400], ["hour", 3600], ["minute", 60]].find(([, length]) => seconds >= length) ?? ["second", 1];
  return el("time", { dateTime: utc, title: time(utc), textContent: seconds < 30 * 86_400 ? spans.format(-Math.floor(seconds / length), unit) : time(utc) });
}
