"use strict";
const now = document.getElementById("now");
const pipe = now.dataset.pipe;
const last = document.getElementById("last");
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const STEPS = {
  "ingest.process": "ingest", "normalize.transit": "to normalize", "normalize.process": "normalize", "enrich.transit": "to enrich",
  "enrich.process": "enrich", "egest.transit": "to egest", "egest.process": "egest",
};
// The Okabe-Ito palette, chosen for colour-blind viewers.
const COLOURS = ["#56b4e9", "#e69f00", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#999999", "#8c6bb1", "#41ab5d"];

function layout(options) {
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink").trim(), line = style.getPropertyValue("--line").trim();
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true, fixedrange: true };
  const title = (text) => ({ text, font: { size: 11 }, standoff: 6 });
  return {
    paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: { color: ink, size: 12 }, margin: { l: 60, r: 10, t: 10, b: 40 },
    xaxis: { ...axis, type: "date", title: title(`time (${ZONE})`), ...options.xaxis }, yaxis: { ...axis, rangemode: "tozero", title: title(options.unit ?? "") },
    legend: { orientation: "h", y: -0.35 }, colorway: COLOURS, showlegend: true, hovermode: "x unified", dragmode: false, barmode: options.barmode,
    hoverlabel: { bgcolor: style.getPropertyValue("--raised").trim(), font: { color: ink } },
  };
}

function draw(id, traces, options, label) {
  const element = document.getElementById(id);
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", label);
  return Plotly.react(element, traces, layout(options), { displayModeBar: false, responsive: true });
}

/** Times of an axis: local times to draw, UTC for the tooltip. */
function times(at_ms, length = 16) {
  return { x: at_ms.map(format.local), customdata: at_ms.map((time_ms) => format.utc(time_ms, length)) };
}

function table(series, parts) {
  const element = document.createElement("table");
  const names = { minute: "Minute", state: "State", in: "In", delivered: "Delivered", lost: "Lost", p50: "p50, ms", p95: "p95, ms", p99: "p99, ms", max: "Maximum, ms" };
  const head = element.createTHead().insertRow();
  for (const text of [...Object.values(names), ...parts.map(([name]) => `${name}, ms`)]) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = text;
    head.append(cell);
  }
  const body = element.createTBody();
  series.minute.forEach((minute, index) => {
    const row = body.insertRow();
    for (const name of Object.keys(names)) {
      const value = series[name][index], cell = row.insertCell();
      if (name === "minute") cell.append(timeElement(minute * 60000, "minute"));
      else cell.textContent = typeof value === "string" ? value : format.number(value, /^p\d|max/.test(name) ? 1 : 0);
    }
    for (const [, values] of parts) row.insertCell().textContent = format.number(values[index], 1);
  });
  document.getElementById("as-table").replaceChildren(element);
}

/** Draws the last five minutes, one point per second. */
async function recent() {
  const series = await getJson(`/api/v1/pipes/${pipe}/recent`);
  const at_ms = series.at.map((second) => second * 1000);
  const end = Date.now(), range = [format.local(end - 300000), format.local(end)];
  const axis = times(at_ms, 19);
  const lines = [["rate_in", "in"], ["rate_out", "delivered"]].map(([key, name]) => ({ ...axis, y: series[key], name, mode: "lines", hovertemplate: "%{y:.1f} /s (%{customdata} UTC)" }));
  const newest = (values) => values.length ? values.at(-1) : null;
  draw("recent-events", lines, { unit: "events per second", xaxis: { range } }, `Lines: ${format.number(newest(series.rate_in), 1)} events a second in and ${format.number(newest(series.rate_out), 1)} delivered now.`);
  const lags = ["p50_ms", "p95_ms"].map((key) => ({ ...axis, y: series[key], name: key.slice(0, 3), mode: "lines", connectgaps: false, hovertemplate: "%{y:.1f} ms (%{customdata} UTC)" }));
  if (series.slo_p95_ms !== null) lags.push({ x: range, y: [series.slo_p95_ms, series.slo_p95_ms], name: "SLO, p95", mode: "lines", line: { dash: "dash", color: "#d55e00" }, hoverinfo: "skip" });
  draw("recent-lag", lags, { unit: "milliseconds", xaxis: { range } }, `Lines: p95 lag ${format.number(newest(series.p95_ms), 1)} ms now, SLO ${format.number(series.slo_p95_ms)} ms.`);
}

