// The list of links, and the claims of links that this browser made before anybody signed in.

import { bare, byId, call, claimable, copy, isName, keepMade, madeHere, most, nameOf, say } from "./common.js";
import { act, badge, count, el, filled, number, wrong } from "./parts.js";
import { api, claimsDeclined, declineClaims, domains, handed, keepHanded, look, me, ownerText, session, to, whose } from "./session.js";

const filters = byId("filters");
let links = [];
let cursor = null; // where the list continues; null: it has ended
let loaded = null; // the filters of the list that is shown
let turn = 0; // only the response to the last request is shown

export const known = new Set(); // tags that links have
const clicked = new Map(); // clicks by link, as last read; null: they could not be read

// hash returns the fragment of the URL of the list with these filters.
const hash = (query) => `#/${String(query) && `?${query}`}`;

let left = {}; // where in the list somebody was before opening a link

export function leaveList(name) {
  left = { query: loaded, name, y: scrollY };
}

const rowOf = (address) => byId("list-rows").querySelector(`.what > [href="${address}"]`);

// goBack returns to that place in the list, and returns false if it does not exist any more.
export function goBack() {
  const link = left.query === loaded && loaded === String(current()) && rowOf(`#/link/${left.name}`);
  if (!link) return false;
  link.focus({ preventScroll: true });
  scrollTo(0, left.y);
  return true;
}

export function showList(_, query) {
  for (const field of filters.elements) field.value = query.get(field.name) ?? "";
  if (loaded !== String(query) || links.length <= 50) load(query); // otherwise more links were asked for, and stay
}

// current returns the filters that are set.
const current = () => filled(filters);

async function load(query, more = false) {
  const mine = ++turn;
  const same = loaded === String(query);
  wrong("list-problem", null);
  byId("list-empty").hidden = true;
  if (!more && !same) byId("list-rows").hidden = byId("list-more").hidden = true;
  byId("list-wait").hidden = more || same && links.length > 0;
  if (!byId("list-wait").hidden) byId("list-count").textContent = "Looking…";
  byId("list-rows").setAttribute("aria-busy", "true");
  try {
    let at = more ? cursor : null;
    let found;
    // One call reads at most 1,000 links. A filter may match none of them.
    for (let calls = 0; calls < 5; calls++) {
      const asked = new URLSearchParams([...query, ...(at ? [["cursor", at]] : [])]);
      const { body } = await api("GET", `api/links?${asked}`, { has: "items" });
      if (mine !== turn) return;
      found = body.items;
      at = body.nextCursor;
      if (found.length || !at) break;
    }
    links = more ? [...links, ...found] : found;
    cursor = at;
    loaded = String(query);
    found.forEach((link) => link.tags.forEach((tag) => known.add(tag)));
    byId("known-tags").replaceChildren(...[...known].map((tag) => el("option", { value: tag })));
    const rows = found.map(row);
    const held = document.activeElement.closest("#list-rows > li")?.querySelector("a").hash;
    const y = scrollY;
    if (more) byId("list-rows").append(...rows);
    else byId("list-rows").replaceChildren(...rows);
    show(query);
    readClicks(found.map(nameOf));
    if (more) (rows[0]?.querySelector("a") ?? byId("list-title")).focus();
    else if (held) {
      (rowOf(held) ?? byId("list-title")).focus({ preventScroll: true });
      scrollTo(0, y); // Chromium scrolls up as the row with the focus is taken out
    }
  } catch (problem) {
    if (mine !== turn) return;
    byId("list-count").textContent = "";
    wrong("list-problem", problem, () => load(query, more));
  } finally {
    if (mine === turn) {
      byId("list-wait").hidden = true;
      byId("list-rows").removeAttribute("aria-busy");
    }
  }
}

function show(query) {
  byId("list-rows").hidden = links.length === 0;
  byId("list-more").hidden = !cursor;
  byId("list-count").textContent = links.length ? count(links.length, "link") + (cursor ? ", and more" : "") : "";
  const empty = byId("list-empty");
  empty.hidden = links.length > 0;
  if (links.length) return;
  if (!String(query) || !me.admin && String(query) === String(new URLSearchParams({ owner: whose }))) {
    empty.replaceChildren(el("p", { textContent: whose ? `No links of ${ownerText(whose)} yet.` : me.admin
      ? "No links of your own yet. Name an owner above to see theirs, or search for a short URL to open anybody's."
      : "No links yet. Yours never expire, unless you want them to." }),
      el("a", { className: "button primary", href: to("new"), textContent: "New link" }));
  } else {
    empty.replaceChildren(el("p", { textContent: cursor ? "None among the newest 5,000 links." : "No link is like that." }),
      el("a", { className: "button", href: to(), textContent: "Show all links" }));
    const q = bare(query.get("q") ?? "");
    const at = domains.find(({ baseUrl }) => q.startsWith(`${bare(baseUrl)}/`));
    const name = nameOf(at ? { alias: q.slice(bare(at.baseUrl).length + 1), ...at } : { alias: q, domain: query.get("domain") });
    if (me.admin && isName.test(name)) {
      empty.append(" ", el("a",
        { className: "button", href: `#/link/${name}`, textContent: `Open ${name}, whosever it is` }));
    }
  }
}

