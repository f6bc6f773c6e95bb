"""dqlab beside its peers, measured alternately in one go: `python -m benchmarks [--quick] [room...]`.

::

    figures     numbers with their spread, targets, verdicts. Pure
    harness     alternating runs, sizes that fit a time, the load of others
    processes   CPU and memory of process trees; children that answer questions
    stage       the clusters and pools that rooms share, started when first asked for
    peers       what dqlab is compared with
    messages … rules    one module for each room: what it measures and its targets
    report      a table for people, JSON for machines

Every number printed was measured by the run that prints it; only targets are written down.
"""
