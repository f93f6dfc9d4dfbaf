// One link: what it is, its edits, and the form for a new one.

import { act, badge, blame, clear, count, el, fromField, labels, later, number, split, stateOf, toField, unread, words, wrong } from "./elements.js";
import { changed } from "./list.js";
import { complete } from "./longurl.js";
import { bare, byId, copy, nameOf, say, time } from "./page.js";
import { patch } from "./patch.js";
import { api, choosy, domains, groupOf, look, me, ownerText, session, to, whose } from "./session.js";

const form = byId("form");
const fields = form.elements;
const forwards = [...form.querySelectorAll("fieldset input")];

let shown = null; // name of the shown link; "": the form for a new one; "*": all links; null: another view
let link = null; // as the API returned it; null: a new link, or not read yet
let tagged; // the response that link is of
let tags = [];
let rules = []; // as the API has them
let base = {}; // the values with which those in the form are compared
let stats; // the module of statistics, once a link was shown
let justMade = null; // the name of a link, until it is shown
const drafts = new Map(session.draft()); // unsaved values for links that are not shown, by name

const valuesOf = (l) => ({ longUrl: l.longUrl, title: (l.title ?? "").trim(), tags: l.tags, expiresAtUtc: toField(l.expiresAtUtc), statusCode: String(l.statusCode), startsAtUtc: toField(l.startsAtUtc), goneUrl: l.goneUrl ?? "", password: "", maxOpens: String(l.opensLeft ?? ""), rules: l.rules, forward: l.forward });
byId("many-domain").replaceChildren(...[...fields.domain.options].map((option) => option.cloneNode(true)));
const blank = { longUrl: "", domain: fields.domain.options[0]?.value ?? "", alias: "", title: "", tags: [], expiresAtUtc: "", statusCode: "302", startsAtUtc: "", goneUrl: "", password: "", maxOpens: "", rules: [], forward: [] };

// differing returns the values that differ from others.
const differing = (values, others) => Object.fromEntries(
  Object.entries(values).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(others[name])));

// entered returns the values of the form. A text in the field for tags is not a tag yet.
const entered = () => Object.fromEntries(
  Object.keys(base).map((name) => [name, name === "tags" ? tags : name === "rules" ? rules : name === "password" ? password()
    : name === "forward" ? forwards.filter((box) => box.checked).map((box) => box.value) : fields[name].value.trim()]));

// password returns the one that is typed, null if the link is to lose its own, and "" if it stays.
const password = () => (fields["password-off"].checked ? null : fields.password.value);

// typed returns the values of the form that differ from the link's.
const typed = () => differing(entered(), base);

const unsaved = () => Object.keys(typed()).length > 0 || byId("new-tag").value.trim() !== "";

// fill changes only fields that have another value, because somebody may be typing.
function fill(values) {
  for (const [name, value] of Object.entries(differing(values, entered()))) {
    if (name === "tags") setTags(value);
    else if (name === "rules") showRules(value);
    else if (name === "password") fields["password-off"].checked = value === null, fields.password.value = value ?? "";
    else if (name === "forward") for (const box of forwards) box.checked = value.includes(box.value);
    else fields[name].value = value;
  }
  offerDiscard();
}

// Several URLs make several links, with a form of their own.
async function showMany(urls) {
  const module = await later(import("./createmany.js"), "form-problem");
  if (!module || shown !== "") return;
  hide("form", "edit", "many-offer");
  module.open(urls);
}
byId("many-open").addEventListener("click", () => showMany());
byId("many-one").addEventListener("click", () => {
  hide("many");
  form.hidden = byId("edit").hidden = byId("many-offer").hidden = false;
  fields.longUrl.focus();
});
fields.longUrl.addEventListener("paste", (event) => {
  const urls = split(event.clipboardData.getData("text"), /[\r\n]+/);
  if (link || urls.length < 2) return;
  event.preventDefault();
  showMany(urls);
});

// Campaign parameters are part of the long URL.
async function campaign(write) {
  if (!byId("campaign").open) return;
  const utm = await later(import("./utm.js"), "form-problem");
  for (const name of utm?.names ?? []) {
    if (write) fields.longUrl.value = utm.write(fields.longUrl.value, name, byId(name).value.trim());
    else byId(name).value = utm.read(fields.longUrl.value, name);
  }
  offerDiscard();
}
byId("campaign").addEventListener("toggle", () => campaign(false));
byId("campaign").addEventListener("input", () => campaign(true));
fields.longUrl.addEventListener("input", () => campaign(false));

