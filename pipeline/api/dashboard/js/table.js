// A page that is one list: asked for again every few seconds and after every act.

import { complain } from "./dialog.js";
import { h, put } from "./dom.js";

const LOOK_MS = 4000;

export function listPage({ title, about, load, show, head = null }) {
  const place = h("div", { class: "list-place", "aria-busy": "true" });
  let closed = false;
  let said = null;

  async function again() {
    try {
      const told = await load();
      if (closed) return;
      place.removeAttribute("aria-busy");
      put(place, show(told, again));
      said = null;
    } catch (problem) {
      if (!closed && problem.status !== 401 && said !== problem.message) complain(problem);
      said = problem.message; // said once, not every few seconds
    }
  }

  const timer = setInterval(() => { if (!document.hidden && !place.contains(document.activeElement)) again(); }, LOOK_MS);
  again();
  return {
    element: h("div", { class: "list-page" }, h("div", { class: "page-head" }, h("div", {}, h("h1", {}, title), h("p", {}, about)), head?.(again)), place),
    close() {
      closed = true;
      clearInterval(timer);
    },
  };
}

// Where one is in a list that comes in pages: from the newest to older ones and back.
export function paging() {
  const seen = [null];
  const go = (label, move, able, again) => h("button", { class: "button small", disabled: !able, onclick: () => {
    move();
    again();
    scrollTo(0, 0);
  } }, label);
  return {
    at: () => seen.at(-1),
    restart: () => seen.splice(1),
    buttons: (next, again) => (next || seen.length > 1 ? h("div", { class: "paging" },
      go("Newer", () => seen.pop(), seen.length > 1, again), go("Older", () => seen.push(next), next, again)) : null),
  };
}

export const empty = (sign, title, text) => h("div", { class: "card empty" }, sign, h("h2", {}, title), h("p", {}, text));

export function table(headings, rows, label) {
  return h("div", { class: "card table-card" }, h("table", { "aria-label": label },
    h("thead", {}, h("tr", {}, headings.map((heading) => h("th", { scope: "col" }, heading)))),
    h("tbody", {}, rows.map(({ cells, ...props }) => h("tr", props, cells.map((cell, n) => h("td", { "data-label": headings[n] }, cell)))))));
}
