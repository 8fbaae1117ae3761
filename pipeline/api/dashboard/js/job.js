// How is one job doing? Why it does not run, how its attempts went, what it met, and what came out.

import { get, post } from "./api.js";
import { canCancel, canRequeue } from "./bulk.js";
import { carryOut, complain, confirm } from "./dialog.js";
import { h, put, soon } from "./dom.js";
import { errorsPart } from "./errors.js";
import { icon } from "./icons.js";
import { listen } from "./live.js";
import { outputsPart } from "./player.js";
import { bar, pill } from "./row.js";
import { clock, moment } from "./time.js";
import { timelinePart } from "./timeline.js";
import { eventText, isOver, labelOf, many, nameOf } from "./words.js";

const AGAIN_MS = 200;
const LOOK_MS = 5000; // the reason changes without an event: a wait ends, a worker falls silent

const ACTS = [
  { name: "cancel", label: "Cancel", can: canCancel, dangerous: true, past: "The job is cancelled.", text: "It stops within seconds, and its credits go back." },
  { name: "requeue", label: "Requeue", can: canRequeue, past: "The job is queued again.", text: "It begins again where it stopped, with fresh attempts." },
  { name: "rerender", label: "Rerender", can: (job) => job.status === "completed", past: "The job is made anew.",
    text: "Everything is made anew. What is published now stays until the new files are verified." },
];

export function jobPage(id) {
  const title = h("h1", { class: "job-title" });
  const state = h("span", {});
  const acts = h("div", { class: "job-acts" });
  const why = h("p", { class: "why", id: "why" });
  const stages = h("ol", { class: "job-stages", "aria-label": "Progress" });
  const facts = h("dl", { class: "facts" });
  const events = h("section", { class: "card", "aria-label": "Events" });
  const asked = h("section", { class: "card", "aria-label": "Request" });
  const outputs = outputsPart();
  const timeline = timelinePart();
  const errors = errorsPart();
  const bars = new Map();
  let job = null;
  let closed = false;
  let turn = 0;

  async function load() {
    const mine = ++turn;
    try {
      const told = await get(`/api/jobs/${encodeURIComponent(id)}`);
      if (closed || mine !== turn) return;
      job = told;
      show();
    } catch (problem) {
      if (closed || mine !== turn || problem.status === 401) return;
      if (problem.status === 404 || problem.status === 422) put(element, h("div", { class: "card empty" }, icon("search", 44), h("h2", {}, "No such job"), h("p", {}, problem.message), h("a", { class: "button", href: "#/jobs" }, "Back to all jobs")));
      else complain(problem);
    }
  }

  function show() {
    document.title = `${nameOf(job)} · Ironclip`;
    put(title, nameOf(job));
    put(state, pill(job));
    put(why, job.why.sentence);
    why.dataset.code = job.why.code;
    put(acts, ACTS.filter((act) => act.can(job)).map(button));
    showStages();
    showFacts();
    outputs.update(job);
    timeline.update(job);
    errors.update(job);
    put(events, h("div", { class: "card-head" }, h("h2", {}, "Events"), h("p", {}, many(job.events.length, "event"))),
      h("ol", { class: "events" }, [...job.events].reverse().map((event) => h("li", {}, h("time", { datetime: event.at, title: event.at }, clock(event.at)), h("span", {}, eventText(event))))));
    put(asked, h("details", {}, h("summary", {}, h("h2", {}, "Request")), h("pre", { class: "log", tabindex: "0" }, JSON.stringify(job.request, null, 2))));
  }

  function button(act) {
    const made = h("button", { class: act.dangerous ? "button danger" : "button", "data-act": act.name, onclick: async () => {
      const yes = await confirm({ title: `${act.label} this job?`, text: act.text, act: act.label, dangerous: act.dangerous });
      const body = act.name === "requeue" && job.outcome === "partial" ? { failed_only: true } : undefined;
      if (yes) await carryOut(made, () => post(`/api/jobs/${job.id}/${act.name}`, body), () => act.past);
      load();
    } }, act.label);
    return made;
  }

  function showStages() {
    const at = job.plan.indexOf(job.stage);
    for (const [place, stage] of job.plan.entries()) {
      if (!bars.has(stage)) {
        const line = bar();
        line.setAttribute("aria-label", stage);
        stages.append(h("li", {}, h("span", { class: "job-stage" }, icon(stage, 16), labelOf(stage)), line));
        bars.set(stage, line);
      }
      const done = job.status === "completed" || place < at ? 100 : place === at ? job.progress : 0;
      const here = place === at && job.status !== "completed";
      const tone = here ? { failed: "bad", processing: "busy" }[job.status] ?? "calm" : "good";
      bars.get(stage).show(here && job.status === "failed" ? Math.max(8, done) : done, tone);
      bars.get(stage).parentElement.classList.toggle("is-here", here && !isOver(job));
    }
  }

  function showFacts() {
    const told = [["Job", h("code", {}, job.id)], ["Account", job.account_id ?? "–"], ["Priority", job.priority],
      isOver(job) ? null : ["Attempt", `${job.attempt_count} of ${job.max_attempts}`], ["Submitted", moment(job.created_at)],
      isOver(job) ? ["Ended", moment(job.finished_at)] : ["Worker", job.locked_by ?? "–"], job.generation > 1 || job.building > 1 ? ["Generation", String(job.generation)] : null];
    put(facts, told.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }

  const again = soon(AGAIN_MS, load);
  const hush = listen((event) => {
    if (event.kind === "again" || (event.kind === "job" && event.job_id === id)) again();
    if (event.kind === "progress" && event.job_id === id && job?.stage === event.stage) {
      job.progress = event.progress;
      showStages();
    }
  });
  const timer = setInterval(() => { if (!job || !isOver(job)) again(); }, LOOK_MS);
  const element = h("div", { class: "job" },
    h("a", { class: "back", href: "#/jobs" }, icon("back", 16), "All jobs"),
    h("div", { class: "job-head" }, h("div", { class: "job-name" }, title, state), acts),
    h("section", { class: "card job-now", "aria-label": "State" }, why, stages, facts),
    h("div", { class: "job-columns" }, h("div", { class: "column" }, outputs.element, errors.element), h("div", { class: "column" }, timeline.element, events, asked)));
  load();

  return { element, close() {
    closed = true;
    hush();
    again.cancel();
    timeline.close();
    clearInterval(timer);
  } };
}
