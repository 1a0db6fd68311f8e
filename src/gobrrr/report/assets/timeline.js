// One step of the host and the device. What is narrower than a pixel is merged before it is drawn, so that any number
// stays fluid.
const line = data.timeline;
const places = data.flame;
const MERGE_PX = 1.2;
let work = null;
let shown = [0, 1];
let sought = null; // what a search found: by place, whether it is one

function sums(differences) {
  const out = new Float64Array(differences.length);
  let at = 0;
  differences.forEach((step, index) => { at += step; out[index] = at; });
  return out;
}

function category(index) {
  const kind = line.kinds[line.kind[index]];
  if (kind !== "compute") return kind;
  const op = data.ops[line.op[index]];
  return op && (op.bound === "compute" || op.bound === "memory") ? op.bound : "unpriced";
}

const emptyLane = (name, more) => ({ name, start: [], stop: [], of: [], latest: [], ...more });

// Lanes: those of the host, one a stream, and the gaps under them. Each holds columns sorted by start.
function prepare() {
  const start = sums(line.start);
  const gapStart = sums(line.gap_start);
  const lanes = line.streams.map((stream) => emptyLane(`stream ${stream}`));
  const idle = emptyLane("idle", { gaps: true });
  start.forEach((from, index) => put(lanes[line.stream[index]], from, line.duration[index], index));
  gapStart.forEach((from, index) => put(idle, from, line.gap_duration[index], index));
  return { lanes: [...(line.host || []).flatMap(hostLanes), ...lanes, ...(gapStart.length ? [idle] : [])], gapStart };
}

// The lanes of one thread: an entry lies below the one around it. `of` are places.
function hostLanes(track, index) {
  const lanes = [];
  const start = sums(track.start);
  track.place.forEach((place, at) => {
    while (lanes.length <= track.depth[at]) lanes.push(emptyLane(lanes.length ? "" : index ? `thread ${index + 1}` : "host", { host: true }));
    put(lanes[track.depth[at]], start[at], track.duration[at], place);
  });
  return lanes;
}

const placeText = (at) => data.names[places.name[at]];
const placeSource = (at) => (places.source[at] === null ? "" : data.names[places.source[at]]);

function put(lane, from, length, index) {
  lane.start.push(from);
  lane.stop.push(from + length);
  lane.of.push(index);
  lane.latest.push(Math.max(from + length, lane.latest.length ? lane.latest[lane.latest.length - 1] : 0));
}

function firstAfter(values, at) {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= at) low = middle + 1; else high = middle;
  }
  return low;
}

function colourOf(lane, index) {
  if (lane.host) return line.host_colours[data.names[places.kind[index]]];
  return lane.gaps ? line.causes[line.gap_cause[index]].colour : category(index);
}

function isLit(lane, index) {
  if (lane.host) return !sought || sought[index];
  if (!selected()) return true;
  if (lane.gaps) return selection.causes.has(line.causes[line.gap_cause[index]].key);
  return selection.ops.has(line.op[index]) || selection.kinds.has(line.kinds[line.kind[index]]);
}

// The rectangles between `from` and `to`: [lane, start, stop, first, how many, busy share, colour, lit].
function rectangles(from, to, width) {
  const least = ((to - from) / width) * MERGE_PX;
  const out = [];
  work.lanes.forEach((lane, row) => {
    let open = null;
    for (let at = firstAfter(lane.latest, from); at < lane.start.length && lane.start[at] < to; at++) {
      const [begin, end] = [lane.start[at], lane.stop[at]];
      if (open && (end - begin < least || open.stop - open.start < least) && begin - open.stop < least && begin - open.start < 2 * least) {
        open.busy += end - begin;
        open.many += 1;
        open.stop = Math.max(open.stop, end);
        open.lit = open.lit || isLit(lane, lane.of[at]);
        if (end - begin > open.longest) Object.assign(open, { longest: end - begin, colour: colourOf(lane, lane.of[at]) });
      } else {
        if (open) out.push(open);
        open = { row, start: begin, stop: end, first: lane.of[at], many: 1, busy: end - begin, longest: end - begin,
          colour: colourOf(lane, lane.of[at]), lit: isLit(lane, lane.of[at]) };
      }
    }
    if (open) out.push(open);
  });
  return out;
}

const textOf = (lane, one) => {
  if (one.many > 1) return "";
  if (lane.host) return placeText(one.first).replace("aten::", "");
  if (lane.gaps) return line.causes[line.gap_cause[one.first]].name;
  const op = data.ops[line.op[one.first]];
  return op ? op.name.replace("aten::", "") : line.kinds[line.kind[one.first]];
};

const texted = new Set();

const label = (text, { width, height }) => ({
  type: "text",
  style: { text, fill: "#fff", fontSize: height < 13 ? 10 : 11, width: width - 8, overflow: "truncate", ellipsis: "\u2026", stroke: "rgb(0 0 0 / 45%)", lineWidth: 2 },
});

