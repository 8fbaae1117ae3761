// How is the API asked? As the browser's session, with its token on every change; errors keep their code.

export class Problem extends Error {
  constructor(status, told) {
    super(told.message);
    this.status = status;
    this.code = told.code;
    this.detail = told.detail;
    this.requestId = told.request_id;
  }
}

let token = null;
let skewMs = 0;
let onEnded = () => {};

export const useToken = (given) => { token = given; };
export const whenSessionEnds = (act) => { onEnded = act; };

// Now, by the clock of the server: its times are shown relative to it.
export const now = () => Date.now() + skewMs;

export const get = (path, params = {}) => ask("GET", path + query(params));
export const post = (path, body, options = {}) => ask("POST", path, { body, ...options });
export const remove = (path) => ask("DELETE", path);

function query(params) {
  const used = Object.entries(params).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return used.length ? `?${new URLSearchParams(used)}` : "";
}

async function ask(method, path, { body, raw } = {}) {
  const headers = {};
  if (method !== "GET" && token) headers["X-CSRF-Token"] = token;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await reach(path, { method, headers, body: raw ?? (body === undefined ? undefined : JSON.stringify(body)) });
  noteClock(answer);
  if (answer.status === 204) return null;
  const told = await answer.json().catch(() => null);
  if (answer.ok) return told;
  const problem = new Problem(answer.status, told ?? { code: "UNREADABLE", message: `The server answered ${answer.status}.` });
  if (problem.status === 401 && path !== "/api/session") onEnded();
  throw problem;
}

async function reach(path, options) {
  try {
    return await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Problem(0, { code: "UNREACHABLE", message: "The server cannot be reached." });
  }
}

function noteClock(answer) {
  const told = Date.parse(answer.headers.get("date") ?? "");
  if (Number.isNaN(told)) return;
  const skew = told + 500 - Date.now();
  skewMs = Math.abs(skew) > 2000 ? skew : 0;
}