// Whether an alias is free is told while somebody types it. What they save decides.
let asking;
function askAlias() {
  clearTimeout(asking);
  byId("alias-says").textContent = "";
  const alias = fields.alias.value.trim();
  if (link || !alias) return;
  asking = setTimeout(async () => {
    const domain = domains.length > 1 && fields.domain.value !== blank.domain ? `@${fields.domain.value}` : "";
    let says = "";
    try {
      const { body } = await api("GET", `api/aliases/${encodeURIComponent(alias)}${domain}`, { asks: false, has: "free" });
      says = body.free ? "✓ This alias is free." : "This alias is taken. Choose another one.";
    } catch (problem) {
      if (problem.field === "alias") says = problem.message;
    }
    if (link || fields.alias.value.trim() !== alias) return;
    byId("alias-says").textContent = says;
    if (says && !says.startsWith("✓")) fields.alias.setAttribute("aria-invalid", "true");
  }, 300);
}
fields.alias.addEventListener("input", askAlias);
fields.domain.addEventListener("change", askAlias);

function offerDiscard() {
  byId("discard").hidden = !unsaved();
  const at = domains.find(({ domain }) => domain === fields.domain.value);
  byId("prefix").textContent = `${bare(at?.baseUrl ?? byId("manage").dataset.base)}/`;
}

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

// Rules are shown as rows once somebody opens what they are in.
async function showRules(all) {
  rules = all;
  if (!byId("options").open) return;
  const module = await later(import("./rules.js"), "form-problem");
  module?.show(rules, (typed) => {
    rules = typed;
    offerDiscard();
  });
}
byId("options").addEventListener("toggle", () => showRules(rules));
form.addEventListener("reset", () => { rules = null; }); // its rows are empty then, until fill shows what there is

// addTags adds the tags that are typed in the field for tags. Commas may separate them.
function addTags() {
  const more = split(byId("new-tag").value, ",");
  if (more.length) setTags([...new Set([...tags, ...more])]);
  byId("new-tag").value = "";
  offerDiscard();
}

const keepDraft = (name, values) =>
  (Object.keys(values).length ? drafts.set(name, values) : drafts.delete(name));

// keepTyped stores what is typed as a draft.
function keepTyped() {
  if (shown === null || form.hidden) return;
  addTags();
  keepDraft(shown, typed());
}

// leave is called before another view is shown.
export function leave() {
  keepTyped();
  shown = null;
  stats?.showStats(null);
}

session.draft = () => {
  keepTyped();
  return [...drafts].map(([name, { password: _, ...values }]) => [name, values]).filter(([, values]) => Object.keys(values).length); // no password is stored
};

const hide = (...ids) => ids.forEach((id) => { byId(id).hidden = true; });

// showNew shows the form for a new link. The address may fill it in; then it counts as typed.
export function showNew(_, query) {
  shown = "";
  link = null;
  base = blank;
  hide("link-card", "stats", "link-wait", "give", "past", "many");
  byId("link-title").textContent = "New link";
  byId("save").textContent = "Make the link";
  byId("drag").hidden = byId("many-offer").hidden = false;
  if (byId("many-urls").value.trim()) showMany();
  byId("edit").open = byId("edit").firstElementChild.hidden = true;
  openForm();
  const { alias, domain, longUrl, title } = Object.fromEntries(query);
  if (longUrl) fill({ ...entered(), longUrl });
  if (title) fill({ ...entered(), title });
  history.replaceState(null, "", to("new")); // or else going back would fill it in again
  if (alias) fill({ ...entered(), alias, domain: blank.domain });
  if (domain && domains.some((one) => one.domain === domain)) fill({ ...entered(), domain });
  else if (domain) wrong("form-problem", { title: "No such domain", detail: `No links of ${domain} are made here.` });
}

