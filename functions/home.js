"use strict";
const form = document.getElementById("form");
const result = document.getElementById("result");

function show(className, ...parts) {
  result.className = className;
  result.replaceChildren(...parts);
}

form.addEventListener("input", () => show(""));

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const request = { longUrl: form.elements.url.value.trim() };
  if (form.elements.life.value) request.expiresInSeconds = Number(form.elements.life.value);
  const button = form.querySelector("button");
  button.disabled = true;
  show("", "…");
  try {
    const response = await fetch("api/shorten", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(request),
    });
    const body = await response.json();
    if (!response.ok) {
      show("error", body.detail || body.title);
      return;
    }
    const a = document.createElement("a");
    a.href = a.textContent = body.shortUrl;
    const until = body.expiresAtUtc ? ` until ${new Date(body.expiresAtUtc).toLocaleString()}` : "";
    show("", a, ` leads there${until}.`, response.status === 200 ? " The URL had this link already." : "");
  } catch {
    show("error", "The service did not respond. Try again in a moment.");
  } finally {
    button.disabled = false;
  }
});
