// How does one come in?

import { h, put } from "./dom.js";
import { logIn } from "./session.js";

export function loginPage(onEntered, told = "") {
  const key = h("input", { id: "key", name: "key", type: "password", autocomplete: "current-password", required: true,
    placeholder: "Paste your API key", spellcheck: "false", "aria-describedby": "login-error" });
  const error = h("p", { id: "login-error", class: "field-error", role: "alert" }, told);
  const button = h("button", { class: "button primary wide" }, "Log in");
  const form = h("form", { class: "login-card", onsubmit: enter },
    h("div", { class: "brand big" }, h("img", { src: "icon.svg", alt: "", width: 40, height: 40 }), "Ironclip"),
    h("label", { for: "key" }, "API key"),
    key, error, button,
    h("p", { class: "hint" }, "No key yet? ", h("code", {}, "ironclip keys create --role operator"), " makes one and shows it once."));

  async function enter(event) {
    event.preventDefault();
    button.disabled = true;
    put(error, "");
    try {
      onEntered(await logIn(key.value.trim()));
    } catch (problem) {
      put(error, problem.message);
      key.select();
    } finally {
      button.disabled = false;
    }
  }

  queueMicrotask(() => key.focus());
  return h("main", { class: "login", id: "main" }, form);
}
