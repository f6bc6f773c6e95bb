// What opens below a run or a queue: consumers, failures, leases, runs, code. One at a time.

function cell(kind = "", ...children) {
  return make("td", kind ? { class: kind } : {}, ...children);
}

function table(label, heads) {
  const rows = make("tbody");
  const cells = heads.map(([title, kind]) => {
    const head = text("th", kind, title);
    head.scope = "col";
    return head;
  });
  const head = make("thead", {}, make("tr", {}, ...cells));
  return { element: make("table", { "aria-label": label }, head, rows), rows, cells };
}

function fillCells(row, words) {
  words.forEach((word, place) => {
    const target = row.children[place].dqText ?? row.children[place];
    say(target, word);
    mark(row.children[place], "data-zero", word === "0" || word === "–");
  });
}

function consumersPane(context) {
  const caption = text("div", "dq-caption", "");
  const made = table("Consumers, slowest first", [
    ["consumer", ""], ["worker", "dq-wide"], ["", "dq-num"], ["documents/s", "dq-num dq-mid"], ["idle", "dq-num dq-mid"],
    ["unacked", "dq-num"], ["oldest", "dq-num"], ["memory", "dq-num dq-wide"], ["last error", "dq-wide"],
  ]);
  mark(made.cells[2], "aria-sort", "ascending");
  const more = text("div", "dq-rest", "");
  const scroll = make("div", { class: "dq-scroll" }, made.element);
  const inOrder = steady(scroll);
  const settle = roving(made.rows, () => made.rows.children);
  return {
    part: "consumers",
    element: make("div", {}, caption, scroll, more),
    title: (now) => ["Consumers", now?.title, now?.slow],
    any: (now) => Boolean(now),
    draw(now) {
      say(caption, now.caption);
      say(made.cells[2], `${now.unit} ↑`);
      sync(made.rows, inOrder(now.rows, (row) => row.name), (row) => row.name, () => {
        const glyph = make("span", { class: "dq-slot" });
        const name = make("b");
        const first = cell("", glyph, name);
        const amount = text("span", "dq-amount", "");
        const speed = cell("dq-num", make("span", { class: "dq-inl dq-wide" }, make("i")), amount);
        const line = make("tr", {}, first, cell("dq-quiet dq-wide"), speed, cell("dq-num dq-mid"), cell("dq-num dq-mid"),
          cell("dq-num"), cell("dq-num"), cell("dq-num dq-wide"), cell("dq-mono dq-quiet dq-wide"));
        first.dqText = name;
        speed.dqText = amount;
        return line;
      }, (line, row) => {
        mark(line, "data-slow", row.slow);
        face(line.firstChild.firstChild, String(row.slow), row.slow ? slow : []);
        mark(line.firstChild.firstChild, "title", row.slow ? "slow" : "");
        style(line.children[2].querySelector("i"), "width", `${row.fraction * 100}%`);
        fillCells(line, [row.name, row.worker, row.units_rate, row.rate, row.idle, row.leased, row.oldest, row.memory, row.error]);
        if (line.title !== row.document) line.title = row.document;
      });
      settle();
      say(more, now.more);
      more.hidden = !now.more;
    },
  };
}

