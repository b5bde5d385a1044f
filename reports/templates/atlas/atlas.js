
// An atlas: the matrix relative to a kernel of choice, the chosen cell's curve, and two kernels of choice.
const block = document.getElementById("data");
const atlas = block ? JSON.parse(block.textContent) : null;

const percentText = (ratio) => {
  const change = Math.round(1000 * (ratio - 1)) / 10;
  if (change >= 1000) return `x${ratio.toFixed(1)}`;
  return change ? `${change > 0 ? "+" : "-"}${Math.abs(change).toFixed(1)} %` : "0.0 %";
};
const shortText = (ratio) => {
  if (ratio >= 10) return `x${ratio.toFixed(0)}`;
  const change = Math.round(100 * (ratio - 1));
  return change ? `${change > 0 ? "+" : "-"}${Math.abs(change)}` : "0";
};
const kindOf = (ratio) => {
  const size = Math.abs(Math.log(ratio));
  const level = atlas.levels.filter((one) => size >= Math.log1p(one)).length;
  return level ? `${ratio > 1 ? "u" : "d"}${level}` : "";
};
const shown = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 1000 ? 1 : 0 });
const costOf = (row, column, basis) => row[basis][column];
const element = (name, text, attributes = {}) => {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
};
const readHash = () => new URLSearchParams(location.hash.slice(1));

function curveOf(row, basis, at) {
  const values = atlas.columns.map((_, index) => costOf(row, index, basis));
  const known = values.filter((value) => value !== null);
  const low = Math.min(...known), high = Math.max(...known), last = Math.max(values.length - 1, 1);
  const place = (index) => `${20 + (960 * index) / last} ${high > low ? 950 - (900 * (values[index] - low)) / (high - low) : 500}`;
  let path = "", before = -1;
  values.forEach((value, index) => {
    if (value === null) return;
    path += `${before >= 0 && atlas.columns[index].chain === atlas.columns[before].chain ? "L" : "M"}${place(index)}`;
    before = index;
  });
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 1000 1000");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${row.name}: ${shown(low)} to ${shown(high)} ${basis}`);
  for (const [kind, d] of [["level", path], ["now", values[at] === null ? "" : `M${place(at)}h0`]]) {
    const drawn = document.createElementNS("http://www.w3.org/2000/svg", "path");
    drawn.setAttribute("class", kind);
    drawn.setAttribute("d", d);
    svg.append(drawn);
  }
  return svg;
}

