// A prediction's machines: the step on each, and the ridges beside the step's own arithmetic intensity.
const machines = data.machines;
const nameWidth = () => (narrow() ? 112 : 150);

function machineAxis() {
  return {
    type: "category", data: machines.rows.map((row) => row.name), inverse: true, axisLine: { show: false }, axisTick: { show: false },
    axisLabel: { color: colour("ink"), fontSize: narrow() ? 11 : 12, width: nameWidth() - 10, overflow: "truncate", margin: 10, align: "right" },
  };
}

const valueAxis = (max, formatter) => ({
  type: "value", min: 0, max, splitNumber: narrow() ? 3 : 6, axisTick: { show: false },
  axisLabel: { formatter, color: colour("soft"), fontSize: 11, hideOverlap: true, showMaxLabel: false },
  splitLine: { lineStyle: { color: colour("line") } },
});

const reference = (value, text, dash, align = "center") => ({
  xAxis: value, symbol: "none", lineStyle: { color: colour("ink"), width: 1.5, type: dash },
  label: { show: true, position: "start", align, formatter: text, color: colour("ink"), fontSize: 11, rotate: 0, distance: 5 },
});

const ruled = (lines) => ({
  type: "scatter", data: [], silent: true, animation: false, z: 4,
  markLine: { silent: true, symbol: "none", animation: false, data: lines },
});

function halo(shape, type = "line") {
  return [
    { type, shape, style: { stroke: colour("surface"), lineWidth: 4.5, fill: "none", opacity: 0.9 } },
    { type, shape, style: { stroke: colour("ink"), lineWidth: 1.5, fill: "none" } },
  ];
}

// Over a bar: its interval as a whisker, the device's time as a wedge under it, the step's time in words.
function drawOver(params, api) {
  const row = machines.rows[params.dataIndex];
  const at = (ns) => api.coord([ns, params.dataIndex]);
  const [[low, y], [high], [device]] = [at(row.low), at(row.high), at(row.device)];
  const lines = [[[low, y], [high, y]], [[low, y - 5], [low, y + 5]], [[high, y - 5], [high, y + 5]]];
  const wedge = [[device, y + 9], [device - 5, y + 17], [device + 5, y + 17]];
  return {
    type: "group", silent: true, children: [
      ...lines.flatMap((points) => halo({ points }, "polyline")).sort((a, b) => b.style.lineWidth - a.style.lineWidth),
      { type: "polygon", shape: { points: wedge }, style: { fill: colour("ink"), stroke: colour("surface"), lineWidth: 1 } },
      { type: "text", style: { text: duration(row.step), x: high + 10, y, verticalAlign: "middle", fill: colour("ink"), fontSize: 12, fontWeight: 600 } },
    ],
  };
}

function drawMachines(instance) {
  const hosts = machines.rows.map((row) => row.host);
  const one = Math.max(...hosts) <= 1.005 * Math.min(...hosts) ? hosts[0] : null;
  const bars = machines.sides.map((side, index) => ({
    type: "bar", name: side.name, stack: "step", barWidth: 18, animation: false, data: machines.rows.map((row) => row.parts[index]),
    itemStyle: { color: colour(side.colour) }, emphasis: { disabled: true },
  }));
  instance.setOption({
    aria: { enabled: false }, animation: false,
    grid: { left: nameWidth(), right: 74, top: 22, bottom: 24, outerBoundsMode: "none" },
    xAxis: valueAxis(Math.max(...machines.rows.map((row) => Math.max(row.high, row.step))), duration), yAxis: machineAxis(),
    tooltip: { ...tooltip(), trigger: "axis", axisPointer: { type: "shadow", shadowStyle: { color: colour("raised"), opacity: 0.5 } }, formatter: (found) => {
      const row = machines.rows[found[0].dataIndex];
      return tip(row.name, [
        ["step", duration(row.step)], ["interval", `${duration(row.low)} to ${duration(row.high)}`], ["device", duration(row.device)],
        ["host", duration(row.host)], ["bound", row.bound],
        ...machines.sides.map((side, index) => [side.name, row.parts[index] ? percent(row.parts[index] / row.step) : null]),
        ["speed of light", duration(row.light)],
      ]);
    } },
    series: [
      ...bars, { type: "custom", renderItem: drawOver, data: machines.rows.map((row) => row.step), z: 5, animation: false, clip: false },
      ruled(one ? [reference(one, `host ${duration(one)}`, [4, 4])] : []),
    ],
  }, true);
}

function drawRidge(params, api) {
  const row = machines.rows[params.dataIndex];
  if (!row.ridge) return null;
  const [[x, y], [from]] = [api.coord([row.ridge, params.dataIndex]), api.coord([machines.own, params.dataIndex])];
  const side = colour(row.ridge > machines.own ? "memory" : "compute");
  const right = row.ridge > machines.own;
  return {
    type: "group", silent: true, children: [
      { type: "line", shape: { x1: from, y1: y, x2: x, y2: y }, style: { stroke: side, lineWidth: 4, opacity: 0.45 } },
      { type: "circle", shape: { cx: x, cy: y, r: 6.5 }, style: { fill: side, stroke: colour("surface"), lineWidth: 1.5 } },
      { type: "text", style: { text: digits(row.ridge), x: x + (right ? 12 : -12), y, align: right ? "left" : "right", verticalAlign: "middle",
        fill: colour("ink"), fontSize: 12, fontWeight: 600, stroke: colour("surface"), lineWidth: 4 } },
    ],
  };
}

function drawGap(instance) {
  const known = machines.rows.map((row) => row.ridge || 0);
  const lines = [reference(machines.own, `the step ${digits(machines.own)}`, "solid", machines.fused ? "right" : "center")];
  if (machines.fused) lines.push(reference(machines.fused, `fused ${digits(machines.fused)}`, [4, 4], "left"));
  instance.setOption({
    aria: { enabled: false }, animation: false,
    grid: { left: nameWidth(), right: 44, top: 22, bottom: 24, outerBoundsMode: "none" },
    xAxis: valueAxis(1.04 * Math.max(...known, machines.own, machines.fused || 0), (value) => `${value.toLocaleString("en-US")}${value ? "" : " FLOP/B"}`),
    yAxis: machineAxis(),
    tooltip: { ...tooltip(), trigger: "axis", axisPointer: { type: "shadow", shadowStyle: { color: colour("raised"), opacity: 0.5 } }, formatter: (found) => {
      const row = machines.rows[found[0].dataIndex];
      return tip(row.name, [
        ["ridge", row.ridge ? `${digits(row.ridge)} FLOP/B` : UNKNOWN], ["the step", `${digits(machines.own)} FLOP/B`],
        ["with compulsory bytes", machines.fused ? `${digits(machines.fused)} FLOP/B` : null],
        ["ridge over step", row.ridge ? digits(row.ridge / machines.own) : null],
      ]);
    } },
    series: [{ type: "custom", renderItem: drawRidge, data: known, z: 5, animation: false, clip: false }, ruled(lines)],
  }, true);
}

chart("machines-chart", "svg", drawMachines);
chart("gap-chart", "svg", drawGap);
