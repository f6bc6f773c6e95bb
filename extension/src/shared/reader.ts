// Turn plain data into records. The server leaves out fields that are at their default; each field here has its default.

/** Makes a value from plain data, and has the value for absent data. */
export interface Reader<T> {
  empty(): T;
  read(data: unknown): T;
}

export type Read<R> = R extends Reader<infer T> ? T : never;

export function plain<T>(fallback: T): Reader<T> {
  return { empty: () => fallback, read: (data) => data as T };
}

export const text = (fallback = ''): Reader<string> => plain<string>(fallback);
export const number = (fallback = 0): Reader<number> => plain<number>(fallback);
export const flag = (): Reader<boolean> => plain<boolean>(false);
export const maybe = <T>(): Reader<T | null> => plain<T | null>(null);

export function record<F extends Record<string, Reader<any>>>(fields: F): Reader<{ [K in keyof F]: Read<F[K]> }> {
  type Made = { [K in keyof F]: Read<F[K]> };
  const names = Object.keys(fields) as (keyof F & string)[];
  const read = (data: unknown): Made => {
    const given = (data ?? {}) as Record<string, unknown>;
    const pairs = names.map((name) => [name, name in given ? fields[name]!.read(given[name]) : fields[name]!.empty()]);
    return Object.fromEntries(pairs) as Made;
  };
  return {
    empty: () => read({}),
    read
  };
}

export function list<T>(of: Reader<T>): Reader<T[]> {
  return {
    empty: () => [],
    read: (data) => (data as unknown[]).map((each) => of.read(each))
  };
}

export function optional<T>(of: Reader<T>): Reader<T | null> {
  return {
    empty: () => null,
    read: (data) => (data === null ? null : of.read(data))
  };
}

export function mapping<T>(of: Reader<T>): Reader<Record<string, T>> {
  return {
    empty: () => ({}),
    read: (data) => Object.fromEntries(Object.entries(data as object).map(([name, each]) => [name, of.read(each)]))
  };
}
