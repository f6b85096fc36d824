"use strict";
// Draws the charts of a report from the JSON in the page; no library, no network.
const data = JSON.parse(document.getElementById("data").textContent);
const streams = new Map(data.streams.map((stream) => [stream.id, stream]));
const hidden = { method: new Set(), stream: new Set(), verdict: new Set() };
const tip = document.getElementById("tip");
const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
const all = (query, root = document) => [...root.querySelectorAll(query)];
const shown = (stream) => stream.methods.filter((method) => !hidden.method.has(method.label));
const percent = (stream) => stream.metric === "accuracy";
const unit = (stream) => (percent(stream) ? "accuracy, %" : "R²");
const known = (value) => value !== null && value !== undefined;

// ---------------------------------------------------------------- numbers
const fixed = (value, digits) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−");
const figures = (value) => (value === 0 ? "0" : fixed(value, Math.min(3, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)))))));
function score(stream, mean, low, high) {
  if (!known(mean)) return "—";
  const [factor, digits] = percent(stream) ? [100, 1] : [1, 3];
  const half = known(low) ? ` ± ${fixed((factor * (high - low)) / 2, digits)}` : "";
  return fixed(factor * mean, digits) + half;
}
function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const out = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + 1e-9 * step; t += step) out.push(Math.abs(t) < step / 1e6 ? 0 : t);
  return out;
}
const plainTick = (value) => (Math.abs(value) >= 10000 ? `${value / 1000}k`.replace("-", "−") : String(+value.toPrecision(6)).replace("-", "−"));

