// Write places in tracebacks by the numbers of cells. A cell is not a file: its kernel compiles it under a name made of
// a hash of its source, and the hash finds the cell again until it is edited.

/** A cell: its source, and its number if it was run. */
export interface Cell {
  source: string;
  count: number | null;
}

const SEED = 0xc70f6907;
const FACTOR = 0x5bd1e995;
const PLACE = /^(\s*)File "[^"]*ipykernel_\d+[/\\](\d+)\.py", line (\d+), in (.*)$/;

/** MurmurHash2 of 32 bits, as ipykernel names the files of cells; tests/browser notices when that changes. */
export function hashOf(source: string): number {
  const data = new TextEncoder().encode(source);
  let hash = SEED ^ data.length;
  const whole = data.length & ~3;
  for (let at = 0; at < whole; at += 4) {
    let part = data[at]! | (data[at + 1]! << 8) | (data[at + 2]! << 16) | (data[at + 3]! << 24);
    part = Math.imul(part, FACTOR);
    part ^= part >>> 24;
    hash = Math.imul(hash, FACTOR) ^ Math.imul(part, FACTOR);
  }
  const rest = data.slice(whole);
  if (rest.length) {
    rest.forEach((byte, at) => (hash ^= byte << (8 * at)));
    hash = Math.imul(hash, FACTOR);
  }
  hash ^= hash >>> 13;
  hash = Math.imul(hash, FACTOR);
  return (hash ^ (hash >>> 15)) >>> 0;
}

/** The source that a kernel compiles: `%%dq submit` becomes a comment, as in dqlab/jupyter/source.py. */
function compiled(source: string): string {
  const [, body] = /^\s*%%dq\s[^\n]*\n([^]*)$/.exec(source) ?? [];
  if (body === undefined) return source;
  const indent = /^\s*\n?([^\S\n]*)\S/.exec(body)?.[1] ?? '';
  return `${indent}# %%dq\n${body}${body.endsWith('\n') ? '' : '\n'}`;
}

/**
 * A traceback with "cell [2], line 4" in place of a cell's file, and with the lines of cells; "<cell>" where the cell
 * was edited since. `then` is the number that a function's cell had, where that is known.
 */
export function withCells(traceback: string, cells: readonly Cell[], then: (name: string) => number | null = () => null): string {
  const lines = traceback.split('\n');
  if (!lines.some((line) => PLACE.test(line))) return traceback;
  const byHash = new Map(cells.map((cell) => [String(hashOf(compiled(cell.source))), cell]));
  return lines
    .flatMap((line, at) => {
      const [found, indent = '', hash = '', number = '', name = ''] = PLACE.exec(line) ?? [];
      if (found === undefined) return [line];
      const cell = byHash.get(hash);
      if (!cell) {
        const before = then(name);
        return [`${indent}${before === null ? '<cell>' : `cell [${before}]`}, line ${number}, in ${name}`];
      }
      const place = `${indent}cell [${cell.count ?? ' '}], line ${number}, in ${name}`;
      const words = cell.source.split('\n')[Number(number) - 1]?.trim();
      const there = lines[at + 1]?.startsWith(`${indent}  `);
      return words && !there ? [place, `${indent}  ${words}`] : [place];
    })
    .join('\n');
}
