// What can be done to several links of the list at once.

import { count, el, fromField, number, part as load, patiently, split, tries } from "./elements.js";
import { bare, byId, nameOf, say } from "./page.js";
import { api } from "./session.js";

const most = 1000; // links at once
const part = 100; // links in a call, the most that the service takes

let linksOf = () => []; // the links of the list
let readUpTo, changed; // of the list (see list.js)
let last = null; // the index of the row that was picked last
let undoes = []; // jobs that take back what was done last
let running = false;
let stopped = false;

const list = byId("list-rows");
const inputs = list.getElementsByTagName("input"); // the browser finds them once, and not at each tick
const boxes = () => [...inputs];
const ready = load("./bulk.html").then(() => {
  byId("list-count").parentElement.before(byId("picked"));
  byId("picked-what").addEventListener("change", () => {
    byId("picked-wrong").textContent = "";
    offer();
  });
  byId("picked-none").addEventListener("click", () => {
    boxes().forEach((box) => { box.checked = false; });
    undoes = [];
    byId("picked-failed").replaceChildren();
    show();
    byId("list-title").focus();
  });
  byId("picked-all").addEventListener("click", async () => {
    await readUpTo(most);
    boxes().forEach((box, i) => { box.checked = i < most; });
    show();
  });
  byId("picked-stop").addEventListener("click", () => { stopped = true; });
  byId("picked-undo").addEventListener("click", undo);
  byId("picked").addEventListener("submit", (event) => { event.preventDefault(); if (!running) go(); });
  list.addEventListener("fresh", show);
  list.addEventListener("keydown", ({ key }) => {
    if (key === "Escape" && !running && !byId("picked").hidden && !list.querySelector(".open")) byId("picked-none").click();
  });
  offer();
});

// pick is called when a box was checked or unchecked. With the Shift key, all boxes from the one
// before to this one follow.
export async function pick(box, theList) {
  ({ links: linksOf, readUpTo, changed } = theList);
  await ready;
  const all = boxes();
  const at = all.indexOf(box);
  if (shift && last !== null && all[last]) {
    for (const other of all.slice(Math.min(at, last), Math.max(at, last) + 1)) other.checked = box.checked;
  }
  last = at;
  for (const extra of all.filter((one) => one.checked && one !== box).slice(most - 1)) extra.checked = false;
  show();
  box.closest("li").scrollIntoView({ block: "nearest" }); // above this bar
}

let shift = false;
document.addEventListener("keydown", (event) => { shift = event.shiftKey; });
document.addEventListener("keyup", (event) => { shift = event.shiftKey; });
list.addEventListener("pointerdown", (event) => { shift = event.shiftKey; });

function picked() {
  const all = boxes();
  return linksOf().filter((_, i) => all[i]?.checked);
}

function show() {
  const n = picked().length;
  byId("picked-none").hidden = running;
  const hides = byId("picked").hidden = n === 0 && !running && undoes.length === 0 && !byId("picked-failed").children.length;
  for (const one of [document.documentElement, byId("list"), byId("toast")]) one.toggleAttribute("data-picks", !hides);
  byId("picked-count").textContent = n === most ? `First ${number(most)} selected` : n ? `${count(n, "link")} selected` : "Nothing is selected";
  offer(n);
  byId("picked-undo").hidden = undoes.length === 0 || running;
  byId("picked-stop").hidden = !running;
  byId("picked-go").hidden = running;
}

function offer(n = picked().length) {
  const what = byId("picked-what").value;
  byId("picked-tags").hidden = what !== "tag" && what !== "untag";
  byId("picked-end").hidden = what !== "end";
  byId("picked-go").textContent = what === "delete" && n ? `Delete ${count(n, "link")}` : { csv: "Export", ndjson: "Export" }[what]
    ?? byId("picked-what").selectedOptions[0].textContent;
}

// send edits links in one call. It returns the results, or null if somebody stops.
const send = (links) => patiently(() => api("PATCH", "api/links/bulk", { body: { links }, seconds: 40, has: "results" }).then(({ body }) => body.results),
  (text) => { byId("picked-says").textContent = text; }, () => stopped);

// work does jobs, each of which is about a link. A job has an edit, or a plan, which gets the link as
// it is now and returns an edit, or null if there is nothing to do. Its edit does nothing if the link
// has changed since; then the plan is asked again. done gets the link as it was, and the tag of what
// it became. work returns the failures, as pairs of a link and a problem, which is null after a stop.
async function work(jobs) {
  const failed = [];
  const progress = Object.assign(byId("picked-progress"), { max: jobs.length, value: 0, hidden: false });
  running = true;
  stopped = false;
  byId("picked-failed").replaceChildren();
  show();
  const queue = jobs.map((job) => Object.assign(job, { calls: 0 }));
  let over; // why nothing more is sent: a problem, or null after a stop
  while (queue.length) {
    const open = new Set(queue.splice(0, part));
    const end = (job, problem) => {
      open.delete(job);
      progress.value++;
      if (problem !== undefined) failed.push([job.link, problem]);
    };
    // each calls does with the results that are no problem.
    const each = async (some, editOf, does) => {
      if (!some.length) return;
      const results = stopped ? null : await send(some.map((job) => ({ alias: nameOf(job.link), ...editOf(job) })));
      if (!results) return void (over = null);
      some.forEach((job, i) => {
        const { problem } = results[i];
        if (!problem) return does(job, results[i]);
        if (++job.calls === tries || problem.status !== 503 && (problem.status !== 412 || !job.plan)) return end(job, problem);
        open.delete(job);
        queue.push(job);
      });
    };
    const ready = [...open].filter((job) => !job.plan);
    try {
      await each([...open].filter((job) => job.plan), () => ({}), (job, { link, etag }) => {
        const edit = job.plan(job.was = link);
        if (!edit) return end(job);
        job.edit = { ifMatch: etag, ...edit };
        ready.push(job);
      });
      await each(ready, ({ edit }) => edit, (job, { link, etag }) => {
        changed(link);
        job.done?.(job.was, etag);
        end(job);
      });
    } catch (problem) {
      if (!("status" in problem)) throw problem; // a bug in these scripts
      over = problem;
    }
    if (over !== undefined) [...open, ...queue.splice(0)].forEach((job) => end(job, over));
  }
  running = false;
  progress.hidden = true;
  byId("picked-failed").replaceChildren(...failed.map(([link, problem]) => el("li", { textContent: `${bare(link.shortUrl)}: ${problem ? problem.detail || problem.title : "not done, since you stopped"}` })));
  return failed;
}

