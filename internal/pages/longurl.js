// Long URLs that come from elsewhere: typed or pasted, from an address, and from other apps.

import { schemes } from "./page.js";

const quote = /[\p{Pi}\p{Pf}‚„"'`＂＇]/u;

// unwrapped returns a text without the white space, invisible characters, quotes and brackets around
// it. A closing mark goes only with its opening one: some URLs end in one.
export function unwrapped(text) {
  for (let most = 8; most > 0; most--) { // nobody pastes more, and each takes time
    text = text.replace(/^[\s\p{Cf}\p{DI}]+|[\s\p{Cf}\p{DI}]+$/gu, "");
    const open = text.charAt();
    if (!quote.test(open) && !/[\p{Ps}<＜]/u.test(open) || /^\[[\da-f.]*:[\da-f:.]*]/i.test(text)) return text;
    text = text.slice(1);
    const inside = text.replace(/[.,;:!?…。，、！？；：\s]+$/, "");
    const close = inside.slice(-1);
    if (quote.test(open) ? quote.test(close) : /[\p{Pe}>＞]/u.test(close) && [1, 2].includes(close.charCodeAt() - open.charCodeAt())
      && inside.split(close).length > inside.split(open).length) text = inside.slice(0, -1);
  }
  return text;
}

// complete returns a typed URL as browsers complete it: with https, unless it has a scheme, or most
// likely one without its colon. A name before a port is no scheme, unless owners may use it as one.
export function complete(text) {
  const url = unwrapped(text);
  return /^([a-z][a-z0-9+.-]*:(?!\d)|[\w+-]*\/\/)/i.test(url) || schemes.split(" ").includes(url.split(":", 1)[0].toLowerCase()) ? url : `https://${url}`;
}

// urlIn returns the first URL in a text, without what ends its sentence. A closing bracket stays that
// the URL itself opens, as in A_(b).
function urlIn(text) {
  const [found] = text.match(/(?:https?:\/\/|(?:^|[^\w.@-])www\.)[^\s\p{Cf}\p{DI}\p{Pi}\p{Pf}<>"`\u3001-\u3011（）]+/iu) ?? [""];
  let url = found.replace(/^[^hw]/iu, ""); // what stands before www
  for (;;) {
    const last = url.slice(-1);
    const open = { ")": "(", "]": "[", "}": "{" }[last];
    if (open ? url.split(last).length <= url.split(open).length : !/[.,;:!?…，！？；：'*~|]/.test(last)) return url;
    url = url.slice(0, -1);
  }
}

// given returns what an address fills in. Its fragment is better than its query, which servers log.
// Apps that share a page may put its URL into the text.
export function given({ search, hash }) {
  const all = new URLSearchParams(`${search.slice(1)}&${hash.slice(1)}`);
  const longUrl = all.get("longUrl") || all.get("url") || urlIn(all.get("text") ?? "");
  return { longUrl: longUrl.trim(), title: (all.get("title") ?? "").trim() };
}
