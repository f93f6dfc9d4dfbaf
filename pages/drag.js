// Long URLs that come from elsewhere: from an address, from other apps, and from a bookmarklet.

import { byId, say } from "./common.js";

// given returns what an address fills in. Its fragment is better than its query, which servers log.
// Apps that share a page may put its URL into the text.
export function given({ search, hash }) {
  const all = new URLSearchParams(`${search.slice(1)}&${hash.slice(1)}`);
  const text = all.get("text") ?? "";
  const longUrl = all.get("longUrl") || all.get("url") || (text.match(/https?:\/\/\S+/) ?? [""])[0];
  return { longUrl: longUrl.trim(), title: (all.get("title") ?? "").trim() };
}

// offer fills the element drag with a bookmarklet, which opens a page of this service. It loads no
// script of this service into the pages of others.
export function offer(to, withTitle) {
  const { name } = document.querySelector("main").dataset;
  const a = document.createElement("a");
  const p = document.createElement("p");
  const title = withTitle ? "+'&title='+encodeURIComponent(document.title)" : "";
  a.className = "button";
  a.id = "bookmarklet";
  a.textContent = `Shorten with ${name}`;
  a.href = `javascript:void(open(${JSON.stringify(to)}+encodeURIComponent(location.href)${title}))`;
  a.addEventListener("click", (event) => {
    event.preventDefault();
    say("Drag it to your bookmarks, and click it there, on the page to shorten.");
  });
  p.append("Drag this to your bookmarks. A click on it, on any page, fills in that page's URL here: ", a);
  byId("drag").append(p);
}