/** Draws one point per minute; open minutes are drawn lighter. */
async function minutes() {
  const state = document.getElementById("charts-state");
  const series = await getJson(`/api/v1/pipes/${pipe}/series?last=${last.value}`);
  state.textContent = series.minute.length ? "" : "No event has arrived in this time, so the charts by minute are empty.";
  const at_ms = series.minute.map((minute) => minute * 60000);
  const axis = times(at_ms);
  const end = Date.now();
  // A history shorter than the selected time fills the chart; the axis spans at least ten minutes.
  const begin = Math.max(end - last.value * 60000, Math.min(at_ms[0] ?? end, end - 600000) - 60000);
  const range = [format.local(begin), format.local(end)];
  const open = series.state.map((value) => value === "provisional");
  const parts = Object.entries(series.parts).map(([name, values]) => [STEPS[name] ?? name.replace("expel/", "response of "), values]);
  table(series, parts);
  const mean = (values) => values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : 0;
  const total = parts.reduce((sum, [, values]) => sum + mean(values), 0);
  const largest = parts.toSorted((left, right) => mean(right[1]) - mean(left[1]))[0];
  const marker = { size: 6, symbol: open.map((isOpen) => isOpen ? "circle-open" : "circle") };
  const lines = ["p50", "p95", "p99"].map((name) => ({ ...axis, y: series[name], name, mode: "lines+markers", marker, hovertemplate: "%{y:.1f} ms (%{customdata} UTC)" }));
  if (series.slo_p95_ms !== null) lines.push({ x: range, y: [series.slo_p95_ms, series.slo_p95_ms], name: "SLO, p95", mode: "lines", line: { dash: "dash", color: "#d55e00" }, hoverinfo: "skip" });
  const newest = (values, digits = 0) => format.number(values.length ? values.at(-1) : null, digits);
  draw("lag", lines, { unit: "milliseconds", xaxis: { range } }, `Lines: p95 lag of the newest minute ${newest(series.p95, 1)} ms, SLO ${format.number(series.slo_p95_ms)} ms.`);
  const counts = [["in", "in"], ["delivered", "delivered"], ["dead", "dead letters"], ["lost", "lost"]].map(([key, name]) => ({ ...axis, y: series[key], name, mode: "lines+markers", marker, hovertemplate: "%{y:,} (%{customdata} UTC)" }));
  draw("events", counts, { unit: "events per minute", xaxis: { range } }, `Lines: ${newest(series.in)} events in and ${newest(series.delivered)} delivered in the newest minute.`);
  const bars = parts.map(([name, y]) => ({ ...axis, y, name, type: "bar", marker: { opacity: open.map((isOpen) => isOpen ? 0.55 : 1) }, hovertemplate: "%{y:.1f} ms (%{customdata} UTC)" }));
  draw("parts", bars, { unit: "milliseconds", barmode: "stack", xaxis: { range } }, `Stacked bars: mean time of ${parts.length} steps by minute; the largest is ${largest?.[0] ?? "not known yet"}.`);
  const shares = { type: "pie", labels: parts.map(([name]) => name), values: parts.map(([, values]) => mean(values)), sort: false, textinfo: "percent", textposition: "inside", marker: { colors: COLOURS }, hovertemplate: "%{label}: %{value:.1f} ms, %{percent}<extra></extra>" };
  draw("share", [shares], {}, `Pie: ${parts.map(([name, values]) => `${name} ${format.number(total ? 100 * mean(values) / total : 0)} %`).join(", ") || "not known yet"}.`);
}

