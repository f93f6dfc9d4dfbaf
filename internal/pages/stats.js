// The statistics of a link or of all links.

import { act, ago, count, el, figures, number, shares, wrong, zone } from "./elements.js";
import { byId, nameOf, say, time } from "./page.js";
import { api, whose } from "./session.js";

let link = null; // the link whose statistics are shown; without an alias: all links
let turn = 0;
let later; // timer of the next poll, while nobody has clicked
let open = false; // whether the table is open

export function showStats(of) {
  link = of;
  turn++;
  open = false;
  clearTimeout(later);
  byId("stats").hidden = !link;
  byId("stats-tag-field").hidden = Boolean(link?.alias);
  byId("stats-body").replaceChildren(el("div", { className: "wait" }, el("i"), el("i"), el("i")));
  if (link) load();
}

const dayBefore = (days) => new Date(Date.now() - days * 86_400_000).toISOString().slice(0, 10);

// query returns the request to the API. Days are in UTC. With a tag there are no hours.
function query() {
  const [range, by] = byId("stats-range").value.split(" ");
  const tag = link.alias ? "" : byId("stats-tag").value.trim();
  const asked = new URLSearchParams({ interval: tag ? "day" : by });
  if (range !== "free") asked.set("from", dayBefore(range - 1));
  else for (const end of ["from", "to"]) if (byId(`stats-${end}`).value) asked.set(end, byId(`stats-${end}`).value);
  if (tag) asked.set("tag", tag);
  if (!link.alias && whose) asked.set("owner", whose);
  return `api/${link.alias ? `links/${nameOf(link)}/stats` : "stats/links"}?${asked}`;
}

async function load(asks = true) {
  const mine = ++turn;
  clearTimeout(later);
  wrong("stats-problem", null);
  byId("stats-body").setAttribute("aria-busy", "true");
  try {
    const { body } = await api("GET", query(), { asks, has: "series" });
    if (mine !== turn) return;
    draw(body);
    compare(body);
    // People who have just made a link open it in another tab, and want to see that clicks count.
    if (body.clicks + body.bots === 0 && Date.now() - Date.parse(link.createdAtUtc) < 3_600_000) later = setTimeout(poll, 3000);
  } catch (problem) {
    if (mine !== turn) return;
    byId("stats-body").querySelector(".wait")?.remove();
    wrong("stats-problem", problem, () => load());
  } finally {
    if (mine === turn) byId("stats-body").removeAttribute("aria-busy");
  }
}

const poll = () => (document.hidden ? document.addEventListener("visibilitychange", poll, { once: true }) : link && load(false));

byId("stats-form").addEventListener("change", () => {
  const free = byId("stats-range").value.startsWith("free");
  for (const field of document.querySelectorAll(".stats-free")) field.hidden = !free;
  if (free && !byId("stats-from").value) byId("stats-from").value = dayBefore(29);
  if (free && !byId("stats-to").value) byId("stats-to").value = dayBefore(0);
  load();
});
byId("stats-form").addEventListener("submit", (event) => {
  event.preventDefault();
  load();
});