function rectangle(palette, rects) {
  return (params, api) => {
    const one = rects[params.dataIndex];
    const lane = work.lanes[one.row];
    const [x0, y] = api.coord([one.start, one.row]);
    const x1 = api.coord([one.stop, one.row])[0];
    const tall = api.size([0, 1])[1];
    const height = Math.min(tall * (tall < 18 ? 0.9 : 0.78), 56);
    const shape = echarts.graphic.clipRectByRect(
      { x: x0, y: y - height / 2, width: Math.max(x1 - x0 - (x1 - x0 > 4 ? 1 : 0), 0.8), height },
      { x: params.coordSys.x, y: params.coordSys.y, width: params.coordSys.width, height: params.coordSys.height },
    );
    if (!shape) return null;
    const density = one.many > 1 ? Math.max(0.3, Math.min(1, one.busy / Math.max(one.stop - one.start, 1))) : 1;
    const text = shape.width > 34 && one.lit ? textOf(lane, one) : "";
    if (text) texted.add(params.dataIndex);
    return {
      type: "rect", shape,
      style: { fill: palette[one.colour], opacity: (one.lit ? 1 : 0.14) * density },
      emphasis: { style: { opacity: 1, stroke: palette.ink, lineWidth: 1 } },
      // an element of an earlier zoom keeps its text unless it is given another
      textContent: text || texted.has(params.dataIndex) ? label(text, shape) : undefined,
      textConfig: { position: "inside" },
    };
  };
}

function palette() {
  const host = Object.values(line.host_colours || {});
  const names = ["compute", "memory", "unpriced", "communication", "transfer", "ink", ...host, ...line.causes.map((cause) => cause.colour)];
  return Object.fromEntries(names.map((name) => [name, colour(name)]));
}

function rectTip(one) {
  const lane = work.lanes[one.row];
  const when = ["starts at", one.start ? duration(one.start) : "the begin of the step"];
  if (one.many > 1) {
    const what = lane.host ? "host events" : lane.gaps ? "gaps" : "pieces of work";
    return tip(`${one.many.toLocaleString("en-US")} ${what}`, [when, ["from first to last", duration(one.stop - one.start)], ["of it " + (lane.gaps ? "idle" : "busy"), duration(one.busy)], ["zoom in", "to tell them apart"]]);
  }
  if (lane.host) {
    const [at, source] = [one.first, placeSource(one.first)];
    return tip(placeText(at), [when, ["takes", duration(one.busy)], ["kind", data.names[places.kind[at]]], ["called at", source === placeText(at) ? "" : source],
      ["mostly", places.sorts[places.sort[at]].name]]);
  }
  if (lane.gaps) return tip(`idle: ${line.causes[line.gap_cause[one.first]].name}`, [when, ["for", duration(one.busy)]]);
  const index = line.op[one.first];
  const pairs = [when, ["takes", duration(one.busy)], ["stream", String(line.streams[line.stream[one.first]])]];
  return index < 0 ? tip(line.kinds[line.kind[one.first]], pairs) : tip(data.ops[index].name, [...pairs, ...opTip(index)]);
}

function paint(instance) {
  const [from, to] = shown.map((share) => share * line.length);
  const rects = rectangles(from, to, Math.max(instance.getWidth() - 80, 100));
  instance.rects = rects;
  instance.setOption({ series: [{ id: "work", data: rects.map((one) => [one.start, one.stop, one.row]), renderItem: rectangle(palette(), rects) }] });
  const whole = shown[0] <= 0 && shown[1] >= 1;
  find("#timeline-range").textContent = whole ? `the whole step, ${duration(line.length)}` : `${duration(from)} to ${duration(to)} of ${duration(line.length)}`;
}

function drawTimeline(instance, node) {
  const lanes = work.lanes;
  const tall = lanes.length > 12 ? 13 : lanes.length > 6 ? 20 : lanes.length > 3 ? 32 : 54;
  const height = lanes.length * tall + 64;
  node.style.height = `${height}px`;
  instance.resize({ height });
  const left = narrow() ? 4 : 78;
  instance.setOption({
    animation: false,
    grid: { left, right: 12, top: 6, bottom: 54, outerBoundsMode: "none" },
    xAxis: {
      type: "value", min: 0, max: line.length, splitNumber: narrow() ? 3 : 8, splitLine: { lineStyle: { color: colour("line") } },
      axisLine: { show: true, lineStyle: { color: colour("rule") } },
      axisLabel: { color: colour("soft"), fontSize: 11, hideOverlap: true, formatter: (ns) => duration(ns), alignMinLabel: "left", showMaxLabel: false,
        showMinLabel: true },
    },
    yAxis: { type: "category", inverse: true, data: lanes.map((one) => one.name), axisLine: { show: false }, axisTick: { show: false },
      axisLabel: narrow() ? { inside: true, show: false } : { color: colour("soft"), fontSize: 11 } },
    tooltip: { ...tooltip(), trigger: "item", formatter: (one) => rectTip(instance.rects[one.dataIndex]) },
    dataZoom: [
      { type: "inside", filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: "shift", minSpan: 0.005, start: shown[0] * 100, end: shown[1] * 100 },
      { type: "slider", filterMode: "none", height: 18, bottom: 8, left, right: 12, minSpan: 0.005, showDataShadow: false, brushSelect: false, start: shown[0] * 100,
        end: shown[1] * 100, labelFormatter: "", borderColor: colour("line"), fillerColor: colour("accent-wash"), backgroundColor: colour("raised"),
        handleStyle: { color: colour("surface"), borderColor: colour("accent") }, moveHandleSize: 0 },
    ],
    series: [{ id: "work", type: "custom", clip: true, encode: { x: [0, 1], y: 2 }, data: [], renderItem: () => null }],
  }, true);
  paint(instance);
}

