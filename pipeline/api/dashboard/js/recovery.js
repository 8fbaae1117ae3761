// Is anything stuck, and can it be sent on its way now?

import { get, post } from "./api.js";
import { carryOut, confirm } from "./dialog.js";
import { h, put } from "./dom.js";
import { icon } from "./icons.js";
import { listPage } from "./table.js";
import { moment } from "./time.js";
import { many } from "./words.js";

export function recoveryPage() {
  const result = h("p", { class: "result", id: "recovery-result", role: "status" });
  return listPage({
    title: "Recovery",
    about: "Runs by itself at every start and every half an hour. It may be asked for at any time, and twice.",
    load: () => get("/api/recovery/status"),
    show: (told, again) => h("div", { class: "recovery" },
      h("div", { class: "numbers" }, number("Stuck", told.stalledGenerations, told.stalledGenerations ? "bad" : "good"), number("Queued", told.queuedGenerations, "calm"),
        number("Running", told.processingGenerations, "busy")),
      h("div", { class: "card recover" }, icon("recovery", 28), h("div", {}, h("h2", {}, "Recover now"),
        h("p", {}, "Last run ", told.lastRecoveryRun ? moment(told.lastRecoveryRun) : "never", "."), result), button(again))),
  });

  function button(again) {
    const made = h("button", { class: "button primary", id: "recover", onclick: async () => {
      const yes = await confirm({ title: "Recover now?", text: "Whatever is stuck goes on from its last finished unit, first in line. What was stuck for over two hours has failed.", act: "Recover" });
      if (!yes) return;
      await carryOut(made, () => post("/api/recovery/trigger"), (done) => {
        put(result, `${many(done.recovered, "job")} recovered, ${done.failed} failed.`);
        return "Recovery has run.";
      });
      made.blur();
      again();
    } }, "Recover");
    return made;
  }
}

const number = (label, value, tone) => h("div", { class: `card number ${tone}` }, h("span", { class: "number-value" }, value.toLocaleString("en")), h("span", {}, label));
