// Python source for views and cells.

/** A string as Python spells it. */
export function quoted(text: string): string {
  return JSON.stringify(text);
}

const PLAIN_WORD = /^[\p{L}\p{N}_./:@%+,…][\p{L}\p{N}_./:@%+,…-]*$/u;

/** Text as one word of a line of `%dq`, by the rules of `as_word` in dqlab/texts.py. */
export function word(text: string): string {
  if (PLAIN_WORD.test(text)) return text;
  const quote = text.includes("'") ? '"' : "'";
  return quote + text.replaceAll(quote, `\\${quote}`) + quote;
}
