"""Pure models of a GPU fleet: arrays in, arrays out, no clock, no I/O.

Every online model has the same functions. `init(n, config)` makes the state of `n` padded series,
`step(state, ..., mask, config)` advances it by one tick and is compiled once per padded shape with the state
donated (the state passed in must not be used again). `grow(state, n, init)` gives any state more room. States and
results are NamedTuples of arrays; a configuration is a NamedTuple of numbers and is hashed, not traced. The step of a
forecast is called `ahead` and returns log(1 + forecast), series last.
"""

from flyball_models._padding import bucket as bucket, grow as grow
