// How is what a job is, was and met told in words?

export const STAGES = ["resolve", "clip", "upload", "asr", "finalize"];
export const labelOf = (stage) => (stage === "asr" ? "ASR" : stage[0].toUpperCase() + stage.slice(1));
export const STATUSES = ["queued", "processing", "completed", "failed", "cancelled"];

export const isOver = (job) => ["completed", "failed", "cancelled"].includes(job.status);

export function nameOf(job) {
  const source = String(job.request?.source ?? "");
  if (source.startsWith("upload:")) return (job.request.clips ?? []).map((clip) => clip.name).join(", ") || "uploaded video";
  const path = source.split(/[?#]/)[0].replace(/\/+$/, "");
  return path.slice(path.lastIndexOf("/") + 1) || source || "a job";
}

export const shortId = (id) => String(id).slice(0, 8);

// How much of a job is behind it, in percent: each stage counts the same.
export function share(job) {
  if (job.status === "completed") return 100;
  const done = Math.max(0, job.plan.indexOf(job.stage));
  return (100 * done + job.progress) / job.plan.length;
}

export function stateOf(job) {
  if (job.status === "completed") return job.outcome === "partial" ? "completed in part" : "completed";
  if (job.status === "processing") return job.stage;
  if (job.status !== "queued") return job.status;
  if (job.waiting_on) return `waits for ${job.waiting_on}`;
  return job.next_earliest_run_at ? `${job.stage}: tries again` : `${job.stage}: queued`;
}

export function toneOf(job) {
  if (job.status === "completed") return job.outcome === "partial" ? "warn" : "good";
  if (job.status === "failed") return "bad";
  if (job.status === "processing") return "busy";
  return job.status === "queued" && (job.waiting_on || job.next_earliest_run_at) ? "warn" : "calm";
}

export function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  for (; n >= 1000 && at < units.length - 1; at += 1) n /= 1000;
  return `${at && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

export const many = (n, one) => `${n.toLocaleString("en")} ${one}${n === 1 ? "" : "s"}`;

const ENDED = {
  stage_completed: ["done", "good"],
  completed: ["done", "good"],
  retry_scheduled: ["failed, to be tried again", "warn"],
  deferred: ["a service was down; the attempt was given back", "warn"],
  rewound: ["a file was missing; back to an earlier stage", "warn"],
  failed: ["failed for good", "bad"],
  "aborted:shutdown": ["given back: its worker was stopping", "calm"],
  worker_lost: ["its process died", "bad"],
  "requeued:stale": ["taken from a lost worker", "warn"],
  stalled: ["made no progress and was stopped", "warn"],
  cancelled: ["cancelled", "calm"],
};

export const endedBy = (how) => (how ? ENDED[how] ?? [how.replaceAll("_", " "), "calm"] : ["running", "busy"]);

const reason = (data) => [data.code, firstLine(data.reason)].filter(Boolean).join(": ");
const seconds = (value) => `${Math.round(value ?? 0)} s`;
export const firstLine = (text) => String(text ?? "").trim().split("\n")[0];

const EVENTS = {
  queued: (s, d) => `queued with ${d.priority ?? "normal"} priority`,
  claimed: (s, d, e) => `${s} started${e.attempt > 1 ? `, attempt ${e.attempt}` : ""}`,
  stage_completed: (s, d) => `${s} done${found(s, d.found ?? {})}`,
  completed: (s, d) => `completed ${d.outcome === "partial" ? "in part" : "in full"}`,
  retry_scheduled: (s, d) => `${s}: ${reason(d)}; again in ${seconds(d.delay_s)}`,
  deferred: (s, d) => `${s} waits ${seconds(d.delay_s)} for ${d.service} (${reason(d)})`,
  rewound: (s, d) => `${s}: back to ${d.to} (${firstLine(d.reason)})`,
  failed: (s, d) => `${s} failed, ${reason(d)}`,
  "aborted:shutdown": (s) => `${s} given back: its worker is stopping`,
  worker_lost: (s, d) => `${s}: its process died (${firstLine(d.evidence)})`,
  "requeued:stale": (s, d) => `${s} taken from a worker that ${d.details?.reason === "worker_dead" ? "is gone" : "let its lease run out"}`,
  stalled: (s, d) => `${s} stalled, ${firstLine(d.reason)}`,
  cancelled: (s, d) => `cancelled by ${d.by}`,
  "requeued:manual": (s, d) => `requeued by ${d.by} at ${d.stage}`,
  rerender: (s, d) => `made anew by ${d.by} (generation ${d.generation})`,
};

function found(stage, told) {
  if (stage === "resolve" && told.video) return ` (${told.video}, ${told.duration_s} s)`;
  if (stage === "asr" && told.first_words) return ` (“${Object.values(told.first_words)[0]} …”)`;
  return "";
}

export function eventText(event) {
  const tell = EVENTS[event.type];
  return tell ? tell(event.stage ?? "job", event.data ?? {}, event) : `${event.stage ?? "job"}: ${event.type}`;
}
