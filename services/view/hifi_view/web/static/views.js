"use strict";
const MOST_ROWS = 100;
const EVERY_MS = 1000;
/** The greatest character: what begins with a text lies between it and the text with this one. */
const LAST = "\u{10FFFF}";
const KINDS = { live: "good", full: "bad", disk: "bad", refused: "bad" };
const by = (id) => document.getElementById(id);

let chosen = null; // what the API says of the view that is shown
let starts = [null]; // where each page of rows up to the shown one begins
let following = null; // where the next page begins
let shown = new Map(); // key to the row as JSON
let isFirst = true; // whether the next answer is the first of its kind: its rows are no changes
let asked = 0; // answers to earlier requests are not shown

async function ask(path) {
  const response = await fetch(`/v1/views${path}`, { headers: { Authorization: `Bearer ${sessionStorage.getItem("read-key")}` } });
  if (response.ok) return response.json();
  throw Object.assign(new Error((await response.json()).detail), { status: response.status });
}

function show(element, text) {
  element.textContent = text;
  element.hidden = !text;
}

/** Runs work that a person asked for. Where the service does not answer, the next refresh says so. */
const run = (work) => work.catch(() => {});

/** The parameters of a filter: none if it is empty. */
function parameters(name, text) {
  const range = /^(.*)\.\.(.*)$/.exec(text);
  if (!text) return [];
  if (range) return [[`${name}.min`, range[1]], [`${name}.max`, range[2]]].filter(([, end]) => end !== "");
  if (chosen.fields[name] === "text" && text.endsWith("*")) return [[`${name}.min`, text.slice(0, -1)], [`${name}.max`, text.slice(0, -1) + LAST]];
  return [[name, text]];
}

function query() {
  const filters = [...by("filters").querySelectorAll("[name]")].flatMap((filter) => parameters(filter.name, filter.value.trim()));
  const after = starts.at(-1);
  return new URLSearchParams([["limit", MOST_ROWS], ...(after ? [["after", after]] : []), ...filters]);
}

async function refresh() {
  if (!sessionStorage.getItem("read-key")) return enter("");
  const number = ++asked;
  try {
    const { views } = await ask("");
    if (number !== asked) return;
    drawViews(views);
    by("enter").hidden = true;
    by("content").hidden = false;
    show(by("problem"), "");
    by("stale").hidden = true;
    if (!views.some((view) => view.view === chosen?.view)) {
      const name = decodeURIComponent(location.hash.slice(1));
      await choose((views.find((view) => view.view === name) ?? views[0]).view);
    } else {
      await refreshRows(number, views.find((view) => view.view === chosen.view));
    }
  } catch (error) {
    if (number !== asked) return;
    if (error.status !== 401) throw error;
    sessionStorage.removeItem("read-key");
    enter("This key opens no view.");
  }
}

async function refreshRows(number, view) {
  let answer;
  try {
    answer = await ask(`/${chosen.view}/rows?${query()}`);
  } catch (error) {
    if (![400, 422, 503].includes(error.status)) throw error;
    if (number === asked) show(by("refused"), error.message);
    return;
  }
  if (number !== asked) return;
  show(by("refused"), view.reason && `${view.state}: ${view.reason}`);
  following = answer.next;
  drawRows(answer.rows, view.rows);
}

async function choose(name) {
  const number = ++asked;
  const described = await ask(`/${name}`);
  if (number !== asked) return;
  chosen = described;
  location.replace(`#${name}`);
  by("name").textContent = name;
  by("fields").replaceChildren(...[...Object.keys(chosen.fields), "Accepted"].map((field) => heading(field, chosen.key.includes(field) ? `${field} (key)` : field)));
  by("filters").replaceChildren(...Object.entries(chosen.fields).map(filterOf), document.createElement("th"));
  by("view").hidden = false;
  await begin([null]);
}

function heading(field, text) {
  const element = document.createElement("th");
  element.scope = "col";
  element.textContent = text;
  if (["int", "double"].includes(chosen.fields[field])) element.className = "num";
  return element;
}

