// The list of links.

import { badge, count, el, filled, later, number, split, wrong } from "./elements.js";
import { bare, byId, copy, isName, nameOf, time } from "./page.js";
import { api, domains, look, me, ownerText, session, to, whose } from "./session.js";

const filters = byId("filters");
const list = byId("list-rows");
const screenful = 50; // rows that a list has before it waits for somebody to go on
let links = [];
let cursor = null; // where the list continues; null: it has ended
let searched = 0; // how many links were looked at for the list
let loaded = null; // the filters of the list that is shown
let complete = true; // the list has all links, and not only the newest ones
let asOf = null; // when the clicks were counted that the list is ordered by; null: by age
let turn = 0; // only the response to the last request is shown
let adding = false; // more rows are on their way
let stopped = false; // somebody wants no further search

const clicked = new Map(); // clicks by link, as last read; null: they could not be read

// hash returns the fragment of the URL of the list with these filters.
const hash = (query) => `#/${String(query) && `?${query}`}`;

let left = {}; // where in the list somebody was before opening a link

// leaveList takes the rows out of the document. Otherwise thousands of them make each key press in a
// form of another view slow.
export function leaveList(name) {
  left = { query: loaded, name, y: scrollY };
  list.remove();
}

const rowOf = (address) => list.querySelector(`.what > [href="${address}"]`);
const allRows = () => [...list.querySelectorAll("li")];

// goBack returns to that place in the list, and returns false if it does not exist any more.
export function goBack() {
  const link = left.query === loaded && loaded === String(current()) && rowOf(`#/link/${left.name}`);
  if (!link) return false;
  link.focus({ preventScroll: true });
  scrollTo(0, left.y);
  return true;
}

export function showList(_, query) {
  byId("list-columns").after(list);
  for (const field of filters.elements) if (field.name) field.value = query.getAll(field.name).join(", ");
  offerFilters();
  if (loaded !== String(query) || links.length <= screenful) load(query); // otherwise more links were asked for, and stay
}

export const windows = { "24h": "24 hours", "7d": "7 days", "30d": "30 days" }; // of orders by clicks

// byAll reports whether a list is of everybody's links with the most clicks, which have no filters.
const byAll = (order, owner) => order in windows && me.admin && !owner;
const narrowing = ["q", "tag", "state"]; // the filters that it lacks

function offerFilters() {
  const off = byAll(filters.elements.order.value, byId("owner").value.trim());
  for (const name of narrowing) filters.elements[name].disabled = off;
}

// current returns the filters that are set. Commas separate tags.
function current() {
  const query = filled(filters);
  const tags = split(query.get("tag") ?? "", ",");
  query.delete("tag");
  for (const tag of tags) query.append("tag", tag);
  return query;
}

// byClicks returns the links with the most clicks, of all that an owner has. The service counts them when it is asked, and may
// take longer than a call. byClicks waits for it about a minute, as long as this list is wanted.
async function byClicks(query, wanted) {
  const asked = new URLSearchParams({ window: query.get("order"), limit: 100 });
  for (const name of ["owner", "domain"]) if (query.get(name)) asked.set(name, query.get(name));
  for (let calls = 1; ; calls++) {
    try {
      return (await api("GET", `api/stats/top?${asked}`, { has: "items" })).body;
    } catch (problem) {
      if (problem.kind !== "computing" || calls === 6 || !wanted()) throw problem;
      byId("list-count").textContent = "Being computed…";
      await new Promise((resolve) => setTimeout(resolve, 1000 * problem.after));
      if (!wanted()) throw problem;
    }
  }
}