function openForm() {
  for (const id of ["link-problem", "link-wrong", "form-problem", "give-problem", "past-problem", "back-problem"]) wrong(id, null);
  byId("conflict").replaceChildren();
  clear(form);
  byId("password-drop").hidden = !link?.password;
  if (!link) for (const field of fields) field.disabled = field.readOnly = false;
  byId("alias-field").hidden = link !== null;
  byId("domain-field").hidden = link !== null || domains.length < 2;
  byId("form-of").hidden = link !== null || !choosy();
  form.reset(); // clears what fill would leave there: half a date, and half a tag
  fill({ ...base, ...drafts.get(shown) });
  drafts.delete(shown);
  byId("alias-says").textContent = "";
  campaign(false);
  byId("options").open = ["statusCode", "startsAtUtc", "goneUrl", "maxOpens"].some((name) => fields[name].value !== blank[name]) || link?.password || fields.password.value || rules.length > 0 || forwards.some((box) => box.checked);
  form.hidden = byId("edit").hidden = false;
}

export async function showLink(name, asked) {
  shown = name;
  link = null;
  hide("link-card", "stats", "form", "edit", "give", "past", "drag", "many", "many-offer");
  byId("give").open = byId("past").open = false;
  byId("give-form").reset();
  clear(byId("give-form"));
  byId("link-title").textContent = name;
  byId("edit").open = byId("edit").firstElementChild.hidden = false;
  byId("save").textContent = "Save";
  wrong("link-problem", null);
  byId("link-wait").hidden = false;
  const loading = later(import("./stats.js"), "stats-problem");
  try {
    const response = await get(name);
    if (shown !== name) return;
    shown = name = nameOf(response.body); // the address may spell it in another way
    show(response);
    byId("link-wait").hidden = true;
    if (link.owner !== whose && me.groups.includes(link.owner)) look(link.owner); // its address names no owner
    base = valuesOf(link);
    openForm();
    byId("edit").open = unsaved();
    if (asked?.has("edit")) edit();
    byId("stats").hidden = false;
    if (justMade === name && document.activeElement === byId("link-title")) byId("link-copy").focus();
    justMade = null;
    stats = await loading;
    if (shown === name) stats?.showStats(link);
  } catch (problem) {
    if (shown === name) wrong("link-problem", problem, problem.status === 404 || problem.status === 403 ? null : () => showLink(name, asked));
  } finally {
    if (shown === name) byId("link-wait").hidden = true;
  }
}

// edit opens the form.
function edit() {
  byId("edit").open = true;
  history.replaceState(null, "", `#/link/${shown}`);
  fields.longUrl.focus();
}
byId("link-edit").addEventListener("click", edit);

// showAll shows the statistics of all links together.
export async function showAll() {
  shown = "*";
  hide("link-card", "form", "edit", "link-wait", "give", "past", "drag", "many", "many-offer");
  byId("link-title").textContent = "Statistics";
  wrong("link-problem", null);
  byId("stats").hidden = false;
  stats = await later(import("./stats.js"), "stats-problem");
  if (shown === "*") stats?.showStats({}); // without an alias
}

const pathOf = (name) => `api/links/${name}`;
const get = (name) => api("GET", pathOf(name), { has: "shortUrl" });

