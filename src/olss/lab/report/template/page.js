"use strict";
// Hides what is not chosen and copies tables; figures and tables are in the page without it.
const hidden = { method: new Set(), stream: new Set(), verdict: new Set() };
const all = (query, root = document) => [...root.querySelectorAll(query)];

function choose(kind, value, shown) {
  shown ? hidden[kind].delete(value) : hidden[kind].add(value);
  for (const part of all(`[data-${kind}]:not(button)`)) {
    part.classList.toggle("hidden", hidden[kind].has(part.dataset[kind]));
  }
}
for (const box of all("nav input")) {
  choose(box.name, box.value, box.checked); // browsers keep ticks over a reload
  box.addEventListener("change", () => choose(box.name, box.value, box.checked));
}
for (const button of all("button[data-verdict]")) {
  button.addEventListener("click", () => {
    const shown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", shown);
    choose("verdict", button.dataset.verdict, shown);
  });
}

// The rows of hidden methods are left out: one line of LaTeX for each row of the table.
function latex(table) {
  const text = table.dataset.latex.split("\n"), start = text.indexOf("\\midrule") + 1;
  const off = all("tbody tr", table).map((row) => row.classList.contains("hidden"));
  return text.filter((_, i) => !off[i - start]).join("\n");
}
async function copy(text) {
  try { await navigator.clipboard.writeText(text); } catch {
    // Pages opened from disk may not have the clipboard; the old way still works.
    const area = document.createElement("textarea");
    area.value = text; document.body.append(area); area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("no clipboard");
  }
}
for (const button of all("button[data-copy]")) {
  const name = button.textContent;
  button.addEventListener("click", async () => {
    try { await copy(latex(button.closest("figure").querySelector("table"))); button.textContent = "Copied"; }
    catch { button.textContent = "Not allowed here"; }
    button.focus();
    setTimeout(() => { button.textContent = name; }, 1500);
  });
}
