// Python, as it is shown and put into cells.

/** A string as Python spells it. */
export function quoted(text: string): string {
  return JSON.stringify(text);
}
