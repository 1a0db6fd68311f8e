// What every part uses: the data, elements, colours, and the one selection that all parts show.
const data = JSON.parse(document.getElementById("data").textContent);
const find = (selector) => document.querySelector(selector);
const findAll = (selector) => [...document.querySelectorAll(selector)];
document.documentElement.classList.add("script");

function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const narrow = () => window.innerWidth < 768;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

function tip(title, pairs) {
  const rows = pairs.filter((pair) => pair[1] !== null && pair[1] !== "");
  const list = rows.flatMap(([name, value]) => [
    element("dt", {}, name),
    element("dd", { class: String(value).length > 28 ? "long" : null }, String(value)),
  ]);
  return element("div", { class: "tip" }, element("b", {}, title), element("dl", {}, ...list));
}

const tooltip = () => ({
  confine: true, backgroundColor: colour("surface"), borderColor: colour("rule"), padding: [9, 12], transitionDuration: 0,
  textStyle: { color: colour("ink") }, extraCssText: "box-shadow:0 6px 24px rgb(0 0 0/16%);border-radius:10px;max-width:26rem",
});

// Charts: each part registers how to draw itself; all are drawn again when the theme or the width changes.
const charts = [];

function chart(id, renderer, draw) {
  const node = document.getElementById(id);
  if (!node) return null;
  const instance = echarts.init(node, null, { renderer });
  const one = { instance, draw: () => draw(instance, node) };
  charts.push(one);
  one.draw();
  return instance;
}

function redraw(width) {
  for (const one of charts) {
    one.instance.resize(width ? { width } : undefined);
    one.draw();
  }
}

// The selection: rows of `ops`, causes of gaps and kinds of work. Empty means that nothing is dimmed.
const selection = { ops: new Set(), causes: new Set(), kinds: new Set(), name: "" };
const listeners = [];

function select(name, ops = [], causes = [], kinds = []) {
  Object.assign(selection, { name, ops: new Set(ops), causes: new Set(causes), kinds: new Set(kinds) });
  listeners.forEach((listener) => listener());
}

const selected = () => selection.ops.size + selection.causes.size + selection.kinds.size > 0;

// A section that is closed opens where something leads to it.
function unfold(id) {
  const folded = id && document.getElementById(id)?.querySelector(":scope > .folded");
  if (folded) folded.open = true;
}

function scrollTo(id) {
  const target = document.getElementById(id);
  unfold(id);
  if (target) target.scrollIntoView({ behavior: calm.matches ? "auto" : "smooth", block: "start" });
}

function opTip(index) {
  const op = data.ops[index];
  return [
    ["arguments", op.shapes], ["mostly in", op.module], ["calls a step", count(op.calls)], ["time a step", duration(op.ns)],
    ["floor", duration(op.floor)], ["of roof", percent(op.reach)], ["bound", op.bound || UNKNOWN], ["roof", op.roof],
    ["arithmetic", rate(op.flop_s, "FLOP")], ["bytes moved", rate(op.byte_s, "B")],
  ];
}
