// What was told to others, and who is told? What was given up can be sent again.

import { get, post, remove } from "./api.js";
import { carryOut, confirm, field, form, showOnce } from "./dialog.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { isStaff } from "./session.js";
import { empty, listPage, paging, table } from "./table.js";
import { moment } from "./time.js";
import { many, shortId } from "./words.js";

const STATES = { pending: ["waits", "warn"], delivered: ["delivered", "good"], failed: ["given up", "bad"] };

export function webhooksPage() {
  const pages = paging();
  let status = "";
  return listPage({
    title: "Webhooks",
    about: "Each is tried for some hours, then given up. A replay has the same id as before, so that nobody acts on it twice.",
    head: (again) => h("div", { class: "head-acts" }, h("select", { "aria-label": "Filter by state", onchange: (event) => {
      status = event.target.value;
      pages.restart();
      again();
    } }, h("option", { value: "" }, "Every state"), Object.entries(STATES).map(([value, [label]]) => h("option", { value }, label))),
    h("button", { class: "button primary", id: "new-endpoint", onclick: () => endpointDialog(again) }, icon("plus"), "New endpoint")),
    load: async () => {
      const [{ endpoints }, told] = await Promise.all([get("/api/webhooks/endpoints"), get("/api/webhooks/deliveries", { status, cursor: pages.at(), limit: 50 })]);
      return { endpoints, ...told };
    },
    show: ({ endpoints, deliveries, next }, again) => [
      endpoints.length ? table(["Endpoint", "Hears of", "Account", "To be sent", "Since", ""], endpoints.map((each) => endpointRow(each, again)), "Endpoints") : null,
      deliveries.length ? [table(["When", "What", "To", "Job", "State", "Tries", ""], deliveries.map((each) => row(each, again)), "Deliveries"), pages.buttons(next, again)]
        : empty(icon("webhook", 44), status ? "Nothing fits" : "Nothing was sent yet", status ? "No delivery is in this state." : "A job's callback_url, or an endpoint, hears how jobs end."),
    ],
  });
}

function endpointDialog(again) {
  const url = h("input", { id: "endpoint-url", type: "text", maxlength: 2000, required: true, spellcheck: "false", placeholder: "https://example.org/hook" });
  const account = h("input", { id: "endpoint-account", maxlength: 64, spellcheck: "false", placeholder: "none: it hears every alert" });
  form({
    title: "New endpoint", act: "Add it",
    text: isStaff() ? "Without an account it hears what operators should know; with one, how its jobs end." : "It hears how the jobs of your account end.",
    fields: [field("endpoint-url", "Address", url), isStaff() ? field("endpoint-account", "Account", account) : null],
    send: async () => {
      const made = await post("/api/webhooks/endpoints", { url: url.value.trim(), account: account.value.trim() || null });
      again();
      showOnce({ title: "Its secret", text: "It is shown this once. The endpoint needs it to know that a webhook is ours.", secret: made.secret });
    },
  });
  url.focus();
}

function endpointRow(endpoint, again) {
  const button = h("button", { class: "button small danger", onclick: async () => {
    const yes = await confirm({ title: "Remove this endpoint?", text: `${endpoint.url} hears nothing more; what was still to be sent is given up.`, act: "Remove", dangerous: true });
    if (!yes) return;
    await carryOut(button, () => remove(`/api/webhooks/endpoints/${endpoint.id}`), () => "The endpoint hears nothing more.");
    again();
  } }, "Remove");
  return { cells: [h("strong", {}, endpoint.url), endpoint.types.join(", ") || "every alert", endpoint.account_id ?? "–", String(endpoint.pending), moment(endpoint.created_at), button] };
}

function row(delivery, again) {
  const [words, tone] = STATES[delivery.status] ?? [delivery.status, "calm"];
  const state = h("span", {}, h("span", { class: `pill ${tone}` }, words), delivery.last_error ? h("span", { class: "row-error" }, ` ${delivery.last_error}`) : null);
  const job = delivery.job_id ? h("a", { href: `#/job/${delivery.job_id}` }, h("code", {}, shortId(delivery.job_id))) : "–";
  return { cells: [moment(delivery.created_at), delivery.type.replaceAll("_", " "), delivery.origin, job, state, many(delivery.attempt_count, "try").replace("trys", "tries"), replayButton(delivery, again)],
    "data-delivery": delivery.id };
}

function replayButton(delivery, again) {
  if (delivery.status === "pending") return "";
  const button = h("button", { class: "button small", onclick: async () => {
    const yes = await confirm({ title: "Send it again?", text: `${delivery.origin} gets ${delivery.type.replaceAll("_", " ")} once more, under the same id.`, act: "Replay" });
    if (!yes) return;
    await carryOut(button, () => post(`/api/webhooks/deliveries/${delivery.id}/replay`), () => "It is sent again within seconds.");
    again();
  } }, "Replay");
  return button;
}
