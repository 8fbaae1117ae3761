// How did the attempts go? A bar for each, on one axis of time, with how it ended in words.

import { now } from "./api.js";
import { h, put } from "./dom.js";
import { clock, span } from "./time.js";
import { endedBy, labelOf, many } from "./words.js";

const SHORTEST = 0.6; // percent of the axis: a bar that can be seen

export function timelinePart() {
  const element = h("section", { class: "card", "aria-label": "Timeline" });
  let attempts = [];
  let created = null;

  function draw() {
    if (!attempts.length) {
      put(element, h("h2", {}, "Timeline"), h("p", { class: "none" }, "No attempt has been made yet."));
      return;
    }
    const begins = Date.parse(created);
    const starts = attempts.map((attempt) => Date.parse(attempt.started_at));
    const ends = attempts.map((attempt) => (attempt.ended_at ? Date.parse(attempt.ended_at) : now()));
    const from = Math.min(begins, ...starts);
    const whole = Math.max(1, Math.max(...ends) - from);
    const spent = starts.reduce((sum, start, n) => sum + ends[n] - start, 0);
    const lines = attempts.map((attempt, n) => line(attempt, starts[n], ends[n], from, whole));
    put(element, h("div", { class: "card-head" }, h("h2", {}, "Timeline"),
      h("p", {}, `${many(attempts.length, "attempt")}, ${span(spent / 1000)} of work in ${span(whole / 1000)}`)),
    h("ol", { class: "timeline" }, lines),
    h("div", { class: "timeline-axis" }, h("span", {}, clock(new Date(from).toISOString())), h("span", {}, clock(new Date(from + whole).toISOString()))));
  }

  function line(attempt, start, end, from, whole) {
    const [words, tone] = endedBy(attempt.ended_by);
    const took = span((end - start) / 1000);
    const bar = h("span", { class: `attempt-bar ${tone}` });
    const width = Math.max(SHORTEST, ((end - start) / whole) * 100);
    bar.style.setProperty("--from", `${Math.min(100 - width, ((start - from) / whole) * 100)}%`);
    bar.style.setProperty("--width", `${width}%`);
    const title = `${attempt.stage}, attempt ${attempt.attempt} of run ${attempt.run}: ${words} after ${took} on ${attempt.worker}`;
    return h("li", { class: "attempt", title, "data-ended": attempt.ended_by ?? "" },
      h("span", { class: "attempt-stage" }, labelOf(attempt.stage), attempt.attempt > 1 ? h("span", { class: "muted" }, ` ${attempt.attempt}`) : ""),
      h("span", { class: "attempt-track" }, bar),
      h("span", { class: `attempt-end ${tone}` }, h("span", { class: "took" }, took), words));
  }

  const timer = setInterval(() => { if (attempts.some((attempt) => !attempt.ended_at)) draw(); }, 1000);
  return {
    element,
    update(job) {
      ({ attempts, created_at: created } = job);
      draw();
    },
    close: () => clearInterval(timer),
  };
}