function show(response) {
  tagged = response;
  link = response.body;
  const name = bare(link.shortUrl);
  const state = stateOf(link);
  const gone = state === "deleted";
  const held = link.shared && !me.admin;
  const barred = link.locked && !me.admin;
  byId("link-title").textContent = link.title ?? link.alias;
  byId("link-short").textContent = name;
  byId("link-short").href = link.shortUrl;
  badge(byId("link-state"), link, "Live");
  byId("link-long").textContent = link.longUrl;
  byId("link-about").textContent = [state === "scheduled" && `starts ${time(link.startsAtUtc)}`, link.createdAtUtc && `Created ${time(link.createdAtUtc)}`,
    link.updatedAtUtc && `edited ${time(link.updatedAtUtc)}`,
    gone ? `deleted ${time(link.deletedAtUtc)}` : link.expiresAtUtc ? `${state === "expired" ? "expired" : "expires"} ${time(link.expiresAtUtc)}` : "never expires",
    `${[301, 308].includes(link.statusCode) ? "permanent" : "temporary"} redirect (${link.statusCode})`, link.rules.length > 0 && count(link.rules.length, "rule"), link.password && "asks for a password", link.maxOpens && `${number(link.opensLeft)} of ${count(link.maxOpens, "opening")} left`, link.forward.length && `appends the ${link.forward.join(" and the ")}`, me.admin ? (link.owner ? `owner ${link.owner}` : "without an owner") : choosy() && `owner: ${ownerText(link.owner)}`].filter(Boolean).join(" · ");
  byId("link-tags").replaceChildren(...link.tags.map((tag) => el("span", {}, el("bdi", { textContent: tag }))));
  byId("link-shared").textContent = !link.shared ? "" : held
    ? "Shared: somebody else shortened this URL too and was given this link, so it stays for them. Its long URL stays, and it cannot end earlier, be disabled or be deleted; an admin can do that."
    : "Shared: somebody else shortened this URL too and was given this link. Its owner cannot take it away from them; you, an admin, can.";
  byId("link-locked").textContent = !link.locked ? "" : barred
    ? "The people who run this service took this link down; only they can change it."
    : `Taken down by an admin: its owner cannot change it. That ends when you ${[gone && "restore", link.disabled && "enable"].filter(Boolean).join(" and ")} it.`;
  byId("link-copy").hidden = byId("link-preview").hidden = gone;
  byId("link-preview").href = `${link.shortUrl}+`;
  byId("link-disable").textContent = link.disabled ? "Enable" : "Disable";
  byId("link-disable").hidden = byId("link-delete").hidden = gone || held || barred;
  byId("link-edit").hidden = gone || barred;
  byId("link-undo").hidden = !gone || barred;
  byId("link-undo").textContent = "Restore";
  const qr = `${pathOf(nameOf(link))}/qr`;
  byId("link-qr").src = qr;
  Object.assign(byId("link-svg"), { href: `${qr}?size=600`, download: `${link.alias}.svg` });
  Object.assign(byId("link-png"), { href: `${qr}?size=1200&format=png`, download: `${link.alias}.png` });
  byId("link-card").hidden = false;
  fields.longUrl.readOnly = held;
  for (const field of fields) field.disabled = gone || barred; // typed values stay there
  campaign(false);
  for (const field of [...forwards, fields.startsAtUtc, fields.goneUrl, fields.password, fields["password-off"], fields.maxOpens, byId("rules")]) field.disabled ||= held;
  byId("password-drop").hidden = !link.password;
  byId("give").hidden = !choosy() || gone || barred;
  offerOwners();
  byId("past").hidden = false;
  byId("past-rows").replaceChildren();
  byId("past-empty").hidden = true;
  readPast();
  changed(link);
}

// The history is read when somebody opens it, and again when the link has changed.
async function readPast() {
  if (!byId("past").open) return;
  const of = link;
  const module = await later(import("./history.js"), "past-problem");
  if (of !== link || shown === null) return;
  const fixed = link.deletedAtUtc || !me.admin && (link.shared || link.locked);
  module?.showHistory(link, pathOf(nameOf(link)), fixed ? null : (longUrl) => patchOrLoad({ longUrl }));
}
byId("past").addEventListener("toggle", readPast);

// Transfer: people give links to themselves and to their groups, and admins to anybody.
const newOwner = () => byId("new-owner");
if (!me.admin) {
  newOwner().replaceWith(el("select", { id: "new-owner", name: "owner" }));
  newOwner().setAttribute("aria-describedby", "new-owner-error");
}

function offerOwners() {
  askGive(false);
  if (me.admin) return;
  const chosen = newOwner().value;
  newOwner().replaceChildren(...[me.owner, ...me.groups].filter((owner) => owner !== link.owner)
    .map((owner) => new Option(owner === me.owner ? "You" : `Group ${groupOf(owner)}`, owner, false, owner === chosen)));
}

function askGive(is) {
  byId("give-sure").hidden = !is;
  byId("give-ask").hidden = is;
}

const listOf = (owner) => (owner === me.owner ? "your links" : `the links of ${ownerText(owner)}`);

