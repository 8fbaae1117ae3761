// One job in the list: what it is, where it is, how far it is.

import { h, put } from "./dom.js";
import { moment } from "./time.js";
import { many, nameOf, share, shortId, stateOf, toneOf } from "./words.js";

export function bar() {
  const done = h("span", { class: "progress-done" });
  const element = h("span", { class: "progress", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100 }, done);
  element.show = (percent, tone) => {
    done.style.setProperty("--share", String(percent / 100));
    element.className = `progress ${tone}`;
    element.setAttribute("aria-valuenow", String(Math.round(percent)));
  };
  return element;
}

export function pill(job) {
  return h("span", { class: `pill ${toneOf(job)}` }, stateOf(job));
}

export function makeRow(job, { onPick }) {
  const box = h("input", { type: "checkbox", "aria-label": `Select ${nameOf(job)}`, onchange: () => onPick(job.id, box.checked) });
  const parts = { box, state: h("span", { class: "state-cell" }), bar: bar(), percent: h("span", { class: "percent" }),
    attempts: h("span", { class: "attempts" }), error: h("span", { class: "row-error" }) };
  parts.bar.setAttribute("aria-label", `Progress of ${nameOf(job)}`);
  const clips = job.request?.clips?.length ?? 0;
  const element = h("li", { class: "row" },
    h("span", { class: "row-box" }, box),
    h("a", { class: "row-name", href: `#/job/${job.id}` },
      h("strong", {}, nameOf(job)),
      h("span", { class: "row-sub" }, h("code", {}, shortId(job.id)), ` · ${many(clips, "clip")}`, job.account_id ? ` · ${job.account_id}` : "",
        job.priority === "normal" ? "" : ` · ${job.priority}`)),
    h("span", { class: "row-state" }, parts.state, parts.error),
    h("span", { class: "row-bar" }, parts.bar, parts.percent),
    parts.attempts,
    h("span", { class: "row-age" }, moment(job.created_at)));
  element.parts = parts;
  return element;
}

export function updateRow(element, job, picked) {
  const { parts } = element;
  element.job = job;
  parts.box.checked = picked;
  element.classList.toggle("is-picked", picked);
  element.dataset.status = job.status;
  const told = `${toneOf(job)} ${stateOf(job)}`;
  if (parts.told !== told) put(parts.state, pill(job));
  parts.told = told;
  put(parts.error, job.status === "failed" ? job.fail_code ?? "" : "");
  put(parts.attempts, job.attempt_count > 1 ? `attempt ${job.attempt_count} of ${job.max_attempts}` : "");
  showShare(element, job);
}

export function showShare(element, job) {
  const percent = share(job);
  element.parts.bar.show(percent, toneOf(job));
  put(element.parts.percent, `${Math.floor(percent)} %`);
}
