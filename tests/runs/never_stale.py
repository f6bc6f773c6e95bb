"""The table of docs/explanation/never-stale.md: what is changed between two runs of a cell, and what must happen.

Each case is a test, see `test_never_stale`; the page holds one row for each.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CASES", "Case"]

ATTACHES = "attaches"
REFUSES = "refuses"
REFUSES_INPUT = "refuses the input"
NEW = "a new run"

PLAIN = "def f(x):\n    tally.add(x)\n    return x + 1\n"
BROKEN = PLAIN.replace("return", "1 // x\n    return")
READS = "def f(x):\n    tally.add(x)\n    return x, V\n"
FRAME = "import pandas as pd\nV = pd.DataFrame({'a': [1, 2, %d]})\n" + READS
ARRAY = "import numpy as np\nV = np.arange(%d)\n" + READS
MODEL = "class Model:\n    def __init__(self, n): self.n = n\n    def run(self): return %s\nV = Model(%d)\n" + READS
HELPER = "def h(x):\n    return x + %d\ndef f(x):\n    tally.add(x)\n    return h(x)\n"
MADE = "def make(n):\n    def f(x):\n        tally.add(x)\n        return x + n\n    return f\nf = make(%d)\n"
DEFAULT = "def f(x, y=%d):\n    tally.add(x)\n    return x + y\n"
KEYWORD = "def f(x, *, y=%d):\n    tally.add(x)\n    return x + y\n"
DECORATED = (
    "import functools\ndef twice(fn):\n    @functools.wraps(fn)\n    def inner(x):\n        return fn(x) * %d\n"
    "    return inner\n@twice\ndef f(x):\n    tally.add(x)\n    return x\n"
)
PARTIAL = "import functools\ndef g(x, y):\n    tally.add(x)\n    return x + y\nf = functools.partial(g, y=%d)\n"
LAMBDA = "f = lambda x: (tally.add(x), x + %d)[1]\n"
COMPREHENSION = "def f(x):\n    tally.add(x)\n    return [x + n for n in range(%d)]\n"
CACHED = (
    "import functools\n@functools.cache\ndef get():\n    return %d\ndef f(x):\n    tally.add(x)\n    return x + get()\n"
)
MODULE = "import dq_beside\ndef f(x):\n    tally.add(x)\n    return dq_beside.g(x)\n"
BODY = "def h(x):\n    import dq_beside\n    return dq_beside.g(x)\ndef f(x):\n    tally.add(x)\n    return h(x)\n"
BODY_FROM = "def f(x):\n    from dq_package import beside\n    tally.add(x)\n    return beside.g(x)\n"
BODY_OVER = "def f(x):\n    import dq_over\n    tally.add(x)\n    return dq_over.dq_beside.g(x)\n"
BODY_PARTIAL = (
    "import functools\ndef g(y, x):\n    import dq_beside\n    tally.add(x)\n    return dq_beside.g(x)\n"
    "f = functools.partial(g, 1)\n"
)
SET = "V = {%s}\n" + READS
DATA = "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nV = P(%d)\n" + READS
METADATA = (
    "from dataclasses import dataclass, field\n@dataclass\nclass V:\n"
    "    x: int = field(default=0, metadata={'k': %d})\n" + READS
)
HINTED = "class I:\n    def run(self): return %d\nclass V:\n    x: I\n" + READS
MEMBER = "import enum\nclass V(enum.Enum):\n    A = 1\nV.A.more = %d\n" + READS
EXECUTED = (
    "from dataclasses import dataclass\nexec('class V:\\n    x: int = 0\\n    def run(self): return %d')\n"
    "V = dataclass(V)\n" + READS
)


@dataclass(frozen=True)
class Case:
    """One row.

    Attributes
    ----------
    what : str
        What was changed, as the page says it.
    outcome : str
        What must happen.
    first, second : str
        The cell, before and after.
    documents : tuple of str
        The input, before and after.
    how : str
        What else happens in between: "", "another kernel", "edit", "reload", "rename", "queue", "unnamed", "file",
        "retry".
    """

    what: str
    outcome: str
    first: str = PLAIN
    second: str = PLAIN
    documents: tuple[str, str] = ("range(4)", "range(4)")
    how: str = ""


def _changed(what: str, text: str) -> Case:
    return Case(what, REFUSES, text % 1, text % 2)


CASES = [
    Case("nothing: *Run All* once more", ATTACHES),
    Case("nothing, in a new kernel", ATTACHES, SET % "'a', 'b', 'c'", SET % "'c', 'b', 'a'", how="another kernel"),
    Case("a comment", ATTACHES, second=PLAIN.replace("return", "# why\n    return")),
    Case("spaces, line breaks, brackets", ATTACHES, second=PLAIN.replace("x + 1", "(x  +\n        1)")),
    Case("an unrelated variable or function in the same cell", ATTACHES, second="other = 1\n" + PLAIN),
    Case("the order of a dictionary", ATTACHES, "V = {'a': 1, 'b': 2}\n" + READS, "V = {'b': 2, 'a': 1}\n" + READS),
    Case("the function was mended and retried; the cell holds the mended one", ATTACHES, BROKEN, how="retry"),
    Case("a frame, an array or a model was made again with the same content", ATTACHES, FRAME % 1, FRAME % 1),
    _changed("the function's code", PLAIN.replace("+ 1", "+ %d")),
    _changed("a function that it calls", HELPER),
    _changed("a number, a text, a list that it reads", "V = [%d]\n" + READS),
    Case("the name of a variable that it reads", REFUSES, "V = 1\n" + READS, ("V = 1\n" + READS).replace("V", "W")),
    _changed("a DataFrame that it reads", FRAME),
    _changed("an array that it reads", ARRAY),
    Case("the state of an object that it reads", REFUSES, MODEL % ("self.n", 1), MODEL % ("self.n", 2)),
    Case("a method of a class that it reads", REFUSES, MODEL % ("self.n", 1), MODEL % ("-self.n", 1)),
    _changed("a dataclass that it reads", DATA),
    _changed("metadata of a dataclass's field", METADATA),
    _changed("a class that an annotation names", HINTED),
    _changed("an attribute of a member of an enum", MEMBER),
    _changed("a method of a class that `exec` made", EXECUTED),
    _changed("what a closure captured", MADE),
    _changed("a default argument", DEFAULT),
    _changed("a default of a keyword argument", KEYWORD),
    _changed("a decorator", DECORATED),
    _changed("an argument of a partial", PARTIAL),
    _changed("a lambda", LAMBDA),
    _changed("a comprehension", COMPREHENSION),
    _changed("a cached function that it calls", CACHED),
    Case("a module beside the notebook, edited and reloaded", REFUSES, MODULE, MODULE, how="reload"),
    Case("a module that a function it calls imports in its body, edited", REFUSES, BODY, BODY, how="edit"),
    Case(
        "a module that a partial's function imports in its body, edited",
        REFUSES,
        BODY_PARTIAL,
        BODY_PARTIAL,
        how="edit",
    ),
    Case(
        "a module of a package (`from package import module` in the body), edited",
        REFUSES,
        BODY_FROM,
        BODY_FROM,
        how="edit",
    ),
    Case(
        "a module that a module imports which is imported in the body, edited",
        REFUSES,
        BODY_OVER,
        BODY_OVER,
        how="edit",
    ),
    Case("the input has grown", REFUSES_INPUT, documents=("range(4)", "range(6)")),
    Case("the input has shrunk", REFUSES_INPUT, documents=("range(4)", "range(3)")),
    Case("one document is another", REFUSES_INPUT, documents=("range(4)", "[0, 1, 2, 9]")),
    Case("the documents have another order", REFUSES_INPUT, documents=("range(4)", "[1, 0, 2, 3]")),
    Case("the content of a file", REFUSES_INPUT, documents=("files", "files"), how="file"),
    Case("the name of the run", NEW, how="rename"),
    Case("no name was given", NEW, how="unnamed"),
    Case("the queue: names of runs are those of the lab", ATTACHES, how="queue"),
]