// ---------------------------------------------------------------- drawing
function node(parent, name, attributes = {}, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) if (known(value)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}
function canvas(host, height, label) {
  const width = Math.max(220, Math.round(host.clientWidth));
  const svg = node(host, "svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  return [svg, width];
}
function group(svg, method) {
  return node(svg, "g", { class: "m", style: `--c:${method.colour}`, "data-method": method.label });
}
// Moves labels apart to at least a gap, in their order, near their place and between two bounds.
function apart(values, gap, low, high) {
  const order = values.map((_, i) => i).sort((a, b) => values[a] - values[b]);
  const runs = [];
  const start = (run) => {
    const wanted = run.reduce((sum, i) => sum + values[i], 0) / run.length - (gap * run.length) / 2;
    return Math.max(low, Math.min(high - gap * run.length, wanted));
  };
  for (const i of order) {
    runs.push([i]);
    while (runs.length > 1 && start(runs.at(-1)) < start(runs.at(-2)) + gap * runs.at(-2).length) {
      const last = runs.pop();
      runs.at(-1).push(...last);
    }
  }
  const out = [];
  for (const run of runs) run.forEach((i, k) => { out[i] = start(run) + gap * (k + 0.5); });
  return out;
}
// Room for names beside a chart, and a name cut to fit it.
const textWidth = (methods, width) => Math.min(width * 0.4, Math.max(30, ...methods.map((method) => method.label.length * 7)) + 14);
const named = (label, room) => (label.length * 7 + 12 <= room ? label : `${label.slice(0, Math.max(3, Math.floor((room - 20) / 7)))}…`);
function yAxis(svg, box, low, high, title) {
  const y = (value) => box.bottom - ((value - low) / (high - low || 1)) * (box.bottom - box.top);
  for (const t of ticks(low, high, 5)) {
    node(svg, "line", { class: "grid-line", x1: box.left, x2: box.right, y1: y(t), y2: y(t) });
    node(svg, "text", { x: box.left - 7, y: y(t) + 4, "text-anchor": "end" }, plainTick(t));
  }
  node(svg, "text", { x: 0, y: 11 }, title);
  return y;
}
function taskAxis(svg, box, count, title) {
  const x = (i) => (count === 1 ? (box.left + box.right) / 2 : box.left + (i / (count - 1)) * (box.right - box.left));
  node(svg, "line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom });
  const step = Math.max(1, Math.ceil(count / Math.max(2, (box.right - box.left) / 44)));
  for (let i = 0; i < count; i++) {
    if (i && (i + 1) % step) continue;
    if (i === 0 && step > 2 && count > 1 && x(step - 1) - x(0) < 26) continue;
    node(svg, "text", { x: x(i), y: box.bottom + 17, "text-anchor": "middle" }, i + 1);
  }
  node(svg, "text", { x: (box.left + box.right) / 2, y: box.bottom + 33, "text-anchor": "middle" }, title);
  return x;
}
const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function lines(host, stream, curve) {
  const methods = shown(stream), count = stream.tasks.length, factor = percent(stream) ? 100 : 1;
  const ends = methods.map((m) => m.curves[curve]);
  const height = Math.max(300, methods.length * 15 + 70);
  const [svg, width] = canvas(host, height, `${host.dataset.title}: ` + methods.map((m) => `${m.label} ${score(stream, m.curves[curve].mean.at(-1))}`).join(", ") + ". Arrow keys read values.");
  const room = textWidth(methods, width), box = { left: 40, right: width - room, top: 24, bottom: height - 42 };
  const values = ends.flatMap((end) => [...end.mean, ...(end.runs.length ? end.runs.flat() : [...end.low, ...end.high].map((v) => possible(stream, v)))]).filter(known).map((v) => v * factor);
  const spread = Math.max(...values) - Math.min(...values) || 1;
  const low = Math.min(...values) - spread * 0.04, high = Math.min(percent(stream) ? 100 : Infinity, Math.max(...values) + spread * 0.04);
  const y = yAxis(svg, box, low, high, unit(stream));
  const x = taskAxis(svg, box, count, curve === "final" ? "task" : "tasks learned");
  const cross = node(svg, "line", { class: "cross", y1: box.top, y2: box.bottom, visibility: "hidden" });
  const places = apart(methods.map((m) => y(factor * (m.curves[curve].mean.at(-1) ?? low))), 15, box.top - 8, box.bottom + 8);
  methods.forEach((method, k) => {
    const g = group(svg, method), end = method.curves[curve];
    const placed = (numbers) => numbers.flatMap((v, i) => (known(v) ? [[x(i), y(factor * possible(stream, v))]] : []));
    const points = (key) => placed(end[key]);
    for (const run of end.runs) node(g, "path", { class: "single", d: path(placed(run)) });
    if (known(end.low[0]) && !end.runs.length) node(g, "path", { class: "band", d: path([...points("high"), ...points("low").reverse()]) + "Z" });
    node(g, "path", { class: "line", d: path(points("mean")), "stroke-dasharray": method.dash.join(" ") || null });
    if (count === 1) node(g, "circle", { class: "mark", cx: x(0), cy: y(factor * end.mean[0]), r: 4 });
    node(g, "text", { class: "name", x: box.right + 8, y: places[k] + 4 }, named(method.label, room));
  });
  let at = null;
  const point = (i, left, top) => {
    at = Math.min(count - 1, Math.max(0, i));
    for (const [name, value] of [["x1", x(at)], ["x2", x(at)], ["visibility", "visible"]]) cross.setAttribute(name, value);
    const rows = methods.map((m) => [m, ...["mean", "low", "high"].map((key) => m.curves[curve][key][at])]).sort((a, b) => b[1] - a[1]);
    const title = curve === "final" ? `Task ${at + 1}: ${stream.tasks[at]}` : `After ${at + 1} of ${count} tasks`;
    say(title, rows.map(([m, ...v]) => [m, score(stream, ...v)]), left, top);
  };
  const leave = () => { cross.setAttribute("visibility", "hidden"); quiet(); };
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("pointermove", (event) => {
    const area = svg.getBoundingClientRect();
    const inside = ((event.clientX - area.left) / area.width) * width;
    point(Math.round(((inside - box.left) / (box.right - box.left || 1)) * (count - 1)), event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const area = svg.getBoundingClientRect();
    const next = at === null ? (step > 0 ? 0 : count - 1) : at + step;
    const inside = x(Math.min(count - 1, Math.max(0, next)));
    point(next, area.left + (inside / width) * area.width, area.top + 30);
  });
}

function measures(host, stream) {
  const three = document.createElement("div");
  three.className = "three";
  host.append(three);
  const keys = ["forgetting", "backward", "forward"];
  // All places first: a chart is as wide as its place, and that depends on how many there are.
  const places = keys.map(() => three.appendChild(document.createElement("div")));
  keys.forEach((key, i) => whiskers(places[i], stream, key));
}
function whiskers(host, stream, key) {
  const methods = shown(stream), factor = percent(stream) ? 100 : 1, title = data.measures[key][0], gap = 26, top = 26;
  const bottom = top + methods.length * gap;
  const [svg, width] = canvas(host, bottom + 34, `${title}, see the table for values`);
  const names = textWidth(methods, width), left = names + 4, right = width - 14;
  const every = methods.flatMap((m) => [m.values[key].mean, ...beside(m.values[key])]).filter(known).map((v) => factor * v);
  const low = Math.min(0, ...every), high = Math.max(0, ...every), room = (high - low || 1) * 0.05;
  const x = (value) => left + ((value - low + room) / (high - low + 2 * room)) * (right - left);
  node(svg, "text", { x: left, y: 14, style: "fill:var(--ink);font-weight:600" }, title);
  for (const t of ticks(low, high, Math.max(2, (right - left) / 60))) {
    node(svg, "line", { class: t === 0 ? "zero" : "grid-line", x1: x(t), x2: x(t), y1: top, y2: bottom });
    node(svg, "text", { x: x(t), y: bottom + 15, "text-anchor": "middle" }, plainTick(t));
  }
  node(svg, "text", { x: (left + right) / 2, y: bottom + 31, "text-anchor": "middle" }, percent(stream) ? "points" : "R²");
  methods.forEach((method, i) => {
    const g = group(svg, method), y = top + gap * (i + 0.5), value = method.values[key];
    node(g, "text", { class: "name", x: left - 10, y: y + 4, "text-anchor": "end" }, named(method.label, names));
    if (!known(value.mean)) return;
    if (few(value)) for (const v of beside(value)) node(g, "line", { class: "tick", x1: x(factor * v), x2: x(factor * v), y1: y - 7, y2: y + 7 });
    else if (known(value.low)) node(g, "line", { class: "whisker", x1: x(factor * value.low), x2: x(factor * value.high), y1: y, y2: y });
    node(g, "circle", { class: "mark", cx: x(factor * value.mean), cy: y, r: 5 });
    const area = node(g, "rect", { x: left, y: y - gap / 2, width: right - left, height: gap, fill: "transparent" });
    hover(area, () => [method.label, [[title, score(stream, value.mean, value.low, value.high)]]]);
  });
}
// What is drawn beside a mean: single runs where they are few, else the interval, within what can be.
const few = (value) => value.each.length < data.few;
const beside = (value) => (value.each.length < 2 ? [] : few(value) ? value.each : [value.low, value.high]).filter(known);
const possible = (stream, value) => (known(value) && percent(stream) ? Math.min(1, Math.max(0, value)) : value);

function costs(host, stream) {
  const both = document.createElement("div");
  both.className = "grid"; both.style.marginTop = "0";
  host.append(both);
  for (const [cost, title] of [["seconds", "seconds, select + train"], ["stored", "stored examples at the end"]]) {
    const place = document.createElement("div");
    both.append(place);
    scatter(place, stream, cost, title);
  }
}
function scatter(host, stream, cost, title) {
  const methods = shown(stream).filter((m) => known(m.values[cost].mean)), factor = percent(stream) ? 100 : 1;
  if (!methods.length) { host.textContent = `No ${cost} were recorded.`; return; }
  const height = Math.max(280, methods.length * 14 + 70);
  const [svg, width] = canvas(host, height, `Average score against ${title}, see the table for values`);
  const names = textWidth(methods, width), box = { left: 40, right: width - names, top: 24, bottom: height - 42 };
  const every = methods.flatMap((m) => [m.values.average.mean, ...beside(m.values.average).map((v) => possible(stream, v))]).filter(known).map((v) => factor * v);
  const spread = Math.max(...every) - Math.min(...every) || 2;
  const y = yAxis(svg, box, Math.min(...every) - spread * 0.08, Math.min(percent(stream) ? 100 : Infinity, Math.max(...every) + spread * 0.08), `average ${unit(stream)}`);
  // Costs differ by orders of magnitude: a logarithmic axis, with a place of its own for none.
  const costsOf = methods.map((m) => m.values[cost].mean), some = costsOf.filter((v) => v > 0);
  const none = some.length < costsOf.length;
  const low = Math.log10(Math.min(...some, Infinity) === Infinity ? 1 : Math.min(...some)) - 0.15;
  const high = Math.max(low + 0.5, Math.log10(some.length ? Math.max(...some) : 10) + 0.15);
  const from = box.left + (none ? 46 : 8);
  const x = (v) => (v > 0 ? from + ((Math.log10(v) - low) / (high - low)) * (box.right - from) : box.left + 16);
  node(svg, "line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom });
  const marks = [];
  let last = none ? x(0) : -Infinity;
  for (let e = Math.floor(low); e <= high; e++) for (const n of high - low > 2.2 ? [1] : [1, 2, 5]) marks.push(n * 10 ** e);
  for (const t of marks.filter((v) => Math.log10(v) >= low && Math.log10(v) <= high)) {
    node(svg, "line", { class: "grid-line", x1: x(t), x2: x(t), y1: box.top, y2: box.bottom });
    if (x(t) - last < 38) continue;
    last = x(t);
    node(svg, "text", { x: x(t), y: box.bottom + 17, "text-anchor": "middle" }, plainTick(t));
  }
  if (none) node(svg, "text", { x: x(0), y: box.bottom + 17, "text-anchor": "middle" }, "none");
  node(svg, "text", { x: (box.left + box.right) / 2, y: box.bottom + 34, "text-anchor": "middle" }, title);
  // Labels are moved apart only from those that are near enough to overlap.
  const places = [], near = [], across = methods.map((m) => x(m.values[cost].mean));
  for (const i of methods.map((_, k) => k).sort((a, b) => across[a] - across[b])) {
    if (near.length && across[i] - across[near.at(-1).at(-1)] < names * 0.7) near.at(-1).push(i);
    else near.push([i]);
  }
  for (const group of near) {
    const heights = apart(group.map((i) => y(factor * methods[i].values.average.mean)), 14, box.top - 8, box.bottom + 8);
    group.forEach((i, k) => { places[i] = heights[k]; });
  }
  methods.forEach((method, i) => {
    const g = group(svg, method), v = method.values.average, cx = x(method.values[cost].mean), cy = y(factor * v.mean);
    if (few(v)) for (const one of beside(v)) node(g, "line", { class: "tick", x1: cx - 9, x2: cx + 9, y1: y(factor * one), y2: y(factor * one) });
    else if (known(v.low)) node(g, "line", { class: "whisker", x1: cx, x2: cx, y1: y(factor * possible(stream, v.low)), y2: y(factor * possible(stream, v.high)) });
    node(g, "circle", { class: "mark", cx, cy, r: 6 });
    node(g, "text", { class: "name", x: cx + 10, y: places[i] + 4 }, named(method.label, Math.max(names, width - cx - 10)));
    const area = node(g, "circle", { cx, cy, r: 16, fill: "transparent" });
    hover(area, () => [method.label, [["average", score(stream, v.mean, v.low, v.high)], ["seconds", known(method.values.seconds.mean) ? figures(method.values.seconds.mean) : "—"], ["stored examples", fixed(method.values.stored.mean, 0)]]]);
  });
}

function time(host, stream) {
  const methods = shown(stream).filter((m) => known(m.values.seconds.mean)), phases = ["select", "train", "evaluate"];
  if (!methods.length) { host.textContent = "No times were recorded."; return; }
  const gap = 32, [svg, width] = canvas(host, methods.length * gap + 26, "Seconds by method, see the table for values");
  const names = textWidth(methods, width), left = names + 4, right = width - 112;
  const total = (m) => phases.reduce((sum, phase) => sum + (m.values[phase].mean ?? 0), 0);
  const most = Math.max(...methods.map(total)) || 1, x = (v) => left + (v / most) * (right - left);
  for (const t of ticks(0, most, Math.max(2, (right - left) / 70))) {
    node(svg, "line", { class: "grid-line", x1: x(t), x2: x(t), y1: 0, y2: methods.length * gap });
    node(svg, "text", { x: x(t), y: methods.length * gap + 16, "text-anchor": "middle" }, plainTick(t));
  }
  methods.forEach((method, i) => {
    const g = group(svg, method), y = i * gap + 5;
    node(g, "text", { class: "name", x: left - 10, y: y + 15, "text-anchor": "end" }, named(method.label, names));
    let foot = 0;
    for (const phase of phases) {
      const value = method.values[phase].mean ?? 0;
      node(g, "rect", { class: phase, x: x(foot), y, width: Math.max(0, x(foot + value) - x(foot)), height: gap - 11 });
      foot += value;
    }
    const times = method.values.ratio.mean;
    node(g, "text", { x: x(foot) + 6, y: y + 15 }, `${figures(foot)} s` + (known(times) ? `, × ${figures(times)}` : ""));
    const area = node(g, "rect", { x: 0, y: i * gap, width, height: gap, fill: "transparent" });
    hover(area, () => [method.label, phases.map((phase) => [phase, known(method.values[phase].mean) ? `${figures(method.values[phase].mean)} s` : "—"])]);
  });
  key(host, phases.map((phase) => [phase, { select: "#009E73", train: "#0072B2", evaluate: "#9aa0a6" }[phase]]));
}

function shade(share) {
  const place = Math.min(0.9999, Math.max(0, share)) * (CIVIDIS.length - 1), i = Math.floor(place), part = place - i;
  const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  const [a, b] = [rgb(CIVIDIS[i]), rgb(CIVIDIS[i + 1])];
  return `rgb(${a.map((v, k) => Math.round(v + part * (b[k] - v))).join(",")})`;
}
function many(host, methods, draw) {
  const grid = document.createElement("div");
  grid.className = "many"; host.append(grid);
  for (const method of methods) {
    const place = document.createElement("div"), title = document.createElement("h4");
    place.className = "m"; place.style.setProperty("--c", method.colour); title.textContent = method.label;
    place.append(title); grid.append(place);
    draw(place, method);
  }
}
function matrices(host, stream) {
  const count = stream.tasks.length, factor = percent(stream) ? 100 : 1;
  const every = shown(stream).flatMap((m) => m.accuracy.flat()).filter(known);
  const low = Math.min(...every), high = percent(stream) ? 1 : Math.max(...every);
  many(host, shown(stream), (place, method) => {
    const width = Math.max(120, place.clientWidth), [svg] = canvas(place, width, `Accuracy matrix of ${method.label}, see the table for values`);
    svg.setAttribute("viewBox", `0 0 ${width} ${width}`);
    const left = 20, size = (width - left) / count;
    method.accuracy.forEach((row, i) => row.forEach((v, j) => {
      if (known(v)) node(svg, "rect", { x: left + j * size, y: i * size, width: size + 0.4, height: size + 0.4, fill: shade((v - low) / (high - low || 1)) });
    }));
    for (const i of new Set([0, count - 1])) {
      node(svg, "text", { x: left - 4, y: (i + 0.5) * size + 4, "text-anchor": "end", style: "font-size:10px" }, i + 1);
    }
    svg.addEventListener("pointermove", (event) => {
      const area = svg.getBoundingClientRect();
      const i = Math.floor((((event.clientY - area.top) / area.height) * width) / size), j = Math.floor((((event.clientX - area.left) / area.width) * width - left) / size);
      const v = method.accuracy[i]?.[j];
      known(v) ? say(method.label, [[`task ${j + 1} after task ${i + 1}`, score(stream, v)]], event.clientX, event.clientY) : quiet();
    });
    svg.addEventListener("pointerleave", quiet);
  });
  ramp(host, plainTick(Math.round(factor * low)), percent(stream) ? "100%" : plainTick(high));
}
function memory(host, stream) {
  const holders = shown(stream).filter((m) => m.memory_rows.flat().some((v) => v));
  if (!holders.length) { host.textContent = "None of the chosen methods keeps rows."; return; }
  const count = stream.tasks.length;
  many(host, holders, (place, method) => {
    const [svg, width] = canvas(place, 130, `Rows held by ${method.label}, see the table for values`);
    const sums = method.memory_rows.map((row) => row.reduce((a, b) => a + (b ?? 0), 0)), most = Math.max(...sums);
    const bar = width / count, y = (v) => 114 - (v / most) * 100;
    method.memory_rows.forEach((row, i) => {
      let foot = 0;
      row.forEach((v, j) => {
        if (!v) return;
        node(svg, "rect", { x: i * bar, width: bar + 0.4, y: y(foot + v), height: y(foot) - y(foot + v) + 0.4, fill: shade(count < 2 ? 0.5 : j / (count - 1)) });
        foot += v;
      });
    });
    node(svg, "text", { x: width, y: 10, "text-anchor": "end", style: "font-size:11px" }, `${fixed(most, 0)} rows`);
    node(svg, "text", { x: 0, y: 127, style: "font-size:11px" }, "1");
    if (count > 1) node(svg, "text", { x: width, y: 127, "text-anchor": "end", style: "font-size:11px" }, count);
    svg.addEventListener("pointermove", (event) => {
      const area = svg.getBoundingClientRect();
      const i = Math.min(count - 1, Math.max(0, Math.floor(((event.clientX - area.left) / area.width) * count)));
      const row = method.memory_rows[i].slice(0, i + 1);
      say(`${method.label}, after task ${i + 1}`, [["rows", fixed(sums[i], 0)], ["of task 1", fixed(row[0], 0)], [`of task ${i + 1}`, fixed(row[i], 0)]], event.clientX, event.clientY);
    });
    svg.addEventListener("pointerleave", quiet);
  });
  ramp(host, "task 1", `task ${count}`);
}
function key(host, pairs) {
  const made = document.createElement("div");
  made.className = "key";
  for (const [name, colour] of pairs) {
    const item = document.createElement("span"), box = document.createElement("i");
    box.style.background = colour; item.append(box, name); made.append(item);
  }
  host.append(made);
}
function ramp(host, low, high) {
  const made = document.createElement("div"), bar = document.createElement("span");
  made.className = "key"; bar.className = "ramp";
  bar.style.background = `linear-gradient(90deg, ${CIVIDIS.join(",")})`;
  made.append(low, bar, high); host.append(made);
}

// ---------------------------------------------------------------- what is said on hover
function say(title, rows, left, top) {
  tip.replaceChildren();
  const head = document.createElement("b"), table = document.createElement("table");
  head.textContent = title;
  for (const [what, value] of rows) {
    const row = table.insertRow(), name = row.insertCell();
    if (what.label) {
      const swatch = document.createElement("span");
      swatch.className = "swatch"; swatch.style.cssText = what.swatch; name.append(swatch, what.label);
    } else name.textContent = what;
    row.insertCell().textContent = value;
  }
  tip.append(head, table);
  tip.hidden = false;
  const area = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(6, left + 16 + area.width > innerWidth ? left - area.width - 16 : left + 16)}px`;
  tip.style.top = `${Math.max(6, Math.min(innerHeight - area.height - 6, top + 12))}px`;
}
function quiet() { tip.hidden = true; }
function hover(area, content) {
  area.addEventListener("pointermove", (event) => say(...content(), event.clientX, event.clientY));
  area.addEventListener("pointerleave", quiet);
}

// ---------------------------------------------------------------- choosing
const CHARTS = {
  average: (host, stream) => lines(host, stream, "average"),
  first: (host, stream) => lines(host, stream, "first"),
  final: (host, stream) => lines(host, stream, "final"),
  measures, costs, time, memory, matrices,
};
function draw(card) {
  const host = card.querySelector("[data-part=chart]"), stream = streams.get(card.dataset.stream);
  if (host.hidden || card.closest(".hidden")) return;
  host.replaceChildren();
  host.dataset.title = card.querySelector("h3").textContent;
  if (shown(stream).length) CHARTS[card.dataset.chart](host, stream);
  else host.textContent = "No method is chosen.";
}
const cards = all("[data-chart]");
function refresh() {
  quiet();
  for (const part of all("section[data-stream], div.card[data-stream], .winners [data-stream]")) part.classList.toggle("hidden", hidden.stream.has(part.dataset.stream));
  for (const row of all("tr[data-method], .pictures [data-method]")) row.classList.toggle("hidden", hidden.method.has(row.dataset.method));
  for (const claim of all(".claim")) claim.classList.toggle("hidden", hidden.verdict.has(claim.dataset.verdict));
  cards.forEach(draw);
}
const flip = (set, value, on) => (on ? set.delete(value) : set.add(value));
for (const box of all("nav input")) {
  flip(hidden[box.name], box.value, box.checked); // browsers keep ticks over a reload
  box.addEventListener("change", () => { flip(hidden[box.name], box.value, box.checked); refresh(); });
}
for (const button of all("button[data-verdict]")) {
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", on);
    flip(hidden.verdict, button.dataset.verdict, on);
    refresh();
  });
}
for (const button of all("button[data-show]")) {
  button.addEventListener("click", () => {
    const card = button.closest("figure");
    fill(card);
    for (const other of all("button[data-show]", card)) other.setAttribute("aria-pressed", other === button);
    for (const part of all("[data-part]", card)) part.hidden = part.dataset.part !== button.dataset.show;
    draw(card);
  });
}
// Tables with a row for each task of each method are made when they are asked for.
const LARGE = { matrices: "accuracy", memory: "memory_rows" };
function fill(card) {
  const key = LARGE[card.dataset.chart], table = card.querySelector("table"), body = table.tBodies[0];
  if (!key || body.rows.length) return;
  const stream = streams.get(card.dataset.stream), lines = [];
  for (const method of stream.methods.filter((m) => m[key].flat().some((v) => v))) {
    method[key].forEach((values, i) => {
      const cells = [String(i + 1), ...values.map((v) => (key === "accuracy" ? score(stream, v) : fixed(v, 0)))];
      const row = body.insertRow(), head = document.createElement("th");
      row.dataset.method = method.label; row.classList.toggle("hidden", hidden.method.has(method.label));
      head.scope = "row"; head.textContent = method.label; row.append(head);
      for (const cell of cells) row.insertCell().textContent = cell;
      lines.push(`${[method.tex, ...cells.map((c) => c.replace("—", "---").replace("−", "$-$"))].join(" & ")} \\\\`);
    });
  }
  table.dataset.latex = table.dataset.latex.replace("\\midrule\n", () => `\\midrule\n${lines.join("\n")}\n`);
}
// The rows of hidden methods are left out: one line of LaTeX for each row of the table.
function latex(table) {
  const text = table.dataset.latex.split("\n"), start = text.indexOf("\\midrule") + 1;
  const off = all("tbody tr", table).map((row) => row.classList.contains("hidden"));
  return text.filter((_, i) => !off[i - start]).join("\n");
}
async function copy(text) {
  try { await navigator.clipboard.writeText(text); } catch {
    // Pages opened from disk may not have the clipboard; the old way still works.
    const area = document.createElement("textarea");
    area.value = text; document.body.append(area); area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("no clipboard");
  }
}
for (const button of all("button[data-copy]")) {
  const name = button.textContent;
  button.addEventListener("click", async () => {
    const card = button.closest("figure");
    fill(card);
    try { await copy(latex(card.querySelector("table"))); button.textContent = "Copied"; } catch { button.textContent = "Not allowed here"; }
    button.focus();
    setTimeout(() => { button.textContent = name; }, 1500);
  });
}
let width = innerWidth, waiting = 0;
addEventListener("resize", () => {
  if (width === innerWidth) return;
  width = innerWidth;
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => cards.forEach(draw));
});
addEventListener("keydown", (event) => { if (event.key === "Escape") quiet(); });
refresh();
