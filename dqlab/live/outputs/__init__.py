"""Draw views in the output of a cell or in a terminal: which one it is, and when it is drawn.

::

    frontend           which front end reads the output, and whether the widget was built
    notebook, widget   a view in the output of a cell: as HTML, and as a live widget
    terminal           a view in a terminal
    waits              a picture while a call waits
    ticker             the thread that updates views

"""
