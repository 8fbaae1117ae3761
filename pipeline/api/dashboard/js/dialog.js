// What is asked before something is done, and said after it was?

import { h } from "./dom.js";

// Resolves to true if the act was confirmed.
export function confirm({ title, text, act, dangerous = false }) {
  return new Promise((resolve) => {
    const yes = h("button", { class: dangerous ? "button danger" : "button primary", value: "yes" }, act);
    const box = h("dialog", { class: "dialog", "aria-labelledby": "dialog-title" },
      h("form", { method: "dialog" },
        h("h2", { id: "dialog-title" }, title),
        h("p", {}, text),
        h("div", { class: "dialog-acts" }, h("button", { class: "button", value: "no" }, "Not now"), yes)));
    show(box, () => resolve(box.returnValue === "yes"));
    yes.focus();
  });
}

export function show(box, onClose = () => {}) {
  box.addEventListener("close", () => {
    box.remove();
    onClose();
  });
  box.addEventListener("click", (event) => { if (event.target === box) box.close("no"); });
  document.body.append(box);
  box.showModal();
}

const SHOWN_MS = 6000;

export function say(text, tone = "calm") {
  let place = document.getElementById("said");
  if (!place) {
    place = h("div", { id: "said", class: "said", role: "status", "aria-live": "polite" });
    document.body.append(place);
  }
  const note = h("div", { class: `note ${tone}` }, text);
  place.append(note);
  setTimeout(() => note.remove(), SHOWN_MS);
}

export const complain = (problem) => say(problem.message || String(problem), "bad");

// Do it and say so; whatever goes wrong is said too. `button` cannot be pressed twice meanwhile.
export async function carryOut(button, act, done) {
  button.disabled = true;
  try {
    const answer = await act();
    const told = done(answer);
    if (told) say(told, "good");
  } catch (problem) {
    complain(problem);
  } finally {
    button.disabled = false;
  }
}
