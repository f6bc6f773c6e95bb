// What a front end calls: makes the widget of one kind, and lets it draw when parts have changed.

const PARTS = ["head", "bars", "numbers", "failures", "chart", "needs", "consumers", "leases", "code", "examples", "rows", "sparks", "runs",
  "answered"];
const KINDS = { run: runWidget, lab: labWidget, queue: queueWidget };
const PATIENCE_MS = 15000;

function render({ model, el }) {
  const card = make("div", { class: "dq-card" });
  // Without the attribute JupyterLab takes keys pressed on our buttons for commands to the notebook's cells.
  const root = make("section", { class: "dqlab", "data-lm-suppress-shortcuts": "true" }, card);
  el.append(root);
  let waiting = 0;
  let queued = false;
  let widget = null;
  const context = {
    kind: model.get("kind"),
    root,
    card,
    closing: [],
    asking: false,
    asTable: false,
    pressed: "",
    part: (name) => model.get(name),
    redraw: () => widget?.draw(),
    // A second press must do nothing until the first was answered; if nobody answers, buttons come back by themselves.
    send(message, free = false) {
      if (free) {
        model.send(message);
        return;
      }
      context.pressed = message.command;
      clearTimeout(waiting);
      waiting = setTimeout(release, PATIENCE_MS);
      model.send(message);
      context.redraw();
    },
  };
  const release = () => {
    context.pressed = "";
    context.redraw();
  };
  widget = KINDS[context.kind](context);

  const listeners = PARTS.map((name) => {
    const listener = () => {
      if (name === "answered") context.pressed = "";
      if (queued) return;
      queued = true;
      queueMicrotask(() => {
        queued = false;
        widget.draw();
      });
    };
    model.on(`change:${name}`, listener);
    return () => model.off(`change:${name}`, listener);
  });
  root.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input") && event.key !== "Escape";
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (widget.keys[event.key.length === 1 ? event.key.toLowerCase() : event.key]?.(event)) {
      event.preventDefault();
      event.stopPropagation();
    }
  });
  widget.draw();
  return () => {
    clearTimeout(waiting);
    for (const end of [...listeners, ...context.closing]) end();
  };
}

export default { render };
