// What the buttons in a row of the list do.

import { act } from "./elements.js";
import { nameOf, say } from "./page.js";
import { api } from "./session.js";

// rowDoes does what a button is for, and tells the list what changed. It returns the button of the row
// to go on with, or "".
export async function rowDoes(what, link, button, changed) {
  const path = `api/links/${nameOf(link)}`;
  if (what === "qr") {
    const { showQR } = await import("./qr.js");
    await showQR(link, button);
    return "";
  }
  const done = await act(button, "list-problem", async () => {
    if (what === "delete") {
      await api("DELETE", path);
      changed({ ...link, deletedAtUtc: new Date().toISOString() });
      return say("Deleted. It can be restored for some days.");
    }
    const { body } = what === "restore" ? await api("POST", `${path}/restore`, { has: "shortUrl" })
      : await api("PATCH", path, { body: { disabled: !link.disabled }, has: "shortUrl" });
    changed(body);
    say(what === "restore" ? "Restored" : body.disabled ? 'Disabled. Visitors see "This link is disabled".' : "Enabled: it redirects again");
  });
  return done ? { delete: "restore", restore: "delete", able: "able" }[what] : "";
}
