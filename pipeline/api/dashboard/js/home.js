// What is going on? The flow at the top, and every job with how far it is, as it happens.

import { get } from "./api.js";
import { bulkBar } from "./bulk.js";
import { complain } from "./dialog.js";
import { h, keyed, put, soon } from "./dom.js";
import { filters } from "./filters.js";
import { overviewPart } from "./flow.js";
import { icon } from "./icons.js";
import { listen } from "./live.js";
import { makeRow, showShare, updateRow } from "./row.js";
import { submitDialog } from "./submit.js";

const PAGE = 50;
const LIST_MS = 250;
const OVERVIEW_MS = 1000;
const LOOK_MS = 15000; // ages grow without an event

export function homePage() {
  const asked = filters(() => load({ fresh: true }));
  const overview = overviewPart((stage) => {
    asked.setStage(stage);
    load({ fresh: true });
  });
  const picked = new Set();
  let jobs = [];
  let next = null;
  let wanted = PAGE;
  let turn = 0; // an answer to an older question is not shown
  let closed = false;

  const list = h("ul", { class: "rows", id: "jobs", "aria-label": "Jobs" });
  const empty = h("div", { class: "empty", hidden: true });
  const more = h("button", { class: "button quiet more", hidden: true, onclick: () => { wanted += PAGE; load(); } }, "Show more");
  const all = h("input", { type: "checkbox", "aria-label": "Select all jobs that are shown", onchange: () => pickAll(all.checked) });
  const bulk = bulkBar(() => jobs.filter((job) => picked.has(job.id)), () => {
    picked.clear();
    load();
  });
  const newJob = h("button", { class: "button primary", id: "new-job", onclick: () => submitDialog(() => load()) }, icon("plus"), "New job");

  async function load({ fresh = false } = {}) {
    if (fresh) wanted = PAGE;
    const mine = ++turn;
    try {
      const told = await pages(asked.value());
      if (mine !== turn || closed) return;
      ({ jobs, next } = told);
      const shown = new Set(jobs.map((job) => job.id));
      for (const id of [...picked]) if (!shown.has(id)) picked.delete(id); // nobody acts on what is not seen
      show();
    } catch (problem) {
      if (mine === turn && !closed && problem.status !== 401) complain(problem);
    }
  }

  async function pages(params) {
    const found = { jobs: [], next: null };
    do {
      const limit = Math.min(200, wanted - found.jobs.length);
      const page = await get("/api/jobs", { ...params, limit, cursor: found.next });
      found.jobs.push(...page.jobs);
      found.next = page.next;
    } while (found.next && found.jobs.length < wanted);
    return found;
  }

  function show() {
    overview.mark(asked.value().stage);
    keyed(list, jobs, (job) => job.id, (job) => makeRow(job, { onPick: pick }), (row, job) => updateRow(row, job, picked.has(job.id)));
    more.hidden = !next;
    empty.hidden = jobs.length > 0;
    head.hidden = jobs.length === 0;
    if (!jobs.length) put(empty, emptyState());
    showPicked();
  }

  function emptyState() {
    if (asked.isEmpty()) {
      return [icon("film", 44), h("h2", {}, "No jobs yet"), h("p", {}, "Name a video and the pieces that you want of it. They appear here and move by themselves."),
        h("button", { class: "button primary", onclick: () => submitDialog(() => load()) }, "Submit the first job")];
    }
    return [icon("search", 44), h("h2", {}, "Nothing fits"), h("p", {}, "No job fits this search and these filters."),
      h("button", { class: "button", onclick: () => { asked.clear(); load({ fresh: true }); } }, "Show all jobs")];
  }

  function pick(id, on) {
    if (on) picked.add(id);
    else picked.delete(id);
    showPicked();
  }

  function pickAll(on) {
    for (const job of jobs) pick(job.id, on);
  }

  function showPicked() {
    for (const row of list.children) {
      row.parts.box.checked = picked.has(row.job.id);
      row.classList.toggle("is-picked", row.parts.box.checked);
    }
    all.checked = jobs.length > 0 && jobs.every((job) => picked.has(job.id));
    all.indeterminate = !all.checked && picked.size > 0;
    bulk.update();
  }

  function progressed(told) {
    const row = list.querySelector(`[data-key="${CSS.escape(told.job_id)}"]`);
    if (!row || row.job.status !== "processing" || row.job.stage !== told.stage) return;
    row.job.progress = told.progress;
    showShare(row, row.job);
  }

  async function loadOverview() {
    try {
      const told = await get("/api/overview");
      if (!closed) {
        overview.update(told);
        overview.mark(asked.value().stage);
      }
    } catch (problem) {
      if (problem.status && problem.status !== 401 && !closed) complain(problem);
    }
  }

  const again = soon(LIST_MS, () => load());
  const overviewAgain = soon(OVERVIEW_MS, loadOverview);
  const hush = listen((event) => {
    if (event.kind === "progress") progressed(event);
    if (event.kind === "job" || event.kind === "again") {
      again();
      overviewAgain();
    }
  });
  const timer = setInterval(loadOverview, LOOK_MS);
  const head = h("div", { class: "row row-head", hidden: true }, h("span", { class: "row-box" }, all), h("span", {}, "Job"), h("span", {}, "State"),
    h("span", {}, "Progress"), h("span", {}), h("span", { class: "row-age" }, "Submitted"));
  loadOverview();
  load();

  return {
    element: h("div", { class: "home" }, h("h1", { class: "unseen" }, "Jobs"), overview.element,
      h("section", { class: "card jobs", "aria-label": "Jobs" }, h("div", { class: "toolbar" }, asked.element, newJob), bulk.element, head, list, empty, more)),
    close() {
      closed = true;
      hush();
      again.cancel();
      overviewAgain.cancel();
      clearInterval(timer);
    },
  };
}