byId("give-form").addEventListener("input", () => {
  clear(byId("give-form"));
  askGive(false);
});
byId("give-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const owner = newOwner().value.trim();
  if (!owner || owner === link.owner) return blame(byId("give-form"), { field: "owner", message: owner ? "It is theirs already." : "Name the new owner." });
  byId("give-says").textContent = `${link.owner ? `It leaves ${listOf(link.owner)}` : "It has no owner"} and goes to ${listOf(owner)}. ${
    owner === me.owner ? "Only you" : groupOf(owner) ? "Everybody in that group" : "Only they"} can change it then. Its end, clicks and history stay.`;
  askGive(true);
  byId("give-go").focus();
});
byId("give-not").addEventListener("click", () => {
  askGive(false);
  byId("give-ask").focus();
});
byId("give-go").addEventListener("click", () => act(byId("give-go"), "give-problem", async () => {
  const owner = newOwner().value.trim();
  try {
    await patchOrLoad({ owner });
  } catch (problem) {
    askGive(false);
    newOwner().focus();
    if (!problem.field || !blame(byId("give-form"), problem)) throw problem;
    return;
  }
  changed(null); // it is in another list
  byId("give").open = false;
  byId("give-form").reset();
  byId("give").querySelector("summary").focus();
  say(`Given to ${ownerText(owner)}`);
}));

byId("drag").addEventListener("toggle", () => import("./bookmarklet.js").then(({ offer }) => offer("#/new?longUrl=", true), () => {}), { once: true });

byId("link-copy").addEventListener("click", () => copy(link.shortUrl, byId("link-copy")));
byId("link-code").addEventListener("click", () => import("./qr.js").then(({ showQR }) => showQR(link), () => say("The service did not respond. Try again in a moment.")));

// conflicting reports whether a problem is that the link has changed since it was read.
const conflicting = (problem) => ["precondition", "conflict", "link-deleted"].includes(problem.kind);

// rebase shows a link as it is now, with what was typed since the form had these values. It returns
// false if another view is shown by now.
function rebase(response, values = base) {
  if (shown !== nameOf(response.body) || form.hidden) {
    changed(response.body);
    return false;
  }
  const since = differing(entered(), values);
  show(response);
  base = valuesOf(link);
  fill({ ...base, ...since });
  return true;
}

// patchOrLoad edits the link at once, and returns it. If it has changed since it was read, it is shown
// as it is now.
async function patchOrLoad(body) {
  const name = nameOf(link);
  try {
    const response = await patch(tagged, body);
    rebase(response);
    return response.body;
  } catch (problem) {
    if (!conflicting(problem)) throw problem;
    rebase(await get(name));
    problem.detail = "Here it is as it is now. Press again if that still applies.";
    problem.title = "The link was changed meanwhile";
    throw problem;
  }
}

byId("link-disable").addEventListener("click", () => act(byId("link-disable"), "link-wrong", async () => {
  const disabled = !link.disabled;
  const { locked } = await patchOrLoad({ disabled });
  say(!disabled ? "Enabled: it redirects again" : locked ? "Taken down: only an admin can enable it" : 'Disabled. Visitors see "This link is disabled".');
}));

byId("link-delete").addEventListener("click", async () => {
  let now;
  const deleted = await act(byId("link-delete"), "link-wrong", async () => {
    const name = nameOf(link);
    await api("DELETE", pathOf(name));
    now = await get(name);
    rebase(now);
  });
  if (!deleted) return;
  byId("link-undo").textContent = "Undo";
  byId("link-undo").focus();
  say(now.body.locked ? "Deleted and taken down: only an admin can restore it" : "Deleted. It can be restored for some days.");
});

byId("link-undo").addEventListener("click", async () => {
  if (!await act(byId("link-undo"), "link-wrong", async () =>
    rebase(await api("POST", `${pathOf(nameOf(link))}/restore`, { has: "shortUrl" })))) return;
  byId("link-delete").focus();
  say("Restored");
});

for (const button of form.querySelectorAll("[data-days]")) button.addEventListener("click", () => {
  const { days } = button.dataset;
  fields.expiresAtUtc.value = days && toField(Date.now() + days * 86_400_000);
  clear(form);
  offerDiscard();
  fields.expiresAtUtc.focus();
});

byId("new-tag").addEventListener("input", () => {
  if (byId("new-tag").value.includes(",")) addTags();
});

