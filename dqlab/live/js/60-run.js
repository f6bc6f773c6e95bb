// The widget of a run.

function runWidget(context) {
  const ui = { chipIcon: make("span", { class: "dq-slot" }), chipText: make("span"), said: make("span", { class: "dq-said" }) };
  const chip = make("span", { class: "dq-chip", role: "status" }, ui.chipIcon, ui.chipText, ui.said);
  const name = make("h1", { class: "dq-ell" });
  const sub = text("span", "dq-quiet dq-ell dq-grow dq-sub", "");
  const tools = make("span", { class: "dq-tools", role: "toolbar", "aria-label": "Run controls" });
  const header = make("header", {}, chip, name, sub, tools);
  const notice = noticeBox();
  const ask = askBox(context);
  const menu = menuOf(context);

  const percent = make("div", { class: "dq-pct" });
  const bar = make("div", { class: "dq-bar", role: "img" });
  const of = make("div", { class: "dq-of" });
  const counters = make("div", { class: "dq-leg", role: "group", "aria-label": "Documents by state" });
  const figures = make("div", { class: "dq-stats" });
  const lines = make("div");
  const chart = chartBox(context);
  const needs = needsBox(context, (need, from) => act(need, from));
  const two = make("div", { class: "dq-two" }, chart.element, needs.element);
  const progress = make("div", { class: "dq-prog" }, percent, make("div", {}, bar), of, make("div", { class: "dq-lg" }, counters));
  const panes = [consumersPane(context), failuresPane(context), leasesPane(context), codePane()];
  const details = disclosures(context, panes);
  const keys = keysBox([["P", "pause or resume"], ["Tab", "next"], ["↑ ↓", "rows"], ["Enter", "opens"], ["Esc", "closes"]]);
  const body = make("div", { class: "dq-body" }, progress, figures, lines, two);
  context.card.append(header, notice.element, ask.element, body, ...details.elements, keys, menu.element);
  let refresh = null;

  function act(need, from) {
    if (need.action === "scale") {
      const now = Number(context.part("consumers")?.rows.length ?? 1);
      ask.number(`Consumers for queue ${need.queue}:`, now, "Set", (n) => context.send({ command: "scale", n }), from);
    } else if (need.action === "resume") context.send({ command: "resume" });
    else details.show(need.pane, need.pane === "failures" ? need.target : "");
  }

  function askCancel(from) {
    const words = () => {
      const now = context.part("numbers").ask;
      return now && [now.question, now.detail, now.keep, now.go];
    };
    if (words()) refresh = { again: ask.question(words(), () => context.send({ command: "cancel" }), from), words };
  }

  function more(from) {
    const cancel = context.part("head").buttons.find((each) => each.command === "cancel");
    const narrow = header.querySelector("[data-command=cancel]")?.getClientRects().length === 0;
    const drawn = context.part("chart") && !context.part("chart").empty;
    menu.open(from, [
      drawn && [context.asTable ? "Show chart" : "Show chart as table", "", () => {
        context.asTable = !context.asTable;
        context.redraw();
      }],
      ["Keys", "", () => {
        keys.hidden = !keys.hidden;
      }],
      cancel && narrow && ["", ""],
      cancel && narrow && [cancel.label, "dq-danger", () => askCancel(from)],
    ]);
  }

  function drawTools(head) {
    const shape = JSON.stringify([head.buttons, context.asking, context.pressed]);
    if (tools.dataset.shape === shape) return;
    tools.dataset.shape = shape;
    const focused = tools.contains(document.activeElement) ? document.activeElement.dataset.command : null;
    const parts = [];
    const toggle = button("⋯", "dq-more", () => more(toggle));
    for (const [key, value] of [["aria-label", "More"], ["aria-haspopup", "menu"], ["aria-expanded", "false"]]) mark(toggle, key, value);
    toggle.dataset.command = "more";
    toggle.disabled = context.asking;
    for (const { command, label, primary } of head.buttons) {
      const final = command === "cancel";
      const kind = final ? "dq-danger dq-wide" : primary ? "dq-pri" : "";
      const element = button(label, kind, () => (final ? askCancel(element) : context.send({ command })));
      element.dataset.command = command;
      element.disabled = context.asking || context.pressed !== "";
      if (final) parts.push(toggle, make("span", { class: "dq-sep dq-wide" }));
      parts.push(element);
    }
    tools.replaceChildren(...parts);
    if (focused) visible(tools.querySelectorAll(`[data-command=${focused}]:enabled`))?.focus();
  }

  function drawNumbers(now) {
    say(sub, now.subtitle);
    sync(counters, now.counters, (counter) => counter[0], ([state, word]) =>
      make("span", {}, icon(STATES[state]), text("span", "dq-k", word), make("b")), (child, [, , documents, zero]) => {
      child.dataset.zero = zero;
      say(child.lastChild, documents);
    });
    drawFigures(figures, now.figures);
    sync(lines, now.lines, (line, place) => place, () => make("div", { class: "dq-line" }), say);
  }

  function drawBars(now) {
    say(percent, now.percent);
    say(of, now.unit ? `of ${now.unit}` : "");
    say(ui.said, now.milestone);
    mark(bar, "aria-label", now.label || "no progress known");
    sync(bar, now.bars, (piece) => piece.state, (piece) => make("i", { "data-state": piece.state }), (child, piece) => {
      style(child, "width", `${piece.fraction * 100}%`);
    });
  }

  return {
    keys: {
      "Escape": () => menu.close() || ask.close(),
      "?": () => Boolean((keys.hidden = !keys.hidden) || true),
      "p": () => {
        const press = context.part("head").buttons.find((each) => ["pause", "resume"].includes(each.command));
        if (press && !context.pressed && !context.asking) context.send({ command: press.command });
        return Boolean(press);
      },
    },
    draw() {
      const head = context.part("head");
      if (!head) return;
      mark(context.root, "aria-label", `Run ${head.name}`);
      context.root.dataset.stale = head.stale;
      face(ui.chipIcon, head.face, FACES[head.face]);
      say(ui.chipText, head.chip);
      say(name, head.name);
      if (name.title !== head.name) name.title = head.name;
      notice.draw(head.notice, head.face === "no answer");
      drawNumbers(context.part("numbers"));
      drawBars(context.part("bars"));
      if (context.asking && refresh?.words()) refresh.again(refresh.words());
      if (context.asking && !context.part("numbers").ask) ask.close();
      drawTools(head);
      two.hidden = !context.part("chart");
      chart.draw();
      needs.draw();
      details.draw();
    },
  };
}
