// Who works here, and who has fallen silent?

import { get, post } from "./api.js";
import { carryOut, confirm } from "./dialog.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { empty, listPage, table } from "./table.js";
import { moment } from "./time.js";

const TONES = { idle: "good", active: "good", busy: "busy", offline: "calm", disabled: "warn" };

export function workersPage() {
  return listPage({
    title: "Workers",
    about: "One line for each start of a worker. A disabled one finishes what it runs and takes nothing new.",
    load: () => get("/api/workers", { limit: 100 }),
    show: ({ workers }, again) => (workers.length
      ? table(["Worker", "State", "Queues", "Slots", "Heard from", "Started", ""], workers.map((worker) => row(worker, again)), "Workers")
      : empty(icon("worker", 44), "Nobody works here", "Start one: celery -A tasks worker -c 2. Jobs wait in Postgres until then.")),
  });
}

function row(worker, again) {
  const state = h("span", {}, h("span", { class: `pill ${TONES[worker.status] ?? "calm"}` }, worker.status),
    worker.paused ? h("span", { class: "row-error" }, ` paused: ${worker.paused}`) : null);
  const cells = [h("strong", {}, worker.name), state, worker.queues.join(", "), String(worker.slots), moment(worker.last_heartbeat),
    moment(worker.registered_at), worker.status === "offline" ? "" : act(worker, again)];
  return { cells, "data-worker": worker.name };
}

function act(worker, again) {
  const disabled = worker.status === "disabled";
  const button = h("button", { class: "button small", onclick: async () => {
    if (!disabled && !(await confirm({ title: `Disable ${worker.name}?`, text: "It finishes what it runs and takes nothing new until it is enabled.", act: "Disable", dangerous: true }))) return;
    await carryOut(button, () => post(`/api/workers/${worker.id}/${disabled ? "enable" : "disable"}`), (after) => `${worker.name} is ${after.status}.`);
    again();
  } }, disabled ? "Enable" : "Disable");
  return button;
}