function matrixPage(table) {
  const form = document.getElementById("controls");
  const rows = [...table.querySelectorAll("tr[data-row]")];
  const chosen = document.getElementById("chosen");
  let current = null;

  const place = (cell) => [Number(cell.parentElement.dataset.row), cell.cellIndex - 1];
  const paint = () => {
    const basis = form.elements.basis.value;
    const reference = atlas.columns.findIndex((one) => one.id === form.elements.reference.value);
    document.getElementById("relative").textContent = atlas.columns[reference].version;
    for (const tr of rows) {
      const row = atlas.cases[tr.dataset.row];
      const base = costOf(row, reference, basis);
      [...tr.cells].slice(1).forEach((td, index) => {
        const value = costOf(row, index, basis);
        const kept = td.classList.contains("b") ? "b" : "";
        const step = row.steps[basis].includes(index) ? "s" : "";
        if (value === null) {
          td.className = `h ${kept}`;
          td.textContent = "·";
        } else {
          td.className = `${base ? kindOf(value / base) : ""} ${kept} ${step}`;
          td.textContent = base ? shortText(value / base) : "n/a";
        }
      });
    }
  };
  const filter = () => {
    const text = form.elements.text.value.trim().toLowerCase(), group = form.elements.group.value;
    let count = 0;
    for (const tr of rows) {
      const row = atlas.cases[tr.dataset.row];
      tr.hidden = !(row.name.toLowerCase().includes(text) && (!group || row.group === group));
      count += !tr.hidden;
    }
    for (const head of table.querySelectorAll("tr.group")) {
      head.hidden = ![...head.parentElement.querySelectorAll("tr[data-row]")].some((one) => !one.hidden);
    }
    form.querySelector("output").textContent = `${count} of ${rows.length} cases`;
  };
  const show = (cell) => {
    const [number, index] = place(cell);
    const row = atlas.cases[number], column = atlas.columns[index], basis = form.elements.basis.value;
    const value = costOf(row, index, basis);
    chosen.hidden = false;
    const link = element("a", `${row.name} in ${column.version} (${column.series})`, { href: `case/${row.slug}.html#${column.id}` });
    const title = element("p", "");
    title.append(link);
    if (value === null) {
      chosen.replaceChildren(title, element("p", atlas.holes[row.holes[index] ?? 0]));
      return;
    }
    const reference = atlas.columns.findIndex((one) => one.id === form.elements.reference.value);
    const base = costOf(row, reference, basis);
    const relative = base ? `, ${percentText(value / base)} against ${atlas.columns[reference].version}` : "";
    const facts = element("p", `${shown(value)} ${basis}${relative}; A/A band ±${(100 * Math.expm1(row.bands[basis])).toFixed(1)} %`);
    const again = element("p", "");
    again.append(element("code", `lab atlas check ${row.name}@${column.id}${atlas.source}`));
    chosen.replaceChildren(title, facts, again, curveOf(row, basis, index));
  };
  const keep = () => {
    const kept = readHash();
    for (const name of ["text", "group", "basis", "reference"]) kept.set(name, form.elements[name].value);
    history.replaceState(null, "", `#${kept}`);
  };
  const choose = (cell, focus) => {
    if (current) {
      current.tabIndex = -1;
      current.setAttribute("aria-selected", "false");
    }
    current = cell;
    cell.tabIndex = 0;
    cell.setAttribute("aria-selected", "true");
    if (focus) cell.focus();
    show(cell);
    const kept = readHash(), [number, index] = place(cell);
    kept.set("cell", `${atlas.cases[number].name}@${atlas.columns[index].id}`);
    history.replaceState(null, "", `#${kept}`);
  };
  table.addEventListener("click", (event) => {
    const cell = event.target.closest("tr[data-row] > td");
    if (cell) choose(cell, true);
  });
  table.addEventListener("focusin", (event) => {
    if (event.target.matches("tr[data-row] > td") && event.target !== current) choose(event.target, false);
  });
  table.addEventListener("keydown", (event) => {
    const cell = event.target.closest("tr[data-row] > td");
    if (!cell) return;
    const visible = rows.filter((one) => !one.hidden);
    const at = visible.indexOf(cell.parentElement), index = cell.cellIndex, last = cell.parentElement.cells.length - 1;
    const to = {
      ArrowLeft: [at, index - 1], ArrowRight: [at, index + 1], ArrowUp: [at - 1, index], ArrowDown: [at + 1, index],
      Home: [at, 1], End: [at, last], PageUp: [Math.max(at - 10, 0), index], PageDown: [Math.min(at + 10, visible.length - 1), index],
    }[event.key];
    if (event.key === "Enter") location.href = chosen.querySelector("a").href;
    if (!to) return;
    event.preventDefault();
    const next = visible[to[0]]?.cells[to[1]];
    if (next && to[1] > 0) choose(next, true);
  });
  form.addEventListener("input", (event) => {
    if (["basis", "reference"].includes(event.target.name)) paint();
    filter();
    if (current) show(current);
    keep();
  });
  form.addEventListener("submit", (event) => event.preventDefault());

  const kept = readHash();
  for (const name of ["text", "group", "basis", "reference"]) {
    if (kept.get(name)) form.elements[name].value = kept.get(name);
    if (form.elements[name].selectedIndex < 0) form.elements[name].selectedIndex = 0;
  }
  if (kept.get("basis") || kept.get("reference")) paint();
  filter();
  const [name, id] = (kept.get("cell") ?? "").split("@");
  const number = atlas.cases.findIndex((one) => one.name === name), index = atlas.columns.findIndex((one) => one.id === id);
  if (number >= 0 && index >= 0) choose(rows[number].cells[index + 1], false);
  else if (rows.length) {
    rows[0].cells[1].tabIndex = 0;
    // Begin with the kernel that all are relative to: those of older releases are left of it.
    const head = table.tHead.rows[1].cells[1 + atlas.columns.findIndex((one) => one.id === form.elements.reference.value)];
    table.parentElement.scrollLeft = head.offsetLeft - rows[0].cells[0].offsetWidth;
  }
}

