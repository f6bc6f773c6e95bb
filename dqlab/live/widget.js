// The run widget. Draws one dict, `view`, and sends back which button was pressed. Every string is ready-made and goes in
// by textContent; nothing is computed here. Elements are made once and changed only where the view changed.

const SVG = "http://www.w3.org/2000/svg";
const stroke = (d, colour, width) => ["path", { d, fill: "none", stroke: colour, "stroke-width": width }];
const fill = (d, colour) => ["path", { d, fill: colour }];
const disc = (colour) => ["circle", { cx: 6, cy: 6, r: 5, fill: colour }];
const ring = (colour, r, width) => ["circle", { cx: 6, cy: 6, r, fill: "none", stroke: colour, "stroke-width": width }];

const cross = [stroke("M2.5 2.5 9.5 9.5M9.5 2.5 2.5 9.5", "var(--dq-dead)", 2.2)];
const tick = [disc("var(--dq-acked)"), stroke("M3.6 6.2 5.3 7.9 8.5 4.4", "var(--dq-bg)", 1.5)];
const struck = [ring("var(--dq-cancelled)", 4.4, 1.6), stroke("M3.2 8.8 8.8 3.2", "var(--dq-cancelled)", 1.6)];
const dash = [stroke("M2 6h8", "currentColor", 1.6)];
const play = [fill("M3 1.8 10.2 6 3 10.2z", "var(--dq-brand)")];
const warning = [fill("M6 1 11.4 10.8H.6z", "var(--dq-leased)"), stroke("M6 4.4v3.2M6 8.6v1.1", "var(--dq-bg)", 1.3)];
const offline = [
  stroke("M1.5 4.8C4 2.6 8 2.6 10.5 4.8M3.4 7c1.5-1.2 3.7-1.2 5.2 0", "currentColor", 1.3),
  stroke("M2 10.5 10 1.5", "currentColor", 1.4),
];
const STATES = {
  acked: tick,
  dead: cross,
  lost: cross,
  leased: [ring("var(--dq-leased)", 4.4, 1.4), fill("M6 1.6a4.4 4.4 0 0 1 0 8.8z", "var(--dq-leased)")],
  ready: [ring("var(--dq-ready)", 4.2, 2)],
  delayed: [ring("var(--dq-delayed)", 4.4, 1.4), stroke("M6 3.2V6l2 1.4", "var(--dq-delayed)", 1.4)],
  cancelled: struck,
};
const FACES = {
  "connecting": dash,
  "submitting": play,
  "running": play,
  "paused": [fill("M3 2h2.2v8H3zM6.8 2H9v8H6.8z", "currentColor")],
  "waiting": warning,
  "no answer": offline,
  "stopped": cross,
  "done": tick,
  "done with dead": cross,
  "cancelled": struck,
  "incomplete": warning,
  "nothing to do": dash,
};
const TONES = { plain: dash, quiet: dash, warn: warning, bad: cross };
const REORDER_MS = 5000;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function icon(shapes) {
  const svg = document.createElementNS(SVG, "svg");
  const frame = { class: "dq-g", viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" };
  for (const [name, value] of Object.entries(frame)) svg.setAttribute(name, value);
  for (const [tag, attributes] of shapes) {
    const shape = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value);
    svg.append(shape);
  }
  return svg;
}

function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function face(element, key, shapes) {
  if (element.dataset.key === key) return;
  element.dataset.key = key;
  element.replaceChildren(icon(shapes));
}

// Keeps one child per key, in order; makes and removes only what changed.
function sync(parent, items, keyOf, create, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.row, child]));
  items.forEach((item, place) => {
    const key = String(keyOf(item, place));
    let child = old.get(key);
    if (child) old.delete(key);
    else {
      child = create(item);
      child.dataset.row = key;
    }
    if (parent.children[place] !== child) parent.insertBefore(child, parent.children[place] ?? null);
    update(child, item);
  });
  for (const gone of old.values()) gone.remove();
}

