"use strict";
const EXAMPLE = `pipe: my-pipe
description: What flows here
source:
  keys:
    - env: MY_PIPE_KEY
destinations:
  - name: my-destination
    url: https://example.com/events
`;
const within = () => document.getElementById("pipe");
const current = { name: "", etag: null, editor: null, me: null, texts: new Map() };

const path = (rest = "") => `/pipes/${encodeURIComponent(current.name)}${rest}`;
const unchanged = () => current.etag ? { "if-match": current.etag } : { "if-none-match": "*" };
const count = (problems) => `${problems.length} ${problems.length === 1 ? "problem" : "problems"}`;
const tell = (text) => { document.getElementById("editor-state").textContent = text; };

/** Shows an error of a change: its problems at their lines, or who changed the pipe meanwhile and how to go on. */
function failed(error) {
  if (!(error instanceof ApiError)) return tell("manage does not respond. Get the page again to see whether it was changed.");
  tell(error.message);
  if (error.status === 422 && error.problem.problems?.length) {
    current.editor.mark(error.problem.problems);
    tell(`Nothing was changed: ${count(error.problem.problems)}.`);
  }
  if (error.status === 412) {
    document.getElementById("editor-state").append(" ", button("Show their version", () => show(current.me).catch(failed)));
  }
}

async function change(method, where, options, done) {
  tell("Working…");
  try {
    const { json } = await call(method, where, { ...options, headers: unchanged() });
    done(json);
  } catch (error) {
    failed(error);
  }
}

function showState(json) {
  const { declared, in_force: inForce, rollout } = json;
  const element = document.getElementById("state");
  const parts = [declared ? `Declaration ${declared.number} by ${declared.author}` : "In force without a declaration"];
  if (declared) parts.push(`declared ${declared.state}`);
  parts.push(inForce ? `revision ${inForce.revision} is in force${inForce.paused ? ", paused: no new events are accepted" : ""}` : "not in force");
  element.replaceChildren(`${parts.join("; ")}. `);
  if (within().dataset.observe && inForce) element.append(link(`${within().dataset.observe}/pipes/${current.name}`, "Events, lag, breakers and dead letters"));
  const wanted = declared?.state ?? (inForce ? "active" : "deleted");
  document.getElementById("pause").disabled = wanted !== "active";
  document.getElementById("resume").disabled = wanted !== "paused";
  const section = document.getElementById("rollout");
  section.hidden = !rollout;
  if (!rollout) return;
  section.querySelector("[data-is=rollout]").replaceChildren(rolloutBadge(rollout, inForce), ` Declaration ${rollout.declaration}, since `, moment(rollout.since_us), rollout.reason ? `: ${rollout.reason}` : "");
  const ended = !["waiting", "ramping", "paused"].includes(rollout.state);
  const open = { pause: !ended && rollout.state !== "paused", resume: rollout.state === "paused", abort: !ended, force: !ended };
  for (const element of section.querySelectorAll("[data-kind]")) element.disabled = !open[element.dataset.kind];
}

function showDestinations(destinations) {
  document.getElementById("destinations-section").hidden = !destinations.length;
  const kinds = { active: "good", parked: "bad" };
  fillTable("destinations", destinations.map((one) => [one.name, badge(one.state, kinds[one.state] ?? "open"), one.by, moment(one.since_us), one.reason]));
}

async function showVersion(number) {
  const { json } = await call("GET", path(`/versions/${number}`));
  const diff = document.createElement("pre");
  diff.className = "diff";
  const text = (json.changes ?? json.yaml ?? "").trimEnd();
  diff.append(...(text || "Nothing changed.").split("\n").map((line) => {
    const span = document.createElement("span");
    if (json.changes && !/^(---|\+\+\+)/.test(line)) span.className = { "+": "plus", "-": "minus" }[line[0]] ?? "";
    span.textContent = `${line}\n`;
    return span;
  }));
  diff.tabIndex = 0;
  diff.setAttribute("aria-label", `Changes of declaration ${number}`);
  diff.setAttribute("role", "region");
  const title = document.createElement("h3");
  title.textContent = json.changes === null ? `Declaration ${number}` : `Changes of declaration ${number}`;
  const shown = document.getElementById("version");
  shown.replaceChildren(title, diff);
  if (MAY[current.me.role] === MAY.admin && !json.deleted && !within().dataset.byFile && `"${number}"` !== current.etag) {
    shown.append(button(`Roll back to declaration ${number}`, () => change("POST", path(`/versions/${number}/declare`), {}, (json) => {
      show(current.me).then(() => tell(`Rolled back: declared as ${json.declared.number}.`), failed);
    })));
  }
  shown.focus();
}

