// Which jobs are looked for?

import { h, soon } from "./dom.js";
import { icon } from "./icons.js";
import { isStaff } from "./session.js";
import { STAGES, STATUSES } from "./words.js";

const TYPING_MS = 250;

export function filters(onChange) {
  const typed = soon(TYPING_MS, onChange);
  const search = h("input", { type: "search", id: "search", placeholder: "Search source or id", maxlength: 200, oninput: typed, "aria-label": "Search source or id" });
  const status = choice("status", "Any status", STATUSES, onChange);
  const stage = choice("stage", "Any stage", STAGES, onChange);
  const account = isStaff()
    ? h("input", { type: "text", id: "account", placeholder: "Account", maxlength: 64, oninput: typed, "aria-label": "Account", class: "narrow" }) : null;
  const element = h("div", { class: "filters", role: "search" },
    h("span", { class: "search" }, icon("search"), search), status, stage, account);
  return {
    element,
    value: () => ({ search: search.value.trim(), status: status.value, stage: stage.value, account: account?.value.trim() ?? "" }),
    setStage: (name) => { stage.value = stage.value === name ? "" : name; },
    isEmpty: () => !search.value.trim() && !status.value && !stage.value && !account?.value.trim(),
    clear: () => { for (const field of [search, status, stage, account]) if (field) field.value = ""; },
  };
}

function choice(id, any, values, onChange) {
  return h("select", { id, onchange: onChange, "aria-label": any.replace("Any ", "Filter by ") },
    h("option", { value: "" }, any), values.map((value) => h("option", { value }, value)));
}
