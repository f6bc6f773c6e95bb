"""Views of runs and queues: text, static HTML, and a live widget.

They draw statistics and compute nothing. Importing this package loads no display library;
`display` finds out where it runs when something is shown.
"""