// load shows the list with these filters, or adds rows to it. One call looks at 1,000 links at most,
// of which a filter may match none, so load asks on until there is a screenful of rows.
async function load(query, more = false, focuses = false) {
  const mine = ++turn;
  const same = loaded === String(query);
  const wanted = () => mine === turn && !byId("list").hidden;
  let fresh = !more;
  let first = null; // of the added rows
  focuses ||= document.activeElement === byId("list-more"); // which hides
  wrong("list-problem", null);
  byId("list-empty").hidden = true;
  if (fresh && !same) list.hidden = byId("list-columns").hidden = true;
  byId("list-more").hidden = byId("list-stop").hidden = true;
  byId("list-wait").hidden = more || same && links.length > 0;
  if (!byId("list-wait").hidden) byId("list-count").textContent = "Looking…";
  list.setAttribute("aria-busy", "true");
  adding = more;
  stopped = false;
  try {
    for (let found = 0; ;) {
      let page;
      if (byAll(query.get("order"), query.get("owner")) || query.get("order") in windows && !narrowing.some((name) => query.has(name))) {
        page = await byClicks(query, wanted);
      } else {
        const asked = new URLSearchParams([...query, ["limit", more || query.has("order") ? 100 : screenful], ...(fresh ? [] : [["cursor", cursor]])]);
        page = (await api("GET", `api/links?${asked}`, { has: "items" })).body;
      }
      if (mine !== turn) return;
      const rows = add(page, query, fresh);
      first ??= rows[0];
      found += rows.length;
      fresh = false;
      if (found >= screenful || !cursor || stopped) break;
      byId("list-wait").hidden = true;
      byId("list-stop").hidden = false;
      byId("list-count").textContent = `${number(links.length)} found, ${number(searched)} searched…`;
    }
    show(query);
    if (document.activeElement === byId("list-stop")) byId("list-more").focus(); // "Stop" hides
    else if (focuses) (first?.querySelector("a") ?? byId("list-title")).focus();
  } catch (problem) {
    if (mine !== turn) return;
    byId("list-count").textContent = "";
    wrong("list-problem", problem, () => load(query, !fresh && same));
    if (focuses) byId("list-problem").lastElementChild.focus();
  } finally {
    if (mine === turn) {
      adding = false;
      byId("list-wait").hidden = byId("list-stop").hidden = true;
      list.removeAttribute("aria-busy");
      watch();
    }
  }
}

// add adds a page of links to the list, or replaces the list by it if fresh is set. It returns the
// new rows.
function add(page, query, fresh) {
  const rows = page.items.map(row);
  const held = document.activeElement.closest("#list-rows li")?.querySelector("a").hash;
  const y = scrollY;
  searched = (fresh ? 0 : searched) + (page.searched ?? 0);
  links = fresh ? page.items : [...links, ...page.items];
  cursor = page.nextCursor ?? null;
  loaded = String(query);
  asOf = page.asOfUtc ?? null;
  complete = page.complete ?? true;
  if (fresh) list.replaceChildren();
  // Each time that a browser draws, it looks at all parts that may be out of sight. Rows are too many.
  for (let i = 0; i < rows.length; i += 25) {
    const part = el("ul", { className: "rows", role: "none" }, ...rows.slice(i, i + 25));
    part.style.setProperty("--rows", part.children.length);
    list.append(part);
  }
  list.hidden = byId("list-columns").hidden = links.length === 0;
  if (fresh) list.dispatchEvent(new Event("fresh"));
  if (!asOf) for (let i = 0; i < page.items.length; i += 100) readClicks(page.items.slice(i, i + 100).map(nameOf));
  if (fresh && held) {
    (rowOf(held) ?? byId("list-title")).focus({ preventScroll: true });
    scrollTo(0, y); // Chromium scrolls up as the row with the focus is taken out
  }
  return rows;
}

