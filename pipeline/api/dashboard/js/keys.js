// Who may come in? Keys are shown once, when they are made; here stands what is known of them.

import { get, post, remove } from "./api.js";
import { carryOut, confirm, field, form, showOnce } from "./dialog.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { who } from "./session.js";
import { empty, listPage, table } from "./table.js";
import { moment } from "./time.js";

const ROLES = { client: "client: the jobs of one account", operator: "operator: all jobs, workers and breakers", admin: "admin: also keys, credits and recovery" };
const TONES = { client: "calm", operator: "busy", admin: "warn" };

export function keysPage() {
  return listPage({
    title: "Keys",
    about: "A key opens the API and this page. Only its hash is kept; revoking it ends it, and every login with it, at once.",
    head: (again) => h("button", { class: "button primary", id: "new-key", onclick: () => keyDialog(again) }, icon("plus"), "New key"),
    load: () => get("/api/keys"),
    show: ({ keys }, again) => (keys.length
      ? table(["Key", "Role", "Account", "For", "Made", "Last used", ""], keys.map((key) => row(key, again)), "Keys")
      : empty(icon("key", 44), "There are no keys", "Make one for each web app and each person.")),
  });
}

function row(key, again) {
  const last = key.revoked_at ? h("span", { class: "muted" }, "revoked ", moment(key.revoked_at)) : revokeButton(key, again);
  const cells = [h("code", {}, `${key.prefix}…`), h("span", { class: `pill ${key.revoked_at ? "calm" : TONES[key.role] ?? "calm"}` }, key.role), key.account_id ?? "–", key.name || "–",
    moment(key.created_at), moment(key.last_used_at), last];
  return { cells, class: key.revoked_at ? "is-over" : null, "data-key-id": key.id };
}

function revokeButton(key, again) {
  const mine = key.prefix === who().prefix;
  const button = h("button", { class: "button small danger", onclick: async () => {
    const yes = await confirm({ title: `Revoke ${key.prefix}…?`, act: "Revoke", dangerous: true,
      text: mine ? "You are logged in with this key: revoking it logs you out." : "Whoever uses it is kept out from now on. This cannot be taken back." });
    if (!yes) return;
    await carryOut(button, () => remove(`/api/keys/${key.id}`), () => `Key ${key.prefix}… opens nothing any more.`);
    again();
  } }, "Revoke");
  return button;
}

function keyDialog(again) {
  const role = h("select", { id: "key-role", onchange: fit }, Object.entries(ROLES).map(([value, label]) => h("option", { value }, label)));
  const account = h("input", { id: "key-account", maxlength: 64, spellcheck: "false", placeholder: "ann" });
  const name = h("input", { id: "key-name", maxlength: 200, placeholder: "the shop's web app" });
  const ofAccount = field("key-account", "Account", account);
  function fit() {
    ofAccount.hidden = role.value !== "client";
    account.required = role.value === "client";
  }
  fit();
  form({
    title: "New key", act: "Make it", fields: [field("key-role", "Role", role), ofAccount, field("key-name", "What it is for", name)],
    send: async () => {
      const made = await post("/api/keys", { role: role.value, account: role.value === "client" ? account.value.trim() : null, name: name.value.trim() });
      again();
      showOnce({ title: "Your new key", text: "It is shown this once: only its hash is kept. Send it as Authorization: Bearer KEY.", secret: made.key });
    },
  });
  role.focus();
}
