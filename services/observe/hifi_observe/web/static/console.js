"use strict";
const root = document.documentElement;
const chosen = localStorage.getItem("theme");
if (chosen) root.dataset.theme = chosen;

const format = {
  number: (value, digits = 0) => value === null || value === undefined ? "–" : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }),
  ms: (us) => us === null || us === undefined ? "–" : Math.abs(us) < 1e6 ? `${(us / 1000).toFixed(1)} ms` : `${(us / 1e6).toFixed(2)} s`,
  /** Milliseconds since 1970 as "YYYY-MM-DDTHH:MM:SS" in the viewer's time zone: the form that charts take as local time. */
  local: (at_ms) => new Date(at_ms - new Date(at_ms).getTimezoneOffset() * 60000).toISOString().slice(0, 19),
  utc: (at_ms, length = 16) => new Date(at_ms).toISOString().slice(0, length).replace("T", " "),
};
const STATE_KINDS = { up: "good", down: "bad", provisional: "open" };

/** A time as text in the viewer's zone, with UTC as its tooltip. `show`: "minute" or "second". */
function showTime(element, at_ms, show) {
  const length = show === "minute" ? 16 : 19;
  element.dateTime = new Date(at_ms).toISOString();
  element.textContent = format.local(at_ms).slice(0, length).replace("T", " ");
  element.title = `${format.utc(at_ms, length)} UTC`;
}

function timeElement(at_ms, show) {
  const made = document.createElement("time");
  made.dataset.show = show;
  showTime(made, at_ms, show);
  return made;
}

async function ask(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

/** Repeats `work` while the page is visible. A failure is shown at the top of the page. */
function repeat(work, everyMs) {
  const stale = document.getElementById("stale");
  const turn = async () => {
    try {
      if (!document.hidden) await work();
    } catch {
      stale.textContent = "observe does not respond. The figures on this page are no longer updated.";
      stale.hidden = false;
    }
    setTimeout(turn, everyMs);
  };
  turn();
}

function showStatus(status) {
  const stale = document.getElementById("stale");
  stale.hidden = status.behind_s === null || status.behind_s < 30;
  stale.textContent = `The figures on this page are ${format.number(status.behind_s)} s old.`;
  const closed = document.getElementById("closed");
  if (closed && status.closed_minute > 0) showTime(closed, status.closed_minute * 60000, "minute");
}

function badge(text, kind) {
  const made = document.createElement("span");
  made.className = `badge ${kind ?? ""}`;
  made.textContent = text;
  return made;
}

function setText(within, name, text) {
  const cell = within.querySelector(`[data-is="${name}"]`);
  if (cell && cell.textContent !== text) cell.textContent = text;
}

function showVerdict(verdict) {
  const element = document.getElementById("verdict");
  element.className = `verdict ${verdict.state}`;
  setText(element, "headline", verdict.headline);
  setText(element, "detail", verdict.detail);
}

function showTotals(totals) {
  const element = document.getElementById("totals");
  for (const name of ["rate_in", "rate_out"]) setText(element, name, `${format.number(totals[name], 1)} /s`);
  for (const name of ["lost_hour", "retrying", "alarms"]) setText(element, name, format.number(totals[name]));
  setText(element, "p95_us", format.ms(totals.p95_us));
}

/** One bar a minute; the same drawing as the server's. */
function drawStrip(svg, states) {
  const paths = new Map();
  states.forEach((state, index) => paths.set(state, `${paths.get(state) ?? ""}M${index * 5} 0h4v16h-4z`));
  svg.replaceChildren(...[...paths].map(([state, d]) => {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("class", `is-${state}`);
    path.setAttribute("d", d);
    return path;
  }));
  const count = (wanted) => states.filter((state) => state === wanted).length;
  const parts = ["up", "down", "provisional", "unknown"].filter((state) => count(state)).map((state) => `${count(state)} ${state}`);
  svg.setAttribute("aria-label", `Last ${states.length} minutes: ${parts.join(", ") || "no events"}`);
}

function showRow(row, one) {
  const cell = (name) => row.querySelector(`[data-is="${name}"]`);
  cell("state").replaceChildren(badge(one.state, { alarm: "bad", flowing: "good" }[one.state]), ` ${one.alarms.join(", ")}`);
  drawStrip(cell("strip").firstElementChild, one.states);
  for (const [name, digits] of [["rate_in", 1], ["rate_out", 1], ["lost_hour", 0], ["retrying", 0], ["nines_month", 1]]) setText(row, name, format.number(one[name], digits));
  cell("lost_hour").classList.toggle("worse", one.lost_hour > 0);
  setText(row, "p95_us", format.ms(one.p95_us));
  setText(row, "share_day", one.share_day === null ? "–" : `${format.number(one.share_day * 100, 2)} %`);
  setText(row, "budget_left_minutes", `${format.number(one.budget_left_minutes, 1)} min`);
}

/** Runs `work` with the form's values when it is sent, and shows what it returns or throws in the form's status line. */
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
  return "Silenced. Reload the page to see it in the list.";
}

async function replay(given, pipe) {
  const { token, which, service, reason, destination } = Object.fromEntries(given);
  const ids = which === "chosen" ? given.getAll("ids") : null;
  if (ids && !ids.length) return "Select at least one dead letter first.";
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
  if (told.already) parts.push(`${format.number(told.already)} were replayed before`);
  if (told.refused) parts.push(`${format.number(told.refused)} cannot be replayed: ${told.why}`);
  if (told.missing) parts.push(`${format.number(told.missing)} are no longer dead letters`);
  return `${parts.join("; ")}.${told.more ? " There are more: replay again." : ""}`;
}

document.addEventListener("DOMContentLoaded", () => {
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    document.dispatchEvent(new Event("theme"));
  });
  for (const element of document.querySelectorAll("time[data-show]")) showTime(element, Date.parse(element.dateTime), element.dataset.show);
  document.getElementById("zone").textContent = `Times are in your time zone (${Intl.DateTimeFormat().resolvedOptions().timeZone}); point at one to see UTC.`;
  const verdict = document.getElementById("verdict");
  if (verdict) {
    const rows = new Map([...document.querySelectorAll("#pipes tr[data-pipe]")].map((row) => [row.dataset.pipe, row]));
    repeat(async () => {
      const { pipes, status, verdict: judged, totals } = await ask("/api/v1/pipes");
      showStatus(status);
      showVerdict(judged);
      if (pipes.length !== rows.size || pipes.some((one) => !rows.has(one.pipe))) return location.reload();
      if (rows.size) showTotals(totals);
      for (const one of pipes) showRow(rows.get(one.pipe), one);
    }, 2000);
  }
  const silencing = document.getElementById("silence");
  if (silencing) operate(silencing, silence);
  const replaying = document.getElementById("replay");
  if (replaying) operate(replaying, (given) => replay(given, replaying.dataset.pipe));
});