function pairPage(form) {
  const table = document.getElementById("changes");
  const wordOf = (row, base, test, basis) => {
    const change = Math.log(costOf(row, test, basis) / costOf(row, base, basis));
    const beyond = change > Math.log1p(atlas.threshold) || change < Math.log1p(-atlas.threshold);
    const certain = Math.abs(change) > row.wide[basis];
    if (beyond && certain) return change > 0 ? "worse" : "better";
    return !beyond && Math.abs(change) + row.wide[basis] <= Math.log1p(atlas.threshold) ? "same" : "unknown";
  };
  const fill = () => {
    const [base, test] = ["base", "test"].map((name) => atlas.columns.findIndex((one) => one.id === form.elements[name].value));
    const basis = form.elements.basis.value, text = form.elements.text.value.trim().toLowerCase();
    const [from, to] = [atlas.columns[base], atlas.columns[test]];
    const apart = from.machine !== to.machine ? "They boot on two kinds of machine: nothing is compared." : from.builder !== to.builder ? `Built by two compilers: ${from.builder}, and ${to.builder}.` : "";
    document.getElementById("remark").textContent = apart;
    const words = {}, found = [];
    for (const row of from.machine === to.machine ? atlas.cases : []) {
      const [old, fresh] = [costOf(row, base, basis), costOf(row, test, basis)];
      if (!old || !fresh || !row.name.toLowerCase().includes(text)) continue;
      const word = wordOf(row, base, test, basis);
      words[word] = (words[word] ?? 0) + 1;
      if ([word, ""].includes(form.elements.word.value)) found.push([row, old, fresh, word]);
    }
    found.sort((a, b) => Math.abs(Math.log(b[2] / b[1])) - Math.abs(Math.log(a[2] / a[1])));
    table.tBodies[0].replaceChildren(...found.map(([row, old, fresh, word]) => {
      const tr = document.createElement("tr");
      tr.dataset.case = row.name;
      const head = element("th", "", { scope: "row", class: "name" });
      head.append(element("a", row.name, { href: `case/${row.slug}.html` }));
      const between = row.steps[basis].filter((index) => index > Math.min(base, test) && index <= Math.max(base, test) && atlas.columns[index].series === to.series).sort((a, b) => a - b);
      const state = { worse: "regression", better: "improvement" }[word] ?? word;
      const marked = element("td", "", { class: state });
      marked.append(element("span", word, { class: "word" }));
      tr.append(
        element("td", row.group), head, element("td", shown(old), { class: "n", "data-value": old }), element("td", shown(fresh), { class: "n", "data-value": fresh }),
        element("td", percentText(fresh / old), { class: "n", "data-value": fresh / old }), marked, element("td", between.map((index) => atlas.columns[index].version).join(", "), { class: "long" }),
      );
      return tr;
    }));
    form.querySelector("output").textContent = ["worse", "better", "same", "unknown"].filter((one) => words[one]).map((one) => `${words[one]} ${one}`).join(", ") || "no case has both";
  };
  const keep = () => history.replaceState(null, "", `#${form.elements.base.value}..${form.elements.test.value}`);
  const take = () => {
    const match = location.hash.slice(1).match(/^(.+?)\.\.(.+)$/);
    if (match) ["base", "test"].forEach((name, index) => {
      if (atlas.columns.some((one) => one.id === decodeURIComponent(match[index + 1]))) form.elements[name].value = decodeURIComponent(match[index + 1]);
    });
    fill();
  };
  form.addEventListener("input", () => {
    fill();
    keep();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", take);
  take();
}

if (atlas && document.getElementById("matrix")) matrixPage(document.getElementById("matrix"));
if (atlas && document.getElementById("pair")) pairPage(document.getElementById("pair"));
