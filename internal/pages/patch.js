// Edits of links that do nothing if the link has changed since it was read.

import { nameOf, Problem } from "./page.js";
import { api } from "./session.js";

const pathOf = (link) => `api/links/${nameOf(link)}`;

// unchanged returns the header by which a call does nothing if a link has changed since it was read.
// A proxy may have dropped the tag of what was read. Then the link is read again, and has to be of
// the same time.
async function unchanged({ headers, body }) {
  let etag = headers.get("ETag");
  if (!etag) {
    const now = await api("GET", pathOf(body), { has: "shortUrl" });
    if (now.body.updatedAtUtc !== body.updatedAtUtc) throw new Problem(412, { type: "/problems/precondition", title: "The link was changed meanwhile" });
    etag = now.headers.get("ETag");
  }
  return etag ? { "If-Match": etag } : {};
}

// patch edits a link, unless it has changed since the response read.
export const patch = async (read, body) => api("PATCH", pathOf(read.body), { body, has: "shortUrl",
  headers: { "Content-Type": "application/merge-patch+json", ...await unchanged(read) } });
