// Import and export of many links.

import { count, el, number, patiently } from "./elements.js";
import { byId, say } from "./page.js";
import { changed } from "./list.js";
import { api, to, whose } from "./session.js";

const partSize = 1000; // records in a call, the most that the service takes
const partBytes = 3.5 * 2 ** 20; // of 4 MiB
const shown = 500; // rows of results at once

let filters = new URLSearchParams(); // of an export
let file = null; // the parts of the checked file, and its format
let results = []; // of the last check or import, by line
let dry = false; // they are of a check
let stopped = false;

export function showMove(_, query) {
  filters = new URLSearchParams([...query].filter(([name]) => ["q", "tag", "state", "domain"].includes(name)));
  const only = [...filters].map(([name, value]) => `${name} ${value}`).join(", ");
  byId("export-what").textContent = only ? `Links that the list was limited to: ${only}.` : "All links but deleted ones, with their clicks.";
}

const owner = () => (whose ? `&owner=${encodeURIComponent(whose)}` : "");

// records splits a table into its records, with the number of the line on which each begins. Line
// breaks in quotes belong to a record.
function records(text) {
  const all = [];
  let [start, line, begun, quoted, atStart] = [0, 1, 1, false, true];
  for (let i = 0; i <= text.length; i++) {
    const c = text[i];
    if (c === '"') quoted = quoted ? text[i + 1] === '"' && ++i > 0 : atStart;
    if (c === undefined || !quoted && c === "\n") {
      const record = text.slice(start, i + 1);
      if (record.trim()) all.push([begun, record]); // without a line end, the last one may be cut
      start = i + 1;
      begun = line + 1;
    }
    if (c === "\n") line++;
    atStart = c === "," || c === ";" || c === "\t" || c === "\n";
  }
  return all;
}

// decode returns the text of a file. A byte that is no text in its encoding is an error.
function decode(bytes) {
  const mark = (bytes[0] << 8) + bytes[1];
  try {
    return new TextDecoder({ 0xfffe: "utf-16le", 0xfeff: "utf-16be" }[mark] ?? "utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Error('It is no text in UTF-8. Save it as UTF-8, in Excel as "CSV UTF-8".');
  }
}

// documents parses JSON texts that follow one another, such as the pages of an API.
function documents(text) {
  const all = [];
  let [start, depth, quoted] = [0, 0, false];
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === '"') quoted = !quoted;
    else if (quoted) i += c === "\\" ? 1 : 0;
    else if (c === "{" || c === "[") depth++;
    else if ((c === "}" || c === "]") && --depth === 0) {
      all.push(JSON.parse(text.slice(start, i + 1).trim()));
      start = i + 1;
    }
  }
  const rest = text.slice(start).trim();
  return rest ? [...all, JSON.parse(rest)] : all;
}

const listOf = (page) => (Array.isArray(page) ? page : [page?.links, page?.data].find(Array.isArray));

// split returns the parts of a file: texts that each can be imported alone, with what turns the number
// of a line or an entry in it into that of the whole file, and how many records it has.
function split(text) {
  const start = text.trimStart()[0];
  let head = "", all, line, join = (some) => some.join("");
  if (start === "[" || start === "{") {
    let first;
    try { first = JSON.parse(text.trimStart().split("\n", 1)[0]); } catch { /* it goes over several lines */ }
    if (first && !listOf(first)) {
      all = text.split("\n").map((record, i) => [i + 1, `${record}\n`]).filter(([, record]) => record.trim());
    } else {
      const pages = documents(text);
      const lists = pages.map(listOf);
      if (!lists.some(Boolean)) throw new Error("The JSON has no list of links.");
      if (lists.includes(undefined)) throw new Error("A part has no list of links: perhaps an error was saved in place of a page. Export again.");
      const page = pages.find((one) => !Array.isArray(one));
      const member = page && (Array.isArray(page.links) ? "links" : "data");
      all = lists.flat().map((entry, i) => [i + 1, JSON.stringify(entry)]);
      join = (some) => (member ? `{"${member}":[${some.join(",")}]}` : `[${some.join(",")}]`);
    }
    line = (firsts) => (n) => firsts[n - 1] ?? n;
  } else {
    all = records(text);
    const heads = /^sep=/i.test(all[0]?.[1] ?? "") ? 2 : 1;
    if (!all[0]?.[1].includes("://")) head = all.splice(0, heads).map(([, record]) => record).join("");
    const headLines = head.split("\n").length - 1;
    line = (firsts, some) => (n) => {
      let at = headLines + 1; // the line of the part on which a record begins
      for (const [i, record] of some.entries()) {
        const lines = record.split("\n").length - (record.endsWith("\n") ? 1 : 0);
        if (n < at + lines) return firsts[i] + n - at;
        at += lines;
      }
      return n;
    };
  }
  const parts = [];
  let some = [], bytes = 0;
  const end = () => {
    if (!some.length) return;
    const firsts = some.map(([first]) => first);
    const texts = some.map(([, record]) => record);
    parts.push({ text: head + join(texts), line: line(firsts, texts), first: firsts[0], last: firsts.at(-1), records: some.length });
    some = [], bytes = 0;
  };
  for (const one of all) {
    const size = 3 * one[1].length; // at most, in UTF-8
    if (some.length === partSize || bytes + size > partBytes && some.length) end();
    some.push(one);
    bytes += size;
  }
  end();
  return parts;
}

