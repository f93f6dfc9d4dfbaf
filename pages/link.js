// One link: what it is, its edits, and the form for a new one.

import { bare, byId, copy, say } from "./common.js";
import { changed } from "./list.js";
import { act, badge, blame, clear, el, fromField, stateOf, time, toField, wrong } from "./parts.js";
import { api, me, session } from "./session.js";
import { showStats } from "./stats.js";

const form = byId("form");
const fields = form.elements;
const labels = { longUrl: "Long URL", title: "Title", tags: "Tags", expiresAtUtc: "Expires", statusCode: "Redirect", disabled: "Disabled", deletedAtUtc: "Deleted" };

let shown = null; // the alias of the link that is shown, and "" while there is a new one
let link = null; // as it was read; null: it is new, or not read yet
let etag = "";
let tags = [];
let base = {}; // the values of the form that typed ones are compared with
const drafts = new Map(); // what was typed for a link, by alias, and not saved

const valuesOf = (l) => ({ longUrl: l.longUrl, title: l.title ?? "", tags: l.tags, expiresAtUtc: toField(l.expiresAtUtc), statusCode: String(l.statusCode) });
const blank = { longUrl: "", alias: "", title: "", tags: [], expiresAtUtc: "", statusCode: "302" };

// typed returns the values of the form that differ from those of the link.
function typed() {
  const values = { tags };
  for (const name of Object.keys(base)) if (name !== "tags") values[name] = fields[name].value.trim();
  return Object.fromEntries(Object.entries(values).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(base[name])));
}

function fill(values) {
  for (const [name, value] of Object.entries(values)) if (name !== "tags") fields[name].value = value;
  setTags(values.tags);
  offerDiscard();
}

const offerDiscard = () => { byId("discard").hidden = Object.keys(typed()).length === 0; };

function setTags(all) {
  tags = all;
  byId("chips").hidden = tags.length === 0;
  byId("chips").replaceChildren(...tags.map((tag) => el("li", {}, el("bdi", { textContent: tag }),
    el("button", { type: "button", ariaLabel: `Remove the tag ${tag}`, textContent: "×", onclick: () => {
      setTags(tags.filter((t) => t !== tag));
      offerDiscard();
      byId("new-tag").focus();
    } }))));
}

// addTags takes over what is typed in the field of tags, which commas may separate.
function addTags() {
  const more = byId("new-tag").value.split(",").map((tag) => tag.trim()).filter(Boolean);
  if (more.length) setTags([...new Set([...tags, ...more])]);
  byId("new-tag").value = "";
  offerDiscard();
}

// keepTyped keeps what is typed among the drafts.
function keepTyped() {
  if (shown === null || form.hidden) return;
  addTags();
  const values = typed();
  if (Object.keys(values).length) drafts.set(shown, values);
  else drafts.delete(shown);
}

// leave is called before another view is shown.
export function leave() {
  keepTyped();
  shown = null;
  showStats(null);
}

session.draft = () => {
  keepTyped();
  return [...drafts];
};

// restoreDrafts puts back what session.draft has returned.
export const restoreDrafts = (all) => all?.forEach(([alias, values]) => drafts.set(alias, values));

export function showNew() {
  shown = "";
  link = null;
  base = blank;
  for (const id of ["link-card", "stats", "link-wait"]) byId(id).hidden = true;
  byId("link-title").textContent = "New link";
  byId("save").textContent = "Make the link";
  byId("form-title").hidden = true;
  openForm();
}

function openForm() {
  for (const id of ["link-problem", "link-wrong", "form-problem"]) wrong(id, null);
  byId("conflict").replaceChildren();
  clear(form);
  if (!link) for (const field of fields) field.disabled = field.readOnly = false;
  byId("alias-field").hidden = link !== null;
  fill({ ...base, ...drafts.get(shown) });
  form.hidden = false;
}

export async function showLink(alias) {
  shown = alias;
  link = null;
  for (const id of ["link-card", "stats", "form"]) byId(id).hidden = true;
  byId("link-title").textContent = alias;
  byId("form-title").textContent = "Edit";
  byId("form-title").hidden = false;
  byId("save").textContent = "Save";
  wrong("link-problem", null);
  byId("link-wait").hidden = false;
  try {
    await read(alias);
    if (shown !== alias) return;
    base = valuesOf(link);
    openForm();
    showStats(link);
  } catch (problem) {
    if (shown === alias) wrong("link-problem", problem, problem.status === 404 || problem.status === 403 ? null : () => showLink(alias));
  } finally {
    if (shown === alias) byId("link-wait").hidden = true;
  }
}

