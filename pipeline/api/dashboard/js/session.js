// Who is looking? A key opens a session, kept in a cookie that scripts cannot read; what is known here is its role.

import * as api from "./api.js";

const HINT = "ironclip.logged-in"; // only whether it is worth asking: without it, a first visit would begin with an error
let me = null;

export const who = () => me;
export const isStaff = () => me?.role === "operator" || me?.role === "admin";
export const isAdmin = () => me?.role === "admin";

export async function resume() {
  if (!localStorage.getItem(HINT)) return null;
  try {
    return enter(await api.get("/api/session"));
  } catch (problem) {
    if (problem.status !== 401 && problem.status !== 403) throw problem;
    leave();
    return null;
  }
}

export async function logIn(key) {
  return enter(await api.post("/api/session", { key }));
}

export async function logOut() {
  await api.remove("/api/session");
  leave();
}

export function leave() {
  me = null;
  api.useToken(null);
  localStorage.removeItem(HINT);
}

function enter(told) {
  me = told;
  api.useToken(told.csrf);
  localStorage.setItem(HINT, "yes");
  return me;
}
