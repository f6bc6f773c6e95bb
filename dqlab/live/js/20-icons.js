// Glyphs. A colour never stands alone: each is drawn beside its word, and hidden from screen readers.

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
const halt = [fill("M3 2h2.2v8H3zM6.8 2H9v8H6.8z", "currentColor")];
const drain = [stroke("M6 1.4v6M3.2 4.8 6 7.6 8.8 4.8M2 10.6h8", "currentColor", 1.4)];
const slow = [ring("var(--dq-leased)", 4.6, 1.4), stroke("M6 6 3.4 4.2", "var(--dq-leased)", 1.5)];
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
  "paused": halt,
  "drain": drain,
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
const NEEDS = { dead: cross, warn: warning, slow };

function icon(shapes) {
  const frame = { class: "dq-g", viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" };
  return draw("svg", frame, ...shapes.map(([tag, attributes]) => draw(tag, attributes)));
}

function face(element, key, shapes) {
  if (element.dataset.key === key) return;
  element.dataset.key = key;
  element.replaceChildren(icon(shapes ?? dash));
}