function failuresPane(context) {
  const made = table("Failures by class", [
    ["error", "dq-c1"], ["message", "dq-wide"], ["at", "dq-c3 dq-wide"], ["dead", "dq-num"], ["retrying", "dq-num"],
    ["one document", "dq-wide"],
  ]);
  const more = text("div", "dq-rest", "");
  const inOrder = steady(made.rows);
  let open = "";
  const toggle = (row) => {
    const fingerprint = row.dataset.fingerprint;
    if (!fingerprint) return;
    open = open === fingerprint ? "" : fingerprint;
    if (open && context.kind === "run" && context.part("needs")) context.send({ command: "show", target: open }, true);
    context.redraw();
  };
  const settle = roving(made.rows, () => made.rows.querySelectorAll("tr[data-fingerprint]"), { "Enter": toggle, " ": toggle });

  const detail = (row) => {
    const seen = text("div", "dq-quiet", row.seen);
    const box = make("div", { class: "dq-detail" }, seen);
    const [fingerprint, letters] = context.part("examples") ?? ["", []];
    if (row.retry) {
      const retry = button(row.retry, "dq-pri", () => context.send({ command: "retry", target: row.fingerprint }));
      retry.disabled = context.asking || context.pressed !== "";
      box.append(make("div", { class: "dq-tools" }, retry, text("span", "dq-quiet dq-hint", "edit the function and run its cell first, to retry with new code: %dq retry")));
    }
    if (fingerprint === row.fingerprint && letters.length) {
      box.append(text("pre", "", letters[0].traceback));
      const shown = letters.map((letter) => `${letter.document} (${letter.deliveries} deliveries, ${letter.version})`);
      box.append(text("div", "dq-quiet", "such as"), ...shown.map((line) => text("div", "dq-mono dq-cut", line)));
    }
    return box;
  };

  return {
    part: "failures",
    element: make("div", {}, made.element, more),
    title: (now) => ["Failures", now?.title],
    any: (now) => Boolean(now?.rows.length),
    show(fingerprint) {
      if (open !== fingerprint) toggle({ dataset: { fingerprint } });
      made.rows.querySelector(`tr[data-fingerprint="${CSS.escape(fingerprint)}"]`)?.focus();
    },
    draw(now) {
      mark(made.element, "data-keys", now.rows.some((row) => row.document !== "–"));
      const rows = inOrder(now.rows, (row) => row.fingerprint).flatMap((row) =>
        row.fingerprint === open ? [row, { detail: row, fingerprint: `${row.fingerprint} more` }] : [row]);
      sync(made.rows, rows, (row) => row.fingerprint, (row) => {
        if (row.detail) {
          return make("tr", { class: "dq-more-row" }, cell());
        }
        const error = make("span");
        const line = make("tr", { "data-fingerprint": row.fingerprint },
          cell("", make("span", { class: "dq-turn", "aria-hidden": "true" }), error, make("div", { class: "dq-mono dq-quiet dq-cut dq-narrow" })),
          cell("dq-mono dq-wide"), cell("dq-mono dq-wide"), cell("dq-num dq-bad"), cell("dq-num"), cell("dq-mono dq-wide"));
        line.addEventListener("click", () => toggle(line));
        return line;
      }, (line, row) => {
        if (row.detail) {
          mark(line.firstChild, "colspan", made.cells.filter((each) => each.getClientRects().length).length || 1);
          const key = JSON.stringify([row.detail, context.part("examples"), context.asking, context.pressed]);
          if (line.dataset.key !== key) line.firstChild.replaceChildren(detail(row.detail));
          line.dataset.key = key;
          return;
        }
        const [first, ...others] = line.children;
        mark(line, "aria-expanded", row.fingerprint === open);
        say(first.children[1], row.error);
        say(first.children[2], row.message);
        first.title = `${row.error} ${row.message}`;
        [row.message, row.at, row.dead, row.retrying, row.document].forEach((word, place) => {
          say(others[place], word);
          others[place].title = word;
          others[place].dataset.zero = word === "0";
        });
      });
      settle();
      say(more, now.more);
      more.hidden = !now.more;
    },
  };
}

function leasesPane(context) {
  const summary = text("div", "dq-caption", "");
  const bins = make("div", { class: "dq-bins", role: "img" });
  const made = table("Held longest", [
    ["document", ""], ["consumer", ""], ["held for", "dq-num"], ["lease ends in", "dq-num dq-mid"], ["renewals", "dq-num dq-wide"],
    ["delivery", "dq-num dq-wide"],
  ]);
  const settle = roving(made.rows, () => made.rows.children);
  return {
    part: "leases",
    element: make("div", {}, summary, bins, made.element),
    title: (now) => ["Unacked", now?.title],
    any: (now) => Boolean(now),
    draw(now) {
      say(summary, now.summary);
      bins.hidden = !now.bins.length;
      const most = Math.max(1, ...now.bins.map((bin) => bin[1]));
      mark(bins, "aria-label", `Messages by time since delivery: ${now.bins.map(([age, amount]) => `${age} ${amount}`).join(", ")}`);
      sync(bins, now.bins, (bin) => bin[0], () => make("div", {}, make("b"), make("i"), make("span")), (child, [age, amount, late]) => {
        const [figure, column, word] = child.children;
        mark(child, "data-late", late && amount > 0);
        say(figure, amount ? amount.toLocaleString("en-US") : "");
        style(column, "height", `${amount ? Math.max(2, Math.round((amount / most) * 36)) : 1}px`);
        say(word, age);
      });
      made.element.hidden = !now.rows.length;
      sync(made.rows, now.rows, (row, place) => place, () => make("tr", {}, cell("dq-mono"), cell(""), cell("dq-num"),
        cell("dq-num dq-mid"), cell("dq-num dq-wide"), cell("dq-num dq-wide")), (line, row) => {
        mark(line, "data-slow", row.late);
        fillCells(line, [row.document, row.consumer, row.held, row.ends_in, row.renewals, row.delivery]);
        line.firstChild.title = row.document;
      });
      settle();
    },
  };
}

