// The rows of queues: of a hundred, those that are in sight are drawn.

const QUEUE = ["name", "icon", "tone", "state", "why", "group", "leased_part", "ready_part", "delayed_part", "waiting", "ready",
  "delayed", "unacked", "dead", "in_rate", "out_rate", "lag", "empty_in", "disk", "paused", "durable", "consumers", "purge", "retries"];
const NUMBERS = ["ready", "delayed", "unacked", "dead", "in_rate", "out_rate", "lag", "empty_in", "disk"];
const MANY = 12;
const SPARE = 6;
const WINDOW = 444;

function queueRow(row, act) {
  const glyph = make("span", { class: "dq-slot" });
  const name = make("b");
  const why = make("div", { class: "dq-why dq-cut" });
  const state = make("span");
  const reason = make("span");
  const line = draw("svg", { width: 72, height: 20, viewBox: "0 0 72 20", "aria-hidden": "true", class: "dq-spark" });
  const bar = make("div", { class: "dq-bar dq-small", role: "img" });
  for (const kind of ["leased", "ready", "delayed"]) bar.append(make("i", { "data-state": kind }));
  const element = make("tr", { role: "row" }, cell("dq-qn", glyph, name, why), cell("dq-qs", state, reason), cell("dq-q1", line),
    cell("dq-q2", bar));
  const heads = { ready: "dq-qa", delayed: "dq-qb", unacked: "dq-qc", dead: "dq-qd", in_rate: "dq-qe", out_rate: "dq-qf", lag: "dq-qg",
    empty_in: "dq-qh", disk: "dq-qi" };
  for (const field of NUMBERS) element.append(cell(`dq-num ${heads[field]}`));
  const first = button("", "", () => act.toggle(row.name));
  const toggle = button("⋯", "dq-more dq-wide", () => act.more(row.name, toggle));
  mark(toggle, "aria-haspopup", "menu");
  mark(toggle, "aria-expanded", "false");
  element.append(cell("dq-acts", first, toggle));
  element.firstChild.addEventListener("click", () => {
    if (!toggle.getClientRects().length) act.more(row.name, first);
  });
  element.dq = { glyph, name, why, state, reason, line, bar, first, toggle };
  return element;
}

function updateQueueRow(element, row, values, blocked) {
  const { glyph, name, why, state, reason, line, bar, first, toggle } = element.dq;
  face(glyph, row.icon, FACES[row.icon]);
  say(name, row.name);
  if (name.title !== row.name) name.title = row.name;
  mark(element, "data-tone", row.tone);
  const tone = row.tone ? `dq-${row.tone}` : "dq-quiet";
  say(state, row.state);
  state.className = row.tone && row.icon !== "running" ? tone : "dq-quiet";
  say(reason, row.why ? ` · ${row.why}` : "");
  reason.className = tone;
  say(why, row.tone && row.why ? row.why : [row.state, row.why].filter(Boolean).join(" · "));
  why.className = `dq-why dq-cut ${tone}`;
  mark(state.parentElement, "title", [row.state, row.why].filter(Boolean).join(" · "));
  [row.leased_part, row.ready_part, row.delayed_part].forEach((part, place) => {
    bar.children[place].hidden = !part;
    style(bar.children[place], "width", `${part * 100}%`);
  });
  mark(bar, "aria-label", `${row.waiting} waiting`);
  if (values) spark(line, values);
  NUMBERS.forEach((field, place) => {
    const target = element.children[place + 4];
    say(target, row[field]);
    mark(target, "data-zero", row[field] === "0" || row[field] === "–");
  });
  const label = row.paused ? "Resume" : "Pause";
  say(first, label);
  mark(first, "aria-label", `${label} ${row.name}`);
  mark(toggle, "aria-label", `More for ${row.name}`);
  first.disabled = toggle.disabled = blocked;
}

