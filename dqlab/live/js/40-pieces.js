// Pieces that all widgets share: header tools, notice, question, menu, figures, needs.

// A menu hangs from the button that opens it; Escape and a press elsewhere close it and give the focus back.
function menuOf(context) {
  const element = make("div", { class: "dq-menu", role: "menu" });
  element.hidden = true;
  let opener = null;
  const close = (refocus = true) => {
    if (element.hidden) return false;
    element.hidden = true;
    if (opener) {
      opener.setAttribute("aria-expanded", "false");
      if (refocus) opener.focus();
    }
    return true;
  };
  const open = (from, entries) => {
    if (!element.hidden && opener === from) return close();
    close(false);
    opener = from;
    element.replaceChildren(...entries.filter(Boolean).map(([label, kind, act]) => {
      if (!label) return make("hr");
      const entry = button(label, kind, () => {
        close();
        act();
      });
      entry.setAttribute("role", "menuitem");
      entry.tabIndex = -1;
      return entry;
    }));
    element.hidden = false;
    from.setAttribute("aria-expanded", "true");
    const card = context.card.getBoundingClientRect();
    const at = from.getBoundingClientRect();
    const below = at.bottom - card.top + 2;
    const height = element.offsetHeight;
    const fits = below + height <= card.height || at.top - card.top < height + 4;
    element.style.top = `${fits ? below : at.top - card.top - height - 2}px`;
    element.style.right = `${Math.max(4, card.right - at.right)}px`;
    element.querySelector("button")?.focus();
    return true;
  };
  element.addEventListener("keydown", (event) => {
    const entries = [...element.querySelectorAll("button")];
    const at = entries.indexOf(document.activeElement);
    const step = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    entries.at(step % entries.length).focus();
  });
  element.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !element.contains(event.relatedTarget) && event.relatedTarget !== opener) close(false);
  });
  return { element, open, close };
}

// The question stands in place; the safe answer has the focus. `form` may ask for a number instead.
function askBox(context) {
  const element = make("div", { class: "dq-ask", role: "alertdialog" });
  element.hidden = true;
  let back = null;
  const close = () => {
    if (element.hidden) return false;
    element.hidden = true;
    element.replaceChildren();
    context.asking = false;
    context.redraw();
    const same = back?.dataset.command && visible(context.root.querySelectorAll(`[data-command="${back.dataset.command}"]`));
    (back?.isConnected && back.getClientRects().length ? back : same || visible(context.root.querySelectorAll(".dq-more")))?.focus();
    return true;
  };
  const show = (label, parts, first, from, dangerous) => {
    back = from ?? document.activeElement;
    context.asking = true;
    element.classList.toggle("dq-calm", !dangerous);
    element.setAttribute("aria-label", label);
    element.replaceChildren(...parts);
    element.hidden = false;
    context.redraw();
    first.focus();
  };
  const answer = (act) => {
    element.hidden = true;
    element.replaceChildren();
    context.asking = false;
    act();
    context.redraw();
  };
  return {
    element,
    close,
    question(ask, act, from) {
      const question = text("b", "", ask[0]);
      const detail = text("span", "", ask[1]);
      const keep = button(ask[2], "", close);
      const go = button(ask[3], "dq-danger", () => answer(act));
      show(ask[0], [make("span", { class: "dq-grow" }, question, " ", detail), keep, go], keep, from, true);
      return (newer) => [question, detail, keep, go].forEach((each, place) => say(each, newer[place]));
    },
    number(label, value, go, act, from) {
      const id = unique("n");
      const input = make("input", { id, type: "number", min: 1, max: 100000, value: Math.max(1, value) });
      const question = text("label", "dq-grow", label);
      question.htmlFor = id;
      const confirm = () => {
        const n = Number(input.value);
        if (Number.isInteger(n) && n >= 1) answer(() => act(n));
      };
      input.addEventListener("keydown", (event) => {
        if (event.key === "Enter") confirm();
      });
      show(label, [question, input, button(go, "", confirm), button("Leave it", "", close)], input, from, false);
    },
  };
}

function noticeBox() {
  const element = make("div", { class: "dq-notice" });
  return {
    element,
    draw(notice, isOffline) {
      element.hidden = !notice.text;
      const key = JSON.stringify([notice, isOffline]);
      if (element.dataset.key === key) return;
      element.dataset.key = key;
      element.dataset.tone = notice.tone;
      if (notice.tone === "bad") element.setAttribute("role", "alert");
      else element.removeAttribute("role");
      element.replaceChildren(icon(isOffline ? offline : TONES[notice.tone]), text("span", "dq-grow", notice.text));
    },
  };
}

function drawFigures(element, figures) {
  element.hidden = !figures.length;
  sync(element, figures, (figure, place) => place, () => {
    const value = make("div", { class: "dq-v" }, make("span"), make("small"));
    return make("div", { class: "dq-stat" }, make("div", { class: "dq-lab" }), value, make("div", { class: "dq-s" }));
  }, (child, figure) => {
    const [name, value, second] = child.children;
    say(name, figure.label);
    say(value.firstChild, figure.value);
    value.firstChild.className = `dq-${figure.tone}`;
    say(value.lastChild, figure.unit);
    say(second, [figure.second, figure.extra].filter(Boolean).join(" · "));
    if (second.title !== second.textContent) second.title = second.textContent;
  });
}

// What needs somebody: a line each, with one thing to do. `act` gets the line and the button.
function needsBox(context, act) {
  const amount = text("span", "dq-quiet", "");
  const title = make("h2", {}, "Needs you ", amount);
  const list = make("ul", { class: "dq-att" });
  const none = text("div", "dq-rest", "nothing now");
  const element = make("div", {}, title, list, none);
  return {
    element,
    draw() {
      const { total = 0, rows = [] } = context.part("needs") ?? {};
      say(amount, String(total));
      none.hidden = rows.length > 0;
      sync(list, rows, (row) => row.key, () => {
        const line = make("li", {}, make("span"), make("span", { class: "dq-t" }, make("b"), make("span")));
        const go = button("", "dq-link", () => act(line.need, go));
        line.append(go, make("span", { class: "dq-d" }));
        return line;
      }, (line, row) => {
        line.need = row;
        const [glyph, words, go, detail] = line.children;
        face(glyph, row.icon, NEEDS[row.icon]);
        say(words.firstChild, row.subject);
        words.firstChild.className = row.tone === "bad" ? "dq-bad" : "";
        say(words.lastChild, row.icon === "dead" ? `: ${row.text}` : ` ${row.text}`);
        words.title = `${row.subject} ${row.text}`;
        say(go, row.label);
        go.hidden = !row.label;
        go.disabled = context.asking || context.pressed !== "";
        say(detail, row.detail);
        detail.title = row.detail;
      });
    },
  };
}

function keysBox(lines) {
  const element = make("div", { class: "dq-keys", role: "note" });
  element.hidden = true;
  for (const [key, meaning] of lines) element.append(make("span", {}, text("kbd", "", key), ` ${meaning}`));
  return element;
}
