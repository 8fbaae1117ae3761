// Who paid for what? Balances, and every entry of one account.

import { get } from "./api.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { who } from "./session.js";
import { empty, listPage, table } from "./table.js";
import { moment } from "./time.js";
import { shortId } from "./words.js";

const KINDS = { hold: "held for a job", charge: "charged: delivered", refund: "given back", grant: "granted" };

export function ledgerPage(account) {
  const wanted = who().account ?? account;
  return listPage({
    title: wanted ? `Ledger of ${wanted}` : "Ledger",
    about: "Credits are held when a job begins; each hold is charged or given back, once.",
    head: () => (account ? h("a", { class: "button", href: "#/ledger" }, "All accounts") : null),
    load: () => get("/api/credits", { account: wanted, limit: 200 }),
    show: (told) => (wanted ? one(told) : everybody(told)),
  });
}

function everybody({ accounts }) {
  if (!accounts.length) return empty(icon("ledger", 44), "No accounts yet", "ironclip credits grant ACCOUNT AMOUNT opens one.");
  return table(["Account", "Balance", "Held", ""], accounts.map((each) => ({
    cells: [h("strong", {}, each.account), amount(each.balance), amount(each.held), h("a", { href: `#/ledger/${encodeURIComponent(each.account)}` }, "Entries")],
  })), "Accounts");
}

function one({ accounts, entries }) {
  const [account] = accounts;
  return [h("div", { class: "numbers" }, number("Balance", account.balance), number("Held for running jobs", account.held)),
    entries.length ? table(["When", "What", "Amount", "Job", "Output"], entries.map(row), "Entries")
      : empty(icon("ledger", 44), "No entries yet", "The first job of this account writes the first one.")];
}

function row(entry) {
  const job = entry.job_id ? h("a", { href: `#/job/${entry.job_id}` }, h("code", {}, shortId(entry.job_id))) : entry.note ?? entry.reference ?? "";
  return { cells: [moment(entry.at), KINDS[entry.kind] ?? entry.kind, amount(entry.amount, true), job, entry.output ?? ""] };
}

const amount = (n, signed = false) => h("span", { class: "amount" }, `${signed && n > 0 ? "+" : ""}${n.toLocaleString("en")}`);
const number = (label, value) => h("div", { class: "card number" }, h("span", { class: "number-value" }, value.toLocaleString("en")), h("span", {}, label));
