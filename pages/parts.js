// Small parts of /manage.

import { busy, byId, isBusy } from "./common.js";

// el returns a new element with properties and children; null is none.
export function el(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null));
  return element;
}

const numbers = new Intl.NumberFormat();
export const number = (n) => numbers.format(n);
export const count = (n, one) => `${number(n)} ${one}${n === 1 ? "" : "s"}`;

// zone is the time zone of all times, but for days, which are those of UTC.
export const zone = new Intl.DateTimeFormat().resolvedOptions().timeZone;

// stateOf returns the state of a link, as lists filter by it.
export const stateOf = (link) =>
  link.deletedAtUtc ? "deleted" : Date.parse(link.expiresAtUtc) <= Date.now() ? "expired" : link.disabled ? "disabled" : "live";

// badge returns what a list says of a link's state: nothing of one that is live.
export const badge = (link) => ({ deleted: "Deleted", expired: "Expired", disabled: "Disabled", live: "" })[stateOf(link)];

// Local times, as fields have them, of UTC and back; "" is null.
export function toField(utc) {
  if (!utc) return "";
  const at = new Date(utc);
  return new Date(at - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
export const fromField = (local) => (local ? new Date(local).toISOString().replace(".000", "") : null);

// wrong shows a problem in a notice, and a button if it can be tried again; null removes it.
export function wrong(notice, problem, again) {
  const where = byId(notice);
  where.replaceChildren();
  if (!problem) return;
  where.append(el("strong", { textContent: problem.title }), problem.detail);
  if (again) where.append(el("br"), el("button", { type: "button", textContent: "Try again", onclick: again }));
}

// later returns a module that is loaded when somebody wants it. If it cannot be loaded, a notice says so.
export const later = (loading, notice) => loading.catch(() =>
  wrong(notice, { title: "No response", detail: "The service did not respond. Reload this page in a moment." }));

// act does what a button is for, and shows in a notice what is wrong. It returns whether it was done.
export async function act(button, notice, does) {
  if (isBusy(button)) return false;
  busy(button, true);
  wrong(notice, null);
  try {
    await does();
    return true;
  } catch (problem) {
    if (!("status" in problem)) throw problem; // a mistake of these scripts
    wrong(notice, problem);
    return false;
  } finally {
    busy(button, false);
  }
}

// Fields of a form have the names that the API has for them, and an element for what is wrong with each, whose id is that of
// the field and "-error".
export function blame(form, problem) {
  const field = form.elements.namedItem({ "alias-taken": "alias", "target-disabled": "longUrl" }[problem.kind] ?? problem.field.split(".")[0]);
  if (!field) return false;
  field.setAttribute("aria-invalid", "true");
  byId(`${field.id}-error`).textContent = problem.message;
  field.focus();
  return true;
}

export function clear(form) {
  for (const field of form.elements) {
    if (field.removeAttribute("aria-invalid"), byId(`${field.id}-error`)) byId(`${field.id}-error`).textContent = "";
  }
}

// shares returns list items with a name and a number each, as bars.
export function shares(items) {
  const most = Math.max(...items.map((item) => item.clicks));
  return items.map(({ name, clicks }) => {
    const li = el("li", {}, el("span", { className: "name" }, name), el("b", { textContent: number(clicks) }));
    li.style.setProperty("--share", `${100 * clicks / most}%`);
    return li;
  });
}

// figures fills a list of terms with their values.
export function figures(id, all) {
  byId(id).replaceChildren(...all.map(([term, value]) => el("div", {}, el("dt", { textContent: term }),
    el("dd", { textContent: typeof value === "number" ? number(value) : value, className: typeof value === "number" ? "" : "text" }))));
}
