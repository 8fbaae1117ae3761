// What did operators and admins do? Newest first; each act was written down before it happened.

import { get } from "./api.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { empty, listPage, paging, table } from "./table.js";
import { moment } from "./time.js";
import { many, shortId } from "./words.js";

const ACTS = {
  "POST /api/jobs": () => ["submitted a job"],
  "POST /api/jobs/{job_id}/cancel": (d) => ["cancelled ", job(d)],
  "POST /api/jobs/{job_id}/requeue": (d) => ["requeued ", job(d)],
  "POST /api/jobs/{job_id}/rerender": (d) => ["had made anew ", job(d)],
  "POST /api/sources": () => ["sent a source"],
  "POST /api/recovery/trigger": () => ["triggered recovery"],
  "POST /api/breakers/{service}/trip": (d) => [`tripped ${d.service}`],
  "POST /api/breakers/{service}/reset": (d) => [`reset ${d.service}`],
  "POST /api/workers/{worker_id}/disable": (d) => [`disabled worker ${shortId(d.worker_id)}`],
  "POST /api/workers/{worker_id}/enable": (d) => [`enabled worker ${shortId(d.worker_id)}`],
  "POST /api/credits": (d) => [d.account ? `granted ${many(d.amount, "credit")} to ${d.account} (${d.reference})` : "granted credits"],
  "POST /api/keys": (d) => [d.role ? `made a key: ${[d.role, d.account, d.name].filter(Boolean).join(", ")}` : "made a key"],
  "DELETE /api/keys/{key}": (d) => [`revoked key ${shortId(d.key)}`],
  "POST /api/webhooks/endpoints": (d) => [`added a webhook endpoint${d.account ? ` of ${d.account}` : ""}`],
  "DELETE /api/webhooks/endpoints/{endpoint_id}": (d) => [`removed webhook endpoint ${shortId(d.endpoint_id)}`],
  "POST /api/webhooks/deliveries/{delivery_id}/replay": (d) => [`sent webhook ${shortId(d.delivery_id)} again`],
  "DELETE /api/session": () => ["logged out"],
};

const job = (data) => h("a", { href: `#/job/${data.job_id}` }, "job ", h("code", {}, shortId(data.job_id)));

export function auditPage() {
  const pages = paging();
  return listPage({
    title: "Audit",
    about: "What operators and admins asked for. An act stands here also if it was refused afterwards.",
    load: () => get("/api/audit", { before: pages.at(), limit: 50 }),
    show: ({ acts, next }, again) => (acts.length || pages.at()
      ? [table(["When", "Who", "What", "Request"], acts.map(row), "Acts"), pages.buttons(next, again)]
      : empty(icon("audit", 44), "Nobody has done anything yet", "Whatever operators and admins change is written down here.")),
  });
}

function row(act) {
  const what = h("span", { title: `${act.act} ${JSON.stringify(act.data)}` }, ACTS[act.act]?.(act.data) ?? act.act);
  return { cells: [moment(act.at), act.by.replace(":", " · "), what, h("code", { class: "muted" }, act.request_id ?? "")], "data-act": act.act };
}
