// Which page is shown? The address after # says it; whoever is not logged in sees the login.

import { get, whenSessionEnds } from "./api.js";
import { auditPage } from "./audit.js";
import { breakersPage } from "./breakers.js";
import { complain } from "./dialog.js";
import { h, put } from "./dom.js";
import { icon } from "./icons.js";
import { homePage } from "./home.js";
import { jobPage } from "./job.js";
import { keysPage } from "./keys.js";
import { ledgerPage } from "./ledger.js";
import * as live from "./live.js";
import { loginPage } from "./login.js";
import { recoveryPage } from "./recovery.js";
import { isAdmin, isStaff, leave, logOut, resume, who } from "./session.js";
import { webhooksPage } from "./webhooks.js";
import { workersPage } from "./workers.js";

const app = document.getElementById("app");
const anybody = () => true;

// Each page is made by a function that gets the rest of its address and returns {element, close}.
const PAGES = [
  { name: "jobs", label: "Jobs", sign: "film", make: homePage, allowed: anybody },
  { name: "job", make: jobPage, allowed: anybody },
  { name: "workers", label: "Workers", sign: "worker", make: workersPage, allowed: isStaff },
  { name: "breakers", label: "Breakers", sign: "breaker", make: breakersPage, allowed: isStaff },
  { name: "recovery", label: "Recovery", sign: "recovery", make: recoveryPage, allowed: isAdmin },
  { name: "webhooks", label: "Webhooks", sign: "webhook", make: webhooksPage, allowed: anybody },
  { name: "ledger", label: "Ledger", sign: "ledger", make: ledgerPage, allowed: anybody },
  { name: "keys", label: "Keys", sign: "key", make: keysPage, allowed: isAdmin },
  { name: "audit", label: "Audit", sign: "audit", make: auditPage, allowed: isAdmin },
];

const LIVE = {
  live: ["Live", "good"],
  polling: ["Asking every 3 s", "warn"],
  waiting: ["Connecting", "calm"],
  off: ["Not connected", "calm"],
};

let open = null;
let main = null;
let hush = () => {};

function askForKey(told) {
  open?.close();
  open = null;
  hush();
  live.stop();
  put(app, loginPage(enter, told));
  document.title = "Log in · Ironclip";
}

function enter() {
  main = h("main", { id: "main", class: "main", tabindex: "-1" });
  put(app, header(), main);
  live.start();
  turn();
  if (isStaff()) showFlower();
}

async function showFlower() {
  const told = await get("/api/overview").catch(() => ({}));
  const link = document.getElementById("flower");
  if (!link || !/^https?:\/\//.test(told.flower_url ?? "")) return;
  link.href = told.flower_url;
  link.hidden = false;
}

function header() {
  const links = PAGES.filter((page) => page.label && page.allowed()).map((page) =>
    h("a", { class: "nav-link", href: `#/${page.name}`, "data-page": page.name }, icon(page.sign), h("span", {}, page.label)));
  const flower = h("a", { id: "flower", class: "nav-link", target: "_blank", rel: "noopener", hidden: true },
    icon("out"), h("span", {}, "Flower"));
  return h("header", { class: "header" },
    h("a", { class: "brand", href: "#/jobs" }, h("img", { src: "icon.svg", alt: "", width: 28, height: 28 }), h("span", {}, "Ironclip")),
    h("nav", { class: "nav", "aria-label": "Pages" }, links, flower),
    h("div", { class: "header-end" }, pulse(),
      h("span", { class: "me", title: "The role and the beginning of your key" }, `${who().role} · ${who().account ?? who().prefix}`),
      h("button", { class: "button small", onclick: goOut }, "Log out")));
}

function pulse() {
  const dot = h("span", { class: "dot" });
  const word = h("span", { class: "pulse-word" });
  const element = h("span", { class: "pulse", id: "pulse", role: "status" }, dot, word);
  const tell = (state) => {
    const [label, tone] = LIVE[state];
    put(word, label);
    dot.className = `dot ${tone}`;
    element.dataset.state = state;
    element.title = label;
  };
  hush = live.listen((event) => { if (event.kind === "state") tell(event.state); });
  tell(live.stateNow());
  return element;
}

async function goOut() {
  try {
    await logOut();
    askForKey("");
  } catch (problem) {
    complain(problem);
  }
}

function turn() {
  if (!who()) return;
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const page = PAGES.find((each) => each.name === name && each.allowed()) ?? PAGES[0];
  open?.close();
  for (const link of document.querySelectorAll(".nav-link")) {
    const here = link.dataset.page === page.name || (page.name === "job" && link.dataset.page === "jobs");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${page.label ?? "Job"} · Ironclip`;
  document.querySelector('.nav-link[aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "center" });
  open = page.make(...rest);
  put(main, open.element);
  scrollTo(0, 0);
}

whenSessionEnds(() => {
  leave();
  askForKey("Your login has ended.");
});
addEventListener("hashchange", turn);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address says which page is shown
  document.getElementById("main").focus();
});
resume().then((me) => (me ? enter() : askForKey(""))).catch((problem) => askForKey(problem.message));
