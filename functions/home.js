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
  const body = { longUrl: form.elements.url.value.trim() };
  if (form.elements.life.value) body.expiresInSeconds = Number(form.elements.life.value);
  const button = form.querySelector("button");
  button.disabled = true;
  show("", "…");
  try {
    const answer = await fetch("api/shorten", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    const said = await answer.json();
    if (!answer.ok) {
      show("error", said.detail || said.title);
      return;
    }
    const a = document.createElement("a");
    a.href = a.textContent = said.shortUrl;
    const until = said.expiresAtUtc ? ` until ${new Date(said.expiresAtUtc).toLocaleString()}` : "";
    show("", a, ` leads there${until}.`, answer.status === 200 ? " The URL had this link already." : "");
  } catch {
    show("error", "The service did not answer. Try again in a moment.");
  } finally {
    button.disabled = false;
  }
});