function buildHeader(ui) {
  ui.chipIcon = make("span", { style: "display:inline-flex" });
  ui.chipText = make("span");
  ui.said = make("span", { class: "dq-said" });
  ui.name = make("h1", { class: "dq-ell" });
  ui.sub = make("span", { class: "dq-quiet dq-ell dq-grow dq-sub" });
  ui.tools = make("span", { class: "dq-tools", role: "toolbar", "aria-label": "Run controls" });
  const chip = make("span", { class: "dq-chip", role: "status" }, ui.chipIcon, ui.chipText, ui.said);
  return make("header", {}, chip, ui.name, ui.sub, ui.tools);
}

function buildBody(ui) {
  ui.pct = make("div", { class: "dq-pct" });
  ui.bar = make("div", { class: "dq-bar", role: "img" });
  ui.of = make("div", { class: "dq-of" });
  ui.leg = make("div", { class: "dq-leg", role: "group", "aria-label": "Documents by state" });
  ui.stats = make("div", { class: "dq-stats" });
  ui.lines = make("div");
  const legend = make("div", { class: "dq-lg" }, ui.leg);
  ui.progress = make("div", { class: "dq-prog" }, ui.pct, make("div", {}, ui.bar), ui.of, legend);
  return make("div", { class: "dq-body" }, ui.progress, ui.stats, ui.lines);
}

function buildFailures(ui) {
  const id = `dq-failures-${Math.random().toString(36).slice(2)}`;
  ui.toggle = make("button", { type: "button", "aria-controls": id });
  ui.live = make("span", { class: "dq-live dq-narrow" });
  ui.footer = make("footer", { role: "group", "aria-label": "Details" }, ui.toggle, ui.live);
  const heads = [
    ["error", "dq-c1"], ["message", "dq-wide"], ["at", "dq-c3 dq-wide"], ["dead", "dq-num"], ["retrying", "dq-num"],
    ["one document", "dq-wide"],
  ].map(([title, style]) => {
    const head = make("th", { scope: "col", class: style });
    head.textContent = title;
    return head;
  });
  ui.rows = make("tbody");
  const table = make("table", { "aria-label": "Failures by class" }, make("thead", {}, make("tr", {}, ...heads)), ui.rows);
  ui.more = make("div", { class: "dq-rest" });
  ui.fail = make("div", { class: "dq-fail", id }, table, ui.more);
  return [ui.footer, ui.fail];
}

