// How long ago, and how long? In few words that tick by themselves, with the exact time on hover.

import { h } from "./dom.js";
import { now } from "./api.js";

export function span(seconds) {
  const s = Math.max(0, seconds);
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  const [d, hr, m, sec] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60, Math.floor(s) % 60];
  if (d) return `${d} d ${hr} h`;
  if (hr) return m ? `${hr} h ${m} min` : `${hr} h`;
  return sec ? `${m} min ${sec} s` : `${m} min`;
}

function relative(at) {
  const s = (now() - at) / 1000;
  if (Math.abs(s) < 3) return "now";
  const words = Math.abs(s) < 60 ? `${Math.floor(Math.abs(s))} s` : span(Math.abs(s));
  return s < 0 ? `in ${words}` : `${words} ago`;
}

export function moment(iso) {
  if (!iso) return h("span", { class: "muted" }, "–");
  const at = new Date(iso);
  return h("time", { datetime: at.toISOString(), title: at.toLocaleString(), "data-ticks": true }, relative(at.getTime()));
}

export const clock = (iso) => new Date(iso).toLocaleTimeString([], { hour12: false });

setInterval(() => {
  for (const element of document.querySelectorAll("time[data-ticks]")) {
    const told = relative(Date.parse(element.getAttribute("datetime")));
    if (element.textContent !== told) element.textContent = told;
  }
}, 1000);
