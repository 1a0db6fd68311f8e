// Tables that sort, filter and open; their rows are the page's own, only moved and hidden.
const namesOf = (places) => places.map((place) => data.names[place]);
const TABLES = {
  ops: {
    text: (op) => [data.names[op.full], op.shapes, op.module, op.bound, op.family, ...namesOf(op.kernels)].join(" "),
    full: (op) => data.names[op.full],
    detail: (op) => [
      ["op", data.names[op.full]], ["arguments", op.shapes], ["mostly in", op.module], [op.kernels.length > 1 ? "kernels" : "kernel", namesOf(op.kernels).join("\n")],
      ["calls a step", count(op.calls)], ["time a step", duration(op.ns)], ["mean of a call", op.calls ? duration(op.ns / op.calls) : UNKNOWN],
      ["floor", op.floor === null ? UNKNOWN : `${duration(op.floor)}, ${percent(op.reach)} of the time`], ["bound", op.bound || UNKNOWN], ["roof", op.roof],
      ["arithmetic", op.flop === null ? UNKNOWN : `${scaled(op.flop, "FLOP")}, ${rate(op.flop_s, "FLOP")}`],
      ["bytes moved", op.bytes === null ? UNKNOWN : `${scaled(op.bytes, "B")}, ${rate(op.byte_s, "B")}`], ["note", op.note],
    ],
    ops: (op, index) => [index], lit: (index) => selection.ops.has(index),
  },
  kernels: {
    text: (kernel) => [data.names[kernel.name], ...kernel.ops.map((op) => data.ops[op].name)].join(" "),
    full: (kernel) => data.names[kernel.name],
    detail: (kernel) => [
      ["kernel", data.names[kernel.name]], ["launches a step", count(kernel.calls)], ["time a step", duration(kernel.ns)],
      ["mean of a launch", duration(kernel.each)],
      ["operations", kernel.ops.length ? [...new Set(kernel.ops.map((op) => data.ops[op].name))].join(", ") : UNKNOWN],
    ],
    ops: (kernel) => kernel.ops, lit: (index) => data.kernels[index].ops.some((op) => selection.ops.has(op)),
  },
};

function startTable(name) {
  const table = document.getElementById(`${name}-table`);
  if (!table) return;
  const rule = TABLES[name];
  const values = data[name];
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const state = { key: "ns", down: true, words: [], all: rows.length <= 12 };
  const texts = values.map((value) => rule.text(value).toLowerCase());
  rows.forEach((row, index) => {
    const button = row.querySelector(".name");
    button.title = rule.full(values[index]);
    button.addEventListener("click", () => toggle(name, row, index));
  });

  function order() {
    const key = (index) => {
      const value = values[index][state.key];
      if (state.key === "name") return rule.full(values[index]).toLowerCase();
      return value === null || value === undefined || value === "" ? null : value;
    };
    const places = rows.map((_, index) => index).sort((a, b) => {
      const [one, two] = [key(a), key(b)];
      if (one === null || two === null) return (one === null) - (two === null) || a - b; // unknown last, either way
      const sign = one < two ? -1 : one > two ? 1 : 0;
      return (state.down ? -sign : sign) || a - b;
    });
    let shownRows = 0;
    for (const index of places) {
      const row = rows[index];
      const detail = row.detail || null;
      row.hidden = !state.words.every((word) => texts[index].includes(word));
      if (detail) detail.hidden = row.hidden;
      row.classList.toggle("more", !row.hidden && shownRows >= 12);
      shownRows += !row.hidden;
      body.append(row, ...(detail ? [detail] : []));
    }
    table.classList.toggle("short", !state.all);
    const told = document.getElementById(`${name}-count`);
    told.textContent = state.words.length ? `${shownRows.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")}` : `${rows.length.toLocaleString("en-US")} rows`;
    const all = document.getElementById(`${name}-all`);
    if (all) {
      all.hidden = shownRows <= 12;
      all.textContent = state.all ? "Show fewer" : `Show all ${shownRows.toLocaleString("en-US")}`;
    }
  }

  function sort(key, down) {
    Object.assign(state, { key, down });
    table.querySelectorAll("thead th").forEach((head) => {
      if (head.dataset.key === key) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    document.getElementById(`${name}-sort`).value = key;
    order();
  }

  const textual = (key) => ["name", "shapes", "bound"].includes(key);
  table.querySelectorAll("thead th").forEach((head) => head.querySelector("button").addEventListener("click", () => {
    const key = head.dataset.key;
    sort(key, state.key === key ? !state.down : !textual(key));
  }));
  document.getElementById(`${name}-sort`).addEventListener("change", (event) => sort(event.target.value, !textual(event.target.value)));
  document.getElementById(`${name}-filter`).addEventListener("input", (event) => {
    state.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    order();
    const left = rows.map((_, index) => index).filter((index) => !rows[index].hidden);
    if (state.words.length) select(`\u201c${event.target.value.trim()}\u201d`, [...new Set(left.flatMap((index) => rule.ops(values[index], index)))]);
    else select("");
  });
  const all = document.getElementById(`${name}-all`);
  if (all) all.addEventListener("click", () => { state.all = !state.all; order(); });
  listeners.push(() => rows.forEach((row, index) => row.classList.toggle("lit", selected() && rule.lit(index))));
  window.addEventListener("resize", () => rows.filter((row) => row.detail).forEach(span));
  order();
}

// As many columns as are shown: one more would be a column of its own.
function span(row) {
  row.detail.cells[0].colSpan = [...row.cells].filter((cell) => cell.offsetParent !== null).length;
}

function toggle(name, row, index) {
  const rule = TABLES[name];
  const value = data[name][index];
  const button = row.querySelector(".name");
  if (row.detail) {
    row.detail.remove();
    row.detail = null;
    button.setAttribute("aria-expanded", "false");
    select("");
    return;
  }
  const pairs = rule.detail(value).filter((pair) => pair[1] !== null && pair[1] !== "" && pair[1] !== undefined);
  const list = pairs.flatMap(([key, text]) => [element("dt", {}, key), element("dd", {}, text)]);
  row.detail = element("tr", { class: "detail" }, element("td", {}, element("dl", {}, ...list)));
  row.after(row.detail);
  span(row);
  button.setAttribute("aria-expanded", "true");
  select(name === "ops" ? value.name : rule.full(value).slice(0, 60), rule.ops(value, index));
}
