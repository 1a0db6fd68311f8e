// Calls under the roofs, in logarithmic scales.
const points = data.ops.map((op, index) => ({ op, index })).filter(({ op }) => op.flop > 0 && op.bytes > 0 && op.ns > 0);
let everyRoof = false;

// A scene is what one chart shows: points under roofs, where points and roofs were before (ghosts), and points that no
// longer are (gone). This page's own is the step as it is.
const TODAY = { points, roofs: data.roofs, ghosts: [], gone: [], lines: [], oldRoofs: [] };

const intensity = (op) => op.flop / op.bytes;

// Roofs of one value share a line. Drawn: memory roofs, those that a call rests on, and the highest for bfloat16.
function drawnRoofs(scene, from = scene.roofs) {
  const used = new Set(data.ops.map((op) => op.roof));
  const base = ["bfloat16 matrix", "float32 vector"];
  const kept = from.filter((roof) => (everyRoof && scene === TODAY) || roof.kind === "memory" || used.has(roof.name) || base.includes(roof.name));
  const lines = new Map();
  for (const roof of kept) {
    const key = `${roof.kind} ${roof.value}`;
    const line = lines.get(key) || { ...roof, names: [] };
    line.names.push(roof.name);
    lines.set(key, line);
  }
  return [...lines.values()];
}

function extent(roofs, scene) {
  const values = (kind) => [...roofs, ...scene.oldRoofs].filter((roof) => roof.kind === kind).map((roof) => roof.value);
  const [memory, compute] = [values("memory"), values("compute")];
  const every = [...scene.points, ...scene.ghosts, ...scene.gone];
  const xs = every.map(({ op }) => intensity(op));
  const ys = every.map(({ op }) => op.flop_s);
  const below = (value) => 10 ** Math.floor(Math.log10(value) - 0.02);
  const right = Math.max(...xs) * 3;
  const ridge = memory.length && compute.length ? Math.max(...compute) / Math.min(...memory) : 0;
  return {
    x0: below(Math.min(...xs)), x1: Math.max(right, ridge * (narrow() ? 6 : 20)),
    y0: below(Math.min(...ys)), y1: Math.max(...ys, ...compute) * 4,
  };
}

function roofSeries(box, roofs, node, scene) {
  const memory = roofs.filter((roof) => roof.kind === "memory").map((roof) => roof.value);
  const compute = roofs.filter((roof) => roof.kind === "compute").map((roof) => roof.value);
  const top = compute.length ? Math.max(...compute) : box.y1;
  const slope = Math.atan2(node.plotHeight / Math.log10(box.y1 / box.y0), node.plotWidth / Math.log10(box.x1 / box.x0));
  const fastest = memory.length ? Math.max(...memory) : null;
  const places = labelPlaces(compute, box, node);
  const named = (roof) => (narrow() ? roof.text : `${roof.names.join(", ")}  ${roof.text}  (${roof.provenance})`);
  const taken = roofs.filter((roof) => roof.kind === "compute").map((roof) => {
    const { shift, below } = places.get(roof.value);
    const [right, y] = [node.plotWidth - shift, pixel(box, node, [box.x1, roof.value])[1] + (below ? -12 : 12)];
    return [right - LETTER * named(roof).length, right, y - 9, y + 9];
  });
  const [ridge] = ridgeOf(roofs, scene);
  if (ridge) {
    const [x, y] = pixel(box, node, ridge);
    taken.push([x - (narrow() ? 16 : 34) - LETTER * 16, x + 6, y - 9, y + 9]);
  }
  return roofs.flatMap((roof) => {
    const diagonal = roof.kind === "memory";
    const from = diagonal ? [Math.max(box.x0, box.y0 / roof.value), 0] : [fastest ? Math.max(roof.value / fastest, box.x0) : box.x0, roof.value];
    if (diagonal) from[1] = from[0] * roof.value;
    const to = diagonal ? [top / roof.value, top] : [box.x1, roof.value];
    const first = diagonal && roof.value === fastest;
    const along = (share) => from.map((low, axis) => 10 ** (Math.log10(low) + share * Math.log10(to[axis] / low)));
    const at = diagonal ? along(freest(along, box, node, scene, taken, (LETTER / 2) * named(roof).length, slope)) : to;
    const { shift, below } = places.get(roof.value) || {};
    const label = {
      show: true, formatter: named(roof), color: colour("soft"), fontSize: 11,
      textBorderColor: colour("surface"), textBorderWidth: 3,
      ...(diagonal
        ? { rotate: (slope * 180) / Math.PI, position: "inside", align: "center", verticalAlign: first ? "bottom" : "top", padding: [6, 0, 6, 0] }
        : { position: [-shift, below ? 5 : -15], align: "right" }),
    };
    const common = { name: named(roof), silent: true, animation: false };
    return [{
      ...common, type: "line", data: [from, to], symbol: "none", z: 1,
      lineStyle: { color: colour(diagonal ? "memory" : "compute"), width: 1.6, type: first || roof.value === top ? "solid" : [6, 4] },
    }, { ...common, type: "scatter", data: [{ value: at, label }], symbolSize: 0.01, itemStyle: { opacity: 1 }, z: 7, labelLayout: { hideOverlap: false } }];
  });
}

