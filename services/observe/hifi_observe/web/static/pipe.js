"use strict";
const now = document.getElementById("now");
const pipe = now.dataset.pipe;
const last = document.getElementById("last");
const NAMES = {
  "ingest.process": "ingest", "normalize.transit": "to normalize", "normalize.process": "normalize", "enrich.transit": "to enrich",
  "enrich.process": "enrich", "egest.transit": "to egest", "egest.process": "egest",
};
// Okabe and Ito's palette, told apart by colour-blind eyes too.
const COLOURS = ["#56b4e9", "#e69f00", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#999999", "#8c6bb1", "#41ab5d"];

function layout(more) {
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink").trim(), line = style.getPropertyValue("--line").trim();
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true };
  return {
    paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: { color: ink, size: 12 }, margin: { l: 50, r: 10, t: 10, b: 30 },
    xaxis: { ...axis, type: "date" }, yaxis: { ...axis, rangemode: "tozero", ...more?.yaxis }, legend: { orientation: "h", y: -0.2 }, colorway: COLOURS, showlegend: true,
  };
}

function draw(id, traces, more, says) {
  const at = document.getElementById(id);
  at.setAttribute("role", "img");
  at.setAttribute("aria-label", says);
  return Plotly.react(at, traces, layout(more), { displayModeBar: false, responsive: true, staticPlot: true });
}

function table(series, parts) {
  const made = document.createElement("table");
  const names = ["minute", "state", "in", "delivered", "lost", "p50", "p95", "p99", "max"];
  const head = made.createTHead().insertRow();
  for (const name of [...names, ...parts.map(([name]) => name)]) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = /^p\d|max/.test(name) ? `${name}, ms` : name;
    head.append(cell);
  }
  const body = made.createTBody();
  series.minute.forEach((minute, index) => {
    const row = body.insertRow();
    for (const name of names) row.insertCell().textContent = name === "minute" ? format.clock(minute) : typeof series[name][index] === "number" ? format.number(series[name][index], name.startsWith("p") || name === "max" ? 1 : 0) : series[name][index] ?? "–";
    for (const [, values] of parts) row.insertCell().textContent = format.number(values[index], 1);
  });
  document.getElementById("as-table").replaceChildren(made);
}

async function charts() {
  const state = document.getElementById("charts-state");
  const series = await ask(`/api/v1/pipes/${pipe}/series?last=${last.value}`);
  if (!series.minute.length) {
    state.textContent = "No minute has been closed in this time.";
    return;
  }
  state.textContent = "";
  const x = series.minute.map((minute) => new Date(minute * 60000).toISOString());
  const parts = Object.entries(series.parts).map(([name, values]) => [NAMES[name] ?? name.replace("expel/", "answer of "), values]);
  table(series, parts);
  const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;
  const total = parts.reduce((sum, [, values]) => sum + mean(values), 0);
  const largest = parts.toSorted((one, other) => mean(other[1]) - mean(one[1]))[0];
  draw("parts", parts.map(([name, y]) => ({ x, y, name, type: "bar" })).map((one) => ({ ...one, hovertemplate: "%{y:.1f} ms" })), { yaxis: { title: "ms" } }, `Stacked bars: ${parts.length} parts of the way by minute, the largest is ${largest?.[0]}.`);
  Plotly.relayout("parts", { barmode: "stack" });
  draw("share", [{ type: "pie", labels: parts.map(([name]) => name), values: parts.map(([, values]) => mean(values)), sort: false, textinfo: "percent", textposition: "inside", marker: { colors: COLOURS } }], {}, `Pie: ${parts.map(([name, values]) => `${name} ${format.number(100 * mean(values) / total, 0)} %`).join(", ")}.`);
  const lines = ["p50", "p95", "p99"].map((name) => ({ x, y: series[name], name, mode: "lines+markers", marker: { size: 4 } }));
  lines.push({ x: [x[0], x.at(-1)], y: [series.slo_p95_ms, series.slo_p95_ms], name: "SLO, p95", mode: "lines", line: { dash: "dash", color: "#d55e00" } });
  draw("lag", lines, { yaxis: { title: "ms" } }, `Lines: p95 of the last minute ${format.number(series.p95.at(-1), 1)} ms, the SLO ${format.number(series.slo_p95_ms, 0)} ms.`);
  draw("events", ["in", "delivered", "dead", "lost"].map((name) => ({ x, y: series[name], name, mode: "lines" })), {}, `Lines: ${series.in.at(-1)} events in, ${series.delivered.at(-1)} deliveries and ${series.lost.at(-1)} lost in the last minute.`);
}

function about(breaker) {
  if (breaker.since_ms === null) return "";
  const said = [`since ${new Date(breaker.since_ms).toISOString().slice(0, 19).replace("T", " ")}`];
  if (breaker.answer) said.push(`answer ${breaker.answer}`);
  if (breaker.open_partitions < breaker.partitions) said.push(`on ${breaker.open_partitions} of ${breaker.partitions} partitions`);
  return said.join(", ");
}

often(async () => {
  const one = await ask(`/api/v1/pipes/${pipe}`);
  const show = (name, text) => { now.querySelector(`[data-is="${name}"]`).textContent = text; };
  show("rate_in", `${format.number(one.now.rate_in, 1)} /s`);
  show("rate_out", `${format.number(one.now.rate_out, 1)} /s`);
  for (const name of ["p50", "p95"]) show(name, format.ms(one.now.lag.count ? one.now.lag[name] : null));
  for (const name of ["in_flight", "retrying"]) show(name, format.number(one.now[name]));
  for (const { name, breaker } of one.destinations) {
    const cell = document.querySelector(`[data-destination="${CSS.escape(name)}"] [data-is="breaker"]`);
    cell?.replaceChildren(badge(breaker.state, { closed: "good", open: "bad" }[breaker.state]), ` ${about(breaker)}`);
  }
}, 2000);
often(charts, 15000);
last.addEventListener("change", charts);
document.addEventListener("theme", charts);
