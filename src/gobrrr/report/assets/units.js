// The same text for numbers as gobrrr/units.py; null is unknown and never zero.
const UNKNOWN = "unknown";

function digits(value) {
  const places = decimals(value);
  return Number(value.toPrecision(3)).toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
}

function decimals(value) {
  return Math.max(0, 2 - Math.floor(Math.log10(Math.abs(Number(value.toPrecision(3))))));
}

function duration(ns) {
  if (ns === null || ns === undefined || !Number.isFinite(ns)) return UNKNOWN;
  if (ns === 0) return "0";
  if (Math.abs(ns) < 1) return ns > 0 ? "<1 ns" : ">-1 ns";
  const rounded = Math.abs(Number(ns.toPrecision(3)));
  const [scale, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"]].find((one) => rounded >= one[0]) || [1e3, "us"];
  return `${digits(ns / scale)} ${unit}`;
}

function scaled(n, unit) {
  if (n === null || n === undefined || !Number.isFinite(n)) return UNKNOWN;
  if (n === 0) return `0 ${unit}`;
  const rounded = Math.abs(Number(n.toPrecision(3)));
  const prefixes = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [scale, prefix] = prefixes.find((one) => rounded >= one[0]) || [1, ""];
  return `${!prefix && Number.isInteger(n) ? n : digits(n / scale)} ${prefix}${unit}`;
}

function rate(perSecond, of) {
  const text = scaled(perSecond, of);
  return text === UNKNOWN ? text : `${text}/s`;
}

function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return UNKNOWN;
  const value = 100 * share;
  if (value === 0 || value === 100) return `${value} %`;
  if (value < 0.05) return "<0.1 %";
  if (value >= 99.95 && value < 100) return ">99.9 %";
  return `${value.toFixed(Number(value.toFixed(1)) < 10 || (value > 99 && value < 100) ? 1 : 0)} %`;
}

function count(n) {
  if (n === null || n === undefined || !Number.isFinite(n)) return UNKNOWN;
  return Number.isInteger(n) ? n.toLocaleString("en-US") : digits(n);
}