// The width of a character of a roof's name, in pixels.
const LETTER = 6;

function pixel(box, node, [x, y]) {
  return [(Math.log10(x / box.x0) / Math.log10(box.x1 / box.x0)) * node.plotWidth, (Math.log10(y / box.y0) / Math.log10(box.y1 / box.y0)) * node.plotHeight];
}

// Where each compute roof's name stands, so that names of roofs that are near do not collide: below its roof where there is room.
function labelPlaces(values, box, node) {
  const height = (value) => pixel(box, node, [box.x1, value])[1];
  const places = new Map();
  const order = [...values].sort((a, b) => b - a);
  const nearer = (at, most) => at > 0 && at < order.length && height(order[at - 1]) - height(order[at]) < most;
  order.forEach((value, at) => {
    const near = nearer(at, 34);
    const below = near && !nearer(at + 1, 20);
    const aside = near && !below && !places.get(order[at - 1]).shift;
    places.set(value, { below, shift: aside ? (narrow() ? 72 : 250) : 0 });
  });
  return places;
}

// Where along a memory roof its name, of half this length, hides no other name and the fewest points.
function freest(along, box, node, scene, taken, half, slope) {
  const dots = scene.points.map(({ op }) => pixel(box, node, [intensity(op), op.flop_s]));
  const [wide, high] = [half * Math.cos(slope) + 4, half * Math.sin(slope) + 12];
  let best = [Infinity, 0.5];
  for (let share = 0.15; share < 0.86; share += 0.05) {
    const [x, y] = pixel(box, node, along(share));
    const hidden = taken.filter(([left, right, low, top]) => left < x + wide && right > x - wide && low < y + high && top > y - high).length;
    const near = dots.filter((dot) => Math.abs(dot[0] - x) < 110 && Math.abs(dot[1] - y) < 55).length;
    const outside = x < wide || x > node.plotWidth - wide;
    const score = 1000 * (hidden + outside) + near + Math.abs(share - 0.5);
    if (score < best[0]) best = [score, share];
  }
  return best[1];
}

const mostTime = Math.max(...points.map(({ op }) => op.ns));
const diameter = (ns) => Math.min(48, Math.max(6, 34 * Math.sqrt(ns / mostTime)));

function pointSeries(bound, symbol, scene) {
  const mine = scene.points.filter(({ op }) => (op.bound || "unpriced") === bound);
  return {
    type: "scatter", name: bound, symbol, z: 3, animation: false, cursor: "pointer",
    data: mine.map(({ op, index }) => {
      const lit = !selected() || selection.ops.has(index);
      return {
        value: [intensity(op), op.flop_s], index,
        symbolSize: diameter(op.ns),
        itemStyle: {
          color: colour(bound), opacity: lit ? 0.62 : 0.08, borderColor: selected() && lit ? colour("ink") : colour("surface"),
          borderWidth: selected() && lit ? 2 : 1,
        },
        z: lit ? 5 : 3,
      };
    }),
    emphasis: { itemStyle: { opacity: 1, borderColor: colour("ink") } },
  };
}

// Where the memory roof meets the compute roof under which most of the time is, in a list; empty without either.
function ridgeOf(roofs, scene) {
  const dram = roofs.find((roof) => roof.names.includes("DRAM"));
  const used = new Map();
  scene.points.forEach(({ op }) => used.set(op.roof, (used.get(op.roof) || 0) + op.ns));
  const compute = roofs.filter((roof) => roof.kind === "compute")
    .sort((a, b) => Math.max(...b.names.map((name) => used.get(name) || 0)) - Math.max(...a.names.map((name) => used.get(name) || 0)) || b.value - a.value)[0];
  if (!dram || !compute) return [];
  return [[compute.value / dram.value, compute.value]];
}

function ridges(roofs, scene) {
  return ridgeOf(roofs, scene).map((at) => ({
    type: "scatter", name: "ridge", silent: true, z: 6, animation: false, symbol: "circle", symbolSize: 9,
    itemStyle: { color: colour("surface"), borderColor: colour("ink"), borderWidth: 2 },
    data: [{ value: at, label: { show: true, position: "left", distance: narrow() ? 16 : 34, formatter: `ridge ${digits(at[0])} FLOP/B`,
      color: colour("ink"), fontSize: 11, fontWeight: 600, textBorderColor: colour("surface"), textBorderWidth: 3 } }],
  }));
}