function showVersions(versions) {
  document.getElementById("versions-section").hidden = !versions.length;
  fillTable("versions", versions.map((one) => [
    one.number,
    one.author,
    moment(one.at_us),
    one.origin,
    one.state,
    one.deleted ? "deleted" : button("Show", () => showVersion(one.number).catch(failed)),
  ]));
  document.getElementById("version").replaceChildren();
}

/** Shows the pipe as it is now; what was typed is replaced. */
async function show(me) {
  current.me = me;
  current.name = within().dataset.pipe;
  if (!current.editor) start(new Editor(await getJson("/pipe.schema.json")));
  tell("");
  for (const id of ["delete", "lifecycle"]) document.getElementById(id).hidden = !current.name;
  if (!current.name) {
    current.editor.value = EXAMPLE;
    return;
  }
  const { json, etag } = await call("GET", path());
  const { json: { versions } } = await call("GET", path("/versions"));
  current.etag = etag;
  const byFile = json.declared?.origin === "file" && !json.declared.deleted;
  within().dataset.byFile = byFile ? "yes" : "";
  document.getElementById("by-file").hidden = !byFile;
  current.editor.text.readOnly = byFile || MAY[me.role] < MAY.admin;
  for (const id of ["publish", "check", "delete"]) document.getElementById(id).disabled = byFile;
  current.editor.value = json.declared?.yaml || json.in_force?.yaml || "";
  showState(json);
  showDestinations(json.destinations);
  showVersions(versions);
}

async function publish() {
  const name = current.name || current.editor.value.match(/^pipe:\s*["']?([\w.-]+)/m)?.[1];
  if (!name) return tell("Name the pipe in its first line: `pipe: NAME`.");
  await change("PUT", `/pipes/${encodeURIComponent(name)}`, { body: current.editor.value }, (json) => {
    if (!current.name) return location.assign(`/pipes/${encodeURIComponent(name)}`);
    show(current.me).then(() => tell(`Published as declaration ${json.declared.number}. Its rollout is below the title.`), failed);
  });
}

async function check() {
  tell("Working…");
  try {
    const { json: { problems } } = await call("POST", "/check", { body: current.editor.value });
    current.editor.mark(problems);
    tell(problems.length ? `${count(problems)}.` : "No problems. SQL expressions are not checked here.");
  } catch (error) {
    failed(error);
  }
}

/** Connects the buttons, once. */
function start(editor) {
  current.editor = editor;
  document.getElementById("editor").addEventListener("submit", (event) => { event.preventDefault(); publish(); });
  document.getElementById("check").addEventListener("click", check);
  for (const element of document.querySelectorAll("[data-kind]")) {
    element.addEventListener("click", () => change("POST", path(`/rollout/${element.dataset.kind}`), {}, () => tell(`Asked to ${element.dataset.kind} the rollout.`)));
  }
  for (const id of ["pause", "resume"]) {
    document.getElementById(id).addEventListener("click", () => change("POST", path(`/${id}`), {}, (json) => {
      show(current.me).then(() => tell(`Declared ${json.declared.state} as declaration ${json.declared.number}.`), failed);
    }));
  }
  onSubmit(document.getElementById("try"), () => tryEvent(editor));
  const dialog = document.getElementById("confirm");
  document.getElementById("delete").addEventListener("click", () => dialog.showModal());
  dialog.addEventListener("close", () => {
    const typed = dialog.querySelector("[name=name]").value.trim();
    dialog.querySelector("form").reset();
    if (dialog.returnValue !== "delete") return;
    if (typed !== current.name) return tell("Not deleted: the name that was typed is a different one.");
    change("DELETE", path(), {}, () => location.assign("/"));
  });
  // The rollout goes on by itself; what is being typed stays.
  repeat(async () => {
    if (current.name && !document.getElementById("content").hidden) {
      const { json } = await call("GET", path());
      showState(json);
      showDestinations(json.destinations);
    }
  }, 3000);
}

page(show);
