// The widgets of a lab, and of one queue.

function queueMenu(context, row, act) {
  return [
    ["Drain", "", () => context.send({ command: "drain", queue: row.name })],
    ["Scale…", "", () => act.scale(row)],
    row.durable && ["Compact", "", () => context.send({ command: "compact", queue: row.name })],
    ...row.retries.map(([run, label]) => [label, "", () => context.send({ command: "retry", queue: row.name, run })]),
    row.purge.length && ["", ""],
    row.purge.length && [`${row.purge[3]} dead…`, "dq-danger", () => act.purge(row)],
  ];
}

function rowsOf(context) {
  return (context.part("rows")?.rows ?? []).map((row) => Object.fromEntries(QUEUE.map((field, place) => [field, row[place]])));
}

function labWidget(context) {
  const glyph = make("span", { class: "dq-slot", role: "status" });
  const name = make("h1", { class: "dq-ell" });
  const sub = text("span", "dq-quiet dq-ell dq-grow dq-sub", "");
  const tools = make("span", { class: "dq-tools", role: "toolbar", "aria-label": "Lab controls" });
  const dashboard = text("a", "dq-button", "Open dashboard");
  dashboard.target = "_blank";
  dashboard.rel = "noopener";
  const again = button("Retry now", "", () => context.send({ command: "ask" }));
  tools.append(again, dashboard);
  const notice = noticeBox();
  const ask = askBox(context);
  const menu = menuOf(context);
  const figures = make("div", { class: "dq-stats dq-six" });
  const find = make("input", { class: "dq-find", type: "search", placeholder: "Filter by name or state…  /", "aria-label": "Filter queues" });
  const toggles = make("span", { class: "dq-toggles" });
  const filter = make("div", { class: "dq-filter", role: "toolbar", "aria-label": "Filter queues" }, find, toggles, make("span", { class: "dq-grow" }),
    text("span", "dq-lab dq-wide", "worst first"));
  const said = make("span", { class: "dq-said", role: "status" });
  const more = text("div", "dq-rest", "");
  const keys = keysBox([["/", "filter"], ["↑ ↓", "rows"], ["← →", "buttons"], ["Enter", "menu of a queue"], ["P", "pause or resume it"], ["Esc", "closes"]]);
  let chosen = "";
  let words = "";

  const byName = (wanted) => rowsOf(context).find((row) => row.name === wanted);
  const act = {
    toggle: (wanted) => context.send({ command: byName(wanted)?.paused ? "resume" : "pause", queue: wanted }),
    more: (wanted, from) => {
      const row = byName(wanted);
      act.from = from;
      if (row) menu.open(from, queueMenu(context, row, act));
    },
    scale: (row) => ask.number(`Consumers for ${row.name}:`, row.consumers, "Set", (n) => context.send({ command: "scale", queue: row.name, n }), act.from),
    purge: (row) => ask.question(row.purge, () => context.send({ command: "purge", queue: row.name }), act.from),
  };
  const table = queueTable(context, act);
  const heat = heatBox(context, (wanted) => {
    words = find.value = chosen = "";
    draw();
    table.focusRow(wanted);
  });
  const header = make("header", {}, glyph, name, sub, tools);
  context.card.append(header, notice.element, figures, filter, heat.element, ask.element, table.element, more, keys, said, menu.element);
  find.addEventListener("input", () => {
    words = find.value.trim().toLowerCase();
    draw();
  });

  function drawRows() {
    const { toggles: groups = [], more: rest = "" } = context.part("rows") ?? {};
    const rows = rowsOf(context);
    if (!groups.some(([group]) => group === chosen)) chosen = "";
    filter.hidden = heat.element.hidden = !groups.length;
    sync(toggles, groups, (each) => each[0], ([group]) => {
      const element = button("", "dq-toggle", () => {
        chosen = group;
        draw();
      });
      element.append(make("span", { class: "dq-slot" }), make("span"));
      return element;
    }, (element, [group, word, amount, glyphName]) => {
      mark(element, "aria-pressed", group === chosen);
      element.firstChild.hidden = !glyphName;
      face(element.firstChild, glyphName, FACES[glyphName]);
      say(element.lastChild, `${word} ${amount}`);
    });
    if (groups.length) heat.draw(rows);
    const matches = rows.filter((row) => (!chosen || row.group === chosen)
      && (!words || [row.name, row.state, row.why].some((each) => each.toLowerCase().includes(words))));
    table.draw(matches, groups);
    const hidden = rows.length - matches.length;
    say(more, matches.length || !rows.length ? (hidden ? "" : rest) : "no queue matches");
    more.hidden = !more.textContent;
    say(said, words || chosen ? `${matches.length} of ${rows.length} queues` : "");
  }

  function draw() {
    const head = context.part("head");
    if (!head) return;
    mark(context.root, "aria-label", `Lab ${head.name}`);
    context.root.dataset.stale = head.stale;
    face(glyph, head.icon, FACES[head.icon]);
    mark(glyph, "aria-label", head.icon);
    say(name, head.name);
    if (name.title !== head.name) name.title = head.name;
    notice.draw(head.notice, head.icon === "no answer");
    dashboard.hidden = !/^https?:\/\//.test(head.dashboard);
    if (!dashboard.hidden) mark(dashboard, "href", head.dashboard);
    again.hidden = !head.buttons.length;
    again.disabled = context.pressed !== "";
    const numbers = context.part("numbers");
    say(sub, numbers.subtitle);
    drawFigures(figures, numbers.figures);
    table.element.hidden = !rowsOf(context).length;
    drawRows();
  }

  return {
    keys: {
      "Escape": () => {
        if (menu.close() || ask.close()) return true;
        if (!words && document.activeElement !== find) return false;
        words = find.value = "";
        draw();
        return true;
      },
      "/": () => {
        if (!filter.hidden) find.focus();
        return !filter.hidden;
      },
      "?": () => Boolean((keys.hidden = !keys.hidden) || true),
      "p": (event) => {
        const line = event.target.closest("tr[data-name]");
        if (line && !context.pressed && !context.asking) act.toggle(line.dataset.name);
        return Boolean(line);
      },
    },
    draw,
  };
}

