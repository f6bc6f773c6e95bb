"""What is left out when pytest begins, before other plugins load: named in `addopts`, for each tester starts with it."""

import sys

# nbval loads jsonschema, which builds the grammar of this one for more than a second; nothing here checks an IRI.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # importing it raises ImportError
