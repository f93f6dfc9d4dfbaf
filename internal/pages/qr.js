// The dialog with the QR code of a link.

import { part } from "./elements.js";
import { bare, byId, nameOf, say } from "./page.js";

let link = null;

// address returns where a code with the chosen options is, relative to the page.
const address = (format) => `api/links/${nameOf(link)}/qr?${new URLSearchParams([...[...new FormData(byId("qr-form"))].map(([name, value]) => [name, value.replace("#", "")]), ["format", format]])}`;

function draw() {
  byId("qr-image").src = address("svg");
  for (const format of ["svg", "png"]) Object.assign(byId(`qr-${format}`), { href: address(format), download: `${link.alias}.${format}` });
  byId("qr-wrong").textContent = "";
}

// copyImage copies the code as a picture. Some browsers cannot do that, and none may without https.
async function copyImage() {
  try {
    const picture = fetch(address("png")).then((response) => (response.ok ? response.blob() : Promise.reject(new Error(response.status))));
    await navigator.clipboard.write([new ClipboardItem({ "image/png": picture })]);
    say("Copied as an image");
  } catch {
    byId("qr-wrong").textContent = "The browser cannot copy it as an image. Download the PNG instead.";
  }
}

let ready = null;

// showQR shows the dialog for a link.
export async function showQR(of) {
  ready ??= part("./qr.html").then(() => {
    byId("qr-form").addEventListener("change", draw);
    byId("qr-copy").addEventListener("click", copyImage);
    byId("qr-close").addEventListener("click", () => byId("qr").close());
    byId("qr-image").addEventListener("error", () => {
      byId("qr-wrong").textContent = "The code could not be drawn: it needs more pixels, a darker colour on a lighter one, or the service did not respond.";
    });
  }).catch((error) => {
    ready = null;
    throw error;
  });
  try {
    await ready;
  } catch {
    return say("The service did not respond. Try again in a moment.");
  }
  link = of;
  byId("qr-title").textContent = bare(link.shortUrl);
  draw();
  byId("qr").showModal();
}