// read reads a link, and shows what it is.
async function read(alias) {
  const response = await api("GET", `api/links/${alias}`);
  if (shown === alias) show(response);
}

function show({ headers, body }) {
  link = body;
  etag = headers.get("ETag");
  const name = bare(link.shortUrl);
  const state = stateOf(link);
  const gone = state === "deleted";
  const held = link.shared && !me.admin;
  byId("link-title").textContent = link.title ?? link.alias;
  byId("link-short").textContent = name;
  byId("link-short").href = link.shortUrl;
  byId("link-state").textContent = badge(link) || "Live";
  byId("link-long").textContent = link.longUrl;
  byId("link-about").textContent = [link.createdAtUtc && `Created ${time(link.createdAtUtc)}`,
    link.updatedAtUtc && `edited ${time(link.updatedAtUtc)}`,
    gone ? `deleted ${time(link.deletedAtUtc)}` : link.expiresAtUtc ? `${state === "expired" ? "expired" : "expires"} ${time(link.expiresAtUtc)}` : "never expires",
    `redirects with ${link.statusCode}`, me.admin && (link.owner ? `owner ${link.owner}` : "without an owner")].filter(Boolean).join(" · ");
  byId("link-tags").replaceChildren(...link.tags.map((tag) => el("span", {}, el("bdi", { textContent: tag }))));
  byId("link-shared").textContent = !link.shared ? "" : held
    ? "Shared: somebody else shortened this URL too and was given this link, so it stays for them. Its long URL stays, and it cannot end earlier, be disabled or be deleted; an admin can do that."
    : "Shared: somebody else shortened this URL too and was given this link. Its owner cannot take it away from them; you, an admin, can.";
  byId("link-copy").hidden = byId("link-preview").hidden = gone;
  byId("link-preview").href = `${link.alias}+`;
  byId("link-disable").textContent = link.disabled ? "Enable" : "Disable";
  byId("link-disable").hidden = gone || held;
  byId("link-delete").hidden = gone || held;
  byId("link-undo").hidden = !gone;
  byId("link-undo").textContent = "Restore";
  const qr = `api/links/${link.alias}/qr`;
  byId("link-qr").src = qr;
  Object.assign(byId("link-svg"), { href: `${qr}?size=600`, download: `${link.alias}.svg` });
  Object.assign(byId("link-png"), { href: `${qr}?size=1200&format=png`, download: `${link.alias}.png` });
  byId("link-card").hidden = false;
  fields.longUrl.readOnly = held;
  for (const field of fields) field.disabled = gone; // what is typed stays there
  changed(link);
}

byId("link-copy").addEventListener("click", () => copy(link.shortUrl));

// patch edits the link as it was read.
const patch = (body) => api("PATCH", `api/links/${link.alias}`, { body, headers: { "Content-Type": "application/merge-patch+json", "If-Match": etag } });

// conflicting reports whether a problem is that the link is not any more what was read.
const conflicting = (problem) => ["precondition", "conflict", "link-deleted"].includes(problem.kind);

// rebase shows the link as it is now, with what is typed.
function rebase(response) {
  addTags();
  const values = typed();
  show(response);
  base = valuesOf(link);
  fill({ ...base, ...values });
}

byId("link-disable").addEventListener("click", () => act(byId("link-disable"), "link-wrong", async () => {
  const disabled = !link.disabled;
  try {
    rebase(await patch({ disabled }));
    say(disabled ? "Disabled: it answers 410 until you enable it" : "Enabled: it redirects again");
  } catch (problem) {
    if (!conflicting(problem)) throw problem;
    rebase(await api("GET", `api/links/${link.alias}`));
    problem.detail = "Here it is as it is now. Press again if that still applies.";
    problem.title = "The link was changed meanwhile";
    throw problem;
  }
}));

byId("link-delete").addEventListener("click", async () => {
  const deleted = await act(byId("link-delete"), "link-wrong", async () => {
    await api("DELETE", `api/links/${link.alias}`);
    rebase(await api("GET", `api/links/${link.alias}`));
  });
  if (!deleted) return;
  byId("link-undo").textContent = "Undo";
  byId("link-undo").focus();
  say("Deleted. It can be restored for some days.");
});

byId("link-undo").addEventListener("click", async () => {
  if (!await act(byId("link-undo"), "link-wrong", async () => rebase(await api("POST", `api/links/${link.alias}/restore`)))) return;
  byId("link-delete").focus();
  say("It is back");
});

