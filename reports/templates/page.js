"use strict";
// Everything is readable without this; it sorts, filters, and unfolds.

function keyOf(row, column, numeric) {
  const cell = row.cells[column];
  if (!numeric) return cell.textContent.trim();
  const text = cell.dataset.value ?? cell.textContent;
  return text === "" ? NaN : Number(text);
}

function compare(a, b, numeric) {
  if (!numeric) return a.localeCompare(b, "en", { numeric: true });
  // What has no number comes last, whichever way.
  if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
  return a - b;
}

function sortBy(heading) {
  const numeric = heading.dataset.kind === "number";
  const down = heading.getAttribute("aria-sort") === "ascending";
  const body = heading.closest("table").tBodies[0];
  const rows = [...body.rows].map((row) => [keyOf(row, heading.cellIndex, numeric), row]);
  const missing = (key) => numeric && Number.isNaN(key);
  rows.sort(([a], [b]) => (missing(a) || missing(b) || !down ? compare(a, b, numeric) : compare(b, a, numeric)));
  body.append(...rows.map(([, row]) => row));
  for (const other of heading.parentElement.querySelectorAll("[aria-sort]")) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
}

for (const heading of document.querySelectorAll("table.sortable th[aria-sort]")) {
  heading.querySelector("button").addEventListener("click", () => sortBy(heading));
}

for (const form of document.querySelectorAll("form.filters[data-for]")) {
  const rows = [...document.getElementById(form.dataset.for).tBodies[0].rows];
  const apply = () => {
    const text = form.elements.text.value.trim().toLowerCase();
    const verdict = form.elements.verdict.value;
    let shown = 0;
    for (const row of rows) {
      const fits = row.dataset.case.toLowerCase().includes(text) && (!verdict || row.dataset.verdict === verdict);
      row.hidden = !fits;
      shown += fits;
    }
    form.querySelector("output").textContent = `${shown} of ${rows.length} ${form.dataset.rows}`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}

function unfoldTarget() {
  const target = document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) {
    target.open = true;
    target.scrollIntoView();
  }
}
addEventListener("hashchange", unfoldTarget);
unfoldTarget();

// Paper has no folds, but for long tables of numbers.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open], .raw, .all-counters)")];
  for (const one of folded) one.open = true;
});
addEventListener("afterprint", () => folded.forEach((one) => (one.open = false)));
