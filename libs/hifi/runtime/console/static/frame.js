"use strict";
const root = document.documentElement;
const savedTheme = localStorage.getItem("theme");
if (savedTheme) root.dataset.theme = savedTheme;

const format = {
  number: (value, digits = 0) => value === null || value === undefined ? "–" : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }),
  ms: (us) => us === null || us === undefined ? "–" : Math.abs(us) < 1e6 ? `${(us / 1000).toFixed(1)} ms` : `${(us / 1e6).toFixed(2)} s`,
  /** Milliseconds since 1970 as "YYYY-MM-DDTHH:MM:SS" in the viewer's time zone: the form that charts take as local time. */
  local: (at_ms) => new Date(at_ms - new Date(at_ms).getTimezoneOffset() * 60000).toISOString().slice(0, 19),
  utc: (at_ms, length = 16) => new Date(at_ms).toISOString().slice(0, length).replace("T", " "),
};
/** Shows a time in the viewer's time zone, with UTC as its tooltip. `show`: "minute" or "second". */
function showTime(element, at_ms, show) {
  const length = show === "minute" ? 16 : 19;
  element.dateTime = new Date(at_ms).toISOString();
  element.textContent = format.local(at_ms).slice(0, length).replace("T", " ");
  element.title = `${format.utc(at_ms, length)} UTC`;
}

function timeElement(at_ms, show) {
  const element = document.createElement("time");
  element.dataset.show = show;
  showTime(element, at_ms, show);
  return element;
}

/** The session has ended: signs in, and comes back to this page. */
function signInAgain() {
  location.assign(`/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
}

async function getJson(path) {
  const response = await fetch(path);
  if (response.status === 401) signInAgain();
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.json();
}

/** Runs `task` every `interval_ms` while the page is visible. A failure is shown at the top of the page. */
function repeat(task, interval_ms) {
  const stale = document.getElementById("stale");
  const run = async () => {
    try {
      if (!document.hidden) await task();
    } catch {
      stale.textContent = `${document.body.dataset.service} does not respond. The figures on this page are no longer updated.`;
      stale.hidden = false;
    }
    setTimeout(run, interval_ms);
  };
  run();
}

function badge(text, kind) {
  const element = document.createElement("span");
  element.className = `badge ${kind ?? ""}`;
  element.textContent = text;
  return element;
}

function setText(within, name, text) {
  const cell = within.querySelector(`[data-is="${name}"]`);
  if (cell && cell.textContent !== text) cell.textContent = text;
}

/** Runs `action` with the form's values on submit, and shows its returned text or error in the form's status line. */
function onSubmit(form, action) {
  const state = document.getElementById(`${form.id}-state`);
  const button = form.querySelector("button");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    state.textContent = "Working…";
    try {
      state.textContent = await action(new FormData(form));
    } catch (error) {
      state.textContent = error.message;
    }
    button.disabled = false;
  });
}

document.addEventListener("DOMContentLoaded", () => {
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    document.dispatchEvent(new Event("theme"));
  });
  for (const element of document.querySelectorAll("time[data-show]")) showTime(element, Date.parse(element.dateTime), element.dataset.show);
  document.getElementById("zone").textContent = `Times are in your time zone (${Intl.DateTimeFormat().resolvedOptions().timeZone}); hover over a time to see UTC.`;
});
