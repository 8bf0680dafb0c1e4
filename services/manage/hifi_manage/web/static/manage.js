"use strict";

/** An error response of the API: `status` and the members of its problem details. */
class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `manage answered with ${status}.`);
    this.status = status;
    this.problem = problem;
  }
}

/** Calls the API in the session of this browser. Returns the response's JSON and its ETag. */
async function call(method, path, { body, headers = {} } = {}) {
  const response = await fetch(`/api/v1${path}`, { method, body, headers });
  const json = await response.json();
  if (response.status === 401) signInAgain();
  if (!response.ok) throw new ApiError(response.status, json);
  return { json, etag: response.headers.get("etag") };
}

function showProblem(text) {
  const element = document.getElementById("problem");
  element.textContent = text;
  element.hidden = !text;
}

const MAY = { viewer: 0, "data-viewer": 1, operator: 2, admin: 3 };

/** Makes a page: hides what the principal's role may not do, and has `show(principal)` fill the page. */
function page(show) {
  document.addEventListener("DOMContentLoaded", async () => {
    try {
      const { json: me } = await call("GET", "/me");
      for (const element of document.querySelectorAll("[data-role]")) element.hidden = MAY[me.role] < MAY[element.dataset.role];
      await show(me);
      document.getElementById("content").hidden = false;
    } catch (error) {
      showProblem(error.message);
    }
  });
}

function link(href, text) {
  const element = document.createElement("a");
  element.href = href;
  element.textContent = text;
  return element;
}

function button(text, action) {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = text;
  element.addEventListener("click", action);
  return element;
}

const moment = (us) => us === null || us === undefined ? "–" : timeElement(us / 1000, "second");

/** Fills the table `id`: each row is a list of strings, numbers and elements; the cell `head` is its header. */
function fillTable(id, rows, head = 0) {
  const numeric = [...document.querySelectorAll(`#${id} thead th`)].map((header) => header.classList.contains("num"));
  document.querySelector(`#${id} tbody`).replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((content, index) => {
      const cell = document.createElement(index === head ? "th" : "td");
      if (index === head) cell.scope = "row";
      if (numeric[index]) cell.className = "num";
      cell.append(content ?? "–");
      return cell;
    }));
    return row;
  }));
}

const ROLLOUT_KINDS = { "in force": "good", "rolled back": "bad", refused: "bad" };

/** Badge of a rollout's state, with its share while it ramps. */
function rolloutBadge(rollout, inForce) {
  if (!rollout) return "–";
  const share = ["ramping", "paused"].includes(rollout.state) ? `, ${rollout.share / 100} % of ${inForce?.cap_per_s ? `the full rate (${inForce.cap_per_s} events/s)` : "keys"}` : "";
  return badge(rollout.state + share, ROLLOUT_KINDS[rollout.state] ?? "open");
}
