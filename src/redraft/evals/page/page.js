"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const WIDTH = 520, HEIGHT = 340, LEFT = 36, RIGHT = 12, TOP = 26, BOTTOM = 40;
const NS = "http://www.w3.org/2000/svg";
const tip = document.getElementById("tip");
const dark = matchMedia("(prefers-color-scheme: dark)");
const hidden = new Set();
let x = "calls", logarithmic = true, whiskers = true, focus = null; // focus: the row that has the keyboard

function make(name, attributes = {}, parent = null) {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.append(node);
  return node;
}
function html(name, text = "", attributes = {}) {
  const node = document.createElement(name);
  node.textContent = text;
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}
const colour = (series) => (dark.matches ? data.dark : data.light)[series % data.light.length];
const dashes = (series) => Math.floor(series / data.light.length) % 2 ? "6 3" : "none";

// The same shapes in the same order as in the picture: circle, square, triangle, diamond, triangle, plus, cross.
function shape(series, cx, cy, r) {
  const at = (points) => "M" + points.map(([dx, dy]) => `${(cx + r * dx).toFixed(2)} ${(cy + r * dy).toFixed(2)}`).join("L") + "Z";
  const plus = [[-.38, -1.1], [.38, -1.1], [.38, -.38], [1.1, -.38], [1.1, .38], [.38, .38], [.38, 1.1], [-.38, 1.1], [-.38, .38], [-1.1, .38], [-1.1, -.38], [-.38, -.38]];
  const turned = plus.map(([dx, dy]) => [(dx - dy) * .7071, (dx + dy) * .7071]);
  return [
    `M${cx - r} ${cy}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`,
    at([[-.9, -.9], [.9, -.9], [.9, .9], [-.9, .9]]), at([[0, -1.15], [1.1, .85], [-1.1, .85]]),
    at([[0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]]), at([[0, 1.15], [1.1, -.85], [-1.1, -.85]]), at(plus), at(turned),
  ][series % data.shapes];
}

function ticksOf(low, high) {
  const found = [];
  if (logarithmic) {
    let every = 1;
    while (Math.log2(high / low) / every > 9) every += 1;
    for (let k = Math.ceil(Math.log2(low)); 2 ** k <= high; k += 1) if (k % every === 0) found.push(2 ** k);
    return found;
  }
  const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  for (let t = Math.ceil(low / step) * step; t <= high + 1e-9; t += step) found.push(t);
  return found;
}
const short = (value) => value >= 10000 ? `${+(value / 1000).toPrecision(3)}k` : `${+value.toPrecision(4)}`;