/** Details of a circuit breaker that is not closed; must match `_breaker` on the server. */
function breakerDetails(breaker) {
  if (breaker.since_ms === null) return "";
  const parts = [`since ${format.utc(breaker.since_ms, 19)} UTC`];
  if (breaker.answer) parts.push(`answer ${breaker.answer}`);
  if (breaker.open_partitions < breaker.partitions) parts.push(`on ${breaker.open_partitions} of ${breaker.partitions} partitions`);
  return parts.join(", ");
}

/** When the backfill of a source is expected to end; must match `_expected_end` on the server. */
function expectedEnd(source) {
  if (!source.backfill) return "–";
  const held = source.late ? `, held back by ${source.late}` : "";
  if (source.left_s === null) return `not in sight${held}`;
  const minutes = Math.round(source.left_s / 60);
  const left = source.left_s < 100 ? `${source.left_s} s` : minutes < 100 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `in ${left}${held}`;
}

function showSource(source) {
  const element = document.getElementById("source");
  if (!element || !source) return;
  setText(element, "state", source.backfill ? "backfill" : "live");
  for (const name of ["done", "remaining"]) setText(element, name, `${format.number(source[name])} events`);
  for (const name of ["read_per_s", "arriving_per_s"]) setText(element, name, `${format.number(source[name])} /s`);
  setText(element, "limit_per_s", source.backfill ? `${format.number(source.limit_per_s)} /s` : "–");
  setText(element, "end", expectedEnd(source));
}

/** Options of `hifi step explain` for what a step's finding names; must match `_places` on the server. */
function places(finding) {
  const offsets = finding.suspects.map(({ partition, offset }) => [partition, offset]);
  const ranges = offsets.length ? offsets : [[finding.partition, `${finding.first}..${finding.last}`]];
  return ranges.map(([partition, offset]) => `--partition ${partition} --offset ${offset}`);
}

/** An element with some content: text, an element, or a list of these. */
function element(name, content) {
  const made = document.createElement(name);
  made.append(...[content].flat());
  return made;
}

/** Replaces the rows of a table's body; each is a list of cells with content and class, the first is its heading. */
function showRows(id, rows) {
  document.getElementById(id).replaceChildren(...rows.map((cells) => element("tr", cells.map(([content, className], index) => {
    const cell = element(index ? "td" : "th", content);
    if (!index) cell.scope = "row";
    if (className) cell.className = className;
    return cell;
  }))));
}

/** The meaning of a verdict; must match `_verdict` on the server. */
function meaning(verdict, pipes) {
  const text = { folded: "counted", copy: "copy of an event that it had read", "left-out": "left out by where" }[verdict];
  if (text) return text;
  return pipes.flatMap((name, index) => {
    const link = element("a", pipes.length > 1 ? `dead letter of ${name}` : "dead letter");
    link.href = `/pipes/${name}/dead?service=state&reason=${encodeURIComponent(verdict)}`;
    return index ? [", ", link] : [link];
  });
}

