// The bookmarklet that opens the form with the URL of the page that somebody is on.

import { byId, say } from "./page.js";

// offer fills the element drag with a bookmarklet, which opens this page with a fragment that ends
// in the URL. It loads no script of this service into the pages of others. It has nothing of this
// page's own query: that may be somebody else's, who wants to run it on other pages.
export function offer(fragment, withTitle) {
  const { name } = document.querySelector("main").dataset;
  const a = document.createElement("a");
  const p = document.createElement("p");
  const title = withTitle ? "+'&title='+encodeURIComponent(document.title.toWellFormed())" : "";
  const to = location.origin + location.pathname + fragment;
  a.className = "button";
  a.id = "bookmarklet";
  a.textContent = `Shorten with ${name}`;
  a.href = "javascript:" + encodeURIComponent(`void(open(${JSON.stringify(to)}+encodeURIComponent(location.href)${title}))`);
  a.addEventListener("click", (event) => {
    event.preventDefault();
    say("Drag it to your bookmarks, and click it there, on the page to shorten.");
  });
  p.append("Drag this to your bookmarks. A click on it, on any page, fills in that page's URL here: ", a);
  byId("drag").append(p);
}
