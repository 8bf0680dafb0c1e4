"use strict";
const STATE_KINDS = { up: "good", down: "bad", provisional: "open" };

function showStatus(status) {
  const stale = document.getElementById("stale");
  stale.hidden = status.behind_s === null || status.behind_s < 30;
  stale.textContent = `The figures on this page are ${format.number(status.behind_s)} s old.`;
  const closed = document.getElementById("closed");
  if (closed && status.closed_minute > 0) showTime(closed, status.closed_minute * 60000, "minute");
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

/** Draws one bar per minute; must match `_strip_paths` and `_strip_label` on the server. */
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

function showRow(row, pipe) {
  const cell = (name) => row.querySelector(`[data-is="${name}"]`);
  cell("state").replaceChildren(badge(pipe.state, { alarm: "bad", flowing: "good" }[pipe.state]), ` ${pipe.alarms.join(", ")}`);
  drawStrip(cell("strip").firstElementChild, pipe.states);
  for (const [name, digits] of [["rate_in", 1], ["rate_out", 1], ["lost_hour", 0], ["retrying", 0], ["nines_month", 1]]) setText(row, name, format.number(pipe[name], digits));
  cell("lost_hour").classList.toggle("worse", pipe.lost_hour > 0);
  setText(row, "p95_us", format.ms(pipe.p95_us));
  setText(row, "share_day", pipe.share_day === null ? "–" : `${format.number(pipe.share_day * 100, 2)} %`);
  setText(row, "budget_left_minutes", `${format.number(pipe.budget_left_minutes, 1)} min`);
}

async function post(path, body) {
  const response = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  if (response.status === 401) signInAgain();
  const json = await response.json();
  if (!response.ok) throw new Error(json.detail);
  return json;
}

async function silence(fields) {
  const { reason, minutes, kind, pipe } = Object.fromEntries(fields);
  await post("/api/v1/silences", { reason, seconds: minutes * 60, kind, pipe });
  return "Silenced. Reload the page to see it in the list.";
}

async function replay(fields, pipe) {
  const { which, service, reason, destination } = Object.fromEntries(fields);
  const ids = which === "chosen" ? fields.getAll("ids") : null;
  if (ids && !ids.length) return "Select at least one dead letter first.";
  const filter = new URLSearchParams({ service, reason, destination });
  const result = await post(`/api/v1/pipes/${pipe}/dead/replay`, { service, reason, destination, ids });
  const { dead } = await getJson(`/api/v1/pipes/${pipe}/dead?limit=200&${filter}`);
  for (const letter of dead.filter((row) => row.replayed)) {
    const cell = document.querySelector(`[data-replayed="${letter.id}"]`);
    if (!cell) continue;
    cell.textContent = "yes";
    cell.parentElement.querySelector("input")?.remove();
  }
  const parts = [`${format.number(result.replayed)} replayed`];
  if (result.already) parts.push(`${format.number(result.already)} were replayed before`);
  if (result.refused) parts.push(`${format.number(result.refused)} cannot be replayed: ${result.why}`);
  if (result.missing) parts.push(`${format.number(result.missing)} are no longer dead letters`);
  return `${parts.join("; ")}.${result.more ? " There are more: replay again." : ""}`;
}

document.addEventListener("DOMContentLoaded", () => {
  const verdict = document.getElementById("verdict");
  if (verdict) {
    const rows = new Map([...document.querySelectorAll("#pipes tr[data-pipe]")].map((row) => [row.dataset.pipe, row]));
    repeat(async () => {
      const { pipes, status, verdict: newVerdict, totals } = await getJson("/api/v1/pipes");
      showStatus(status);
      showVerdict(newVerdict);
      if (pipes.length !== rows.size || pipes.some(({ pipe }) => !rows.has(pipe))) return location.reload();
      if (rows.size) showTotals(totals);
      for (const pipe of pipes) showRow(rows.get(pipe.pipe), pipe);
    }, 2000);
  }
  const silenceForm = document.getElementById("silence");
  if (silenceForm) onSubmit(silenceForm, silence);
  const replayForm = document.getElementById("replay");
  if (replayForm) onSubmit(replayForm, (fields) => replay(fields, replayForm.dataset.pipe));
});