function show(query) {
  const word = query.has("q") || query.has("tag") ? "match" : "link";
  byId("list-more").hidden = !cursor;
  byId("list-more").textContent = stopped ? "Search on" : "More links";
  byId("list-count").textContent = asOf ? `The ${count(links.length, "link")} with the most clicks, counted ${time(asOf)}.${byAll(query.get("order"), query.get("owner")) ? " Filters are off in this order." : ""}`
    : stopped && cursor ? `${number(links.length)} found, ${number(searched)} searched`
    : cursor ? `${number(links.length)}+ ${word === "match" ? "matches" : "links"}`
    : !complete ? `The first ${number(links.length)} of your newest 1,000 links`
    : links.length ? word === "match" ? `${number(links.length)} ${links.length === 1 ? "match" : "matches"}` : count(links.length, word) : "";
  const empty = byId("list-empty");
  empty.hidden = links.length > 0 || stopped && cursor;
  if (links.length) return;
  if (asOf) {
    byId("list-count").textContent = `Counted ${time(asOf)}`;
    empty.replaceChildren(el("p", { textContent: `No clicks in the last ${windows[query.get("order")]}.` }));
  } else if (!String(query) || !me.admin && String(query) === String(new URLSearchParams({ owner: whose }))) {
    empty.replaceChildren(el("p", { textContent: whose ? `No links of ${ownerText(whose)} yet.` : me.admin
      ? "No links of your own yet. Name an owner above to see theirs, or search for a short URL to open anybody's."
      : "No links yet. Yours never expire, unless you want them to." }),
      el("a", { className: "button primary", href: to("new"), textContent: "New link" }));
    if (me.admin && !whose) empty.append(" ", el("a", { className: "button", href: to("", { order: "7d" }), textContent: "Everybody's most clicked links" }));
  } else {
    empty.replaceChildren(el("p", { textContent: "No links match." }),
      el("a", { className: "button", href: to(), textContent: "Show all links" }));
    const q = bare(query.get("q") ?? "");
    const at = domains.find(({ baseUrl }) => q.startsWith(`${bare(baseUrl)}/`));
    const name = nameOf(at ? { alias: q.slice(bare(at.baseUrl).length + 1), ...at } : { alias: q, domain: query.get("domain") });
    if (me.admin && isName.test(name)) {
      empty.append(" ", el("a",
        { className: "button", href: `#/link/${name}`, textContent: `Open ${name} (any owner)` }));
    }
  }
}

// The list goes on by itself as its end comes near.
const near = new IntersectionObserver((ends) => { if (ends.at(-1).isIntersecting) more(); }, { rootMargin: "600px" });
function watch() {
  near.disconnect(); // otherwise it would not tell again that the end is near
  if (cursor && !stopped && !byId("list-problem").textContent) near.observe(byId("list-more"));
}
function more(focuses) {
  if (!adding && cursor) load(new URLSearchParams(loaded), true, focuses);
}
// readUpTo reads on until the list has n links, or all that there are, unless somebody stops it.
async function readUpTo(n) {
  const query = loaded;
  while (loaded === query && cursor && links.length < n && !stopped && !byId("list-problem").textContent) await load(new URLSearchParams(query), true);
}
byId("list-more").addEventListener("click", () => more(true));
byId("list-stop").addEventListener("click", () => { stopped = true; });

const days = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });
function day(cell, before, utc, none) {
  cell.append(el("span", { className: "unseen", textContent: utc ? before : none }), utc ? days.format(new Date(utc)) : el("span", { ariaHidden: "true", textContent: "–" }));
  if (utc) cell.title = `${before}${time(utc)}`;
}