const send = (part, format, dryRun) => api("POST", `api/import?${new URLSearchParams({ format, dryRun, ...(byId("import-domain").value && { domain: byId("import-domain").value }) })}${owner()}`,
  { raw: part.text, headers: { "Content-Type": "text/plain" }, seconds: 60, has: "results" });

const says = (text) => { byId("import-says").textContent = text; };
const failed = () => results.filter(({ problem }) => problem).length;
const lacking = () => results.filter(({ left }) => left.length).length;

// run sends all parts of the file. It returns whether it was stopped or failed before the end.
async function run(dryRun) {
  results = [];
  dry = dryRun;
  stopped = false;
  const all = file.parts.reduce((sum, part) => sum + part.records, 0);
  const progress = Object.assign(byId("import-progress"), { max: all, value: 0, hidden: false });
  byId("import-check").hidden = byId("import-go").hidden = true;
  byId("import-stop").hidden = false;
  byId("import-after").hidden = byId("import-scroll").hidden = true;
  byId("import-wrong").textContent = "";
  const verb = dryRun ? "checked" : "imported";
  let ends = null;
  for (const part of file.parts) {
    if (stopped) ends = part;
    if (ends) break;
    says(`${number(progress.value)} of ${count(all, "link")} ${verb}…`);
    try {
      for (let n = 1; ; n++) {
        const response = await patiently(() => send(part, file.format, dryRun), says, () => stopped);
        if (!response) {
          ends = part;
          break;
        }
        const { body } = response;
        file.format = body.format;
        byId("import-format").value = body.format;
        const late = body.results.some(({ status }) => status === 503);
        if (!late || n === 3 || stopped) {
          results.push(...body.results.map((one) => ({ ...one, line: part.line(one.line) })));
          break;
        }
        says("Storage was slow. The rest of these links is tried again.");
      }
    } catch (problem) {
      ends = part;
      byId("import-wrong").textContent = problem.detail?.includes("no format that is known") ? "We don't recognise this file. Choose its format." : problem.message;
    }
    if (!ends) progress.value += part.records;
  }
  progress.hidden = byId("import-stop").hidden = true;
  byId("import-check").hidden = false;
  const done = results.length;
  const made = results.filter(({ status }) => status === 201).length;
  says(!done && !stopped ? "" : `${count(done, "link")} ${verb}: ${number(made)} ${dryRun ? "would be made" : "made"}, ${number(done - made - failed())} there already, ${number(failed())} with a problem.`
    + (lacking() ? ` ${count(lacking(), "link")} ${lacking() === 1 ? "lacks" : "lack"} something that the file has.` : "")
    + (ends ? ` Left are the lines from ${number(ends.first)} to ${number(file.parts.at(-1).last)}.` : ""));
  show();
  const shows = byId("import-links");
  shows.hidden = dryRun || !made;
  shows.href = to("");
  shows.textContent = made === 1 ? "Show the link" : `Show the ${count(made, "link")}`;
  if (made) changed(null); // the list is read again
  return ends;
}

const words = ({ status, problem, left }) => (problem ? `${problem.title}: ${problem.detail}` : (status === 201 ? dry ? "would be made" : "made" : "there already")
  + (left.length ? `; left behind: ${left.join(", ")}` : ""));

// show shows the results, at first those with a problem or with something that is left behind.
function show() {
  byId("import-after").hidden = results.length === 0;
  const rows = results.filter(({ problem, left }) => problem || left.length || byId("import-all").checked);
  byId("import-scroll").hidden = rows.length === 0;
  byId("import-rows").replaceChildren(...rows.slice(0, shown).map((one) => el("tr", {}, el("th", { scope: "row", textContent: number(one.line) }),
    el("td", { textContent: one.alias ?? "" }), el("td", { className: one.problem ? "wrong" : "", textContent: words(one) }))));
  if (rows.length > shown) byId("import-rows").append(el("tr", {}, el("td", { colSpan: 3, textContent: `And ${count(rows.length - shown, "more line")}: download the results.` })));
}

