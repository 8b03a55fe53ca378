"""GPU usage of each family's kernels, as ranges of parameters.

Ranges are derived from the operations, not fitted to a trace: dense products keep the tensor pipes busy and few warps
resident; gathers of graphs and embeddings use integers and memory; convolutions move more bytes per product than
attention; video uses the decoder. Shares are of the time in which such a kernel runs.
"""

from typing import NamedTuple

Range = tuple[float, float]


class Traits(NamedTuple):
    """Ranges of one family; pipe shares are those of compute-bound kernels.

    ``stages`` are the default weights of an iteration's stages (compute, memory kernels, NVLink, network, storage,
    input, offload). ``step_s`` is a training step, ``rate_hz`` the request rate of a busy server. ``pcie`` is bytes per
    second into the device while it computes, relative to the bus.
    """

    tensor: Range
    fp16: Range
    fp32: Range
    fp64: Range
    integer: Range
    occupancy: Range
    sm: Range
    decoder: Range
    pcie: Range
    memory: Range
    cpu: Range
    step_s: Range
    rate_hz: Range
    stages: tuple[float, float, float, float, float, float, float]


TRAITS: dict[str, Traits] = {
    "transformer": Traits(
        tensor=(0.50, 0.80),
        fp16=(0.04, 0.12),
        fp32=(0.03, 0.10),
        fp64=(0.0, 0.0),
        integer=(0.04, 0.12),
        occupancy=(0.12, 0.28),
        sm=(0.80, 0.97),
        decoder=(0.0, 0.0),
        pcie=(0.001, 0.01),
        memory=(0.60, 0.97),
        cpu=(0.03, 0.15),
        step_s=(0.5, 15.0),
        rate_hz=(0.5, 20.0),
        stages=(5.0, 2.0, 1.2, 0.8, 0.2, 0.2, 0.2),
    ),
    "cnn": Traits(
        tensor=(0.22, 0.45),
        fp16=(0.14, 0.30),
        fp32=(0.10, 0.28),
        fp64=(0.0, 0.0),
        integer=(0.08, 0.20),
        occupancy=(0.35, 0.60),
        sm=(0.80, 0.97),
        decoder=(0.0, 0.0),
        pcie=(0.06, 0.30),
        memory=(0.25, 0.80),
        cpu=(0.20, 0.60),
        step_s=(0.08, 0.8),
        rate_hz=(50.0, 2000.0),
        stages=(3.0, 3.0, 0.4, 0.4, 0.6, 1.0, 0.1),
    ),
    "gnn": Traits(
        tensor=(0.01, 0.08),
        fp16=(0.0, 0.03),
        fp32=(0.14, 0.35),
        fp64=(0.0, 0.0),
        integer=(0.22, 0.45),
        occupancy=(0.40, 0.70),
        sm=(0.45, 0.80),
        decoder=(0.0, 0.0),
        pcie=(0.20, 0.60),
        memory=(0.20, 0.75),
        cpu=(0.30, 0.80),
        step_s=(0.05, 0.6),
        rate_hz=(20.0, 500.0),
        stages=(1.0, 3.5, 0.3, 0.3, 0.3, 1.5, 0.4),
    ),
    "recommendation": Traits(
        tensor=(0.05, 0.18),
        fp16=(0.02, 0.08),
        fp32=(0.08, 0.20),
        fp64=(0.0, 0.0),
        integer=(0.10, 0.25),
        occupancy=(0.25, 0.45),
        sm=(0.40, 0.75),
        decoder=(0.0, 0.0),
        pcie=(0.05, 0.25),
        memory=(0.75, 0.97),
        cpu=(0.15, 0.55),
        step_s=(0.02, 0.3),
        rate_hz=(500.0, 20000.0),
        stages=(0.8, 3.0, 2.0, 1.0, 0.8, 0.8, 0.6),
    ),
    "diffusion": Traits(
        tensor=(0.32, 0.58),
        fp16=(0.14, 0.30),
        fp32=(0.02, 0.10),
        fp64=(0.0, 0.0),
        integer=(0.03, 0.10),
        occupancy=(0.22, 0.40),
        sm=(0.85, 0.98),
        decoder=(0.0, 0.0),
        pcie=(0.003, 0.03),
        memory=(0.30, 0.85),
        cpu=(0.03, 0.15),
        step_s=(0.3, 3.0),
        rate_hz=(0.03, 1.5),
        stages=(4.5, 2.5, 0.3, 0.3, 0.3, 0.3, 0.1),
    ),
    "video": Traits(
        tensor=(0.15, 0.40),
        fp16=(0.06, 0.20),
        fp32=(0.06, 0.20),
        fp64=(0.0, 0.0),
        integer=(0.10, 0.25),
        occupancy=(0.30, 0.50),
        sm=(0.60, 0.90),
        decoder=(0.20, 0.90),
        pcie=(0.02, 0.20),
        memory=(0.20, 0.80),
        cpu=(0.10, 0.45),
        step_s=(0.3, 4.0),
        rate_hz=(5.0, 120.0),
        stages=(2.5, 2.0, 0.3, 0.3, 0.8, 1.0, 0.1),
    ),
    "speech": Traits(
        tensor=(0.12, 0.35),
        fp16=(0.08, 0.22),
        fp32=(0.05, 0.18),
        fp64=(0.0, 0.0),
        integer=(0.04, 0.12),
        occupancy=(0.08, 0.22),
        sm=(0.30, 0.65),
        decoder=(0.0, 0.0),
        pcie=(0.01, 0.08),
        memory=(0.30, 0.85),
        cpu=(0.10, 0.40),
        step_s=(0.2, 2.5),
        rate_hz=(2.0, 80.0),
        stages=(3.0, 2.5, 0.4, 0.5, 0.4, 0.8, 0.1),
    ),
    "molecular_dynamics": Traits(
        tensor=(0.0, 0.0),
        fp16=(0.0, 0.0),
        fp32=(0.30, 0.60),
        fp64=(0.05, 0.35),
        integer=(0.10, 0.25),
        occupancy=(0.35, 0.65),
        sm=(0.75, 0.97),
        decoder=(0.0, 0.0),
        pcie=(0.01, 0.10),
        memory=(0.02, 0.30),
        cpu=(0.05, 0.30),
        step_s=(0.002, 0.05),
        rate_hz=(0.05, 2.0),
        stages=(4.0, 2.0, 0.8, 0.8, 0.2, 0.2, 0.1),
    ),
    "reinforcement": Traits(
        tensor=(0.05, 0.30),
        fp16=(0.02, 0.10),
        fp32=(0.08, 0.25),
        fp64=(0.0, 0.0),
        integer=(0.05, 0.20),
        occupancy=(0.15, 0.40),
        sm=(0.30, 0.75),
        decoder=(0.0, 0.0),
        pcie=(0.02, 0.20),
        memory=(0.10, 0.60),
        cpu=(0.50, 0.95),
        step_s=(0.5, 20.0),
        rate_hz=(10.0, 300.0),
        stages=(2.0, 1.0, 0.2, 0.3, 0.1, 2.5, 0.1),
    ),
}
