// Many links from many long URLs.

import { count, el, fromField, number, patiently, split } from "./elements.js";
import { changed } from "./list.js";
import { complete } from "./longurl.js";
import { byId, copy, say } from "./page.js";
import { api, domains, whose } from "./session.js";

const most = 100; // in a call

let running = false;
let stopped = false;

const urlsIn = (text) => split(text, /[\r\n]+/);

// open shows the form, with more long URLs.
export function open(urls = []) {
  byId("many").hidden = false;
  byId("many-urls").value = [...urlsIn(byId("many-urls").value), ...urls].join("\n");
  byId("many-urls").focus();
}

const says = (text) => { byId("many-says").textContent = text; };
const send = (links) => patiently(() => api("POST", "api/links/bulk", { body: { links }, seconds: 40, has: "results" }).then(({ body }) => body.results),
  says, () => stopped);

byId("many").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (running) return;
  const wrong = byId("many-wrong");
  const urls = urlsIn(byId("many-urls").value);
  wrong.textContent = !urls.length ? "Paste the long URLs here first, one on each line."
    : byId("many-end").validity.badInput ? "Complete the date and the time, or clear it for never." : "";
  if (wrong.textContent) return byId(urls.length ? "many-end" : "many-urls").focus();
  const tags = split(byId("many-tags").value, ",");
  const common = { title: byId("many-name").value.trim() || undefined, tags: tags.length ? tags : undefined, expiresAtUtc: fromField(byId("many-end").value) ?? undefined,
    owner: whose || undefined, domain: domains.length > 1 ? byId("many-domain").value : undefined };
  running = true;
  stopped = false;
  byId("many-go").hidden = true;
  byId("many-stop").hidden = false;
  byId("many-urls").readOnly = true;
  const made = [];
  const failed = []; // pairs of a long URL and why
  let left = urls;
  try {
    while (left.length && !stopped) {
      says(`${number(made.length)} of ${count(urls.length, "link")} made…`);
      const some = left.slice(0, most);
      const results = await send(some.map((url) => ({ longUrl: complete(url), ...common })));
      if (!results) break; // somebody stopped
      results.forEach(({ link, problem }, i) => (link ? made.push(link) : failed.push([some[i], problem.detail])));
      left = left.slice(some.length);
    }
  } catch (problem) {
    if (!("status" in problem)) throw problem; // a bug in these scripts
    wrong.textContent = problem.message;
  } finally {
    running = false;
    byId("many-go").hidden = false;
    byId("many-stop").hidden = true;
    byId("many-urls").readOnly = false;
  }
  byId("many-urls").value = [...failed.map(([url]) => url), ...left].join("\n");
  byId("many-failed").replaceChildren(...failed.map(([url, why]) => el("li", { textContent: `${url}: ${why}` })));
  says(`${count(made.length, "link")} made${failed.length ? `. Fix the ${number(failed.length)} left above` : ""}${left.length ? `, ${number(left.length)} left` : ""}.`);
  if (made.length) {
    byId("many-short").value = made.map(({ shortUrl }) => shortUrl).join("\n");
    byId("many-made").hidden = false;
    byId("many-copy").focus();
    changed(null); // the list is read again
  }
});
byId("many-stop").addEventListener("click", () => { stopped = true; });
byId("many-copy").addEventListener("click", () => copy(byId("many-short").value, byId("many-copy")));
byId("many-urls").addEventListener("input", () => { byId("many-wrong").textContent = ""; });
byId("many-one").addEventListener("click", () => {
  if (byId("many-urls").value.trim()) say("What you pasted is kept under Many at once");
});