byId("import").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!byId("import-stop").hidden) return;
  const wrong = byId("import-wrong");
  wrong.textContent = "";
  const [chosen] = byId("import-file").files;
  const pasted = byId("import-text").value;
  if (!pasted.trim() && !chosen) {
    wrong.textContent = "Choose a file, or paste its text.";
    return byId("import-file").focus();
  }
  try {
    const text = pasted.trim() ? pasted : decode(new Uint8Array(await chosen.arrayBuffer()));
    file = { parts: split(text.replace(/^\ufeff/, "").replace(/\r\n?/g, "\n")), format: byId("import-format").value };
  } catch (error) {
    wrong.textContent = `The file cannot be read: ${error.message}`;
    return;
  }
  if (!file.parts.length) {
    wrong.textContent = "There is no link in this file.";
    return;
  }
  const ended = await run(true);
  if (!ended && !results.length) {
    says("");
    wrong.textContent = "There is no link in this file.";
  }
  const good = results.length - failed();
  byId("import-go").hidden = Boolean(ended) || good === 0;
  byId("import-go").textContent = `Import ${count(good, "link")}`;
  if (!byId("import-go").hidden) byId("import-go").focus();
});

byId("import").addEventListener("input", ({ target }) => {
  if (target.id === "import-all") return show();
  byId("import-go").hidden = true; // it is another file
  byId("import-wrong").textContent = "";
  if (target.id === "import-file") byId("import-format").value = "auto";
});
for (const what of ["dragover", "drop"]) byId("import").addEventListener(what, (event) => {
  if (!event.dataTransfer.types.includes("Files")) return;
  event.preventDefault(); // or else the browser would show the file
  if (what !== "drop" || !byId("import-stop").hidden) return;
  byId("import-file").files = event.dataTransfer.files;
  byId("import-text").value = "";
  byId("import-file").dispatchEvent(new Event("input", { bubbles: true }));
});
byId("import-go").addEventListener("click", async () => {
  await run(false);
  byId("import-check").focus();
});
for (const what of ["import", "export"]) byId(`${what}-stop`).addEventListener("click", () => {
  stopped = true;
  byId(`${what}-says`).textContent = "It stops after the part under way.";
});

// save offers a text as a file.
function save(text, name, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
  say("Saved as a file");
}

const quote = (value) => `"${String(value ?? "").replace(/^(?=[=+\-@\t\r])/, "'").replaceAll('"', '""')}"`;
byId("import-save").addEventListener("click", () => save(
  `line,alias,status,result\r\n${results.map((one) => [one.line, one.alias, one.status, words(one)].map(quote).join(",")).join("\r\n")}\r\n`, "results.csv", "text/csv"));

byId("export").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!byId("export-stop").hidden) return;
  stopped = false;
  byId("export-wrong").textContent = "";
  byId("export-go").hidden = true;
  byId("export-stop").hidden = false;
  const format = byId("export-format").value;
  const heads = { csv: 1, "csv&for=spreadsheet": 2, ndjson: 0 }[format];
  const parts = [];
  let links = 0;
  try {
    for (let next = `format=${format}&${filters}${owner()}`; next && !stopped;) {
      const response = await patiently(() => api("GET", `api/export?${next}`, { seconds: 60, read: (text) => ({ text }), has: "text" }),
        (text) => { byId("export-says").textContent = text; }, () => stopped);
      if (!response) break;
      const { body, headers } = response;
      const lines = format === "ndjson" ? body.text.match(/.+\n/g) ?? [] : records(body.text).map(([, record]) => record);
      links += Math.max(0, lines.length - heads);
      parts.push(parts.length ? lines.slice(heads).join("") : body.text);
      byId("export-says").textContent = `${count(links, "link")} so far…`;
      next = headers.get("Link")?.match(/\?([^>]*)>; rel="next"/)?.[1];
    }
    if (stopped) {
      byId("export-says").textContent = "Stopped. Nothing was saved.";
    } else {
      byId("export-says").textContent = `${count(links, "link")} exported.`;
      save(parts.join(""), `links.${format.split("&")[0]}`, format === "ndjson" ? "application/x-ndjson" : "text/csv");
    }
  } catch (problem) {
    if (!("status" in problem)) throw problem; // a bug in these scripts
    byId("export-says").textContent = "";
    byId("export-wrong").textContent = problem.message;
  } finally {
    byId("export-go").hidden = false;
    byId("export-stop").hidden = true;
  }
});
