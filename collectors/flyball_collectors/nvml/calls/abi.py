"""The structs of nvml.h that are used here; a test compares their sizes with nvidia-ml-py's."""

from ctypes import Structure, Union, c_char, c_double, c_int, c_int64, c_uint, c_uint8, c_uint32, c_ulonglong, c_void_p

MEMORY_V2 = 0x02000028
TEMPERATURE_V1 = 0x0100000C
MARGIN_V1 = 0x01000008
FABRIC_V2 = 0x02000024
SRAM_V1 = 0x01000068
GPM_V1 = 1
NO_MEMORY_VALUE = 0xFFFFFFFFFFFFFFFF


class Value(Union):
    """A number of one of NVML's types; ``wide`` covers all of its bytes."""

    _fields_ = [("wide", c_ulonglong), ("real", c_double)]


class FieldValue(Structure):
    """nvmlFieldValue_t."""

    _fields_ = [
        ("id", c_uint32), ("scope", c_uint32), ("time_us", c_int64), ("latency_us", c_int64),
        ("kind", c_int), ("code", c_int), ("value", Value),
    ]  # fmt: skip


class Sample(Structure):
    """nvmlSample_t."""

    _fields_ = [("time_us", c_ulonglong), ("value", Value)]


class Utilization(Structure):
    """nvmlUtilization_t, in percent."""

    _fields_ = [("gpu", c_uint), ("memory", c_uint)]


class Memory(Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class Memory2(Structure):
    """nvmlMemory_v2_t, in bytes."""

    _fields_ = [
        ("version", c_uint), ("total", c_ulonglong), ("reserved", c_ulonglong), ("free", c_ulonglong),
        ("used", c_ulonglong),
    ]  # fmt: skip


class Bar1(Structure):
    """nvmlBAR1Memory_t, in bytes."""

    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class Temperature(Structure):
    """nvmlTemperature_v1_t, in degrees Celsius."""

    _fields_ = [("version", c_uint), ("sensor", c_uint), ("value", c_int)]


class Margin(Structure):
    """nvmlMarginTemperature_v1_t, in degrees Celsius."""

    _fields_ = [("version", c_uint), ("value", c_int)]


class Pci(Structure):
    """nvmlPciInfo_t."""

    _fields_ = [
        ("legacy", c_char * 16), ("domain", c_uint), ("bus", c_uint), ("device", c_uint), ("id", c_uint),
        ("subsystem", c_uint), ("address", c_char * 32),
    ]  # fmt: skip


class ProcessInfo(Structure):
    """nvmlProcessInfo_v2_t, which the third version of the call fills."""

    _fields_ = [
        ("pid", c_uint), ("memory", c_ulonglong), ("gpu_instance", c_uint), ("compute_instance", c_uint),
    ]  # fmt: skip


class ProcessSample(Structure):
    """nvmlProcessUtilizationSample_t, in µs and percent."""

    _fields_ = [
        ("pid", c_uint), ("time_us", c_ulonglong), ("sm", c_uint), ("memory", c_uint), ("encoder", c_uint),
        ("decoder", c_uint),
    ]  # fmt: skip


class EventData(Structure):
    """nvmlEventData_t."""

    _fields_ = [
        ("device", c_void_p), ("kind", c_ulonglong), ("data", c_ulonglong), ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    ]  # fmt: skip


class Attributes(Structure):
    """nvmlDeviceAttributes_t of a MIG instance; memory in MiB."""

    _fields_ = [
        ("multiprocessors", c_uint), ("copy_engines", c_uint), ("decoders", c_uint), ("encoders", c_uint),
        ("jpegs", c_uint), ("ofas", c_uint), ("gpu_slices", c_uint), ("compute_slices", c_uint),
        ("memory_mib", c_ulonglong),
    ]  # fmt: skip


class RemapHistogram(Structure):
    """nvmlRowRemapperHistogramValues_t, in banks."""

    _fields_ = [("most", c_uint), ("high", c_uint), ("partial", c_uint), ("low", c_uint), ("none", c_uint)]


class Fabric(Structure):
    """nvmlGpuFabricInfo_v2_t."""

    _fields_ = [
        ("version", c_uint), ("cluster", c_uint8 * 16), ("status", c_uint), ("clique", c_uint32), ("state", c_uint8),
        ("health", c_uint32),
    ]  # fmt: skip


class SramErrors(Structure):
    """nvmlEccSramErrorStatus_v1_t."""

    _fields_ = [
        ("version", c_uint), ("parity", c_ulonglong), ("sec_ded", c_ulonglong), ("corrected", c_ulonglong),
        ("new_parity", c_ulonglong), ("new_sec_ded", c_ulonglong), ("new_corrected", c_ulonglong),
        ("l2", c_ulonglong), ("sm", c_ulonglong), ("pcie", c_ulonglong), ("mcu", c_ulonglong),
        ("other", c_ulonglong), ("exceeded", c_uint),
    ]  # fmt: skip


class GpmSupport(Structure):
    """nvmlGpmSupport_t."""

    _fields_ = [("version", c_uint), ("supported", c_uint)]


class GpmMetric(Structure):
    """nvmlGpmMetric_t; the last three are names, which are not read."""

    _fields_ = [
        ("id", c_uint), ("code", c_int), ("value", c_double), ("short", c_void_p), ("long", c_void_p),
        ("unit", c_void_p),
    ]  # fmt: skip


class GpmMetrics(Structure):
    """nvmlGpmMetricsGet_t with room for more metrics than any driver has: it may write to all of its own."""

    _fields_ = [
        ("version", c_uint), ("count", c_uint), ("before", c_void_p), ("after", c_void_p), ("metrics", GpmMetric * 512),
    ]  # fmt: skip