/** Shows what a step did with the events that it has read. */
function showStep(step) {
  const section = document.getElementById("step");
  if (!section || !step) return;
  const time = (at_ms) => at_ms === null ? "–" : timeElement(at_ms, "second");
  for (const name of ["proven", "lost", "unproven"]) setText(section, name, `${format.number(step[name])} events`);
  section.querySelector('[data-is="lost"]').classList.toggle("worse", step.lost > 0);
  section.querySelector('[data-is="until"]').replaceChildren(time(step.until_ms));
  showRows("verdicts", Object.entries(step.verdicts).map(([verdict, events]) => [[verdict], [meaning(verdict, [step.reads, ...step.joined])], [format.number(events), "num"]]));
  showRows("compared", step.partitions.map((row) => [
    [`${row.partition}`, "num"], [row.next > row.first ? `${format.number(row.first)} to ${format.number(row.next - 1)}` : "–"],
    [time(row.until_ms)], [format.number(row.proven), "num"], [format.number(row.unproven), "num"],
  ]));
  const differences = document.getElementById("differences");
  document.getElementById("differences-title").hidden = differences.closest(".scroll").hidden = !step.findings.length;
  // Not rewritten without need, so that a command can be selected.
  const shown = JSON.stringify(step.findings);
  if (differences.dataset.shown === shown) return;
  differences.dataset.shown = shown;
  showRows("differences", step.findings.map((finding) => [
    [time(finding.at_us / 1000)], [finding.text, "worse"], [`${finding.partition}: ${format.number(finding.first)} to ${format.number(finding.last)}`],
    [finding.suspects.length ? finding.suspects.map(({ event }) => element("div", event)) : "–"],
    [places(finding).map((place) => element("div", element("code", [`hifi step explain ${pipe} `, element("span", place)]))), "wrap"],
  ]));
}

/** Shows a time with seconds, or a dash. */
function setTime(element, name, text) {
  const shown = text ? timeElement(Date.parse(text), "second") : "–";
  element.querySelector(`[data-is="${name}"]`).replaceChildren(shown);
}

/** Shows the event time and the chain of a watermark. */
function showEventTime(row) {
  const element = document.querySelector(`[data-event-time="${CSS.escape(row.destination)}"]`);
  const chain = row.chain ?? { settled_until: null, because: [], held_by: null };
  setTime(element, "event_until", row.event_until);
  setTime(element, "chain_until", chain.settled_until);
  setText(element, "late", format.number(row.event_late.last_1m));
  setText(element, "open", format.number(row.event_late.open));
  const held = chain.held_by ? ` Chain held by ${chain.held_by}.` : "";
  setText(element, "because", [...row.event_because, ...chain.because].join("; ") + held);
}

/** Shows the watermarks as this observe states them, as server-sent events. */
function showWatermarks({ watermarks }) {
  for (const row of watermarks) {
    const element = document.querySelector(`[data-watermark="${CSS.escape(row.destination)}"]`);
    if (!element) continue;
    element.querySelector('[data-is="verdict"]').replaceChildren(badge(row.verdict, { current: "good", degraded: "bad" }[row.verdict]));
    for (const name of ["settled_until", "first_pass_until"]) setTime(element, name, row[name]);
    for (const name of ["in_flight", "waiting", "parked"]) setText(element, name, format.number(row.open[name]));
    setText(element, "late", format.number(row.late_1m));
    setText(element, "because", row.because.join("; "));
    showEventTime(row);
  }
}

const watermarks = new EventSource(`/api/v1/watermarks/${pipe}`);
watermarks.addEventListener("message", (event) => showWatermarks(JSON.parse(event.data)));

repeat(async () => {
  const state = await getJson(`/api/v1/pipes/${pipe}`);
  document.getElementById("waiting").hidden = state.seen;
  for (const name of ["rate_in", "rate_out"]) setText(now, name, `${format.number(state.now[name], 1)} /s`);
  for (const name of ["p50", "p95"]) setText(now, name, format.ms(state.now.lag.count ? state.now.lag[name] : null));
  for (const name of ["in_flight", "retrying", "dead_last_minute"]) setText(now, name, format.number(state.now[name]));
  showSource(state.now.source);
  showStep(state.step);
  for (const { name, breaker } of state.destinations) {
    const cell = document.querySelector(`[data-destination="${CSS.escape(name)}"] [data-is="breaker"]`);
    cell?.replaceChildren(badge(breaker.state, { closed: "good", open: "bad", paused: "bad" }[breaker.state]), ` ${breakerDetails(breaker)}`);
  }
}, 2000);
repeat(recent, 2000);
repeat(minutes, 10000);
last.addEventListener("change", minutes);
document.addEventListener("theme", () => { recent(); minutes(); });