function axis(name, from, to, text, gap) {
  return {
    type: "log", name, nameLocation: "middle", nameGap: gap, min: from, max: to, nameTextStyle: { color: colour("soft"), fontSize: 12 },
    axisLabel: { color: colour("soft"), fontSize: 11, formatter: text, hideOverlap: true, showMaxLabel: false },
    axisLine: { lineStyle: { color: colour("rule") } }, splitLine: { lineStyle: { color: colour("line") } }, minorSplitLine: { show: false },
  };
}

// Where points and roofs were before: hollow points, crossed where the calls are gone, a line to each new place.
function ghostSeries(scene, box) {
  const hollow = (list, name, label) => ({
    type: "scatter", name, z: 2, animation: false, label,
    data: list.map(({ op, index }) => ({
      value: [intensity(op), op.flop_s], index, symbol: op.bound === "compute" ? "circle" : "rect", symbolSize: diameter(op.ns),
      itemStyle: { color: "transparent", borderColor: colour("soft"), borderWidth: 1.2, borderType: [3, 2], opacity: 0.75 },
    })),
  });
  const cross = { show: true, position: "inside", formatter: "\u00d7", color: colour("soft"), fontSize: 13, fontWeight: 700 };
  const roof = ({ kind, value }) => (kind === "memory"
    ? [[box.x0, box.x0 * value], [box.y1 / value, box.y1]] : [[box.x0, value], [box.x1, value]]);
  return [
    ...scene.oldRoofs.map((one) => ({
      type: "line", name: "roof before", data: roof(one), symbol: "none", silent: true, animation: false, z: 0,
      lineStyle: { color: colour("rule"), width: 1.2, type: [2, 3] },
    })),
    { type: "lines", name: "moves", coordinateSystem: "cartesian2d", silent: true, animation: false, z: 2,
      symbol: ["none", "arrow"], symbolSize: 6, lineStyle: { color: colour("soft"), width: 1, opacity: 0.55 },
      data: scene.lines.map((coords) => ({ coords })) },
    hollow(scene.ghosts, "before", { show: false }), hollow(scene.gone, "gone", cross),
  ];
}

function drawRoofline(instance, node, scene = TODAY) {
  const roofs = drawnRoofs(scene);
  const box = extent(roofs, scene);
  const grid = { left: narrow() ? 44 : 66, right: 12, top: 22, bottom: 46, outerBoundsMode: "none" };
  Object.assign(node, { plotWidth: instance.getWidth() - grid.left - grid.right, plotHeight: instance.getHeight() - grid.top - grid.bottom });
  instance.setOption({
    animation: false, grid,
    xAxis: axis("arithmetic intensity, FLOP/B", box.x0, box.x1, (value) => plain(value), 28),
    yAxis: { ...axis(narrow() ? "" : "achieved, FLOP/s", box.y0, box.y1, (value) => scaled(value, "").trim().replace(" ", narrow() ? "" : " "), 50) },
    tooltip: { ...tooltip(), trigger: "item", formatter: (one) => (one.data.index === undefined ? "" : tip(data.ops[one.data.index].name, (scene.tip || opTip)(one.data.index))) },
    dataZoom: [
      { type: "inside", xAxisIndex: 0, filterMode: "none", zoomOnMouseWheel: "ctrl" },
      { type: "inside", yAxisIndex: 0, filterMode: "none", zoomOnMouseWheel: "ctrl" },
    ],
    series: [
      ...roofSeries(box, roofs, node, scene), ...(scene === TODAY ? [] : ghostSeries(scene, box)),
      pointSeries("memory", "rect", scene), pointSeries("compute", "circle", scene), ...ridges(roofs, scene),
    ],
  }, true);
}

function plain(value) {
  return value >= 0.001 && value < 1e4 ? String(Number(value.toPrecision(3))) : value.toExponential(0).replace("e+", "e");
}

function startRoofline() {
  const instance = chart("roofline-chart", "svg", drawRoofline);
  if (!instance) return;
  instance.on("click", (one) => {
    if (one.data && one.data.index !== undefined) select(data.ops[one.data.index].name, [one.data.index]);
  });
  find("#all-roofs").addEventListener("change", (event) => {
    everyRoof = event.target.checked;
    charts.find((one) => one.instance === instance).draw();
  });
  listeners.push(() => charts.find((one) => one.instance === instance).draw());
}
