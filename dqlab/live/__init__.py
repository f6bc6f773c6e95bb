"""Views of runs and queues: text, static HTML, and a live widget.

They draw statistics and compute no number. Importing this package loads no display library; `display` finds out where
it runs when something is shown. The modules here run in the client's process, a kernel or a script, except those of
`panels`, which the scheduler loads. By what they do:

    display, and `outputs`                                               where and when a view is drawn
    follow, feeds, decisions, offers, next_lines                         what a view asks, obeys and offers
    run_picture, lab_picture, details, views, run_rows                   which words, figures and rows a view has
    text, html, tables, timelines, listings, checkups, style, palette    how these look
"""
