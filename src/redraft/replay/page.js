"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const longest = Math.max(...data.runs.map((run) => run.steps));
const KINDS = ["reveal", "overwrite", "demotion"];
const SAID = { reveal: "revealed", overwrite: "overwritten", demotion: "masked again" };
let place = longest, row = 0, timer = 0, chosen = null;

function make(tag, name, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
}

function kindOf(run, old, now) {
  return old === now ? "" : old === run.mask ? "reveal" : now === run.mask ? "demotion" : "overwrite";
}

/* Every state of a row, and what happened at each of its positions. */
function unroll(run, given) {
  const states = [given.start], events = given.start.map(() => []), counts = [];
  given.changes.forEach((changed, at) => {
    const state = states[at].slice(), count = { reveal: 0, overwrite: 0, demotion: 0 };
    for (let i = 0; i < changed.length; i += 2) {
      const position = changed[i], kind = kindOf(run, state[position], changed[i + 1]);
      state[position] = changed[i + 1];
      count[kind] += 1;
      events[position].push({ step: at + 1, kind, token: changed[i + 1], sure: sure(run, given, at, position) });
    }
    states.push(state);
    counts.push(count);
  });
  return { states, events, counts };
}

function sure(run, given, at, position) {
  const value = given.confidence[at][position];
  return value < 0 ? "" : `${value} %`;
}

function spelled(run, token) {
  return run.ends.includes(token) ? "■" : token === run.mask ? "·" : run.texts[token];
}

function shown(run, token) {
  return spelled(run, token).replace(/ /g, "␣").replace(/\n/g, "↵").replace(/\t/g, "⇥") || "(empty)";
}

const panels = data.runs.map((run, index) => {
  const section = make("section", "run"), head = make("h2", "", run.title), verdict = make("span", "verdict");
  const about = make("p", "about", run.about), bars = make("div", "bars"), text = make("div", "text"), counts = make("p", "counts");
  section.setAttribute("aria-label", run.title);
  text.setAttribute("role", "group");
  text.dir = "auto";
  bars.setAttribute("aria-hidden", "true");
  head.append(verdict);
  section.append(head, about, bars, text, counts);
  byId("runs").append(section);
  bars.addEventListener("click", (event) => {
    const bar = event.target.closest(".bar");
    if (bar) go([...bars.children].indexOf(bar) + 1);
  });
  for (const kind of ["pointerover", "click"]) {
    text.addEventListener(kind, (event) => {
      const token = event.target.closest(".token");
      if (token) choose(index, [...text.children].indexOf(token));
    });
  }
  return { run, section, verdict, bars, text, counts, rows: run.rows.map(() => null) };
});

function current(panel) {
  return (panel.rows[row] ??= unroll(panel.run, panel.run.rows[row]));
}

function openRow(number) {
  row = number;
  byId("prompt").textContent = data.runs[0].rows[row].prompt;
  const sum = (count) => KINDS.reduce((all, kind) => all + count[kind], 0);
  const most = Math.max(1, ...panels.flatMap((panel) => current(panel).counts.map(sum))); // one scale for both runs
  for (const panel of panels) {
    const given = panel.run.rows[row], { states, counts } = current(panel);
    panel.verdict.textContent = given.verdict;
    panel.verdict.className = `verdict ${given.verdict}`;
    panel.verdict.hidden = !given.verdict;
    panel.bars.replaceChildren(...counts.map((count, at) => {
      const bar = make("div", "bar");
      bar.title = `step ${at + 1}: ${KINDS.map((kind) => `${count[kind]} ${SAID[kind]}`).join(", ")}`;
      for (const kind of KINDS) {
        const part = document.createElement("i");
        part.style.height = `${(100 * count[kind]) / most}%`;
        bar.append(part);
      }
      return bar;
    }));
    panel.text.replaceChildren(...states[0].map(() => make("span", "token")));
  }
  choose(null);
  draw();
}

function draw() {
  for (const [index, panel] of panels.entries()) {
    const { run } = panel, { states, events, counts } = current(panel), at = Math.min(place, run.steps);
    const state = states[at], before = at ? states[at - 1] : state, [left, right] = at ? run.windows[at - 1] : [0, state.length];
    state.forEach((token, position) => {
      const span = panel.text.children[position], kind = kindOf(run, before[position], token);
      const touched = events[position].some((event) => event.step <= at && event.kind !== "reveal");
      const names = ["token", kind, token === run.mask && !kind && "masked", run.ends.includes(token) && "end",
        touched && !kind && token !== run.mask && "touched", (position < left || position >= right) && "outside",
        chosen && chosen.run === index && chosen.position === position && "chosen"];
      span.className = names.filter(Boolean).join(" ");
      span.textContent = kind === "demotion" ? "×" : spelled(run, token);
    });
    const total = { reveal: 0, overwrite: 0, demotion: 0 };
    counts.slice(0, at).forEach((count) => KINDS.forEach((kind) => { total[kind] += count[kind]; }));
    const masked = state.filter((token) => token === run.mask).length;
    panel.counts.textContent = `${KINDS.map((kind) => `${total[kind]} ${SAID[kind]}`).join(", ")} so far; ${masked} masked`
      + (place > run.steps ? `; done after ${run.steps} steps` : "");
    panel.text.setAttribute("aria-label", `The answer after step ${at}`);
    [...panel.bars.children].forEach((bar, i) => bar.classList.toggle("now", i === at - 1));
  }
  byId("step").value = place;
  byId("step").setAttribute("aria-valuetext", `step ${place} of ${longest}`);
  byId("place").textContent = `step ${place} of ${longest}`;
  told();
}