byId("stats-csv").addEventListener("click", () => act(byId("stats-csv"), "stats-problem", async () => {
  const { body } = await api("GET", query(), { headers: { Accept: "text/csv" }, read: (csv) => csv || JSON.parse(csv) });
  const url = URL.createObjectURL(new Blob([body], { type: "text/csv" }));
  el("a", { href: url, download: `${link.alias ?? "links"}.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
  say("Saved as a file");
}));

const days = new Intl.DateTimeFormat(undefined, { timeZone: "UTC", day: "numeric", month: "short" });
const hours = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const unit = (interval) => (interval === "hour" ? `hour (${zone})` : "day (UTC)");
const regions = new Intl.DisplayNames(undefined, { type: "region", fallback: "code" });
const country = (code) => (/^[A-Z]{2}$/.test(code) ? regions.of(code) : code);

function draw(s) {
  const at = s.interval === "hour" ? hours : days;
  const body = byId("stats-body");
  const parts = [el("dl", { className: "figures", id: "stats-figures" })];
  if (s.clicks + s.bots === 0) {
    parts.push(el("p", { className: "empty", textContent: "No clicks in this time. Open the short link once: it shows here within seconds." }));
  } else {
    parts.push(chart(s, at, "clicks", "Clicks"));
    if (s.bots > 0) parts.push(chart(s, at, "bots", "Bots (not in clicks)"));
    parts.push(table(s, at));
  }
  const dimensions = [["Referrers", s.referrers], ["Countries", s.countries?.map((c) => ({ ...c, name: country(c.name) }))], ["Browsers", s.browsers],
    ["Systems", s.systems], ["Devices", s.devices], ["Sources", s.sources?.some(({ name }) => name !== "(none)") ? s.sources : []], ["Rules", s.targets]].filter(([, items]) => items?.length > 0); // null: not known of links with a tag
  parts.push(el("div", { className: "dimensions" }, ...dimensions.map(([name, items]) =>
    el("section", { ariaLabel: name }, el("h3", { textContent: name }), el("ol", { className: "shares" }, ...shares(items, s.clicks))))));
  body.replaceChildren(...parts);
  figures("stats-figures", [["Clicks", s.clicks], ...(s.visitors === null ? [] : [["Daily visitors", s.visitors]]), ["Bots", s.bots],
    ...(s.referrers === null ? [] : [["Last click", s.lastAtUtc ? ago(s.lastAtUtc) : "none"]])]);
}

// compare says how the clicks of so many days differ from those of the days before them.
async function compare({ clicks }) {
  const mine = turn;
  const [days, by] = byId("stats-range").value.split(" ");
  if (by !== "day" || days === "free" || days > 90 || !clicks) return;
  const before = query().replace(/from=[^&]*/, `from=${dayBefore(2 * days - 1)}&to=${dayBefore(days)}`);
  const { body } = await api("GET", before, { asks: false, has: "series" }).catch(() => ({ body: {} }));
  if (mine !== turn || !body.clicks) return;
  byId("stats-figures").querySelector("dd").append(" ", el("small", { textContent: `${changes.format(clicks / body.clicks - 1)} on the ${days} days before` }));
}
const changes = new Intl.NumberFormat(undefined, { style: "percent", signDisplay: "exceptZero" });

// scaleOf returns the end of a scale from zero: the next even number that is short.
function scaleOf(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10].map((n) => Math.round(n * power)).find((n) => n >= most && n % 2 === 0);
}

// chart returns a figure with a bar for each day or hour. The view box has a width of 10 for each
// bar, and a height of 100. A pointer over a bar, or the keys of the range below, tell its value.
function chart({ series, interval }, at, what, title) {
  const most = Math.max(...series.map((b) => b[what]), 1);
  const scale = scaleOf(most);
  const all = series.reduce((sum, b) => sum + b[what], 0);
  const svg = byId("chart").content.firstElementChild.cloneNode(true);
  const set = (element, attributes) => Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
  const [bar] = svg.children;
  svg.replaceChildren(...series.map((b, i) => {
    const height = 100 * b[what] / scale;
    const g = bar.cloneNode(true);
    const [room, column] = g.children;
    set(room, { x: 10 * i, width: 10, height: 100 });
    set(column, { x: 10 * i + 1, y: 100 - height, width: 8, height });
    return g;
  }));
  const peak = series.find((b) => b[what] === most);
  const label = `${title}, by ${unit(interval)}: ${number(all)} in all` + (peak ? `, peak ${number(most)} on ${at.format(new Date(peak.at))}` : "");
  set(svg, { viewBox: `0 0 ${10 * series.length} 100`, preserveAspectRatio: "none", "aria-label": label });
  const marks = Math.min(series.length, interval === "hour" ? 3 : 5);
  const marked = Array.from({ length: marks }, (_, i) => series[Math.round(i * (series.length - 1) / Math.max(1, marks - 1))]);
  const value = el("span", { className: "value" });
  const words = (i) => `${at.format(new Date(series[i].at))}: ${number(series[i][what])}`;
  const range = el("input", { type: "range", min: 0, max: series.length - 1, value: series.length - 1, ariaLabel: `${title}: one ${interval}`, ariaValueText: words(series.length - 1) });
  const tell = (i) => {
    svg.querySelector(".at")?.classList.remove("at");
    if (i !== null) svg.children[i].classList.add("at");
    value.textContent = i === null ? `peak ${number(most)}` : words(i);
  };
  tell(null);
  svg.addEventListener("pointermove", ({ clientX }) => {
    const { left, width } = svg.getBoundingClientRect();
    tell(Math.min(series.length - 1, Math.max(0, Math.floor(series.length * (clientX - left) / width))));
  });
  svg.addEventListener("pointerleave", () => tell(null));
  range.addEventListener("input", () => {
    tell(Number(range.value));
    range.ariaValueText = words(Number(range.value));
  });
  range.addEventListener("focus", () => tell(Number(range.value)));
  range.addEventListener("blur", () => tell(null));
  return el("figure", { className: `chart ${what}` },
    el("figcaption", {}, `${title}, by ${unit(interval)}`, value),
    el("div", { className: "plot" }, svg, el("div", { className: "scale", ariaHidden: "true" }, ...[scale, scale / 2, 0].map((n) => el("span", { textContent: number(n) }))),
      el("p", { className: "axis" }, ...marked.map((b) => el("span", { textContent: at.format(new Date(b.at)) }))), range));
}

function table({ series, interval }, at) {
  const head = el("tr", {}, ...[unit(interval).replace(/./, (first) => first.toUpperCase()), "Clicks", "Bots", "Visitors"].map((name) => el("th", { scope: "col", textContent: name })));
  const rows = series.map((b) => el("tr", {}, el("th", { scope: "row", textContent: at.format(new Date(b.at)) }),
    ...[b.clicks, b.bots, b.visitors].map((n) => el("td", { textContent: n === null ? "–" : number(n) }))));
  return el("details", { open, ontoggle: (event) => { open = event.target.open; } }, el("summary", { textContent: `As a table: ${count(series.length, interval)}` }),
    el("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "Clicks as a table" }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows))));
}
