// The theme, the bar that tells what is highlighted, printing; then every part starts.
const THEMES = ["auto", "light", "dark"];

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  find("#theme").textContent = `Theme: ${name}`;
  try { localStorage.setItem("gobrrr-theme", name); } catch { /* a page without storage keeps no choice */ }
  redraw();
}

function storedTheme() {
  try { return localStorage.getItem("gobrrr-theme"); } catch { return null; }
}

function tellSelection() {
  const bar = find("#selection");
  bar.replaceChildren();
  if (!selected()) return;
  const ops = [...selection.ops];
  const ns = ops.reduce((sum, index) => sum + data.ops[index].ns, 0);
  const facts = ops.length ? `${ops.length.toLocaleString("en-US")} kind${ops.length > 1 ? "s" : ""} of calls, ${duration(ns)}` : "";
  const gaps = selection.causes.size && line ? line.gap_cause.reduce((sum, cause, index) => sum + (selection.causes.has(line.causes[cause].key) ? line.gap_duration[index] : 0), 0) : 0;
  const idle = selection.causes.size ? `${duration(gaps)} idle` : "";
  const clear = element("button", { type: "button" }, "Clear");
  clear.addEventListener("click", () => clearSelection());
  const places = [["roofline", ops.length], ["timeline", line], ["ops", ops.length]].filter(([id, wanted]) => wanted && document.getElementById(id));
  bar.append(
    element("span", {}, element("b", {}, selection.name), ` \u00b7 ${[facts, idle].filter(Boolean).join(", ")}`),
    ...(narrow() ? places.slice(1, 2) : places).map(([id]) => element("a", { href: `#${id}` }, id === "ops" ? "table" : id)),
    clear,
  );
}

function clearSelection() {
  findAll("input[type=search]").forEach((input) => {
    if (input.value) { input.value = ""; input.dispatchEvent(new Event("input")); }
  });
  select("");
}

function start() {
  const theme = storedTheme();
  if (THEMES.includes(theme)) document.documentElement.dataset.theme = theme;
  find("#theme").textContent = `Theme: ${THEMES.includes(theme) ? theme : "auto"}`;
  startBudget();
  startRoofline();
  startTimeline();
  startTree();
  startTable("ops");
  startTable("kernels");
  listeners.push(tellSelection);
  find("#theme").addEventListener("click", () => {
    setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme || "auto") + 1) % THEMES.length]);
  });
  findAll("[data-finding]").forEach((button) => button.addEventListener("click", () => {
    const one = data.findings[button.dataset.finding];
    select(one.name, one.ops, one.causes, one.kinds);
    scrollTo(one.ops.length && find("#roofline-chart") && !one.causes.length ? "roofline" : "timeline");
  }));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && selected()) clearSelection(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) { width = window.innerWidth; redraw(); }
  });
  document.addEventListener("click", (event) => unfold(event.target.closest?.("a[href^='#']")?.hash.slice(1)));
  window.addEventListener("hashchange", () => unfold(location.hash.slice(1)));
  unfold(location.hash.slice(1));
  let before = null;
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = findAll(".folded:not([open]), .card details:not([open])");
    closed.forEach((one) => { one.open = true; });
    before = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    redraw(660);
  });
  window.addEventListener("afterprint", () => {
    closed.forEach((one) => { one.open = false; });
    document.documentElement.dataset.theme = before || "auto";
    redraw();
  });
}

start();
