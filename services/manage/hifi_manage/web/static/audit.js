"use strict";
const OUTCOME_KINDS = { done: "good", refused: "bad" };
/** A declaration's number, a principal's role, or the facts of another change. */
const state = (value) => {
  if (value === null) return "–";
  if (typeof value !== "object") return value;
  return value.role ? `${value.role} of ${value.pipes?.join(", ") || "all pipes"}` : Object.entries(value).map(([name, fact]) => `${name} ${fact}`).join(", ");
};

page(async () => {
  const { json: { entries } } = await call("GET", "/audit");
  fillTable("audit", entries.map((one) => {
    const outcome = document.createElement("span");
    outcome.append(badge(one.outcome, OUTCOME_KINDS[one.outcome] ?? "open"), ` ${one.reason}`, one.take_over ? " (took over a pipe declared by file)" : "");
    return [moment(one.at_us), one.principal, one.what, one.subject, state(one.before), state(one.after), outcome];
  }), 1);
});
