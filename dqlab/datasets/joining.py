"""Joins results to the rows of a user's table."""

from __future__ import annotations

import warnings
from typing import Any

from dqlab.datasets.plain import EXACT
from dqlab.datasets.yielded import PART
from dqlab.errors import BadOption, DqlabWarning, UsageError
from dqlab.imports import import_whole
from dqlab.numbers import many
from dqlab.texts import one_line
from dqlab.user_frames import level_of_user

SUFFIX = "_result"


def joined(frame: Any, results: Any, on: str, run: str) -> Any:
    """Return a pandas frame with columns of results added, which are missing values in rows without a result."""
    # `results` is indexed by key. `on` is the column of `frame` with keys, or the name of its index.
    import_whole("pandas")
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise BadOption(option="df", value=frame, problem="is not a pandas DataFrame; others have to_pandas().")
    in_index = on not in frame.columns
    if in_index and on not in frame.index.names and not (on == "key" and frame.index.nlevels == 1):
        columns = ", ".join(one_line(column, 40) for column in frame.columns[:20])
        raise BadOption(option="on", value=on, problem=f"is neither a column nor the index. Columns: {columns}.")
    if not in_index:
        keys = frame[on]
    elif frame.index.nlevels == 1:
        keys = frame.index.to_series()
    else:
        keys = frame.index.get_level_values(on).to_series()
    if len(frame) and len(results) and not keys.isin(results.index).any():
        theirs, ours = keys.tolist()[0], results.index.tolist()[0]
        as_text = isinstance(ours, str) != isinstance(theirs, str) and str(theirs) == str(ours)
        hint = f" Here: frame[{on!r}].astype({'str' if isinstance(ours, str) else 'int'!r})." if as_text else ""
        raise UsageError(
            reason=f"none of the {many(len(frame), 'row')} has a key of run {run!r} in {on!r}: that column has keys "
            f"like {theirs!r}, the results have keys like {ours!r}. Nothing was joined. Name the column with the "
            f"documents' keys in on=, and give it their type.{hint}"
        )
    if not results.index.is_unique and PART not in results.columns:
        again = results.index[results.index.duplicated()][0]
        said = f"run {run!r}: key {again!r} belongs to more than one document; the rows that have it come as often."
        warnings.warn(said, DqlabWarning, stacklevel=level_of_user())
    results = results.rename(columns={name: f"{name}{SUFFIX}" for name in results.columns if name in frame.columns})
    # Rows without a result turn whole numbers into floats, which would round those above 2^53: keep these as objects.
    if len(frame) and not keys.isin(results.index).all():
        whole = results.columns[(results.dtypes == "int64") | (results.dtypes == "uint64")]
        large = [name for name in whole if (results[name].abs() > EXACT).any()]
        results = results.astype(dict.fromkeys(large, object))
    if in_index and frame.index.nlevels == 1:
        return frame.join(results)
    return frame.join(results, on=on)
