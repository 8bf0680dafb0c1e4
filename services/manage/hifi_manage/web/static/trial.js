"use strict";
/** A heading and a text that may be long. */
function shownText(title, text) {
  const heading = document.createElement("h3");
  heading.textContent = title;
  const block = document.createElement("pre");
  block.className = "diff";
  block.tabIndex = 0;
  block.setAttribute("role", "region");
  block.setAttribute("aria-label", title);
  block.textContent = text;
  return [heading, block];
}

/** Shows what becomes of a test event of the pipe in the editor. */
async function tryEvent(editor) {
  const shown = document.getElementById("tried");
  shown.replaceChildren();
  let event;
  try {
    event = JSON.parse(document.getElementById("event").value);
  } catch (error) {
    return `The event is not JSON: ${error.message}`;
  }
  let found;
  try {
    found = (await call("POST", "/try", { body: JSON.stringify({ pipe: editor.value, event }) })).json;
  } catch (error) {
    if (error.status === 422) editor.mark(error.problem.problems);
    throw error;
  }
  const { data, refused, deliveries, not_evaluated: leftOut } = found;
  if (refused) {
    shown.append(...shownText("Dead letter", `${refused.reason}${refused.pointer ? ` at ${refused.pointer}` : ""}: ${refused.detail}`));
  } else {
    shown.append(...shownText("After normalize", data));
    for (const one of deliveries) shown.append(...shownText(`Request to ${one.destination}`, one.request ?? one.reason));
  }
  if (leftOut.length) shown.append(...shownText("Not evaluated", leftOut.join("\n")));
  return refused ? "normalize refuses the event." : `${deliveries.length} ${deliveries.length === 1 ? "destination" : "destinations"}. Nothing was sent.`;
}
