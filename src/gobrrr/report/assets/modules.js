// The tree of modules: rows open and close; the arrow keys move as in any tree.
function startTree() {
  const tree = document.getElementById("tree");
  if (!tree) return;
  const rows = [...tree.tBodies[0].rows];
  const level = (row) => Number(row.getAttribute("aria-level"));
  const opened = (row) => row.getAttribute("aria-expanded");

  function refresh() {
    const closed = [];
    for (const row of rows) {
      while (closed.length && closed[closed.length - 1] >= level(row)) closed.pop();
      row.hidden = closed.length > 0;
      if (opened(row) === "false") closed.push(level(row));
    }
  }

  function set(row, open) {
    if (opened(row) !== null) row.setAttribute("aria-expanded", String(open));
    refresh();
  }

  function focus(row) {
    if (!row) return;
    rows.forEach((one) => { one.tabIndex = one === row ? 0 : -1; });
    row.focus();
  }

  const seen = () => rows.filter((row) => !row.hidden);
  const pick = (row) => {
    const one = data.modules[row.dataset.i];
    select(one.name, one.ops);
    selectedRow = row;
    rows.forEach((other) => other.classList.toggle("lit", other === row));
  };
  let selectedRow = null;

  const moves = {
    ArrowDown: (row) => focus(seen()[seen().indexOf(row) + 1]),
    ArrowUp: (row) => focus(seen()[seen().indexOf(row) - 1]),
    ArrowRight: (row) => (opened(row) === "false" ? set(row, true) : focus(seen()[seen().indexOf(row) + 1])),
    ArrowLeft: (row) => (opened(row) === "true" ? set(row, false) : focus(seen().slice(0, seen().indexOf(row)).reverse().find((one) => level(one) < level(row)))),
    Enter: pick, " ": pick,
    Home: () => focus(seen()[0]), End: () => focus(seen()[seen().length - 1]),
  };
  rows.forEach((row) => {
    row.addEventListener("click", (event) => {
      focus(row);
      if (event.target.closest(".twist") || opened(row) === "false") set(row, opened(row) === "false");
      if (!event.target.closest(".twist")) pick(row);
    });
    row.addEventListener("keydown", (event) => {
      if (moves[event.key]) { event.preventDefault(); moves[event.key](row); }
    });
  });
  listeners.push(() => { if (selectedRow && !selected()) { selectedRow.classList.remove("lit"); selectedRow = null; } });
  rows[0].tabIndex = 0;
  refresh();
}