function render({ model, el }) {
  const ui = { open: true, asking: false, menu: false, pressed: "", order: [], ordered: 0 };
  ui.notice = make("div", { class: "dq-notice" });
  ui.ask = make("div", { class: "dq-ask", role: "alertdialog" });
  const card = make("div", { class: "dq-card" }, buildHeader(ui), ui.notice, ui.ask, buildBody(ui), ...buildFailures(ui));
  // Without the attribute JupyterLab takes keys pressed on our buttons for commands to the notebook's cells.
  ui.root = make("section", { class: "dqlab", "data-lm-suppress-shortcuts": "true" }, card);
  el.append(ui.root);

  const view = () => model.get("view");
  const button = (label, style, act) => {
    const element = make("button", { type: "button", class: style });
    element.textContent = label;
    element.addEventListener("click", act);
    return element;
  };
  const send = (command) => {
    ui.pressed = command;
    model.send({ command });
    draw();
  };
  const focusTool = (selector) => {
    const target = [...ui.tools.querySelectorAll(selector)].find((each) => each.getClientRects().length);
    if (target) target.focus();
  };
  const ask = () => {
    ui.asking = true;
    ui.menu = false;
    draw();
    ui.ask.querySelector("button").focus();
  };
  const keep = () => {
    ui.asking = false;
    draw();
    focusTool("[data-command=cancel],.dq-more");
  };

  function drawTools(now) {
    const shape = JSON.stringify([now.buttons, ui.asking, ui.menu, ui.pressed]);
    if (ui.tools.dataset.shape === shape) return;
    const focused = ui.tools.contains(document.activeElement) ? document.activeElement.dataset.command : null;
    ui.tools.dataset.shape = shape;
    const parts = [];
    for (const { command, label, primary } of now.buttons) {
      const final = command === "cancel";
      const style = final ? "dq-danger dq-wide" : primary ? "dq-pri" : "";
      const element = button(label, style, final ? ask : () => send(command));
      element.dataset.command = command;
      element.disabled = ui.asking || ui.pressed !== "";
      if (final) parts.push(make("span", { class: "dq-sep dq-wide" }));
      parts.push(element);
      if (final) parts.push(...drawMenu(label, element.disabled));
    }
    ui.tools.replaceChildren(...parts);
    if (focused) focusTool(`[data-command=${focused}]`);
  }

  function drawMenu(label, disabled) {
    const toggle = button("⋯", "dq-more dq-narrow", () => {
      ui.menu = !ui.menu;
      draw();
      focusTool(ui.menu ? "[role=menuitem]" : ".dq-more");
    });
    for (const [name, value] of Object.entries({ "aria-label": "More", "aria-haspopup": "menu", "aria-expanded": ui.menu })) {
      toggle.setAttribute(name, value);
    }
    toggle.disabled = disabled;
    toggle.dataset.command = "more";
    if (!ui.menu) return [toggle];
    const choice = button(label, "dq-danger", ask);
    choice.setAttribute("role", "menuitem");
    return [toggle, make("div", { class: "dq-menu dq-narrow", role: "menu" }, choice)];
  }

  function drawNotice(now) {
    ui.notice.hidden = !now.notice.text;
    const key = JSON.stringify(now.notice);
    if (ui.notice.dataset.key === key) return;
    ui.notice.dataset.key = key;
    ui.notice.dataset.tone = now.notice.tone;
    if (now.notice.tone === "bad") ui.notice.setAttribute("role", "alert");
    else ui.notice.removeAttribute("role");
    const text = make("span", { class: "dq-grow" });
    text.textContent = now.notice.text;
    ui.notice.replaceChildren(icon(now.face === "no answer" ? offline : TONES[now.notice.tone]), text);
  }

  function drawAsk(now) {
    if (!now.ask) ui.asking = false;
    ui.ask.hidden = !ui.asking;
    if (!ui.asking) {
      ui.ask.replaceChildren();
      return;
    }
    if (!ui.ask.children.length) {
      ui.question = make("b");
      ui.detail = make("span");
      ui.keep = button("", "", keep);
      ui.go = button("", "dq-danger", () => {
        ui.asking = false;
        send("cancel");
      });
      ui.ask.append(make("span", { class: "dq-grow" }, ui.question, " ", ui.detail), ui.keep, ui.go);
    }
    ui.ask.setAttribute("aria-label", now.ask.question);
    say(ui.question, now.ask.question);
    say(ui.detail, now.ask.detail);
    say(ui.keep, now.ask.keep);
    say(ui.go, now.ask.go);
  }

  function drawProgress(now) {
    say(ui.pct, now.percent);
    say(ui.of, now.unit ? `of ${now.unit}` : "");
    ui.bar.setAttribute("aria-label", now.bar_label || "no progress known");
    sync(ui.bar, now.bars, (bar) => bar.state, (bar) => make("i", { "data-state": bar.state }), (child, bar) => {
      child.style.width = `${bar.fraction * 100}%`;
    });
    sync(ui.leg, now.counters, (counter) => counter.state, (counter) => {
      const word = make("span", { class: "dq-k" });
      word.textContent = counter.word;
      return make("span", {}, icon(STATES[counter.state]), word, make("b"));
    }, (child, counter) => {
      child.dataset.zero = counter.zero;
      say(child.lastChild, counter.documents);
    });
    sync(ui.stats, now.figures, (figure, place) => place, () => {
      const value = make("div", { class: "dq-v" }, make("span"), make("small"));
      return make("div", { class: "dq-stat" }, make("div", { class: "dq-lab" }), value, make("div", { class: "dq-s" }));
    }, (child, figure) => {
      const [label, value, second] = child.children;
      say(label, figure.label);
      say(value.firstChild, figure.value);
      value.firstChild.className = `dq-${figure.tone}`;
      say(value.lastChild, figure.unit);
      say(second, [figure.second, figure.extra].filter(Boolean).join(" · "));
    });
    ui.stats.hidden = !now.figures.length;
    sync(ui.lines, now.compact, (line, place) => place, () => make("div", { class: "dq-line" }), say);
  }

  // Rows keep their places while they are read: a new order is taken at most every 5 s, never under the pointer or focus.
  function inOrder(rows) {
    const busy = ui.fail.matches(":hover") || ui.fail.contains(document.activeElement);
    const now = performance.now();
    const known = ui.order.length === rows.length && rows.every((row) => ui.order.includes(row.fingerprint));
    if (!known || (!busy && now - ui.ordered > REORDER_MS)) {
      ui.order = rows.map((row) => row.fingerprint);
      ui.ordered = now;
    }
    return [...rows].sort((a, b) => ui.order.indexOf(a.fingerprint) - ui.order.indexOf(b.fingerprint));
  }

  function drawFailures(now) {
    const any = now.failures.length > 0;
    ui.toggle.hidden = !any;
    ui.footer.hidden = !any && !now.live;
    ui.footer.classList.toggle("dq-narrow", !any);
    ui.toggle.setAttribute("aria-expanded", ui.open);
    say(ui.toggle, `${ui.open ? "▾" : "▸"} Failures ${now.failures_title}`);
    say(ui.live, now.live);
    ui.fail.hidden = !any || !ui.open;
    sync(ui.rows, inOrder(now.failures), (row) => row.fingerprint, () => make("tr", {},
      make("td", {}, make("span"), make("div", { class: "dq-mono dq-quiet dq-cut dq-narrow" })),
      make("td", { class: "dq-mono dq-wide" }), make("td", { class: "dq-mono dq-wide" }),
      make("td", { class: "dq-num dq-bad" }), make("td", { class: "dq-num" }), make("td", { class: "dq-mono dq-wide" }),
    ), (child, row) => {
      const [first, ...others] = child.children;
      say(first.firstChild, row.error);
      say(first.lastChild, row.message);
      first.title = `${row.error} ${row.message}`;
      [row.message, row.at, row.dead, row.retrying, row.document].forEach((text, place) => {
        say(others[place], text);
        others[place].title = text;
        others[place].dataset.zero = text === "0";
      });
    });
    say(ui.more, now.more);
    ui.more.hidden = !now.more;
  }

  function draw() {
    const now = view();
    if (!now || !now.face) return;
    ui.root.setAttribute("aria-label", `Run ${now.name}`);
    ui.root.dataset.stale = now.stale;
    face(ui.chipIcon, now.face, FACES[now.face]);
    say(ui.chipText, now.chip);
    say(ui.said, now.milestone);
    say(ui.name, now.name);
    if (ui.name.title !== now.name) ui.name.title = now.name;
    say(ui.sub, now.subtitle);
    drawNotice(now);
    drawAsk(now);
    drawTools(now);
    drawProgress(now);
    drawFailures(now);
  }

  const onView = () => {
    ui.pressed = "";
    draw();
  };
  const onKey = (event) => {
    if (event.key !== "Escape" || !(ui.asking || ui.menu)) return;
    event.stopPropagation();
    if (ui.asking) keep();
    else {
      ui.menu = false;
      draw();
      focusTool(".dq-more");
    }
  };
  ui.toggle.addEventListener("click", () => {
    ui.open = !ui.open;
    draw();
  });
  ui.root.addEventListener("keydown", onKey);
  model.on("change:view", onView);
  draw();
  return () => model.off("change:view", onView);
}

export default { render };
