// Claims of links that this browser made before anybody signed in.

import { act, count, el, number } from "./elements.js";
import { reload } from "./list.js";
import { bare, byId, call, claimable, keepMade, madeHere, most, nameOf, say } from "./page.js";
import { api, claimsDeclined, declineClaims, handed, keepHanded, ownerText, whose } from "./session.js";

byId("list").firstElementChild.after(byId("claims"));

let offered = []; // links that can be taken over

// offerClaims offers to take over links that this browser made, unless that was declined in this
// tab. Of links that another domain's page handed over, it leaves out those that the token does not
// open any more.
export async function offerClaims() {
  const others = await Promise.all(handed().map(([name, claimToken]) =>
    call("GET", `api/links/${name}`, { token: claimToken, has: "shortUrl" }).then(({ body }) => ({ ...body, claimToken }), () => ({}))));
  const all = offered = claimable([...madeHere(), ...others]).slice(0, most);
  byId("claims").hidden = all.length === 0 || claimsDeclined();
  byId("claims-handed").hidden = !claimable(others).length;
  byId("claims-title").textContent = all.length === 1 ? "This link can be yours" : `These ${number(all.length)} links can be yours`;
  byId("claims-links").replaceChildren(...all.map((link) => el("li", { dir: "ltr", textContent: `${bare(link.shortUrl)} → ${link.longUrl}` })));
}

byId("claims-not").addEventListener("click", () => {
  declineClaims();
  byId("claims").hidden = true;
  byId("list-title").focus();
});

byId("claims-take").addEventListener("click", () => act(byId("claims-take"), "claims-problem", async () => {
  const keepExpiry = byId("claims-keep").checked;
  const claims = offered.map(({ alias, domain, claimToken }) => ({ alias, domain, claimToken, keepExpiry }));
  const { body } = await api("POST", "api/claims", { body: { claims, owner: whose || undefined }, has: "results" });
  const results = new Map(body.results.map((one) => [nameOf(one), one.result]));
  // Drop the tokens of links that were taken over, because they are void now, and tokens that are
  // not valid.
  keepHanded(handed().filter(([name]) => results.get(name) === "later"));
  keepMade(madeHere().filter((link) => results.get(nameOf(link)) !== "gone").map((link) => {
    const result = results.get(nameOf(link));
    if (result === undefined || result === "later") return link;
    const { claimToken, ...others } = link;
    others.own = result !== "invalid";
    return result === "claimed" && !keepExpiry ? { ...others, expiresAtUtc: null } : others;
  }));
  const tally = (result) => [...results.values()].filter((r) => r === result).length;
  const yours = tally("claimed") + tally("already yours");
  const parts = [`${count(yours, "link")} ${whose ? `${yours === 1 ? "belongs" : "belong"} to ${ownerText(whose)}` : `${yours === 1 ? "is" : "are"} yours`} now`];
  if (tally("gone")) parts.push(`${number(tally("gone"))} had ended`);
  if (tally("invalid")) parts.push(`${number(tally("invalid"))} could not be taken over`);
  if (tally("later")) parts.push(`${number(tally("later"))} can be tried again later`);
  say(`${parts.join(", ")}.`);
  offerClaims();
  byId("list-title").focus();
  reload();
}));