function queueTable(context, act) {
  const heads = [["queue", "dq-qn"], ["state", "dq-qs"], ["depth, 30 min", "dq-q1"], ["depth, same scale", "dq-q2"], ["ready", "dq-num dq-qa"],
    ["delayed", "dq-num dq-qb"], ["unacked", "dq-num dq-qc"], ["dead", "dq-num dq-qd"], ["in /s", "dq-num dq-qe"], ["out /s", "dq-num dq-qf"],
    ["lag", "dq-num dq-qg"], ["empty in", "dq-num dq-qh"], ["disk", "dq-num dq-qi"], ["", "dq-acts"]];
  const made = table("Queues", heads);
  made.element.classList.add("dq-queues");
  made.cells[13].append(text("span", "dq-said", "actions"));
  const scroll = make("div", { class: "dq-window" }, made.element);
  const inOrder = steady(scroll);
  const open = (line) => act.more(line.dataset.name, line.dq.toggle.getClientRects().length ? line.dq.toggle : line.dq.first);
  const settle = roving(made.rows, () => made.rows.querySelectorAll("tr[data-name]"), { "Enter": open, " ": open });
  let shown = [];
  let wanted = "";

  // Arrows reach rows that are not drawn yet: the window follows the focus.
  made.rows.addEventListener("keydown", (event) => {
    const rows = shown.filter((item) => item.row).map((item) => item.row.name);
    const at = rows.indexOf(event.target.dataset.name);
    const to = { ArrowUp: at - 1, ArrowDown: at + 1, PageUp: at - 10, PageDown: at + 10, Home: 0, End: rows.length - 1 }[event.key];
    if (to === undefined || at < 0 || rows.length <= MANY) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    focusRow(rows[Math.min(Math.max(to, 0), rows.length - 1)]);
  }, true);

  function heights() {
    const tall = context.card.clientWidth <= 620 ? 46 : 34;
    return (item) => (item.row ? tall : 24);
  }

  function render() {
    const height = heights();
    const all = shown.length;
    let from = 0;
    let to = all;
    let above = 0;
    let below = 0;
    const many = shown.filter((item) => item.row).length > MANY;
    const top = scroll.scrollTop;
    scroll.classList.toggle("dq-scrolls", many);
    if (many) {
      const bottom = top + Math.max(scroll.clientHeight, WINDOW); // it may be about to grow
      let at = 0;
      from = all;
      to = 0;
      shown.forEach((item, place) => {
        const end = at + height(item);
        if (end >= top - SPARE * 34 && at <= bottom + SPARE * 34) {
          from = Math.min(from, place);
          to = place + 1;
        } else if (from === all) above += height(item);
        else below += height(item);
        at = end;
      });
    }
    const items = shown.slice(from, to);
    const space = (key, pixels) => ({ space: key, pixels });
    const sparks = context.part("sparks") ?? {};
    const blocked = context.asking || context.pressed !== "";
    const wide = made.cells.filter((each) => each.getClientRects().length).length || 1;
    sync(made.rows, [space("above", above), ...items, space("below", below)],
      (item) => (item.row ? `q ${item.row.name}` : item.head ? `g ${item.head}` : item.space),
      (item) => {
        if (item.row) {
          const line = queueRow(item.row, act);
          line.dataset.name = item.row.name;
          return line;
        }
        return make("tr", item.head ? { class: "dq-grp" } : { class: "dq-space", "aria-hidden": "true" }, cell());
      },
      (line, item) => {
        if (item.row) {
          updateQueueRow(line, item.row, sparks[item.row.name], blocked);
          mark(line, "aria-rowindex", item.index);
          return;
        }
        mark(line.firstChild, "colspan", wide);
        if (item.head) say(line.firstChild, item.head);
        else {
          line.hidden = !item.pixels;
          style(line.firstChild, "height", `${item.pixels}px`);
        }
      });
    if (many && scroll.scrollTop !== top) scroll.scrollTop = top; // rows that went made it shorter for a moment
    mark(made.element, "aria-rowcount", all + 1);
    settle();
    if (wanted) {
      const target = made.rows.querySelector(`tr[data-name="${CSS.escape(wanted)}"]`);
      wanted = "";
      if (target) {
        made.rows.querySelectorAll("tr[tabindex='0']").forEach((each) => mark(each, "tabindex", -1));
        mark(target, "tabindex", 0);
        target.focus({ preventScroll: true });
      }
    }
  }

  function focusRow(name) {
    const height = heights();
    let at = 0;
    for (const item of shown) {
      if (item.row?.name === name) break;
      at += height(item);
    }
    const room = scroll.clientHeight;
    if (at < scroll.scrollTop + 30 || at + 80 > scroll.scrollTop + room) scroll.scrollTop = Math.max(0, at - room / 2);
    wanted = name;
    render();
  }

  let queued = false;
  scroll.addEventListener("scroll", () => {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => {
      queued = false;
      render();
    });
  });
  const watcher = new ResizeObserver(render);
  watcher.observe(scroll);
  context.closing.push(() => watcher.disconnect());

  return {
    element: scroll,
    focusRow,
    draw(rows, toggles) {
      const listed = inOrder(rows, (row) => row.name);
      const titles = new Map(toggles.map(([group, , , , head]) => [group, head]));
      shown = [];
      let group = null;
      let index = 1;
      const ordered = toggles.length ? [...titles.keys()].flatMap((key) => listed.filter((row) => row.group === key)) : listed;
      const rest = toggles.length ? listed.filter((row) => !titles.has(row.group)) : [];
      for (const row of [...ordered, ...rest]) {
        if (toggles.length && row.group !== group && titles.get(row.group)) {
          shown.push({ head: titles.get(row.group), index: (index += 1) });
        }
        group = row.group;
        shown.push({ row, index: (index += 1) });
      }
      render();
    },
  };
}

