// What went wrong, in the words of whoever said it? The last lines of ffmpeg stand here as they were.

import { h, put } from "./dom.js";
import { moment } from "./time.js";
import { firstLine } from "./words.js";

export function errorsPart() {
  const element = h("section", { class: "card errors", "aria-label": "Errors", hidden: true });
  return {
    element,
    update(job) {
      const errors = [...job.error_history].reverse();
      element.hidden = errors.length === 0;
      put(element, h("div", { class: "card-head" }, h("h2", {}, "Errors"), h("p", {}, "the newest first")),
        h("ol", { class: "error-list" }, errors.map((error, n) => one(error, n === 0))));
    },
  };
}

function one(error, isNewest) {
  const text = String(error.reason ?? "");
  const rest = text.trim().split("\n").slice(1).join("\n");
  const head = [h("code", { class: "error-code" }, error.code ?? "?"), h("span", { class: "error-line" }, firstLine(text)),
    h("span", { class: "muted error-when" }, `${error.stage ?? ""}${error.attempt ? `, attempt ${error.attempt}` : ""} · `, moment(error.at))];
  if (!rest) return h("li", { class: "error" }, h("div", { class: "error-head" }, head));
  return h("li", { class: "error" }, h("details", { open: isNewest }, h("summary", { class: "error-head" }, head), h("pre", { class: "log", tabindex: "0" }, text)));
}
