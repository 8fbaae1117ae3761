// What happens right now? One stream of events for the whole page; while it is away, everybody is told to ask again.
//
// The browser brings the number of the last event when it comes back, so none is missed. A hidden page lets go of its
// stream: browsers open only a few connections to one server.

const POLL_MS = 3000;
const listeners = new Set();
let source = null;
let timer = null;
let state = "off";
let lastId = null;

// `act` hears {kind: "job" | "progress" | "again" | "state", ...}; call what comes back to stop listening.
export function listen(act) {
  listeners.add(act);
  return () => listeners.delete(act);
}

export const stateNow = () => state;

export function start() {
  document.addEventListener("visibilitychange", seen);
  seen();
}

export function stop() {
  document.removeEventListener("visibilitychange", seen);
  letGo();
  lastId = null;
  become("off");
}

function seen() {
  if (document.hidden) letGo();
  else open();
}

function open() {
  letGo();
  become(state === "live" ? "live" : "waiting");
  source = new EventSource(lastId === null ? "/api/events" : `/api/events?since=${lastId}`);
  source.addEventListener("open", () => {
    endPolling();
    become("live");
    tell({ kind: "again" });
  });
  source.addEventListener("error", lost);
  source.addEventListener("job", (event) => {
    lastId = event.lastEventId;
    tell({ kind: "job", ...JSON.parse(event.data) });
  });
  source.addEventListener("progress", (event) => tell({ kind: "progress", ...JSON.parse(event.data) }));
}

function lost() {
  become("polling");
  timer ??= setInterval(() => {
    tell({ kind: "again" });
    if (source?.readyState === EventSource.CLOSED) open(); // refused: the browser will not come back by itself
  }, POLL_MS);
}

function letGo() {
  source?.close();
  source = null;
  endPolling();
}

function endPolling() {
  clearInterval(timer);
  timer = null;
}

function become(next) {
  if (next === state) return;
  state = next;
  tell({ kind: "state", state });
}

function tell(what) {
  for (const act of [...listeners]) act(what);
}