function filterOf([name, kind]) {
  const isChoice = kind === "bool";
  const filter = document.createElement(isChoice ? "select" : "input");
  filter.name = name;
  filter.setAttribute("aria-label", `Filter by ${name}`);
  if (isChoice) filter.append(...["", "true", "false"].map((text) => new Option(text)));
  else filter.placeholder = kind === "text" ? "text or text*" : "5 or 5..10";
  filter.addEventListener("input", () => run(begin([null])));
  const cell = document.createElement("th");
  cell.append(filter);
  return cell;
}

/** Shows the page of rows that begins at the last of `positions`. */
async function begin(positions) {
  starts = positions;
  isFirst = true;
  await refresh();
}

function drawViews(views) {
  by("views").tBodies[0].replaceChildren(...views.map((view) => {
    const line = document.createElement("tr");
    if (view.view === chosen?.view) line.setAttribute("aria-current", "true");
    const name = document.createElement("th");
    name.scope = "row";
    const link = document.createElement("a");
    link.href = `#${view.view}`;
    link.textContent = view.view;
    name.append(link);
    const state = badge(view.state, KINDS[view.state] ?? "open");
    const until = view.complete_until === "none" ? "–" : timeElement(Date.parse(view.complete_until), "second");
    const topic = view.at === "raw" ? "raw (not masked)" : view.at;
    line.append(name, ...[view.pipe, topic, state, format.number(view.rows), format.number(view.size_bytes / 2 ** 20, 1), until].map((value, place) => {
      const cell = document.createElement("td");
      if (place === 3 || place === 4) cell.className = "num";
      cell.append(value);
      return cell;
    }));
    return line;
  }));
}

function drawRows(rows, total) {
  const body = by("rows").tBodies[0];
  const before = new Map([...body.children].map((line) => [line.dataset.key, line]));
  const texts = new Map(rows.map((row) => [JSON.stringify(chosen.key.map((name) => row[name])), JSON.stringify(row)]));
  const isChanged = (key) => !before.has(key) || shown.get(key) !== texts.get(key);
  const lines = [...texts.keys()].map((key, place) => isFirst || isChanged(key) ? lineOf(key, rows[place]) : before.get(key));
  if (lines.length !== body.children.length || lines.some((line, place) => line !== body.children[place])) body.replaceChildren(...lines);
  const moves = !matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (!isFirst && moves) for (const line of lines) if (isChanged(line.dataset.key)) line.animate({ background: ["var(--good-ground)", "transparent"] }, 2000);
  shown = texts;
  isFirst = false;
  const first = (starts.length - 1) * MOST_ROWS + 1;
  const isAll = ![...by("filters").querySelectorAll("[name]")].some((filter) => filter.value.trim());
  by("range").textContent = rows.length === 0 ? "No rows" : `Rows ${format.number(first)} to ${format.number(first + rows.length - 1)}${isAll ? ` of ${format.number(total)}` : ""}`;
  by("next").disabled = following === null;
  by("first").disabled = starts.length === 1;
}

function lineOf(key, row) {
  const line = document.createElement("tr");
  line.dataset.key = key;
  for (const [name, kind] of Object.entries(chosen.fields)) {
    const isKey = chosen.key.includes(name);
    const cell = document.createElement(isKey ? "th" : "td");
    if (isKey) cell.scope = "row";
    if (kind === "int" || kind === "double") cell.className = "num";
    cell.textContent = cell.title = row[name] ?? "–";
    line.append(cell);
  }
  const accepted = document.createElement("td");
  accepted.append(row.hifi.accepted === null ? "–" : timeElement(Date.parse(row.hifi.accepted), "second"));
  line.append(accepted);
  return line;
}

function enter(message) {
  asked += 1;
  chosen = null;
  by("content").hidden = true;
  show(by("problem"), message);
  if (by("enter").hidden) {
    by("enter").hidden = false;
    by("key").focus();
  }
}

by("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("read-key", by("key").value.trim());
  by("key").value = "";
  run(refresh());
});
by("leave").addEventListener("click", () => {
  sessionStorage.removeItem("read-key");
  enter("");
});
by("first").addEventListener("click", () => run(begin([null])));
by("next").addEventListener("click", () => run(begin([...starts, following])));
addEventListener("hashchange", () => {
  const name = decodeURIComponent(location.hash.slice(1));
  if (chosen && name !== chosen.view) run(choose(name));
});
repeat(refresh, EVERY_MS);
