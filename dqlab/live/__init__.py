"""Draw runs and queues: text, static HTML, and a live widget.

Views draw statistics and compute no number. Importing this package loads no display library; `display` finds out where
it runs when something is shown. The modules here run in the client's process, a kernel or a script, except those of
`panels`, which the scheduler loads. By task:

    display, waits, canvases, widget, ticker           where and when a view is drawn
    follow, next_lines                                 what a view polls, obeys and offers
    run_picture, lab_picture, details, views, run_rows words, figures and rows of a view
    layout, tables                                     what a picture is built of: `parts`
    render, style                                      how parts look

"""

from typing import Any

from dqlab.notebook import register_views


class _Views:
    """Draws for lower rooms, and imports what draws when it is asked for the first time."""

    def picture_of(self, what: Any) -> Any:
        from dqlab.live.waits import picture_of

        return picture_of(what)

    def widget_of(self, source: Any) -> Any:
        from dqlab.live.display import widget_of

        return widget_of(source)


register_views(_Views())
