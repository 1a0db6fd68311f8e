// The flame graph: one canvas; of the places in view those are drawn that are wider than half a pixel.
const flame = data.flame;
const FLAME_ROW = 19;
const flameCanvas = document.getElementById("flame-chart");
const flameBelow = flame.parent.map(() => []);
const flameTotal = [...flame.own];
for (let at = flame.parent.length - 1; at > 0; at--) { // a parent comes before its children
  flameTotal[flame.parent[at]] += flameTotal[at];
  flameBelow[flame.parent[at]].push(at);
}
flameBelow.forEach((inner) => inner.sort((a, b) => flameTotal[b] - flameTotal[a] || a - b));
const flameText = (at) => data.names[flame.name[at]];
const flameSource = (at) => (flame.source[at] === null ? "" : data.names[flame.source[at]]);
const flameState = { top: 0, boxes: [], lit: null };

function flamePath(at) {
  const path = [];
  for (let one = at; one >= 0; one = flame.parent[one]) path.unshift(one);
  return path;
}

// The boxes in view: those around the chosen place over the whole width, then what is within it.
function flameLayout(width) {
  const path = flamePath(flameState.top);
  const boxes = path.slice(0, -1).map((at, row) => ({ at, row, x: 0, w: width }));
  const waiting = [{ at: flameState.top, row: path.length - 1, x: 0, w: width }];
  while (waiting.length) {
    const box = waiting.pop();
    boxes.push(box);
    let x = box.x;
    for (const at of flameBelow[box.at]) {
      const w = box.w * flameTotal[at] / flameTotal[box.at];
      if (!(w >= 0.5)) break; // by time: the others are narrower
      waiting.push({ at, row: box.row + 1, x, w });
      x += w;
    }
  }
  return boxes;
}

function drawFlame() {
  const width = flameCanvas.clientWidth;
  if (!width) return; // closed
  const boxes = flameLayout(width);
  flameState.boxes = boxes;
  const height = FLAME_ROW * (1 + boxes.reduce((most, box) => Math.max(most, box.row), 0));
  const scale = window.devicePixelRatio || 1;
  flameCanvas.style.height = `${height}px`;
  Object.assign(flameCanvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
  const pen = flameCanvas.getContext("2d");
  pen.scale(scale, scale);
  pen.font = `12px ${colour("mono")}`;
  pen.textBaseline = "middle";
  const letter = pen.measureText("m").width;
  const fills = flame.sorts.map((sort) => colour(sort.colour));
  const ink = colour("ink");
  for (const box of boxes) {
    const lit = !flameState.lit || flameState.lit[box.at];
    pen.globalAlpha = lit ? (flameState.lit ? 0.7 : 0.42) : 0.1;
    pen.fillStyle = fills[flame.sort[box.at]];
    pen.fillRect(box.x, box.row * FLAME_ROW, Math.max(box.w - (box.w > 3 ? 1 : 0), 0.5), FLAME_ROW - 1);
    const room = Math.floor((box.w - 8) / letter);
    if (room < 3) continue;
    const text = flameText(box.at);
    pen.globalAlpha = lit ? 1 : 0.55;
    pen.fillStyle = ink;
    pen.fillText(text.length > room ? `${text.slice(0, room - 1)}\u2026` : text, box.x + 4, (box.row + 0.5) * FLAME_ROW);
  }
}

function tellFlame(at) {
  const own = flame.own[at] && flameBelow[at].length ? `${duration(flame.own[at])} of it in no place within` : "";
  const facts = [
    `${duration(flameTotal[at])}, ${percent(flameTotal[at] / flameTotal[0])} of the step`, own,
    flame.device[at] ? `${duration(flame.device[at])} while ${flame.works}` : "",
    flame.calls[at] === null || at === 0 ? "" : `${count(flame.calls[at])} a step`, flameSource(at) === flameText(at) ? "" : flameSource(at),
  ];
  document.getElementById("flame-told").replaceChildren(
    element("b", {}, flameText(at)), ` (${data.names[flame.kind[at]]}): ${facts.filter(Boolean).join("; ")}`,
  );
}

function zoomFlame(at) {
  if (at === undefined || at < 0) return;
  flameState.top = at;
  drawFlame();
  tellFlame(at);
}

function searchFlame(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const told = document.getElementById("flame-count");
  flameState.lit = null;
  told.textContent = "";
  if (words.length) {
    const within = []; // whether a place, or one around it, is found: its time counts once
    let found = 0;
    let ns = 0;
    flameState.lit = flame.parent.map((parent, at) => {
      const whole = `${flameText(at)} ${flameSource(at)}`.toLowerCase();
      const lit = words.every((word) => whole.includes(word));
      found += lit;
      ns += lit && !within[parent] ? flameTotal[at] : 0;
      within[at] = lit || Boolean(within[parent]);
      return lit;
    });
    told.textContent = `${found.toLocaleString("en-US")} of ${flame.parent.length.toLocaleString("en-US")} places, ${percent(ns / flameTotal[0])} of the step`;
  }
  drawFlame();
}

function flameAt(event) {
  const { left, top } = flameCanvas.getBoundingClientRect();
  const [x, row] = [event.clientX - left, Math.floor((event.clientY - top) / FLAME_ROW)];
  return flameState.boxes.find((box) => box.row === row && x >= box.x && x < box.x + box.w)?.at;
}

function startFlame() {
  const beside = (step) => {
    const all = flameBelow[flame.parent[flameState.top]] || [];
    return all[all.indexOf(flameState.top) + step];
  };
  const moves = {
    ArrowUp: () => flame.parent[flameState.top], ArrowDown: () => flameBelow[flameState.top][0],
    ArrowLeft: () => beside(-1), ArrowRight: () => beside(1), Home: () => 0,
  };
  flameCanvas.addEventListener("click", (event) => zoomFlame(flameAt(event)));
  flameCanvas.addEventListener("mousemove", (event) => {
    const at = flameAt(event);
    tellFlame(at === undefined ? flameState.top : at);
  });
  flameCanvas.addEventListener("mouseleave", () => tellFlame(flameState.top));
  flameCanvas.addEventListener("keydown", (event) => {
    if (moves[event.key]) { event.preventDefault(); zoomFlame(moves[event.key]()); }
  });
  find("#flame-whole").addEventListener("click", () => zoomFlame(0));
  find("#flame-search").addEventListener("input", (event) => searchFlame(event.target.value));
  find("#flame > .folded").addEventListener("toggle", drawFlame);
  find("#flame-legend").append(...flame.sorts.map((sort) => element("li", {}, element("span", { class: `swatch c-${sort.colour}` }), sort.name)));
  charts.push({ instance: { resize() {} }, draw: drawFlame });
  tellFlame(0);
  drawFlame();
}

startFlame();
