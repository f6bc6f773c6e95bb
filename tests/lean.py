"""What each tester leaves out when it starts, before other plugins load: `addopts` names it."""

import sys

# nbval loads jsonschema, which builds the grammar of this one for more than a second; nothing here checks an IRI.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # importing it raises ImportError