function queueWidget(context) {
  const chipIcon = make("span", { class: "dq-slot" });
  const chipText = make("span");
  const chip = make("span", { class: "dq-chip", role: "status" }, chipIcon, chipText);
  const name = make("h1", { class: "dq-ell" });
  const sub = text("span", "dq-quiet dq-ell dq-grow dq-sub", "");
  const tools = make("span", { class: "dq-tools", role: "toolbar", "aria-label": "Queue controls" });
  const first = button("", "", () => context.send({ command: first.dataset.command }));
  const toggle = button("⋯", "dq-more", () => more());
  for (const [key, value] of [["aria-label", "More"], ["aria-haspopup", "menu"], ["aria-expanded", "false"]]) mark(toggle, key, value);
  tools.append(first, toggle);
  const notice = noticeBox();
  const ask = askBox(context);
  const menu = menuOf(context);
  const figures = make("div", { class: "dq-stats dq-six" });
  const chart = chartBox(context);
  const row = () => rowsOf(context)[0];
  const needs = needsBox(context, (need, from) => {
    if (need.action === "scale") act.scale(row(), from);
    else if (need.action === "resume" || need.action === "compact") context.send({ command: need.action });
    else details.show(need.pane, need.pane === "failures" ? need.target : "");
  });
  const two = make("div", { class: "dq-two" }, chart.element, needs.element);
  const details = disclosures(context, [consumersPane(context), runsPane(), failuresPane(context), leasesPane(context)]);
  const keys = keysBox([["P", "pause or resume"], ["↑ ↓", "rows"], ["Enter", "opens"], ["Esc", "closes"]]);
  const body = make("div", { class: "dq-body" }, two);
  const act = {
    scale: (now, from) => ask.number(`Consumers for ${now.name}:`, now.consumers, "Set", (n) => context.send({ command: "scale", n }), from ?? toggle),
    purge: (now) => ask.question(now.purge, () => context.send({ command: "purge" }), toggle),
  };
  context.card.append(make("header", {}, chip, name, sub, tools), notice.element, ask.element, figures, body, ...details.elements, keys, menu.element);

  function more() {
    const drawn = context.part("chart") && !context.part("chart").empty;
    menu.open(toggle, [
      drawn && [context.asTable ? "Show chart" : "Show chart as table", "", () => {
        context.asTable = !context.asTable;
        context.redraw();
      }],
      ...(row() ? queueMenu(context, row(), act) : []),
    ]);
  }

  return {
    keys: {
      "Escape": () => menu.close() || ask.close(),
      "?": () => Boolean((keys.hidden = !keys.hidden) || true),
      "p": () => {
        const press = ["pause", "resume"].includes(first.dataset.command) && !context.pressed && !context.asking;
        if (press) context.send({ command: first.dataset.command });
        return press;
      },
    },
    draw() {
      const head = context.part("head");
      if (!head) return;
      mark(context.root, "aria-label", `Queue ${head.name}`);
      context.root.dataset.stale = head.stale;
      face(chipIcon, head.icon, FACES[head.icon]);
      say(chipText, head.chip || "Connecting");
      say(name, head.name);
      if (name.title !== head.name) name.title = head.name;
      notice.draw(head.notice, head.icon === "no answer");
      const [press] = head.buttons;
      first.hidden = !press;
      if (press) {
        first.dataset.command = press.command;
        say(first, press.label);
        first.className = press.primary ? "dq-pri" : "";
      }
      first.disabled = toggle.disabled = context.asking || context.pressed !== "";
      toggle.hidden = !row() || head.stale;
      const numbers = context.part("numbers");
      say(sub, numbers.subtitle);
      drawFigures(figures, numbers.figures);
      body.hidden = !context.part("chart");
      chart.draw();
      needs.draw();
      details.draw();
    },
  };
}
