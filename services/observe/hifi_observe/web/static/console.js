"use strict";
const root = document.documentElement;
const chosen = localStorage.getItem("theme");
if (chosen) root.dataset.theme = chosen;

const format = {
  number: (value, digits = 0) => value === null ? "–" : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }),
  ms: (us) => us === null ? "–" : Math.abs(us) < 1e6 ? `${(us / 1000).toFixed(1)} ms` : `${(us / 1e6).toFixed(2)} s`,
  clock: (minute) => new Date(minute * 60000).toISOString().slice(0, 16).replace("T", " "),
};

async function ask(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

/** Run now and then again and again, only while the page is looked at; a failure is shown, not hidden. */
function often(work, everyMs) {
  const stale = document.getElementById("stale");
  const turn = async () => {
    try {
      if (!document.hidden) await work();
    } catch {
      stale.textContent = "Observe does not answer: what you see is old.";
      stale.hidden = false;
    }
    setTimeout(turn, everyMs);
  };
  turn();
}

function showStatus(status) {
  const stale = document.getElementById("stale");
  stale.hidden = status.behind_s !== null && status.behind_s < 30;
  stale.textContent = status.behind_s === null ? "Nothing has been observed yet." : `What you see is ${status.behind_s} s old.`;
  const closed = document.getElementById("closed");
  if (closed && status.closed_minute > 0) closed.textContent = format.clock(status.closed_minute);
}

function badge(text, kind) {
  const made = document.createElement("span");
  made.className = `badge ${kind ?? ""}`;
  made.textContent = text;
  return made;
}

function showRow(row, one) {
  const cell = (name) => row.querySelector(`[data-is="${name}"]`);
  cell("state").replaceChildren(badge(one.state, { alarm: "bad", flowing: "good" }[one.state]), ` ${one.alarms.join(", ")}`);
  for (const [name, digits] of [["rate_in", 1], ["rate_out", 1], ["lost", 0], ["retrying", 0], ["dead", 0], ["nines_month", 1]]) cell(name).textContent = format.number(one[name], digits);
  cell("p95_us").textContent = format.ms(one.p95_us);
  cell("share_day").textContent = one.share_day === null ? "–" : `${format.number(one.share_day * 100, 2)} %`;
  cell("budget_left_minutes").textContent = `${format.number(one.budget_left_minutes, 1)} min`;
  if (one.minute !== null) {
    const link = document.createElement("a");
    link.href = `/pipes/${one.pipe}/minutes/${one.minute}`;
    link.textContent = format.clock(one.minute);
    cell("minute").replaceChildren(link, " ", badge(one.minute_state, { up: "good", down: "bad" }[one.minute_state]));
  }
}

/** When the form is sent: `work` with what it holds; what that returns or throws is said where screen readers hear it. */
function operate(form, work) {
  const state = document.getElementById(`${form.id}-state`);
  const button = form.querySelector("button");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    state.textContent = "Working…";
    try {
      state.textContent = await work(new FormData(form));
    } catch (error) {
      state.textContent = error.message;
    }
    button.disabled = false;
  });
}

async function post(path, token, body) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.detail);
  return told;
}

async function silence(given) {
  const { token, reason, minutes, kind, pipe } = Object.fromEntries(given);
  await post("/api/v1/silences", token, { reason, seconds: minutes * 60, kind, pipe });
  return "Noted. It is listed when you load the page again.";
}

async function replay(given, pipe) {
  const { token, which, service, reason, destination } = Object.fromEntries(given);
  const ids = which === "chosen" ? given.getAll("ids") : null;
  if (ids && !ids.length) return "Choose at least one dead letter first.";
  const filter = new URLSearchParams({ service, reason, destination });
  const told = await post(`/api/v1/pipes/${pipe}/dead/replay`, token, { service, reason, destination, ids });
  const { dead } = await ask(`/api/v1/pipes/${pipe}/dead?limit=200&${filter}`);
  for (const one of dead.filter((each) => each.replayed)) {
    const cell = document.querySelector(`[data-replayed="${one.id}"]`);
    if (!cell) continue;
    cell.textContent = "yes";
    cell.parentElement.querySelector("input")?.remove();
  }
  const parts = [`${format.number(told.replayed)} replayed`];
  if (told.already) parts.push(`${format.number(told.already)} had been replayed before`);
  if (told.refused) parts.push(`${format.number(told.refused)} cannot be replayed: ${told.why}`);
  if (told.missing) parts.push(`${format.number(told.missing)} are no dead letters any more`);
  return `${parts.join("; ")}.${told.more ? " There are more: replay again." : ""}`;
}

document.addEventListener("DOMContentLoaded", () => {
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    document.dispatchEvent(new Event("theme"));
  });
  const table = document.getElementById("pipes");
  if (table) {
    often(async () => {
      const { pipes, status } = await ask("/api/v1/pipes");
      showStatus(status);
      const rows = new Map([...table.querySelectorAll("tr[data-pipe]")].map((row) => [row.dataset.pipe, row]));
      if (pipes.some((one) => !rows.has(one.pipe))) location.reload();
      for (const one of pipes) showRow(rows.get(one.pipe), one);
    }, 2000);
  }
  const silencing = document.getElementById("silence");
  if (silencing) operate(silencing, silence);
  const replaying = document.getElementById("replay");
  if (replaying) operate(replaying, (given) => replay(given, replaying.dataset.pipe));
});