byId("never").addEventListener("click", () => {
  fields.expiresAtUtc.value = "";
  offerDiscard();
  fields.expiresAtUtc.focus();
});

byId("new-tag").addEventListener("keydown", (event) => {
  if (event.key !== ",") return;
  event.preventDefault();
  addTags();
});
byId("new-tag").addEventListener("blur", addTags);

form.addEventListener("input", () => {
  clear(form);
  wrong("form-problem", null);
  offerDiscard();
});

byId("discard").addEventListener("click", () => {
  byId("new-tag").value = "";
  fill(base);
  clear(form);
  wrong("form-problem", null);
  byId("conflict").replaceChildren();
  fields.longUrl.focus();
});

// bodyOf returns what is typed as the API has it.
function bodyOf(values) {
  const body = { ...values };
  if (body.longUrl && !/^[a-z][a-z0-9+.-]*:\/\//i.test(body.longUrl)) body.longUrl = `https://${body.longUrl}`; // as browsers do
  if ("title" in body) body.title ||= null;
  if ("expiresAtUtc" in body) body.expiresAtUtc = fromField(body.expiresAtUtc);
  if ("statusCode" in body) body.statusCode = Number(body.statusCode);
  return body;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (document.activeElement === byId("new-tag") && byId("new-tag").value.trim()) return addTags();
  addTags();
  const alias = shown;
  await act(byId("save"), "form-problem", async () => {
    clear(form);
    byId("conflict").replaceChildren();
    const end = fields.expiresAtUtc;
    if (end.validity.badInput) return blame(form, { field: end.name, message: "Complete the date and the time, or choose Never." });
    if (!fields.longUrl.value.trim()) return blame(form, { field: "longUrl", message: "Paste the long URL here first." });
    const body = bodyOf(typed());
    if (link && !Object.keys(body).length) return say("Nothing has changed");
    try {
      if (!link) return made(await api("POST", "api/shorten", { body }));
      const response = await patch(body);
      drafts.delete(alias);
      if (shown !== alias) return changed(response.body);
      show(response);
      base = valuesOf(link);
      fill(base);
      say("Saved");
    } catch (problem) {
      if (shown !== alias) return say(`Not saved: ${problem.message}`);
      if (link && conflicting(problem)) return conflict(await api("GET", `api/links/${alias}`));
      if (!problem.field && problem.kind !== "alias-taken" && problem.kind !== "target-disabled" || !blame(form, problem)) throw problem;
    }
  });
});

function made({ status, body: { alias } }) {
  drafts.delete("");
  fill(blank);
  changed(null);
  location.hash = `#/link/${alias}`;
  say(status === 201 ? "Your link is ready" : "You had a link of this URL already: here it is, as it was");
}

// conflict shows how the link differs from what was read, and asks what is to become of what is typed.
function conflict(response) {
  const now = response.body;
  const words = (name, value) => value === null || value?.length === 0 ? "none" : Array.isArray(value) ? value.join(", ")
    : value === true ? "yes" : value === false ? "no" : name.endsWith("AtUtc") ? time(value) : String(value);
  const differ = Object.keys(labels).filter((name) => JSON.stringify(link[name]) !== JSON.stringify(now[name]));
  const resolve = (keep) => () => {
    if (keep) {
      rebase(response);
    } else {
      show(response);
      base = valuesOf(link);
      byId("new-tag").value = "";
      fill(base);
    }
    byId("conflict").replaceChildren();
    byId("save").focus();
    say(keep ? "Here is the link as it is now, with what you typed. It is not saved yet." : "Here is the link as it is now.");
  };
  byId("conflict").replaceChildren(el("strong", { textContent: "Not saved: this link was changed meanwhile" }),
    el("dl", {}, ...differ.map((name) => el("div", {}, el("dt", { textContent: labels[name] }),
      el("dd", {}, el("bdi", { textContent: words(name, now[name]) }), " (it was ", el("bdi", { textContent: words(name, link[name]) }), ")")))),
    el("button", { type: "button", id: "keep-typed", textContent: "Load it, keep what I typed", onclick: resolve(true) }),
    el("button", { type: "button", id: "drop-typed", textContent: "Load it, discard what I typed", onclick: resolve(false) }));
  byId("keep-typed").focus();
}

window.addEventListener("beforeunload", (event) => {
  if (shown !== null && !form.hidden && !session.leaving && Object.keys(typed()).length) event.preventDefault();
});
