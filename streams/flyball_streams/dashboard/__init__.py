"""The live local page: :func:`flyball_streams.dashboard.run.run_dashboard` serves it.

``state`` is computed from the records, without a clock or a socket; ``feed`` reads the topics into it; ``summary`` and
``worth`` compute numbers from it, ``charts`` chart options; ``panels`` show them on the overview, and ``views`` show
one decision, GPU, node, workload or incident.
"""