const panels = []; // {svg, rows: [{row, series, px, py, node}]}
function draw() {
  const box = document.getElementById("panels");
  box.style.setProperty("--columns", data.panels[0].length);
  box.replaceChildren();
  panels.length = 0;
  tip.hidden = true;
  for (const line of data.panels) for (const [task, adapter] of line) box.append(panel(task, adapter));
  if (focus !== null) {
    const found = panels.flatMap((p) => p.rows).find((p) => p.row === focus);
    if (found) found.node.setAttribute("tabindex", "0");
  }
}
function panel(task, adapter) {
  const figure = html("figure");
  const items = data.rows.find((row) => row.task === task).items.toLocaleString("en");
  const name = `${task}, ${adapter === "none" ? "no adapter" : adapter}`;
  figure.append(html("h2", `${name}, ${items} items`));
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": `${name}: accuracy against ${x}` });
  figure.append(svg);
  const alike = data.rows.filter((row) => row.task === task);
  const pad = logarithmic ? 1.22 : 1.06, values = alike.map((row) => row[x]);
  const least = logarithmic ? Math.min(...values) / pad : 0, most = Math.max(...values) * pad;
  const [bottom, top] = data.limits[task];
  const scale = logarithmic ? Math.log2 : (value) => value;
  const px = (value) => LEFT + (scale(value) - scale(least)) / (scale(most) - scale(least)) * (WIDTH - LEFT - RIGHT);
  const py = (share) => TOP + (top - share) / (top - bottom) * (HEIGHT - TOP - BOTTOM);
  const step = [5, 10, 20].find((s) => (top - bottom) / s <= 6) || 20;
  for (let share = Math.ceil(bottom / step) * step; share <= top; share += step) {
    make("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: py(share), y2: py(share) }, svg);
    make("text", { x: LEFT - 7, y: py(share) + 4, "text-anchor": "end" }, svg).textContent = `${share}`;
  }
  for (const tick of ticksOf(least, most)) {
    make("line", { class: "grid", x1: px(tick), x2: px(tick), y1: TOP, y2: HEIGHT - BOTTOM }, svg);
    make("text", { x: px(tick), y: HEIGHT - BOTTOM + 17, "text-anchor": "middle" }, svg).textContent = short(tick);
  }
  make("text", { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, svg).textContent =
    x === "calls" ? "calls of the model for an item" : "tokens processed for an item";
  make("text", { x: 0, y: 12 }, svg).textContent = "right, %";
  const here = { svg, rows: [] }, groups = [];
  data.series.forEach((series, number) => {
    if (hidden.has(series)) return;
    const runs = alike.filter((row) => row.adapter === adapter && row.series === series).sort((a, b) => a[x] - b[x]);
    if (!runs.length) return;
    const own = colour(number);
    if (whiskers) { // all of them lie under all points
      const under = make("g", { class: "series", "data-series": number }, svg);
      for (const row of runs)
        make("line", { class: "whisker", stroke: own, x1: px(row[x]), x2: px(row[x]), y1: py(100 * row.interval[0]), y2: py(100 * row.interval[1]) }, under);
    }
    const group = make("g", { class: "series", "data-series": number });
    groups.push(group);
    make("path", { class: "path", stroke: own, "stroke-dasharray": dashes(number), d: "M" + runs.map((row) => `${px(row[x])} ${py(100 * row.accuracy)}`).join("L") }, group);
    for (const row of runs) {
      const cx = px(row[x]), cy = py(100 * row.accuracy);
      const node = make("g", { class: "point", tabindex: "-1", role: "img", "aria-label": spoken(row) }, group);
      make("circle", { class: "halo", cx, cy, r: 9.5 }, node);
      make("path", { class: "dot", fill: own, d: shape(number, cx, cy, 5) }, node);
      const point = { row, series: number, cx, cy, node, panel: here };
      node.addEventListener("focus", () => { focus = row; only(here, node); show(point); });
      node.addEventListener("blur", hide);
      node.addEventListener("keydown", (event) => move(event, point));
      here.rows.push(point);
    }
  });
  svg.append(...groups);
  if (here.rows.length) here.rows[0].node.setAttribute("tabindex", "0");
  svg.addEventListener("pointermove", (event) => {
    const near = nearest(here, event);
    if (near) show(near); else hide();
  });
  svg.addEventListener("pointerleave", hide);
  panels.push(here);
  return figure;
}
function spoken(row) {
  return `${row.sampler}, ${row.paced ? row.steps + " steps" : "its own pace"}, ${row.calls} calls, right ${row.right} per cent, difference ${row.against}`;
}
function only(here, node) { // one stop for the tab key in each panel
  for (const point of here.rows) point.node.setAttribute("tabindex", point.node === node ? "0" : "-1");
}
function nearest(here, event) {
  const box = here.svg.getBoundingClientRect(), unit = WIDTH / box.width;
  const at = [(event.clientX - box.left) * unit, (event.clientY - box.top) * unit];
  let best = null, distance = 60;
  for (const point of here.rows) {
    const away = Math.hypot(point.cx - at[0], point.cy - at[1]);
    if (away < distance) [best, distance] = [point, away];
  }
  return best;
}
function show(point) {
  const row = point.row;
  highlight(point.series);
  for (const p of panels.flatMap((one) => one.rows)) p.node.classList.toggle("now", p === point);
  tip.replaceChildren(html("b", row.sampler));
  const facts = html("div");
  const steps = row.paced ? `${row.steps}` : "sets its own pace";
  const changes = `${row.overwrites} overwritten, ${row.demotions} masked again`;
  for (const [name, value] of [["steps", steps], ["calls", `${row.calls} an item`], ["tokens", `${Math.round(row.processed).toLocaleString("en")} processed`],
    ["right", `${row.right} %`], ["difference", row.against], ["changes", changes], ...(row.sampler_file ? [["file", row.sampler_file]] : [])])
    facts.append(html("i", name), html("span", value));
  tip.append(facts);
  tip.style.left = tip.style.top = "0"; // or an old place near an edge would narrow it
  tip.hidden = false;
  const box = point.panel.svg.getBoundingClientRect(), unit = box.width / WIDTH;
  const left = box.left + scrollX + point.cx * unit, top = box.top + scrollY + point.cy * unit;
  const beyond = left + 16 + tip.offsetWidth > scrollX + document.documentElement.clientWidth - 8;
  tip.style.left = `${Math.max(8, beyond ? left - 16 - tip.offsetWidth : left + 16)}px`;
  tip.style.top = `${Math.max(scrollY + 8, top - tip.offsetHeight - 10 < scrollY + 8 ? top + 14 : top - tip.offsetHeight - 10)}px`;
}
function hide() {
  tip.hidden = true;
  highlight(null);
  for (const p of panels.flatMap((one) => one.rows)) p.node.classList.remove("now");
}
function highlight(series) {
  for (const group of document.querySelectorAll(".series"))
    group.classList.toggle("faded", series !== null && Number(group.dataset.series) !== series);
}
function move(event, point) {
  const own = point.panel.rows, along = own.filter((p) => p.series === point.series);
  const lines = [...new Set(own.map((p) => p.series))];
  let to = null;
  if (event.key === "ArrowRight" || event.key === "ArrowLeft")
    to = along[along.indexOf(point) + (event.key === "ArrowRight" ? 1 : -1)];
  else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
    const next = lines[(lines.indexOf(point.series) + (event.key === "ArrowDown" ? 1 : lines.length - 1)) % lines.length];
    to = own.filter((p) => p.series === next).reduce((a, b) => Math.abs(a.cx - point.cx) <= Math.abs(b.cx - point.cx) ? a : b);
  } else if (event.key === "Escape") { hide(); return; }
  else return;
  event.preventDefault();
  if (to) to.node.focus();
}

function swatch(number) {
  const svg = make("svg", { width: 24, height: 14, viewBox: "0 0 24 14", "aria-hidden": "true" });
  make("path", { d: "M1 7H23", stroke: colour(number), "stroke-width": 2, "stroke-dasharray": dashes(number) }, svg);
  make("path", { d: shape(number, 12, 7, 4.6), fill: colour(number) }, svg);
  return svg;
}
function controls() {
  const box = document.getElementById("shown");
  for (const old of box.querySelectorAll("button")) old.remove();
  data.series.forEach((series, number) => {
    const button = html("button", "", { type: "button", "aria-pressed": String(!hidden.has(series)) });
    button.append(swatch(number), html("span", series));
    button.addEventListener("click", () => {
      if (hidden.has(series)) hidden.delete(series); else hidden.add(series);
      button.setAttribute("aria-pressed", String(!hidden.has(series)));
      draw();
    });
    button.addEventListener("pointerenter", () => highlight(number));
    button.addEventListener("pointerleave", () => highlight(null));
    button.addEventListener("focus", () => highlight(number));
    button.addEventListener("blur", () => highlight(null));
    box.append(button);
  });
  if (data.series.length > 2) for (const [name, which] of [["all", []], ["none", data.series]]) {
    const button = html("button", name, { type: "button" });
    button.addEventListener("click", () => { hidden.clear(); which.forEach((s) => hidden.add(s)); controls(); draw(); });
    box.append(button);
  }
}
for (const radio of document.querySelectorAll("input[name=x]")) radio.addEventListener("change", () => { x = radio.value; draw(); });
document.getElementById("log").addEventListener("change", (event) => { logarithmic = event.target.checked; draw(); });
document.getElementById("whiskers").addEventListener("change", (event) => { whiskers = event.target.checked; draw(); });
dark.addEventListener("change", () => { controls(); draw(); });
controls();
draw();
