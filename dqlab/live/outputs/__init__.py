"""What the output of a cell, or a terminal, shows: which one it is, what is drawn there, and when.

::

    frontend           which front end reads the output, and whether the widget was built
    notebook, widget   a view in the output of a cell: as HTML, and as a live widget
    terminal           a view in a terminal
    waits              what is drawn while a call waits
    ticker             the thread that brings views up to date
"""