function codePane() {
  const caption = text("div", "dq-caption", "");
  const source = make("pre", { tabindex: "0" });
  return {
    part: "code",
    element: make("div", {}, caption, source),
    title: (now) => ["Code", now?.title],
    any: (now) => Boolean(now),
    draw(now) {
      say(caption, now.caption);
      say(source, now.text);
      mark(source, "aria-label", now.caption);
    },
  };
}

function runsPane() {
  const made = table("Runs on this queue", [
    ["run", ""], ["state", "dq-mid"], ["settled", "dq-num"], ["left", "dq-num"], ["done at", "dq-num"], ["dead", "dq-num"],
  ]);
  const settle = roving(made.rows, () => made.rows.children);
  return {
    part: "runs",
    element: make("div", {}, made.element),
    title: (now) => ["Runs", String(now?.length ?? "")],
    any: (now) => Boolean(now?.length),
    draw(now) {
      sync(made.rows, now, (row) => row.name, () => make("tr", {}, cell("", make("b")), cell("dq-quiet dq-mid"), cell("dq-num"),
        cell("dq-num"), cell("dq-num"), cell("dq-num")), (line, row) => {
        line.firstChild.dqText = line.firstChild.firstChild;
        fillCells(line, [row.name, row.state, row.share, row.left, row.done, row.dead]);
        line.lastChild.classList.toggle("dq-bad", row.dead !== "0");
      });
      settle();
    },
  };
}

// The row of buttons that open panes, and the panes.
function disclosures(context, panes) {
  const live = text("span", "dq-live dq-narrow", "");
  const footer = make("footer", { role: "group", "aria-label": "Details" });
  const body = make("div", { class: "dq-panes" });
  let open;
  const set = (part) => {
    open = open === part ? "" : part;
    context.redraw();
  };
  for (const pane of panes) {
    const id = unique(pane.part);
    pane.toggle = button("", "", () => set(pane.part));
    pane.toggle.append(make("span"), make("span", { class: "dq-warn" }));
    mark(pane.toggle, "aria-controls", id);
    pane.box = make("div", { class: "dq-pane", id }, pane.element);
    pane.box.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      set(pane.part);
      pane.toggle.focus();
    });
    footer.append(pane.toggle);
    body.append(pane.box);
  }
  footer.append(live);
  return {
    elements: [footer, body],
    show(part, target) {
      if (open !== part) set(part);
      const pane = panes.find((each) => each.part === part);
      if (!pane) return;
      if (target && pane.show) pane.show(target);
      else (pane.box.querySelector("tr[tabindex='0']") ?? pane.toggle).focus();
    },
    draw() {
      if (open === undefined && context.part("head")) open = context.part("needs") && context.part("chart") ? "" : "failures";
      let any = false;
      for (const pane of panes) {
        const now = context.part(pane.part);
        const there = pane.any(now);
        const opened = there && open === pane.part;
        any ||= there;
        pane.toggle.hidden = !there;
        pane.box.hidden = !opened;
        if (!there) continue;
        const [name, title, warn] = pane.title(now);
        mark(pane.toggle, "aria-expanded", opened);
        say(pane.toggle.firstChild, [opened ? "▾" : "▸", name, title].filter(Boolean).join(" "));
        say(pane.toggle.lastChild, warn ? ` · ${warn}` : "");
        if (opened) pane.draw(now);
      }
      say(live, context.part("numbers")?.live ?? "");
      footer.hidden = !any && !live.textContent;
      footer.classList.toggle("dq-narrow", !any);
    },
  };
}
