// The budget as one stacked bar.
function stripes(name) {
  const below = name.startsWith("below");
  return below ? { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [2, 3], rotation: -Math.PI / 4, color: colour("surface") } : null;
}

function drawBudget(instance) {
  const series = data.budget.map((row) => ({
    type: "bar", name: row.name, stack: "step", data: [row.share], barWidth: 34, animation: false,
    itemStyle: {
      color: colour(row.colour.replace("below-", "")), decal: stripes(row.colour) || { symbol: "none" },
      borderColor: colour("surface"), borderWidth: 1,
    },
    emphasis: { focus: "series" },
    label: {
      show: row.share > (narrow() ? 0.16 : 0.06), formatter: percent(row.share), color: "#fff", fontWeight: 600, fontSize: 12,
      ...(row.colour.startsWith("below") ? { backgroundColor: colour("surface"), color: colour("ink"), padding: [3, 6], borderRadius: 4 }
        : { textBorderColor: "rgb(0 0 0 / 45%)", textBorderWidth: 2 }),
    },
  }));
  instance.setOption({
    aria: { enabled: false }, animation: false,
    grid: { left: 0, right: 0, top: 2, bottom: 22, outerBoundsMode: "none" },
    xAxis: {
      type: "value", min: 0, max: Math.max(1, Math.round(data.budget.reduce((sum, row) => sum + row.share, 0) * 1e4) / 1e4),
      axisLabel: { formatter: (share) => (data.step_ns ? duration(share * data.step_ns) : percent(share)), color: colour("soft"),
        fontSize: 11, alignMinLabel: "left", alignMaxLabel: "right" },
      splitNumber: narrow() ? 2 : 5, splitLine: { show: false }, axisTick: { show: false },
    },
    yAxis: { type: "category", data: [""], show: false },
    tooltip: { ...tooltip(), trigger: "item", formatter: (one) => {
      const row = data.budget[one.seriesIndex];
      return tip(row.name, [["time a step", duration(row.ns)], ["share", percent(row.share)]]);
    } },
    series,
  }, true);
}

function startBudget() {
  const instance = chart("budget-chart", "svg", drawBudget);
  if (!instance) return;
  const rows = findAll(".budget-table tbody tr");
  rows.forEach((row, index) => {
    row.addEventListener("mouseenter", () => instance.dispatchAction({ type: "highlight", seriesIndex: index }));
    row.addEventListener("mouseleave", () => instance.dispatchAction({ type: "downplay", seriesIndex: index }));
  });
}
