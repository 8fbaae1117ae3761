// Which services are given up, until when, and who waits for them?

import { get, post } from "./api.js";
import { carryOut, confirm } from "./dialog.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { empty, listPage } from "./table.js";
import { moment } from "./time.js";
import { many } from "./words.js";

const STATES = { closed: ["up", "good"], open: ["given up", "bad"], half_open: ["on trial", "warn"] };

export function breakersPage() {
  return listPage({
    title: "Breakers",
    about: "What the whole fleet thinks of each service. Jobs that need one that is down wait, and lose no attempt.",
    load: () => get("/api/breakers"),
    head: tripForm,
    show: ({ breakers }, again) => (breakers.length
      ? h("ul", { class: "breakers" }, breakers.map((breaker) => card(breaker, again)))
      : empty(icon("breaker", 44), "Every service is up", "A breaker appears here after the first fault of a service, or when you trip one.")),
  });
}

function tripForm(again) {
  const service = h("input", { id: "service", placeholder: "target:local", maxlength: 300, required: true, "aria-label": "Service", list: "services" });
  const button = h("button", { class: "button" }, "Trip");
  return h("form", { class: "inline-form", onsubmit: async (event) => {
    event.preventDefault();
    if (await trip(service.value.trim(), button)) service.value = "";
    again();
  } }, service, h("datalist", { id: "services" }, ["target:local", "asr:whisper", "broker"].map((value) => h("option", { value }))), button);
}

async function trip(service, button) {
  const yes = await confirm({ title: `Trip ${service}?`, text: "Nobody asks it for five minutes; jobs that need it wait. Then it is tried by itself.", act: "Trip", dangerous: true });
  if (yes) await carryOut(button, () => post(`/api/breakers/${encodeURIComponent(service)}/trip`), () => `${service} is given up for now.`);
  return yes;
}

function card(breaker, again) {
  const [words, tone] = STATES[breaker.state] ?? [breaker.state, "calm"];
  const button = breaker.state === "closed" ? tripButton(breaker, again) : resetButton(breaker, again);
  return h("li", { class: `card breaker ${tone}`, "data-service": breaker.service, "data-state": breaker.state },
    h("div", { class: "breaker-head" }, h("strong", {}, breaker.service), h("span", { class: `pill ${tone}` }, words)),
    h("p", {}, breaker.waiting ? `${many(breaker.waiting, "job")} ${breaker.waiting === 1 ? "waits" : "wait"} for it` : "Nobody waits for it",
      breaker.opens_at && breaker.state === "open" ? [", tried again ", moment(breaker.opens_at)] : "", "."),
    breaker.last_failure ? h("p", { class: "row-sub" }, `Last said: ${breaker.last_failure}`) : null,
    h("div", {}, button));
}

function tripButton(breaker, again) {
  const button = h("button", { class: "button small", onclick: async () => {
    await trip(breaker.service, button);
    again();
  } }, "Trip");
  return button;
}

function resetButton(breaker, again) {
  const button = h("button", { class: "button small primary", onclick: async () => {
    const yes = await confirm({ title: `Is ${breaker.service} up?`, text: "Whoever waits for it is woken at once.", act: "Reset" });
    if (yes) await carryOut(button, () => post(`/api/breakers/${encodeURIComponent(breaker.service)}/reset`), (done) => `${breaker.service} is up; ${many(done.woken, "job")} woken.`);
    again();
  } }, "Reset");
  return button;
}
