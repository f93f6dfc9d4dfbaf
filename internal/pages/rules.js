// The rules of a link, as rows of its form. The form loads this module when they are shown.

import { blame, describe, el, fromField, split, toField, unread } from "./elements.js";
import { byId, say } from "./page.js";

const choices = { systems: ["Windows", "macOS", "Linux", "Android", "iOS", "ChromeOS"], devices: ["desktop", "mobile", "tablet"] };
const members = ["name", "countries", "systems", "devices", "languages", "fromUtc", "untilUtc", "percent", "longUrl"]; // in the order of the API

let shown = null; // the list that the rows show
let changed; // is called with the list after each change

// show shows rules as rows, unless they show them already.
export function show(rules, whenChanged) {
  changed = whenChanged;
  if (rules !== shown) render(rules);
}

function render(rules) {
  const focused = document.activeElement?.id;
  shown = rules;
  byId("rules-rows").replaceChildren(...rules.map(row));
  byId("rules-add").hidden = rules.length >= 10;
  if (focused?.startsWith("rules[")) byId(focused)?.focus();
}

// A reset empties the fields.
byId("form").addEventListener("reset", () => { shown = null; });

// change shows another list, and moves the focus. What a field holds that cannot be read is in no
// list, and would be lost.
function change(rules, focus, says) {
  const half = [...byId("rules-rows").querySelectorAll("input")].find((field) => field.validity.badInput);
  if (half) return blame(byId("form"), { field: half.id, message: unread(half) });
  render(rules);
  changed(rules);
  (byId(focus) ?? byId("rules-add")).focus();
  if (says) say(says);
}

byId("rules-add").addEventListener("click", () => change([...shown, {}], `rules[${shown.length}].longUrl`));

// row returns the fields of a rule. The id of each is the place that a problem names.
function row(rule, i) {
  const at = `rules[${i}]`;
  const fields = {};
  const field = (name, title, placeholder = "", type = "text") => {
    const id = `${at}.${name}`;
    const value = type === "datetime-local" ? toField(rule[name]) : [rule[name] ?? ""].flat().join(", ");
    fields[name] = el("input", { id, type, value, placeholder, autocomplete: "off", spellcheck: false });
    return el("div", { className: "field" }, el("label", { htmlFor: id, textContent: title }), describe(fields[name]), el("p", { className: "wrong", id: `${id}-error` }));
  };
  const boxes = (name, title) => {
    fields[name] = choices[name].map((value) => el("input", { type: "checkbox", value, checked: rule[name]?.includes(value) ?? false }));
    return describe(el("fieldset", { className: "field boxes", id: `${at}.${name}`, tabIndex: -1 }, el("legend", { textContent: title }),
      ...fields[name].map((box) => el("label", { className: "check" }, box, box.value)), el("p", { className: "wrong", id: `${at}.${name}-error` })));
  };
  const move = (to, word) => el("button", { type: "button", id: `${at}-${word}`, textContent: `Move ${word}`, ariaLabel: `Move ${word}: rule ${i + 1}`, hidden: to < 0 || to >= shown.length,
    onclick: () => {
      const all = [...shown];
      all.splice(to, 0, ...all.splice(i, 1));
      const last = word === "up" ? to === 0 : to === all.length - 1;
      change(all, `rules[${to}]-${last ? (word === "up" ? "down" : "up") : word}`, `Now rule ${to + 1}`);
    } });
  const fieldset = el("fieldset", { className: "rule", id: at, tabIndex: -1 }, el("legend", { textContent: `Rule ${i + 1}` }),
    field("longUrl", "Lead to", "example.com/de"), boxes("systems", "Systems"), boxes("devices", "Devices"),
    field("countries", "Countries", "DE, AT"), field("languages", "Languages", "de, pt-BR"), field("percent", "Percent of visitors", "50", "number"),
    field("fromUtc", "From", "", "datetime-local"), field("untilUtc", "Until", "", "datetime-local"), field("name", "Name in statistics", String(i + 1)),
    el("p", { className: "wrong", id: `${at}-error` }),
    el("p", { className: "actions" }, move(i - 1, "up"), move(i + 1, "down"),
      el("button", { type: "button", textContent: "Remove", ariaLabel: `Remove: rule ${i + 1}`, onclick: () =>
        change(shown.filter((_, n) => n !== i), `rules[${Math.max(0, i - 1)}].longUrl`, `Rule ${i + 1} removed`) })));
  describe(fieldset).addEventListener("input", () => {
    const now = Object.fromEntries(members.map((name) => [name, valueOf(name, fields[name], rule)]));
    shown = shown.map((other, n) => (n === i ? now : other));
    rule = now;
    changed(shown);
  });
  return fieldset;
}

// valueOf returns what a field says, as the API has it.
function valueOf(name, field, rule) {
  if (choices[name]) return orNull(field.filter((box) => box.checked).map((box) => box.value));
  const text = field.value.trim();
  if (name === "countries" || name === "languages") return orNull(split(text, /[\s,]+/));
  if (name === "percent") return text === "" ? null : Number(text);
  // A field has no seconds: those of a time that nobody has changed stay.
  if (name.endsWith("Utc")) return text === toField(rule[name]) ? rule[name] ?? null : fromField(text);
  return text || null;
}

const orNull = (list) => (list.length ? list : null);
