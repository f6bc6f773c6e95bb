// The live widgets. Python joins the files of this folder, in the order of their names, into one module: they import
// nothing. Python sends parts of a picture, in which every string is ready-made, and they go in by textContent;
// nothing is computed here but where things stand. Elements are made once and changed only where a part changed.

const SVG = "http://www.w3.org/2000/svg";
const REORDER_MS = 5000;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function text(tag, kind, content) {
  const element = make(tag, kind ? { class: kind } : {});
  element.textContent = content;
  return element;
}

function say(element, content) {
  if (element.textContent !== content) element.textContent = content;
}

function mark(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

function style(element, name, value) {
  if (element.style[name] !== value) element.style[name] = value;
}

function button(label, kind, act) {
  const element = text("button", kind, label);
  element.type = "button";
  element.addEventListener("click", act);
  return element;
}

let ids = 0;
const unique = (name) => `dq-${name}-${Date.now().toString(36)}-${ids++}`;

// Keeps one child per key, in order; makes and removes only what changed.
function sync(parent, items, keyOf, create, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.row, child]));
  const keys = items.map((item, place) => String(keyOf(item, place)));
  const kept = new Set(keys);
  for (const [key, gone] of old) if (!kept.has(key)) gone.remove(); // first: what stays is not moved, and keeps the focus
  items.forEach((item, place) => {
    let child = old.get(keys[place]);
    if (!child) {
      child = create(item);
      child.dataset.row = keys[place];
      old.set(keys[place], child);
    }
    if (parent.children[place] !== child) parent.insertBefore(child, parent.children[place] ?? null);
    update(child, item, place);
  });
}

// Rows keep their places while they are read: a new order is taken at most every 5 s, never under pointer or focus.
function steady(area) {
  let order = new Map();
  let taken = 0;
  return (rows, keyOf) => {
    const busy = area.matches(":hover") || area.contains(document.activeElement);
    const now = performance.now();
    const known = order.size === rows.length && rows.every((row) => order.has(keyOf(row)));
    if (!known || (!busy && now - taken > REORDER_MS)) {
      order = new Map(rows.map((row, place) => [keyOf(row), place]));
      taken = now;
    }
    return [...rows].sort((a, b) => order.get(keyOf(a)) - order.get(keyOf(b)));
  };
}

// One stop for Tab; arrows move among the rows, and from a row to its buttons and back.
function roving(area, rowsOf, act = {}) {
  const rows = () => [...rowsOf()].filter((row) => row.getClientRects().length);
  const stops = (row) => [row, ...[...row.querySelectorAll("button")].filter((each) => each.getClientRects().length)];
  const settle = () => {
    const all = rows();
    const kept = all.find((row) => row.tabIndex === 0) ?? all[0];
    for (const row of all) {
      mark(row, "tabindex", row === kept ? 0 : -1); // without the attribute a row takes no focus at all
      for (const inner of row.querySelectorAll("button")) mark(inner, "tabindex", -1);
    }
  };
  const go = (target) => {
    if (!target) return;
    for (const row of rows()) row.tabIndex = -1;
    (target.closest("[data-row]") ?? target).tabIndex = 0;
    target.focus();
  };
  area.addEventListener("focusin", (event) => {
    const row = event.target.closest("[data-row]");
    if (row && area.contains(row) && rows().includes(row)) for (const each of rows()) each.tabIndex = each === row ? 0 : -1;
  });
  area.addEventListener("keydown", (event) => {
    const row = event.target.closest("[data-row]");
    if (!row || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input")) return;
    const all = rows();
    const at = all.indexOf(row);
    const inner = stops(row);
    const place = inner.indexOf(event.target);
    const moves = {
      ArrowDown: () => go(all[Math.min(at + 1, all.length - 1)]),
      ArrowUp: () => go(all[Math.max(at - 1, 0)]),
      Home: () => go(all[0]),
      End: () => go(all[all.length - 1]),
      ArrowRight: () => go(inner[Math.min(place + 1, inner.length - 1)]),
      ArrowLeft: () => go(inner[Math.max(place - 1, 0)]),
    };
    const own = event.target === row ? act[event.key] : undefined;
    const move = own ? () => own(row) : moves[event.key];
    if (!move || at < 0) return;
    event.preventDefault();
    event.stopPropagation();
    move();
  });
  return settle;
}

function visible(elements) {
  return [...elements].find((each) => each.getClientRects().length);
}