function row(link) {
  const li = byId("list-row").content.firstElementChild.cloneNode(true);
  const part = (name) => li.querySelector(`[data-part="${name}"]`);
  const name = bare(link.shortUrl);
  part("open").textContent = name;
  part("open").href = `#/link/${nameOf(link)}`;
  part("state").textContent = badge(link);
  part("title").textContent = part("title").title = link.title ?? "";
  part("long").textContent = part("long").title = link.longUrl;
  part("tags").append(...link.tags.map((tag) => el("a", { className: "tag", href: to("", { tag }), ariaLabel: `Links with the tag ${tag}` }, el("bdi", { textContent: tag }))));
  showClicks(part("clicks"), nameOf(link));
  part("copy").ariaLabel = `Copy ${name}`;
  part("copy").addEventListener("click", () => copy(link.shortUrl));
  if (link.deletedAtUtc) li.className = "gone";
  return li;
}

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
  for (const [i, link] of links.entries()) showClicks(byId("list-rows").children[i].querySelector(".clicks"), nameOf(link));
}

function showClicks(where, name) {
  const clicks = clicked.get(name);
  where.textContent = clicks === undefined ? "" : clicks === null ? "–" : count(clicks, "click");
  where.title = clicks === null ? "Clicks cannot be read now" : "";
}

// changed updates a link in its place in the list. If the link is not there, or null, the list is
// read again when it is next shown.
export function changed(link) {
  const at = link ? links.findIndex((l) => nameOf(l) === nameOf(link)) : -1;
  if (at < 0) {
    loaded = null;
    return;
  }
  links[at] = { ...links[at], ...link };
  byId("list-rows").children[at].replaceWith(row(links[at]));
}

let typing;
function filter() {
  clearTimeout(typing);
  if (byId("list").hidden) return; // somebody has chosen another owner in another view
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
byId("list-more").addEventListener("click", () => load(current(), true));

// An admin may name any owner. Fields suggest the owners of keys, and the admin's groups.
document.addEventListener("focusin", async function suggest({ target }) {
  if (target.getAttribute("list") !== "known-owners") return;
  document.removeEventListener("focusin", suggest);
  try {
    const { body } = await api("GET", "api/keys");
    byId("known-owners").replaceChildren(...[...new Set([...me.groups, ...body.items.map((key) => key.owner)])].map((owner) => el("option", { value: owner })));
  } catch { /* an owner can still be typed */ }
});

let offered = []; // links that can be taken over

// offerClaims offers to take over links that this browser made, unless that was declined in this
// tab. Of links that another domain's page handed over, it leaves out those that the token does not
// open any more.
export async function offerClaims() {
  const others = await Promise.all(handed().map(([name, claimToken]) =>
    call("GET", `api/links/${name}`, { token: claimToken, has: "shortUrl" }).then(({ body }) => ({ ...body, claimToken }), () => ({}))));
  const all = offered = claimable([...madeHere(), ...others]).slice(0, most);
  byId("claims").hidden = all.length === 0 || claimsDeclined();
  byId("claims-handed").hidden = !claimable(others).length;
  byId("claims-title").textContent = all.length === 1 ? "This link can be yours" : `These ${number(all.length)} links can be yours`;
  byId("claims-links").replaceChildren(...all.map((link) => el("li", { dir: "ltr", textContent: `${bare(link.shortUrl)} → ${link.longUrl}` })));
}

byId("claims-not").addEventListener("click", () => {
  declineClaims();
  byId("claims").hidden = true;
  byId("list-title").focus();
});

byId("claims-take").addEventListener("click", () => act(byId("claims-take"), "claims-problem", async () => {
  const keepExpiry = byId("claims-keep").checked;
  const claims = offered.map(({ alias, domain, claimToken }) => ({ alias, domain, claimToken, keepExpiry }));
  const { body } = await api("POST", "api/claims", { body: { claims, owner: whose || undefined }, has: "results" });
  const results = new Map(body.results.map((one) => [nameOf(one), one.result]));
  // Drop the tokens of links that were taken over, because they are void now, and tokens that are
  // not valid.
  keepHanded(handed().filter(([name]) => results.get(name) === "later"));
  keepMade(madeHere().filter((link) => results.get(nameOf(link)) !== "gone").map((link) => {
    const result = results.get(nameOf(link));
    if (result === undefined || result === "later") return link;
    const { claimToken, ...others } = link;
    others.own = result !== "invalid";
    return result === "claimed" && !keepExpiry ? { ...others, expiresAtUtc: null } : others;
  }));
  const tally = (result) => [...results.values()].filter((r) => r === result).length;
  const yours = tally("claimed") + tally("already yours");
  const parts = [`${count(yours, "link")} ${whose ? `${yours === 1 ? "belongs" : "belong"} to ${ownerText(whose)}` : `${yours === 1 ? "is" : "are"} yours`} now`];
  if (tally("gone")) parts.push(`${number(tally("gone"))} had ended`);
  if (tally("invalid")) parts.push(`${number(tally("invalid"))} could not be taken over`);
  if (tally("later")) parts.push(`${number(tally("later"))} can be tried again later`);
  say(`${parts.join(", ")}.`);
  offerClaims();
  byId("list-title").focus();
  load(current());
}));