function choose(run, position) {
  const next = run === null ? null : { run, position };
  if (chosen && next && chosen.run === next.run && chosen.position === next.position) return;
  if (chosen) panels[chosen.run].text.children[chosen.position]?.classList.remove("chosen");
  if (next) panels[run].text.children[position].classList.add("chosen");
  chosen = next;
  told();
}

/* Everything that stood at the chosen position. */
function told() {
  const box = byId("history");
  if (!chosen) {
    box.replaceChildren(make("p", "", "Point at a token, tap it, or press ↑ or ↓, to see everything that stood there."));
    return;
  }
  const panel = panels[chosen.run], { run } = panel, { events } = current(panel), at = Math.min(place, run.steps);
  const which = panels.length > 1 ? `${run.title}, position` : "Position";
  const list = make("ol");
  for (const event of events[chosen.position]) {
    const item = make("li", event.step > at ? "later" : "");
    const kind = make("code", event.kind, event.kind === "demotion" ? "×" : shown(run, event.token));
    item.append(`step ${event.step}: `, kind, ` ${SAID[event.kind]}`);
    if (event.sure && event.kind !== "demotion") item.append(`, ${event.sure} sure`);
    list.append(item);
  }
  const now = at ? sure(run, run.rows[row], at - 1, chosen.position) : "";
  const heading = make("h3", "", `${which} ${chosen.position + 1}` + (now ? `; at step ${at} the model was ${now} sure of its guess` : ""));
  box.replaceChildren(heading, events[chosen.position].length ? list : make("p", "", "Nothing ever stood here."));
}

function go(step) {
  place = Math.max(0, Math.min(longest, step));
  draw();
}

function play(on) {
  clearInterval(timer);
  timer = 0;
  if (on) {
    if (place >= longest) go(0);
    const pause = Math.max(120, Math.min(700, 9000 / longest)) * Number(byId("speed").value);
    timer = setInterval(() => { go(place + 1); if (place >= longest) play(false); }, pause);
  }
  byId("play").textContent = on ? "Pause" : "Play";
}

byId("step").max = longest;
byId("step").addEventListener("input", (event) => { play(false); go(Number(event.target.value)); });
byId("play").addEventListener("click", () => play(!timer));
byId("back").addEventListener("click", () => { play(false); go(place - 1); });
byId("next").addEventListener("click", () => { play(false); go(place + 1); });
byId("speed").addEventListener("change", () => { if (timer) play(true); });

const many = data.runs[0].rows.length; // two runs answer the same prompts
byId("rows").hidden = many < 2;
for (let number = 0; number < many; number += 1) {
  const option = make("option", "", `${number + 1} of ${many}`);
  option.value = number;
  byId("row").append(option);
}
byId("row").addEventListener("change", (event) => openRow(Number(event.target.value)));

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select")) return;
  const slider = event.target === byId("step"), button = event.target.closest("button");
  const along = (by) => {
    const { run, position } = chosen ?? { run: 0, position: by > 0 ? -1 : data.runs[0].length };
    choose(run, Math.max(0, Math.min(data.runs[run].length - 1, position + by)));
  };
  const keys = {
    ArrowLeft: () => { play(false); go(place - 1); }, ArrowRight: () => { play(false); go(place + 1); },
    Home: () => { play(false); go(0); }, End: () => { play(false); go(longest); },
    ArrowUp: () => along(-1), ArrowDown: () => along(1), " ": () => play(!timer),
  };
  if (!(event.key in keys) || (button && event.key === " ") || (slider && event.key.startsWith("Arrow") && event.key.length < 8)) return;
  event.preventDefault();
  keys[event.key]();
});

const wanted = new URLSearchParams(location.hash.slice(1));
if (wanted.has("step")) place = Math.max(0, Math.min(longest, Number(wanted.get("step")) || 0));
openRow(Math.max(0, Math.min(many - 1, (Number(wanted.get("row")) || 1) - 1)));
byId("row").value = row;
