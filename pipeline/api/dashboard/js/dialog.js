// What is asked before something is done, and said after it was?

import { h, put } from "./dom.js";

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

export const field = (id, label, input) => h("div", { class: "field" }, h("label", { for: id }, label), input);

// Asks for some fields and hands them to `send`; what that throws is said in the dialog, and false leaves it open.
export function form({ title, text, fields, act, send }) {
  const error = h("p", { class: "field-error", role: "alert" });
  const button = h("button", { class: "button primary" }, act);
  const box = h("dialog", { class: "dialog", "aria-labelledby": "form-title" },
    h("form", { onsubmit: submit },
      h("h2", { id: "form-title" }, title), text ? h("p", {}, text) : null, fields, error,
      h("div", { class: "dialog-acts" }, h("button", { type: "button", class: "button", onclick: () => box.close("no") }, "Not now"), button)));

  async function submit(event) {
    event.preventDefault();
    put(error, "");
    button.disabled = true;
    try {
      if (await send() !== false) box.close("yes");
    } catch (problem) {
      put(error, problem.message);
    } finally {
      button.disabled = false;
    }
  }

  show(box);
}

// Something that nobody can see again: it is gone from the page when the dialog is closed.
export function showOnce({ title, text, secret, onClose }) {
  const shown = h("input", { type: "text", class: "secret", readonly: true, value: secret, "aria-label": title, onfocus: () => shown.select() });
  const copy = h("button", { type: "button", class: "button", onclick: () => {
    shown.select();
    navigator.clipboard?.writeText(secret).then(() => put(copy, "Copied"), () => {});
  } }, "Copy");
  const box = h("dialog", { class: "dialog wide", "aria-labelledby": "secret-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "secret-title" }, title), h("p", {}, text),
      h("div", { class: "secret-line" }, shown, copy),
      h("div", { class: "dialog-acts" }, h("button", { class: "button primary", value: "yes" }, "I have kept it"))));
  show(box, onClose);
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
