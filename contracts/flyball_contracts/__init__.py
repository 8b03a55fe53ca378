"""What travels between the parts: records, codecs, topics, configuration types, ids and errors.

Import from the submodules: ``records``, ``frame``, ``metrics``, ``codec``, ``topics``, ``config``, ``ids``,
``errors``, ``kafka``, ``cloudevents``, ``deadletter``.
"""