const same = (a, b) => a.toLowerCase() === b.toLowerCase();
const changes = {
  tag: (link, { tags }) => ({ tags: [...link.tags, ...tags.filter((tag) => !link.tags.some((has) => same(has, tag)))] }),
  untag: (link, { tags }) => ({ tags: link.tags.filter((tag) => !tags.some((one) => same(one, tag))) }),
  end: (_, { end }) => ({ expiresAtUtc: end }),
  disable: () => ({ disabled: true }),
  enable: () => ({ disabled: false }),
};

// jobFor returns the job that changes a link, and notes how to take that back.
function jobFor(link, what, given) {
  const undo = (edit) => undoes.push({ link, edit });
  if (what === "delete") return { link, plan: (now) => (now.deletedAtUtc ? null : { delete: true }), done: (_, ifMatch) => undo({ ifMatch, restore: true }) };
  const plan = (now) => {
    const edit = changes[what](now, given);
    return Object.keys(edit).every((name) => JSON.stringify(edit[name]) === JSON.stringify(now[name])) ? null : edit;
  };
  return { link, plan, done: (was, ifMatch) => undo({ ifMatch, ...Object.fromEntries(Object.keys(changes[what](was, given)).map((name) => [name, was[name]])) }) };
}

const did = { tag: "tagged", untag: "without these tags", end: "with a new end", disable: "disabled", enable: "enabled", delete: "deleted" };

async function go() {
  const what = byId("picked-what").value;
  const chosen = picked();
  const tags = split(byId("picked-tags").value, ",");
  const wrong = (text, field) => {
    byId("picked-wrong").textContent = text;
    byId(field).focus();
  };
  byId("picked-wrong").textContent = "";
  if (!chosen.length) return wrong("Select links first.", "picked-all");
  if (what === "csv" || what === "ndjson") return save(chosen, what);
  if (!tags.length && what.endsWith("tag")) return wrong("Type one or more tags, with commas between them.", "picked-tags");
  if (what === "end" && byId("picked-end").validity.badInput) return wrong("Complete the date and the time, or clear it for never.", "picked-end");
  undoes = [];
  const end = fromField(byId("picked-end").value);
  const failed = await work(chosen.map((link) => jobFor(link, what, { tags, end })));
  finish(failed, chosen.length, did[what]);
}

async function undo() {
  const jobs = undoes;
  undoes = [];
  const failed = await work(jobs);
  undoes = jobs.filter(({ link }) => failed.some(([of, problem]) => of === link && problem?.status !== 412)); // the others have changed since
  finish(failed, jobs.length, "restored", "Undone: ");
  byId("list-title").focus();
}

// finish says what was done. What failed stays selected.
function finish(failed, n, what, before = "") {
  const names = new Set(failed.map(([link]) => nameOf(link)));
  const all = boxes();
  linksOf().forEach((link, i) => { all[i].checked = names.has(nameOf(link)); });
  show();
  say(`${before}${count(n - failed.length, "link")} ${what}${failed.length ? `, ${count(failed.length, "link")} not` : ""}`);
  (undoes.length ? byId("picked-undo") : byId("picked-what")).focus();
}

const columns = ["alias", "shortUrl", "longUrl", "createdAtUtc", "expiresAtUtc", "statusCode", "disabled", "title", "tags", "owner"];

// cell quotes a value. Spreadsheets take a text that begins with one of these signs for a formula,
// and imports take off the apostrophe that says it is none.
function cell(value) {
  let text = Array.isArray(value) ? value.map((tag) => (/[,"]/.test(tag) ? `"${tag.replaceAll('"', '""')}"` : tag)).join(",") : String(value ?? "");
  if (/^['=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function save(chosen, format) {
  const text = format === "csv" ? [columns.join(","), ...chosen.map((link) => columns.map((name) => cell(link[name])).join(","))].join("\n")
    : chosen.map((link) => JSON.stringify(link)).join("\n");
  const url = URL.createObjectURL(new Blob([`${text}\n`], { type: format === "csv" ? "text/csv" : "application/x-ndjson" }));
  el("a", { href: url, download: `links.${format}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
  say(`${count(chosen.length, "link")} saved as a file`);
}