function zoomTo(instance, from, to) {
  const span = Math.min(Math.max(to - from, 5e-5), 1);
  const low = Math.min(Math.max(from, 0), 1 - span);
  instance.dispatchAction({ type: "dataZoom", start: low * 100, end: (low + span) * 100 });
}

const MOVES = {
  in: ([a, b]) => [a + (b - a) / 4, b - (b - a) / 4], out: ([a, b]) => [a - (b - a) / 2, b + (b - a) / 2],
  left: ([a, b]) => [a - (b - a) / 4, b - (b - a) / 4], right: ([a, b]) => [a + (b - a) / 4, b + (b - a) / 4], whole: () => [0, 1],
};
const KEYS = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", Home: "whole", 0: "whole" };

function startTimeline() {
  if (!line || !find("#timeline-chart")) return;
  work = prepare();
  const instance = chart("timeline-chart", "canvas", drawTimeline);
  const move = (name) => zoomTo(instance, ...MOVES[name](shown));
  let waiting = false;
  const repaint = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; paint(instance); });
  };
  instance.on("datazoom", (event) => {
    const one = event.batch ? event.batch[0] : event;
    if (one.start === undefined) return;
    shown = [one.start / 100, one.end / 100];
    repaint();
  });
  instance.on("click", (event) => choose(instance.rects[event.dataIndex], instance));
  findAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => move(button.dataset.zoom)));
  find("#timeline-chart").addEventListener("keydown", (event) => {
    if (KEYS[event.key] && !event.ctrlKey && !event.metaKey) { event.preventDefault(); move(KEYS[event.key]); }
  });
  findAll("[data-gap]").forEach((button) => button.addEventListener("click", () => {
    const [at, length] = [work.gapStart[button.dataset.gap], line.gap_duration[button.dataset.gap]];
    zoomTo(instance, (at - length) / line.length, (at + 2 * length) / line.length);
    scrollTo("timeline");
  }));
  listeners.push(repaint);
  startSearch(instance, repaint);
}

// The search: it lights the places of the host that it finds; Enter goes to the next time that one is entered.
function startSearch(instance, repaint) {
  const [box, told] = [find("#timeline-search"), find("#timeline-found")];
  if (!box) return;
  let [found, next] = [[], 0];
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    sought = words.length ? places.name.map((_, at) => words.every((word) => `${placeText(at)} ${placeSource(at)}`.toLowerCase().includes(word))) : null;
    found = sought ? work.lanes.filter((one) => one.host).flatMap((one) => one.of.flatMap((place, at) => (sought[place] ? [[one.start[at], one.stop[at]]] : []))) : [];
    found.sort((a, b) => a[0] - b[0]);
    next = 0;
    told.textContent = sought ? `found ${found.length.toLocaleString("en-US")} times${found.length ? "; Enter: the next" : ""}` : "";
    repaint();
  });
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !found.length) return;
    event.preventDefault();
    const [from, to] = found[next % found.length];
    next += 1;
    told.textContent = `${((next - 1) % found.length) + 1} of ${found.length.toLocaleString("en-US")}`;
    zoomTo(instance, (from - (to - from)) / line.length, (to + (to - from)) / line.length);
  });
}

function choose(one, instance) {
  const lane = work.lanes[one.row];
  if (one.many > 1) zoomTo(instance, (one.start - (one.stop - one.start)) / line.length, (one.stop + (one.stop - one.start)) / line.length);
  else if (lane.host) zoomTo(instance, one.start / line.length, one.stop / line.length);
  else if (lane.gaps) select(`idle: ${line.causes[line.gap_cause[one.first]].name}`, [], [line.causes[line.gap_cause[one.first]].key]);
  else if (line.op[one.first] >= 0) select(data.ops[line.op[one.first]].name, [line.op[one.first]]);
}
