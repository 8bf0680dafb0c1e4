"use strict";
const OUTCOME_KINDS = { done: "good", refused: "bad" };
/** A declaration's number, or what is recorded of a principal. */
const state = (value) => value === null ? "–" : typeof value === "object" ? `${value.role} of ${value.pipes?.join(", ") || "all pipes"}` : value;

page(async () => {
  const { json: { entries } } = await call("GET", "/audit");
  fillTable("audit", entries.map((one) => {
    const outcome = document.createElement("span");
    outcome.append(badge(one.outcome, OUTCOME_KINDS[one.outcome] ?? "open"), ` ${one.reason}`, one.take_over ? " (took over a pipe declared by file)" : "");
    return [moment(one.at_us), one.principal, one.what, one.subject, state(one.before), state(one.after), outcome];
  }), 1);
});
