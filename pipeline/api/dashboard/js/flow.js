// Where are the jobs? Five stages in a row, with who waits, who runs and who failed there lately.

import { h, put, svg } from "./dom.js";
import { icon } from "./icons.js";
import { queueAges, throughput } from "./charts.js";
import { labelOf, many } from "./words.js";

export function overviewPart(onStage) {
  const flow = h("ol", { class: "flow", "aria-label": "Stages" });
  const speed = h("section", { class: "card chart-card" });
  const ages = h("section", { class: "card chart-card" });
  const stages = new Map();

  function stageOf(name) {
    if (!stages.has(name)) {
      const parts = { running: h("span", { class: "stage-running" }), queued: h("span", {}), failed: h("span", { class: "stage-failed" }),
        button: null };
      parts.button = h("button", { class: "stage", onclick: () => onStage(name), "data-stage": name },
        h("span", { class: "stage-head" }, icon(name), h("span", {}, labelOf(name))), h("span", { class: "stage-now" }, parts.running, "running"),
        h("span", { class: "stage-foot" }, parts.queued, parts.failed));
      flow.append(h("li", {}, parts.button, arrow()));
      stages.set(name, parts);
    }
    return stages.get(name);
  }

  function update(told) {
    for (const each of told.flow) {
      const parts = stageOf(each.stage);
      put(parts.running, each.processing.toLocaleString("en"));
      put(parts.queued, `${each.queued.toLocaleString("en")} queued`);
      put(parts.failed, each.failed ? `${each.failed.toLocaleString("en")} failed` : "");
      parts.button.classList.toggle("is-busy", each.processing > 0);
      parts.button.setAttribute("aria-label", `${each.stage}: ${each.processing} running, ${each.queued} queued, ${each.failed} failed in the last hour`);
      parts.button.title = `Show jobs at ${each.stage}`;
    }
    const drawn = throughput(told.minutes, told.this_minute);
    put(speed, h("div", { class: "chart-head" }, h("h2", {}, "Throughput"),
      h("p", {}, h("strong", {}, drawn.total.toLocaleString("en")), " completed", drawn.failed ? `, ${many(drawn.failed, "failure")}` : "", " in the last hour")),
    drawn.picture, h("div", { class: "chart-foot" }, h("span", {}, "60 min ago"), h("span", {}, `top: ${drawn.most}/min`), h("span", {}, "now")));
    put(ages, h("div", { class: "chart-head" }, h("h2", {}, "Queue age"), h("p", {}, "oldest job that could run")), queueAges(told.oldest_due_s));
  }

  function mark(stage) {
    for (const [name, parts] of stages) parts.button.setAttribute("aria-pressed", String(name === stage));
  }

  return { element: h("div", { class: "overview" }, flow, h("div", { class: "charts" }, speed, ages)), update, mark };
}

const arrow = () => svg("svg", { viewBox: "0 0 12 24", class: "arrow", "aria-hidden": "true" },
  svg("path", { d: "M2 5l7 7-7 7", fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-linecap": "round" }));
