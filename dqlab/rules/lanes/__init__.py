"""The parts of a lane, which do not know `Lane`.

::

    rows, frame_functions    messages as columns, and which function each frame of them runs
    groups                   rows that one process reads together
    producers                which frames of a client have come
    trouble                  messages with a failure, and the index of dead ones
"""