function row(link) {
  const li = byId("list-row").content.firstElementChild.cloneNode(true);
  const part = (name) => li.querySelector(`[data-part="${name}"]`);
  const name = bare(link.shortUrl);
  const [host, alias] = part("open").children;
  host.textContent = name.slice(0, name.length - link.alias.length);
  alias.textContent = link.alias;
  part("open").href = `#/link/${nameOf(link)}`;
  part("pick").ariaLabel = `Select ${name}`;
  badge(part("state"), link);
  part("rules").textContent = [link.password && "Password", link.maxOpens && `${number(link.opensLeft)} left`, link.rules.length && "Rules"].filter(Boolean).join(" · ");
  part("title").textContent = part("title").title = link.title ?? "";
  part("long").textContent = part("long").title = link.longUrl;
  part("tags").append(...link.tags.map((tag) => el("a", { className: "tag", href: to("", { tag }), ariaLabel: `Links with the tag ${tag}` }, el("bdi", { textContent: tag }))));
  if (me.admin && link.owner && link.owner !== (whose || me.owner)) { // of everybody's
    part("tags").prepend(el("a", { className: "tag", href: `#/?${new URLSearchParams({ owner: link.owner })}`, ariaLabel: `Links of ${ownerText(link.owner)}` }, el("bdi", { textContent: ownerText(link.owner) })));
  }
  showClicks(part("clicks"), link);
  day(part("made"), "created ", link.createdAtUtc, "created at an unknown time");
  day(part("ends"), "expires ", link.expiresAtUtc, "never expires");
  const barred = !me.admin && (link.locked || link.shared);
  for (const button of li.querySelectorAll("[data-do]")) {
    const what = button.dataset.do;
    if (what === "able") button.lastElementChild.textContent = link.disabled ? "Enable" : "Disable";
    button.ariaLabel = what === "menu" ? `Actions for ${name}` : `${button.textContent} ${name}`;
    button.title = what === "menu" ? "" : button.textContent;
    if (what === "edit") button.href = `#/link/${nameOf(link)}?edit`;
    else button.hidden = what === "restore" ? !link.deletedAtUtc || link.locked && !me.admin
      : what !== "menu" && Boolean(link.deletedAtUtc) || ["able", "delete"].includes(what) && barred;
  }
  li.classList.toggle("home", domains.length < 2 && nameOf(link) === link.alias); // its domain goes without saying
  li.classList.toggle("gone", Boolean(link.deletedAtUtc));
  return li;
}

// openMenu shows the actions of a row where there is no room for them in it.
function openMenu(li, is) {
  for (const open of list.querySelectorAll(".open")) if (open !== li || !is) open.classList.remove("open"), open.querySelector('[data-do="menu"]').ariaExpanded = "false";
  if (!is) return;
  li.classList.add("open");
  li.querySelector('[data-do="menu"]').ariaExpanded = "true";
}

list.addEventListener("click", async ({ target }) => {
  const button = target.closest("button[data-do]");
  if (!button) return;
  const li = button.closest("li");
  const link = links[allRows().indexOf(li)];
  const what = button.dataset.do;
  if (what === "menu") return openMenu(li, !li.classList.contains("open"));
  if (what === "copy") return copy(link.shortUrl);
  if (li.classList.contains("open")) closeMenu();
  const module = await later(import("./actions.js"), "list-problem");
  const again = await module?.rowDoes(what, link, button, changed);
  const now = again && rowOf(`#/link/${nameOf(link)}`)?.closest("li");
  if (now) for (const name of ["menu", again]) now.querySelector(`[data-do="${name}"]`).focus(); // only one is there
});
function closeMenu() {
  const menu = list.querySelector('.open [data-do="menu"]');
  openMenu(null, false);
  menu?.focus();
}
document.addEventListener("keydown", (event) => { if (event.key === "Escape") closeMenu(); });
document.addEventListener("click", ({ target }) => { if (!target.closest(".open")) openMenu(null, false); });

// While the focus is in this view, but in no field, "/" leads to the search, and "c" to a new link.
// People who dictate would press such keys by accident, if they worked everywhere.
byId("list").addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("select, input:not([type=checkbox])")) return;
  const target = { "/": byId("q"), c: byId("list").querySelector(".head > a") }[event.key];
  if (!target) return;
  event.preventDefault();
  target.focus();
  if (target.href) target.click();
});

// The arrow keys lead to the same place in the row above or below.
list.addEventListener("keydown", (event) => {
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  const all = step ? allRows() : [];
  const other = all[all.indexOf(event.target.closest("li")) + step];
  if (!other) return;
  event.preventDefault();
  const { part, do: what } = event.target.dataset;
  const same = other.querySelector(part ? `[data-part="${part}"]` : `[data-do="${what}"]:not([hidden])`);
  (same?.checkVisibility() ? same : other.querySelector("[data-part=open]")).focus();
});

// Selecting a row loads what can be done to several.
list.addEventListener("change", async (event) => {
  if (event.target.dataset.part !== "pick") return;
  const module = await later(import("./bulk.js"), "list-problem");
  module?.pick(event.target, { links: () => links, readUpTo, changed });
});

