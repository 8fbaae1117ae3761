// Who paid for what? Balances, and every entry of one account.

import { get, post } from "./api.js";
import { confirm, field, form, say } from "./dialog.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { isAdmin, who } from "./session.js";
import { empty, listPage, table } from "./table.js";
import { moment } from "./time.js";
import { many, shortId } from "./words.js";

const KINDS = { hold: "held for a job", charge: "charged: delivered", refund: "given back", grant: "granted" };

export function ledgerPage(account) {
  const wanted = who().account ?? account;
  return listPage({
    title: wanted ? `Ledger of ${wanted}` : "Ledger",
    about: "Credits are held when a job begins; each hold is charged or given back, once.",
    head: (again) => h("div", { class: "head-acts" }, account ? h("a", { class: "button", href: "#/ledger" }, "All accounts") : null,
      isAdmin() ? h("button", { class: "button primary", id: "grant", onclick: () => grantDialog(account, again) }, "Grant credits") : null),
    load: () => get("/api/credits", { account: wanted, limit: 200 }),
    show: (told) => (wanted ? one(told) : everybody(told)),
  });
}

// The reference makes it happen once, however often it is sent.
function grantDialog(given, again) {
  const account = h("input", { id: "grant-account", value: given ?? "", maxlength: 64, required: true, spellcheck: "false" });
  const amount = h("input", { id: "grant-amount", type: "text", inputmode: "numeric", pattern: "-?[0-9]{1,12}", required: true, placeholder: "100", title: "A whole number; below zero takes credits away" });
  const reference = h("input", { id: "grant-reference", value: `by-hand-${crypto.getRandomValues(new Uint32Array(1))[0].toString(16)}`, maxlength: 200, required: true });
  const note = h("input", { id: "grant-note", maxlength: 500, placeholder: "for whoever reads the ledger" });
  form({
    title: "Grant credits", text: "An account that is not there yet is opened. The same reference again changes nothing.", act: "Continue",
    fields: [field("grant-account", "Account", account), field("grant-amount", "Amount", amount),
      field("grant-reference", "Reference", reference), field("grant-note", "Note", note)],
    send: async () => {
      const [to, n] = [account.value.trim(), Number(amount.value)];
      const words = n < 0 ? `Take ${credits(-n)} from ${to}?` : `Give ${credits(n)} to ${to}?`;
      if (!(await confirm({ title: words, text: "It is written into the ledger, which nobody can change.", act: n < 0 ? "Take" : "Grant", dangerous: n < 0 }))) return false;
      const { granted } = await post("/api/credits", { account: to, amount: n, reference: reference.value.trim(), note: note.value.trim() || null });
      say(granted ? `${to}: ${n > 0 ? "+" : ""}${credits(n)}.` : "This reference was used before; nothing has changed.", granted ? "good" : "calm");
      again();
      return true;
    },
  });
  (given ? amount : account).focus();
}

function everybody({ accounts }) {
  if (!accounts.length) return empty(icon("ledger", 44), "No accounts yet", "A grant opens one, as ironclip credits grant ACCOUNT AMOUNT does.");
  return table(["Account", "Balance", "Held", ""], accounts.map((each) => ({
    cells: [h("strong", {}, each.account), amount(each.balance), amount(each.held), h("a", { href: `#/ledger/${encodeURIComponent(each.account)}` }, "Entries")],
  })), "Accounts");
}

function one({ accounts, entries }) {
  const [account] = accounts;
  return [h("div", { class: "numbers" }, number("Balance", account.balance), number("Held for running jobs", account.held)),
    entries.length ? table(["When", "What", "Amount", "For", "Output"], entries.map(row), "Entries")
      : empty(icon("ledger", 44), "No entries yet", "The first job of this account writes the first one.")];
}

function row(entry) {
  const job = entry.job_id ? h("a", { href: `#/job/${entry.job_id}` }, h("code", {}, shortId(entry.job_id))) : entry.note ?? entry.reference ?? "";
  return { cells: [moment(entry.at), KINDS[entry.kind] ?? entry.kind, amount(entry.amount, true), job, entry.output ?? ""] };
}

const credits = (n) => many(n, "credit");
const amount = (n, signed = false) => h("span", { class: "amount" }, `${signed && n > 0 ? "+" : ""}${n.toLocaleString("en")}`);
const number = (label, value) => h("div", { class: "card number" }, h("span", { class: "number-value" }, value.toLocaleString("en")), h("span", {}, label));