form.addEventListener("keydown", ({ key }) => {
  if (key !== "Escape" || !link || unsaved()) return;
  byId("edit").open = false;
  byId("link-edit").focus();
});

form.addEventListener("input", () => {
  clear(form);
  wrong("form-problem", null);
  offerDiscard();
});

byId("discard").addEventListener("click", () => {
  form.reset();
  fill(base);
  campaign(false);
  byId("alias-says").textContent = "";
  clear(form);
  wrong("form-problem", null);
  byId("conflict").replaceChildren();
  fields.longUrl.focus();
});

// bodyOf returns typed values in the form that the API expects.
function bodyOf(values) {
  const body = { ...values };
  if (body.longUrl) body.longUrl = complete(body.longUrl);
  if ("title" in body) body.title ||= null;
  for (const name of ["expiresAtUtc", "startsAtUtc"]) if (name in body) body[name] = fromField(body[name]);
  if ("goneUrl" in body) body.goneUrl = body.goneUrl ? complete(body.goneUrl) : null;
  if ("rules" in body) body.rules = body.rules.map((rule) => ({ ...rule, longUrl: rule.longUrl && complete(rule.longUrl) }));
  if ("maxOpens" in body) body.maxOpens = body.maxOpens ? Number(body.maxOpens) : null;
  if ("statusCode" in body) body.statusCode = Number(body.statusCode);
  return body;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (document.activeElement === byId("new-tag") && byId("new-tag").value.trim()) return addTags();
  addTags();
  const name = shown;
  await act(byId("save"), "form-problem", async () => {
    clear(form);
    byId("conflict").replaceChildren();
    const half = [...fields].find((field) => field.validity?.badInput);
    if (half) return blame(form, { field: half.id, message: unread(half) });
    if (!fields.longUrl.value.trim()) return blame(form, { field: "longUrl", message: "Paste the long URL here first." });
    const body = bodyOf(typed());
    const sent = entered();
    if (link && !Object.keys(body).length) return say("Nothing has changed");
    try {
      if (!link) return made(await api("POST", "api/shorten", { body: { ...body, owner: whose || undefined }, has: "shortUrl" }), sent);
      const response = await patch(tagged, body);
      if (drafts.has(name)) keepDraft(name, differing(drafts.get(name), sent));
      const here = rebase(response, sent);
      say(here && unsaved() ? "Saved, but for what you typed meanwhile" : "Saved");
    } catch (problem) {
      const now = name && shown === name && conflicting(problem) && await get(name);
      if (shown !== name) return say(`Not saved: ${problem.message}`);
      if (now && !form.hidden) return conflict(now);
      if (!problem.field && problem.kind !== "alias-taken" && problem.kind !== "target-disabled" || !blame(form, problem)) throw problem;
    }
  });
});

// made opens the link that was made or found. What was typed meanwhile becomes a draft for it. If
// the link existed before, everything that was sent except the URL becomes a draft, too.
function made({ status, body }, sent) {
  const [name, { shortUrl }] = [nameOf(body), body];
  const here = shown === "";
  const { longUrl, ...others } = differing(sent, blank);
  const since = differing(here ? entered() : drafts.get("") ?? {}, sent);
  const { alias, domain, ...draft } = { ...(status === 200 && others), ...since };
  keepDraft(name, { ...drafts.get(name), ...draft });
  drafts.delete("");
  changed(null);
  if (here) {
    shown = null; // this form has nothing left to keep
    justMade = name;
    location.hash = `#/link/${name}`;
  }
  say((status === 201 ? "Your link is ready" : "You had a link of this URL already")
    + (here ? "" : `: ${bare(shortUrl)}`) + (Object.keys(draft).length ? ". What you typed is there, and not saved yet." : ""));
}

// conflict shows how the link has changed since it was read, and asks what to do with what is
// typed.
function conflict(response) {
  const now = response.body;
  const differ = Object.keys(labels).filter((name) => JSON.stringify(link[name]) !== JSON.stringify(now[name]));
  const resolve = (keep) => () => {
    if (keep) {
      rebase(response);
    } else {
      show(response);
      base = valuesOf(link);
      form.reset();
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
  if (!session.leaving && (session.draft().length || byId("many-urls").value.trim())) event.preventDefault();
});
