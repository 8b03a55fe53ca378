"""The live local page: :func:`flyball_streams.dashboard.run.run_dashboard` serves it.

``state`` holds what the records say, without a clock or a socket; ``feed`` reads the topics into it;
``charts`` turns it into chart options; ``panels`` and ``page`` show it.
"""