// One cell per queue, in the order of the rows.
function heatBox(context, choose) {
  const hint = text("div", "dq-lab", "Every queue, one cell each · needs you, running (stronger = deeper), paused, empty · arrow keys move, Enter opens");
  hint.id = unique("hint");
  const grid = make("div", { class: "dq-heat", role: "grid", "aria-label": "Queues by state", "aria-describedby": hint.id });
  const line = make("div", { role: "row", class: "dq-heat-row" });
  grid.append(line);
  const element = make("div", { class: "dq-heat-box" }, hint, grid);
  element.addEventListener("click", (event) => {
    const target = event.target.closest("[data-name]");
    if (target) choose(target.dataset.name);
  });
  line.addEventListener("keydown", (event) => {
    const cells = [...line.children];
    const at = cells.indexOf(document.activeElement);
    const wide = cells.filter((each) => each.offsetTop === cells[0].offsetTop).length;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide }[event.key];
    if (at < 0 || (step === undefined && event.key !== "Enter")) return;
    event.preventDefault();
    event.stopPropagation();
    if (step === undefined) choose(cells[at].dataset.name);
    else {
      const next = cells[Math.min(Math.max(at + step, 0), cells.length - 1)];
      cells[at].tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    }
  });
  return {
    element,
    draw(rows) {
      const running = rows.filter((row) => !row.tone && row.icon === "running").map((row) => row.name);
      sync(line, rows, (row) => row.name, (row) => make("i", { role: "gridcell", tabindex: "-1", "data-name": row.name }), (child, row) => {
        const kind = row.tone || (row.paused || row.icon === "drain" ? "halt" : row.icon === "connecting" ? "none" : "ready");
        mark(child, "data-kind", kind);
        mark(child, "aria-label", `${row.name}: ${[row.state, row.why].filter(Boolean).join(", ")}, ${row.waiting} waiting`);
        if (child.title !== child.getAttribute("aria-label")) child.title = child.getAttribute("aria-label");
        style(child, "opacity", kind === "ready" ? String(1 - Math.round(73 * (running.indexOf(row.name) / running.length)) / 100) : "");
      });
      if (![...line.children].some((each) => each.tabIndex === 0) && line.firstChild) line.firstChild.tabIndex = 0;
    },
  };
}
