// What may be done to several jobs at once? Each is asked for by itself; what was refused is said.

import { post } from "./api.js";
import { carryOut, confirm } from "./dialog.js";
import { h, put } from "./dom.js";
import { isStaff } from "./session.js";
import { many } from "./words.js";

const AT_ONCE = 4;

export const canCancel = (job) => job.status === "queued" || job.status === "processing";
export const canRequeue = (job) => isStaff() && (job.status === "failed" || job.status === "cancelled" || job.outcome === "partial");

const ACTS = [
  { name: "cancel", label: "Cancel", can: canCancel, dangerous: true, past: "cancelled",
    text: "They stop within seconds and their credits go back." },
  { name: "requeue", label: "Requeue", can: canRequeue, past: "requeued",
    text: "They begin again where they stopped, with fresh attempts." },
];

export function bulkBar(chosen, onDone) {
  const count = h("strong", {});
  const buttons = ACTS.filter((act) => act.name === "cancel" || isStaff()).map((act) => {
    const button = h("button", { class: act.dangerous ? "button danger" : "button", onclick: () => ask(act, button) }, act.label);
    return { act, button };
  });
  const element = h("div", { class: "bulk", hidden: true, role: "region", "aria-label": "Selected jobs" },
    count, buttons.map(({ button }) => button), h("button", { class: "button quiet", onclick: () => onDone() }, "Clear"));

  async function ask(act, button) {
    const jobs = chosen().filter(act.can);
    if (!jobs.length) return;
    const yes = await confirm({ title: `${act.label} ${many(jobs.length, "job")}?`, text: act.text, act: `${act.label} ${jobs.length}`, dangerous: act.dangerous });
    if (yes) await carryOut(button, () => each(jobs, act), ({ done, refused }) => {
      onDone();
      return `${many(done, "job")} ${act.past}${refused.length ? `; ${refused.length} refused: ${refused[0].message}` : ""}.`;
    });
  }

  function update() {
    const jobs = chosen();
    element.hidden = jobs.length === 0;
    put(count, `${many(jobs.length, "job")} selected`);
    for (const { act, button } of buttons) {
      const n = jobs.filter(act.can).length;
      button.disabled = n === 0;
      put(button, n && n < jobs.length ? `${act.label} ${n}` : act.label);
    }
  }

  return { element, update };
}

async function each(jobs, act) {
  const waiting = [...jobs];
  const refused = [];
  const work = async () => {
    for (let job = waiting.shift(); job; job = waiting.shift()) {
      const body = act.name === "requeue" && job.outcome === "partial" ? { failed_only: true } : undefined;
      await post(`/api/jobs/${job.id}/${act.name}`, body).catch((problem) => refused.push(problem));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return { done: jobs.length - refused.length, refused };
}
