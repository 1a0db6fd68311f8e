// The what-if panel: a combination is chosen, and its entry is shown. An entry that is not in the record is not offered.
const whatIf = data.what_if;
const comboKey = (treatments, machine) => `${[...treatments].sort((a, b) => a - b)}|${machine}`;
const combos = new Map();
whatIf.entries.forEach((entry) => {
  const key = comboKey(entry.treatments, entry.machine);
  if (!combos.has(key)) combos.set(key, entry);
});
const asItIs = whatIf.entries[0];
let chosen = asItIs;

const toggled = (treatment) => {
  const set = new Set(chosen.treatments);
  if (!set.delete(treatment)) set.add(treatment);
  return combos.get(comboKey(set, chosen.machine));
};
const moved = (machine) => combos.get(comboKey(chosen.treatments, machine));

function tellWhy(node, text) {
  const why = node.querySelector(".why");
  why.hidden = !text;
  why.textContent = text;
}

function tellControls() {
  findAll("#what-if .toggle").forEach((button) => {
    const treatment = Number(button.dataset.t);
    const on = chosen.treatments.includes(treatment);
    const offered = toggled(treatment) !== undefined;
    button.setAttribute("aria-pressed", String(on));
    button.setAttribute("aria-disabled", String(!offered));
    tellWhy(button, offered ? "" : on ? "not replayed without it" : "not replayed together");
  });
  findAll("#what-if input[type=radio]").forEach((radio) => {
    const machine = Number(radio.value);
    radio.checked = machine === chosen.machine;
    radio.disabled = !radio.checked && moved(machine) === undefined;
    tellWhy(radio.closest("label"), radio.disabled ? "not replayed together" : "");
  });
  find("#what-if-reset").setAttribute("aria-disabled", String(chosen === asItIs));
  findAll("#what-if-table tbody tr").forEach((row, index) => row.classList.toggle("lit", whatIf.entries[index] === chosen));
}

const boundOf = (entry) => element("span", { class: "bound" }, element("i", { class: `swatch c-${entry.colour}` }), entry.bound);

function tellAnswer() {
  const node = find("#what-if-answer");
  const kind = chosen.saving > 0 ? "less" : "more";
  const same = chosen.bound === asItIs.bound;
  if (chosen === asItIs) {
    node.replaceChildren(
      element("p", { class: "combination" }, "The step as it is: nothing is chosen. ", element("b", {}, chosen.times), " ", boundOf(chosen)),
    );
  } else {
    node.replaceChildren(
      element("p", { class: "combination" }, chosen.title),
      element("p", { class: "number" }, chosen.times),
      element("p", {}, element("b", { class: `saving ${chosen.saves === "saves nothing" ? "" : kind}` }, chosen.saves),
        element("span", { class: "sub" }, ` ${chosen.between}`)),
      element("p", {}, ...(same ? ["still "] : [boundOf(asItIs), " \u2192 "]), boundOf(chosen),
        chosen.then ? element("span", { class: "sub" }, ` ${chosen.then}`) : null),
    );
  }
  if (chosen.does) node.append(element("p", { class: "sub" }, chosen.does));
  const facts = chosen.assumes.map((one) => element("li", {}, one));
  find("#what-if-assumes").replaceChildren(...(facts.length ? [element("h3", {}, "It assumes"), element("ul", { class: "plain" }, ...facts)] : []));
}

// Both steps on one scale; each bar has its interval over it.
function tellBars() {
  const most = Math.max(asItIs.high, asItIs.step, chosen.high, chosen.step) * 1.02 || 1;
  const at = (ns) => `${((100 * ns) / most).toFixed(2)}%`;
  const row = (name, entry, parts) => element("div", { class: "what-if-bar" },
    element("span", {}, name),
    element("span", { class: "track", role: "img", "aria-label": `${name}: ${duration(entry.step)}, ${duration(entry.low)} to ${duration(entry.high)}` },
      ...parts, element("i", { class: "whisker", style: `left:${at(entry.low)};width:${at(entry.high - entry.low)}` })),
    element("b", {}, duration(entry.step)));
  const whole = element("i", { class: "was", style: `width:${at(asItIs.step)}` });
  const parts = whatIf.lines.map((line, index) => {
    const ns = chosen.ns[index];
    const title = `${line.group}, ${line.label}: ${duration(ns)}`;
    return ns > 0 ? element("i", { class: `c-${line.colour}`, style: `width:${at(ns)}`, title }) : null;
  });
  const tick = tickStep(most / (narrow() ? 3 : 6));
  const ticks = [];
  for (let ns = 0; ns <= most; ns += tick) ticks.push(element("i", { style: `left:${at(ns)}` }, ns ? duration(ns) : "0"));
  find("#what-if-bars").replaceChildren(
    ...(chosen === asItIs ? [] : [row("as it is", asItIs, [whole])]), row(chosen === asItIs ? "as it is" : "with", chosen, parts.filter(Boolean)),
    element("div", { class: "what-if-bar ticks", "aria-hidden": "true" }, element("span"), element("span", { class: "track" }, ...ticks), element("b")),
  );
}

function tickStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5].find((one) => one * power >= least) || 10);
}

// Lines that take a two-hundredth of either step; the others are one line.
function tellLines() {
  const rows = whatIf.lines.map((line, index) => ({ line, was: asItIs.ns[index], is: chosen.ns[index] })).filter(({ was, is }) => was || is);
  const tells = ({ was, is }) => Math.max(was, is) >= 0.005 * Math.max(asItIs.step, chosen.step);
  const few = rows.filter((row) => !tells(row)).length < 2;
  const shown = rows.filter((row) => few || tells(row));
  const rest = rows.filter((row) => !few && !tells(row));
  const sum = (side) => rest.reduce((all, row) => all + row[side], 0);
  if (rest.length) shown.push({ line: { group: "smaller lines", label: "", colour: "unpriced" }, was: sum("was"), is: sum("is") });
  const cell = (text, name) => element("td", { class: `n ${name || ""}` }, text);
  const head = (text) => element("th", { scope: "col", class: text === "line" ? null : "n" }, text);
  const both = chosen !== asItIs;
  const time = (ns) => (ns ? duration(ns) : "\u2013");
  find("#what-if-lines").replaceChildren(
    element("caption", { class: "hidden" }, "The budget of the step, before and after"),
    element("thead", {}, element("tr", {}, head("line"), head("as it is"), both ? head("with") : null, head("share"))),
    element("tbody", {}, ...shown.map(({ line, was, is }) => element("tr", {},
      element("th", { scope: "row" }, element("i", { class: `swatch c-${line.colour}` }), `${line.group} `, element("span", { class: "sub" }, line.label)),
      cell(time(was), both ? "sub" : ""), both ? cell(time(is)) : null, cell(is && chosen.step ? percent(is / chosen.step) : "\u2013", "share")))),
  );
}

// The points of a combination. `work` times the work in one step: the arithmetic grows with it.
function sceneOf(entry) {
  const changed = new Map(entry.moved.map((place) => [whatIf.moves[place][0], whatIf.moves[place]]));
  const scene = { points: [], ghosts: [], gone: [], lines: [], roofs: whatIf.machines[entry.machine].roofs || data.roofs };
  scene.oldRoofs = entry.machine ? drawnRoofs(scene, data.roofs) : [];
  for (const point of points.filter(({ op }) => op.bound === "compute" || op.bound === "memory")) {
    const { op, index } = point;
    const to = changed.get(index);
    if (!to) {
      scene.points.push(point);
    } else if (to[1] <= 0) {
      scene.gone.push(point);
    } else {
      const then = { ...op, ns: to[1], bytes: to[2] || op.bytes, flop_s: ((op.flop * entry.work) / to[1]) * 1e9 };
      const far = [intensity(then) / intensity(op), then.flop_s / op.flop_s].some((ratio) => Math.abs(Math.log10(ratio)) > 0.01);
      scene.points.push({ op: then, index });
      if (far) {
        scene.ghosts.push(point);
        scene.lines.push([[intensity(op), op.flop_s], [intensity(then), then.flop_s]]);
      }
    }
  }
  scene.tip = (index) => {
    const to = changed.get(index);
    const then = to ? [["time then", to[1] > 0 ? duration(to[1]) : "part of another kernel"]] : [];
    return [...opTip(index).filter(([name]) => !then.length || ["arguments", "mostly in", "calls a step", "time a step", "bound"].includes(name)), ...then];
  };
  return scene;
}

const some = (number, what) => `${number.toLocaleString("en-US")} ${what[number === 1 ? 0 : 1]}`;

