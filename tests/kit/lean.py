"""Keeps an import out of pytest that costs a second. `addopts` loads this plugin before all others."""

import sys

# nbval imports jsonschema, and that imports this package, which builds a grammar at import. No test checks an IRI.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # importing it raises ImportError
