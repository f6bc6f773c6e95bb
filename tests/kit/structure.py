"""How a view stands in its window, measured in a browser: what sticks out, what lies on what, which words are cut.

Boxes are compared, never pixels: a font or a colour may change, a figure that is cut is wrong on each machine.
"""

from __future__ import annotations

from typing import Any

__all__ = ["SIZES", "cut_texts", "flaws", "overlaps", "sticking_out"]

SIZES = {"1600": (1600, 1), "1100": (1100, 1), "420": (420, 1), "640 at 200 %": (640, 2)}
"""Width of the window in CSS pixels, and how large a pixel of CSS is: a window of 1280 shows 640 at 200 %."""

_WALK = """
const walk = (root, visit) => {
  for (const each of root.querySelectorAll("*")) {
    visit(each)
    if (each.shadowRoot) walk(each.shadowRoot, visit)
  }
}
const parentOf = (each) => each.assignedSlot ?? each.parentElement ?? each.getRootNode()?.host ?? null
const above = (each) => { const all = []; for (let at = each; at; at = parentOf(at)) all.push(at); return all }
const isShown = (each) => {
  if (["STYLE", "SCRIPT", "OPTION"].includes(each.tagName) || !each.getClientRects().length) return false
  const style = getComputedStyle(each)
  return style.visibility !== "hidden" && Number(style.opacity) > 0
}
const isForEars = (each) => above(each).some((at) => {
  const style = getComputedStyle(at)
  return style.clip === "rect(0px, 0px, 0px, 0px)" || /inset\\(/.test(style.clipPath) || at.clientWidth === 1
})
const wordsOf = (each) => [...each.childNodes].filter((node) => node.nodeType === 3 && node.textContent.trim())
const textBoxes = (root) => [root, ...root.querySelectorAll("*")].flatMap(wordsOf).flatMap((node) => {
  const range = document.createRange()
  range.selectNodeContents(node)
  return [...range.getClientRects()]
})
const nameOf = (each) => `${each.tagName.toLowerCase()}.${[...each.classList].join(".")} "${
  each.textContent.trim().replace(/\\s+/g, " ").slice(0, 50)}"`
const isScrolled = (each) => above(each).slice(1).some((at) =>
  ["auto", "scroll"].includes(getComputedStyle(at).overflowX) && at.scrollWidth > at.clientWidth)
const seenBox = (each, box) => {
  let [left, top, right, bottom] = [box.left, box.top, box.right, box.bottom]
  for (const at of above(each)) {
    const style = getComputedStyle(at)
    if (at === document.body || at === document.documentElement) continue
    const frame = at.getBoundingClientRect()
    if (style.overflowX !== "visible") [left, right] = [Math.max(left, frame.left), Math.min(right, frame.right)]
    if (style.overflowY !== "visible") [top, bottom] = [Math.max(top, frame.top), Math.min(bottom, frame.bottom)]
  }
  return right - left > 1 && bottom - top > 1 ? { left, top, right, bottom } : null
}
"""

_OUT = f"""(selector) => {{
  {_WALK}
  const out = []
  for (const root of document.querySelectorAll(selector)) walk(root, (each) => {{
    if (!isShown(each) || isForEars(each) || isScrolled(each)) return
    const box = seenBox(each, each.getBoundingClientRect())
    if (box && (box.right > innerWidth + 1 || box.left < -1)) out.push(nameOf(each))
  }})
  if (document.documentElement.scrollWidth > innerWidth + 1) out.push("the page scrolls sideways")
  return out
}}"""

_ON = """
  const found = []
  for (let at = 0; at < boxes.length; at++) for (let on = at + 1; on < boxes.length; on++) {
    const [one, a] = boxes[at], [other, b] = boxes[on]
    if (above(one).includes(other) || above(other).includes(one)) continue
    if (a.left < b.right - 2 && b.left < a.right - 2 && a.top < b.bottom - LOW && b.top < a.bottom - LOW)
      found.push(`${nameOf(one)} on ${nameOf(other)}`)
  }
  return found
"""

_CARDS = f"""(selector) => {{
  {_WALK}
  const boxes = [...document.querySelectorAll(selector)].filter(isShown)
    .map((each) => [each, each.getBoundingClientRect()])
  const LOW = 2
  {_ON}
}}"""

_WORDS = f"""(selector) => {{
  {_WALK}
  const boxes = []
  for (const root of document.querySelectorAll(selector)) walk(root, (each) => {{
    if (!isShown(each) || isForEars(each)) return
    for (const node of wordsOf(each)) {{
      const range = document.createRange()
      range.selectNodeContents(node)
      for (const rect of range.getClientRects()) {{
        const box = rect.width > 1 && seenBox(each, rect)
        if (box) boxes.push([each, box])
      }}
    }}
  }})
  const LOW = 5
  {_ON}
}}"""

_CUT = f"""(selector) => {{
  {_WALK}
  const cut = []
  for (const root of document.querySelectorAll(selector)) walk(root, (each) => {{
    if (!isShown(each) || isForEars(each) || !each.textContent.trim() || each.tagName === "svg") return
    const style = getComputedStyle(each)
    if (each.clientWidth < 2 || each.scrollWidth <= each.clientWidth + 1) return
    if (!["hidden", "clip"].includes(style.overflowX)) return
    const told = above(each).some((at) => at.title?.trim()) || [...each.querySelectorAll("[title]")].length
    const frame = each.getBoundingClientRect()
    const isHalf = textBoxes(each).some((box) => box.left < frame.right - 1 && box.right > frame.right + 1
      && box.top < frame.bottom - 2 && box.bottom > frame.top + 2)
    if (!told || (isHalf && style.textOverflow !== "ellipsis")) cut.push(nameOf(each))
  }})
  return cut
}}"""


def sticking_out(page: Any, selector: str) -> list[str]:
    """Return what is beyond the left or right edge of the window; what a box of its own scrolls is not."""
    found: list[str] = page.evaluate(_OUT, selector)
    return found


def overlaps(page: Any, cards: str, texts: str) -> list[str]:
    """Return which of some boxes, and which words inside of others, lie on each other."""
    found: list[str] = [*page.evaluate(_CARDS, cards), *page.evaluate(_WORDS, texts)]
    return found


def cut_texts(page: Any, selector: str) -> list[str]:
    """Return which texts are cut; with an ellipsis, and in full under the pointer, they may be, or be left out."""
    found: list[str] = page.evaluate(_CUT, selector)
    return found


def flaws(page: Any, view: str, cards: str) -> dict[str, list[str]]:
    """Return all of these that a view has, by what they are; nothing when it stands well."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))")
    found = {
        "sticks out": sticking_out(page, view),
        "lies on another": overlaps(page, cards, view),
        "cut": cut_texts(page, view),
    }
    return {kind: each for kind, each in found.items() if each}