function tellMoved(scene, node) {
  const machine = whatIf.machines[chosen.machine];
  const all = scene.points.length + scene.gone.length;
  const told = [
    chosen === asItIs ? `${some(all, ["point", "points"])}; what is chosen moves them.`
      : scene.ghosts.length ? `${count(scene.ghosts.length)} of ${some(all, ["point moves", "points move"])} (hollow: as it is).` : "No point moves.",
    scene.gone.length ? `${some(scene.gone.length, ["is", "are"])} part of another kernel then (crossed).` : "",
    chosen.machine ? (scene.roofs.length ? `Roofs of ${machine.name}; dotted: of this machine.` : `The ceilings of ${machine.name} are not known.`) : "",
    scene.ghosts.length ? "Colours are of the bound as it is." : "",
  ].filter(Boolean).join(" ");
  find("#what-if-moved").textContent = told;
  node.setAttribute("aria-label", `Roofline of ${chosen.title}. ${told}`);
}

function drawWhatIf(instance, node) {
  const scene = sceneOf(chosen);
  drawRoofline(instance, node, scene);
  tellMoved(scene, node);
}

// What is chosen stands in the page's address, so that a link to the page shows it: #what-if=compile,cuda-graph@b200
const STATE = "what-if=";

function stateOf(entry) {
  const names = entry.treatments.map((at) => encodeURIComponent(whatIf.treatments[at]));
  const machine = entry.machine ? `@${encodeURIComponent(whatIf.machines[entry.machine].name)}` : "";
  return `${names.join(",")}${machine}`;
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return ""; }
}

// The entry that an address names. Names that this page does not have are left out; nothing where it names no entry.
function entryOf(hash) {
  if (!hash.startsWith(`#${STATE}`)) return undefined;
  const [names, machine] = hash.slice(STATE.length + 1).split("@");
  const treatments = names.split(",").map((name) => whatIf.treatments.indexOf(decoded(name))).filter((at) => at >= 0);
  const on = machine ? whatIf.machines.findIndex((one, at) => at && one.name === decoded(machine)) : 0;
  return combos.get(comboKey(new Set(treatments), Math.max(on, 0)));
}

function tellAddress() {
  const state = stateOf(chosen);
  const mine = location.hash.startsWith(`#${STATE}`);
  if (!state && !mine) return;
  try {
    history.replaceState(null, "", state ? `#${STATE}${state}` : "#what-if");
  } catch { /* a page that is embedded may not change its address */ }
}

let whatIfChart = null;

function choose(entry) {
  if (!entry) return;
  show(entry);
  tellAddress();
}

function show(entry) {
  chosen = entry;
  find("#what-if").classList.toggle("idle", entry === asItIs);
  tellControls();
  tellAnswer();
  tellBars();
  tellLines();
  if (entry !== asItIs) showChart();
}

// The roofline has no size before something is chosen.
function showChart() {
  if (!whatIfChart) return startChart();
  whatIfChart.resize();
  charts.find((one) => one.instance === whatIfChart).draw();
}

function startWhatIf() {
  find("#what-if .combinations").open = false;
  find("#what-if").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button || button.getAttribute("aria-disabled") === "true") return;
    if (button.dataset.t) choose(toggled(Number(button.dataset.t)));
    if (button.dataset.entry) { choose(whatIf.entries[button.dataset.entry]); scrollTo("what-if"); }
    if (button.id === "what-if-reset") choose(asItIs);
  });
  find("#what-if").addEventListener("change", (event) => {
    if (event.target.type === "radio") choose(moved(Number(event.target.value)));
  });
  const follow = (hash) => {
    const linked = entryOf(hash);
    if (linked) { scrollTo("what-if"); choose(linked); }
  };
  const asked = location.hash;
  show(whatIf.entries.find((entry) => entry.asked) || asItIs); // what the command line asked for comes first
  follow(asked);
  window.addEventListener("hashchange", () => follow(location.hash));
  const all = find("#what-if .combinations");
  let before = false;
  window.addEventListener("beforeprint", () => { before = all.open; all.open = before || chosen === asItIs; });
  window.addEventListener("afterprint", () => { all.open = before; });
  window.addEventListener("resize", tellBars);
}

function startChart() {
  whatIfChart = chart("what-if-roofline", "svg", drawWhatIf);
  if (!whatIfChart) return;
  whatIfChart.on("click", (one) => {
    if (one.data && one.data.index !== undefined) select(data.ops[one.data.index].name, [one.data.index]);
  });
  listeners.push(() => charts.find((one) => one.instance === whatIfChart).draw());
}

startWhatIf();