// readClicks reads clicks, for which the list does not wait. One call takes a page of the list, unless
// domains have long names.
async function readClicks(names) {
  if (!names.length) return;
  if (String(names).length > 4000) {
    const half = names.length >> 1;
    return [names.slice(0, half), names.slice(half)].forEach(readClicks);
  }
  let items = [];
  try {
    ({ items } = (await api("GET", `api/stats/clicks?alias=${names}`, { asks: false, has: "items" })).body);
  } catch { /* a list without them */ }
  const read = new Map(items.map((item) => [nameOf(item), item.clicks]));
  for (const name of names) clicked.set(name, read.get(name) ?? clicked.get(name) ?? null);
  const all = allRows();
  for (const [i, link] of links.entries()) if (names.includes(nameOf(link))) showClicks(all[i].querySelector(".clicks"), link);
}

function showClicks(where, link) {
  const clicks = link.clicks ?? clicked.get(nameOf(link)); // those that a list is ordered by
  const [n, word] = clicks === undefined ? [""] : clicks === null ? ["–"] : count(clicks, "click").split(" ");
  where.replaceChildren(n, ...(word ? [el("span", { className: "unseen", textContent: ` ${word}` })] : []));
  where.title = clicks === null ? "Clicks cannot be read now" : "";
}

// reload reads the list that is shown again.
export const reload = () => load(current());

// changed updates a link in its place in the list. If the link is not there, or null, the list is
// read again when it is next shown.
export function changed(link) {
  const at = link ? links.findIndex((l) => nameOf(l) === nameOf(link)) : -1;
  if (at < 0) {
    loaded = null;
    return;
  }
  links[at] = { ...links[at], ...link };
  const [was, is] = [allRows()[at], row(links[at])];
  is.querySelector("[data-part=pick]").checked = was.querySelector("[data-part=pick]").checked;
  was.replaceWith(is);
}

let typing;
function filter() {
  clearTimeout(typing);
  if (byId("list").hidden) return; // somebody has chosen another owner in another view
  offerFilters();
  const query = current();
  if (hash(query) === (location.hash || "#/")) return;
  history.replaceState(null, "", hash(query)); // so that going back leads to the same filters
  look(query.get("owner") ?? "");
  session.list = hash(query);
  load(query);
}
for (const where of [filters, byId("owner-field")]) {
  where.addEventListener("input", (event) => {
    clearTimeout(typing);
    typing = setTimeout(filter, event.target.tagName === "SELECT" ? 0 : 250);
  });
}
filters.addEventListener("submit", (event) => { event.preventDefault(); filter(); });
byId("filters-more").addEventListener("click", () => {
  byId("filters-more").ariaExpanded = String(filters.classList.toggle("all"));
});

// Fields for tags suggest those of the owner's links. A browser compares a suggestion with the whole
// field, so suggestions begin with the tags that stand before the last comma.
let suggested = null; // whose they are
let tags = [];
function suggest({ target }) {
  if (target.getAttribute("list") !== "known-tags") return;
  const before = target.value.match(/^(.*,)?\s*/)[0];
  byId("known-tags").replaceChildren(...tags.map(({ tag, links: n }) => el("option", { value: before + tag, label: `${tag} (${number(n)})` })));
}
document.addEventListener("input", suggest);
document.addEventListener("focusin", async (event) => {
  suggest(event);
  if (event.target.getAttribute("list") !== "known-tags" || suggested === whose) return;
  suggested = whose;
  try {
    tags = (await api("GET", `api/tags${whose && `?owner=${encodeURIComponent(whose)}`}`, { asks: false, has: "items" })).body.items;
    suggest(event);
  } catch {
    suggested = null; // the next time asks again
  }
});

// An admin may name any owner. Fields suggest the owners of keys, and the admin's groups.
document.addEventListener("focusin", async function suggest({ target }) {
  if (target.getAttribute("list") !== "known-owners") return;
  document.removeEventListener("focusin", suggest);
  try {
    const { body } = await api("GET", "api/keys");
    byId("known-owners").replaceChildren(...[...new Set([...me.groups, ...body.items.map((key) => key.owner)])].map((owner) => el("option", { value: owner })));
  } catch { /* an owner can still be typed */ }
});
