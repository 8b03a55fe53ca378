/* A stand-in for NVIDIA's libnvidia-ml.so.1, for tests on machines without a GPU.
 *
 * What the GPUs report lies in a file that the test maps too (FLYBALL_NVML_STUB, or stub_open), so values change
 * while an unmodified agent runs. stub.py mirrors `struct state`; stub_sizeof lets it check that.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAX_GPUS 72
#define MAX_CALLS 64
#define MAX_FIELDS 192
#define MAX_SAMPLES 128
#define MAX_EVENTS 64
#define MAX_PROCESSES 64
#define MAX_LINKS 36
#define MAX_INSTANCES 8
#define MAX_GPM 512
#define RINGS 2

enum result {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, VERSION_MISMATCH = 25, UNKNOWN = 999
};

/* Calls about one device, in the order of CALLS in stub.py. */
enum call {
    UUID, NAME, SERIAL, PCI, UTILIZATION, ENCODER, DECODER, MEMORY, BAR1, POWER, LIMIT, TEMPERATURE, MARGIN, CLOCK,
    REASONS, PSTATE, FAN, PROCESSES, SAMPLES, FIELDS, EVENTS, PROCESS_UTILIZATION, MIG, GPM, LINK, TOPOLOGY,
    ARCHITECTURE, CAPABILITY, PCIE, FABRIC, BANKS, ECC, SRAM, THRESHOLD, MEMORY_V1, TEMPERATURE_V1, MPS, GRAPHICS, REGISTER, ENERGY,
    LINK_ERRORS
};

struct field { uint32_t id, scope, type, result; uint64_t value; };
struct sample { uint64_t time_us, value; };
struct process { uint32_t pid, sm; uint64_t memory, time_us; uint32_t does, padding; }; /* listed while memory is not 0, busy while time is not */
struct link { uint32_t up, far_end, bus, counters; uint64_t errors[5]; }; /* counters: how many of the errors are told */

/* A MIG instance. */
struct instance {
    uint32_t used, gpu_id, compute_id, gpu_slices, compute_slices, processes_used;
    char uuid[80], name[96];
    uint64_t memory_mib, memory_used;
    uint32_t asked[MAX_CALLS];
    struct process processes[MAX_PROCESSES];
};

struct gpu {
    uint32_t index;
    char uuid[80], name[96], serial[32];
    uint32_t lost;                /* not 0: the result of every call */
    uint32_t was_reset;           /* not 0: lost for all who began before, until NVML begins again */
    uint32_t event_kinds;         /* the events that it supports */
    uint32_t hung;                /* not 0: calls about it do not return, until it is 0 again */
    uint32_t result[MAX_CALLS];   /* not 0: the result of that call */
    uint32_t asked[MAX_CALLS];    /* how often it was made */
    uint32_t domain, bus, device;
    uint32_t utilization, memory_utilization, encoder, decoder;
    uint64_t memory_total, memory_reserved, memory_used, bar1_used;
    uint32_t power_mw, limit_mw, temperature, clock_mhz[4];
    int32_t margin;
    uint64_t reasons;
    uint32_t pstate, fan, processes_used, fields_used, samples_used[RINGS];
    uint32_t mig, gpm, architecture, capability[2], pcie[4], fabric[2], banks[5], common_ancestor, gpm_highest, exceeded;
    uint32_t threshold[2];
    uint64_t ecc[4];              /* DRAM corrected, uncorrected, SRAM corrected, uncorrected */
    double gpm_value[MAX_GPM];    /* percent, or a counter */
    struct field fields[MAX_FIELDS];
    struct sample samples[RINGS][MAX_SAMPLES];
    struct process processes[MAX_PROCESSES];
    struct link links[MAX_LINKS];
    struct instance instances[MAX_INSTANCES];
};

struct event { uint32_t gpu, unasked; uint64_t kind, data; }; /* unasked: told although nobody registered it */

struct state {
    uint32_t init, count, events;
    uint32_t fixed;               /* not 0: only GPUs that were there at nvmlInit are known */
    uint32_t poll_ms;             /* how often it looks for events, 0: every 20 ms; a driver would be woken by them */
    uint32_t starting;            /* not 0: nvmlInit does not return, until it is 0 again */
    struct event event[MAX_EVENTS];
    struct gpu gpu[MAX_GPUS];
};

/* The parts of NVML's ABI that are used, declared from its documentation. */
typedef struct handle *device_t;
union value { double d; unsigned ui; unsigned long ul; unsigned long long ull; long long sll; int si; unsigned short us; };
struct nvml_field { unsigned id, scope; int64_t time, latency; int type, result; union value value; };
struct nvml_sample { unsigned long long time; union value value; };
struct nvml_memory { unsigned long long total, free, used; };
struct nvml_memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct nvml_bar1 { unsigned long long total, free, used; };
struct nvml_utilization { unsigned gpu, memory; };
struct nvml_pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
struct nvml_process { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };
struct nvml_process_sample { unsigned pid; unsigned long long time; unsigned sm, memory, encoder, decoder; };
struct nvml_event { device_t device; unsigned long long kind, data; unsigned gpu_instance, compute_instance; };
struct nvml_temperature { unsigned version, sensor; int temperature; };
struct nvml_margin { unsigned version; int margin; };
struct nvml_attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
    unsigned long long memory_mib;
};
struct nvml_banks { unsigned most, high, partial, low, none; };
struct nvml_fabric { unsigned version; uint8_t cluster[16]; unsigned status; uint32_t clique; uint8_t state; uint32_t health; };
struct nvml_sram {
    unsigned version;
    unsigned long long parity, sec_ded, corrected, new_parity, new_sec_ded, new_corrected, l2, sm, pcie, mcu, other;
    unsigned exceeded;
};
struct nvml_gpm_support { unsigned version, supported; };
struct nvml_gpm_metric { unsigned id; int result; double value; char *short_name, *long_name, *unit; };
struct nvml_gpm_metrics { unsigned version, count; void *before, *after; struct nvml_gpm_metric metrics[]; };
struct gpm_sample { struct gpu *gpu; double time_s, value[MAX_GPM]; };

/* What a handle points to. Those of a session that has ended are refused, as are those of an instance that is gone. */
struct handle { uint32_t session; struct gpu *gpu; struct instance *instance; char uuid[80]; };

static struct state *state;
static uint32_t events_seen, count_at_init, session, users;
static uint64_t registered[MAX_GPUS];
static struct handle handles[MAX_GPUS], instance_handles[MAX_GPUS][MAX_INSTANCES];

unsigned long stub_sizeof(const char *name) {
    struct { const char *name; unsigned long size; } sizes[] = {
        {"state", sizeof(struct state)}, {"gpu", sizeof(struct gpu)}, {"field", sizeof(struct field)},
        {"sample", sizeof(struct sample)}, {"event", sizeof(struct event)}, {"process", sizeof(struct process)},
        {"link", sizeof(struct link)}, {"instance", sizeof(struct instance)},
        {"c_nvmlFieldValue_t", sizeof(struct nvml_field)}, {"c_nvmlSample_t", sizeof(struct nvml_sample)},
        {"c_nvmlMemory_t", sizeof(struct nvml_memory)}, {"c_nvmlMemory_v2_t", sizeof(struct nvml_memory_v2)},
        {"c_nvmlBAR1Memory_t", sizeof(struct nvml_bar1)}, {"c_nvmlUtilization_t", sizeof(struct nvml_utilization)},
        {"nvmlPciInfo_t", sizeof(struct nvml_pci)}, {"c_nvmlProcessInfo_v3_t", sizeof(struct nvml_process)},
        {"c_nvmlProcessUtilizationSample_t", sizeof(struct nvml_process_sample)},
        {"c_nvmlEventData_t", sizeof(struct nvml_event)}, {"c_nvmlTemperature_v1_t", sizeof(struct nvml_temperature)},
        {"c_nvmlMarginTemperature_v1_t", sizeof(struct nvml_margin)}, {"c_nvmlValue_t", sizeof(union value)},
        {"c_nvmlDeviceAttributes", sizeof(struct nvml_attributes)},
        {"c_nvmlRowRemapperHistogramValues", sizeof(struct nvml_banks)},
        {"c_nvmlGpuFabricInfo_v2_t", sizeof(struct nvml_fabric)},
        {"c_nvmlEccSramErrorStatus_v1_t", sizeof(struct nvml_sram)},
        {"c_nvmlGpmSupport_t", sizeof(struct nvml_gpm_support)}, {"c_nvmlGpmMetric_t", sizeof(struct nvml_gpm_metric)},
    };
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(sizes[i].name, name)) return sizes[i].size;
    return 0;
}

int stub_open(const char *path) {
    users = 0;
    state = NULL; /* what was mapped stays so: a call that hangs may still look at it */
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0) return 0;
    void *mapped = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return 0;
    state = mapped;
    return 1;
}

static void nap(long ns) { nanosleep(&(struct timespec){0, ns}, NULL); }
/* Every device call begins here: count it, hang if the device does, and answer what the test wants it to answer. */
static int enter(device_t handle, enum call call) {
    if (!state || !users) return UNINITIALIZED;
    if (!handle || handle->session != session) return INVALID_ARGUMENT;
    struct gpu *gpu = handle->gpu;
    struct instance *instance = handle->instance;
    (instance ? instance->asked : gpu->asked)[call]++;
    while (state && __atomic_load_n(&gpu->hung, __ATOMIC_ACQUIRE)) nap(1000000);
    if (!state) return UNINITIALIZED;
    if (gpu->lost || gpu->was_reset) return gpu->lost ? (int)gpu->lost : GPU_IS_LOST;
    if (instance && (!instance->used || strcmp(instance->uuid, handle->uuid))) return INVALID_ARGUMENT;
    return (int)gpu->result[call];
}
#define ENTER(call) \
    int result_ = enter(handle, call); \
    if (result_) return result_; \
    struct gpu *gpu = handle->gpu; \
    struct instance *instance = handle->instance; \
    (void)gpu, (void)instance
#define WHOLE(call) ENTER(call); if (instance) return NOT_SUPPORTED
#define UNDIVIDED(call) WHOLE(call); if (gpu->mig) return NOT_SUPPORTED
#define NUMBER(name, call, expression) \
    int name(device_t handle, unsigned *out) { WHOLE(call); *out = (unsigned)(expression); return SUCCESS; }

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (!state) stub_open(getenv("FLYBALL_NVML_STUB"));
    while (state && __atomic_load_n(&state->starting, __ATOMIC_ACQUIRE)) nap(1000000);
    if (!state) return DRIVER_NOT_LOADED;
    if (state->init) return (int)state->init;
    if (users++) return SUCCESS; /* NVML counts who uses it */
    session++;
    memset(registered, 0, sizeof registered);
    events_seen = __atomic_load_n(&state->events, __ATOMIC_ACQUIRE);
    count_at_init = state->count;
    for (unsigned i = 0; i < state->count; i++) state->gpu[i].was_reset = 0;
    return SUCCESS;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
    if (!users) return UNINITIALIZED;
    users--;
    return SUCCESS;
}
const char *nvmlErrorString(int result) {
    return result == DRIVER_NOT_LOADED ? "Driver Not Loaded" : result == 15 ? "GPU is lost" : "an error";
}
int nvmlSystemGetDriverVersion(char *out, unsigned size) { strncpy(out, "580.1-stub", size); return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    if (!state || !users) return UNINITIALIZED;
    *count = state->fixed ? count_at_init : state->count;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *out) {
    if (!state || !users) return UNINITIALIZED;
    if (index >= state->count) return INVALID_ARGUMENT;
    handles[index] = (struct handle){session, &state->gpu[index], NULL, ""};
    *out = &handles[index];
    return SUCCESS;
}

static int text(char *out, unsigned size, const char *from) { strncpy(out, from, size); return SUCCESS; }
int nvmlDeviceGetUUID(device_t handle, char *out, unsigned size) {
    ENTER(UUID);
    return text(out, size, instance ? instance->uuid : gpu->uuid);
}
int nvmlDeviceGetName(device_t handle, char *out, unsigned size) {
    ENTER(NAME);
    return text(out, size, instance ? instance->name : gpu->name);
}
int nvmlDeviceGetSerial(device_t handle, char *out, unsigned size) { WHOLE(SERIAL); return text(out, size, gpu->serial); }
int nvmlDeviceGetPciInfo_v3(device_t handle, struct nvml_pci *pci) {
    ENTER(PCI);
    pci->domain = gpu->domain, pci->bus = gpu->bus, pci->device = gpu->device;
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(device_t handle, struct nvml_utilization *out) {
    UNDIVIDED(UTILIZATION);
    out->gpu = gpu->utilization, out->memory = gpu->memory_utilization;
    return SUCCESS;
}
int nvmlDeviceGetEncoderUtilization(device_t handle, unsigned *out, unsigned *period_us) {
    UNDIVIDED(ENCODER); *out = gpu->encoder; *period_us = 167000; return SUCCESS;
}
int nvmlDeviceGetDecoderUtilization(device_t handle, unsigned *out, unsigned *period_us) {
    UNDIVIDED(DECODER); *out = gpu->decoder; *period_us = 167000; return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(device_t handle, struct nvml_memory *out) {
    WHOLE(MEMORY_V1); /* version 1 counts what is reserved as used */
    out->total = gpu->memory_total, out->used = gpu->memory_used + gpu->memory_reserved;
    out->free = out->total - out->used;
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(device_t handle, struct nvml_memory_v2 *out) {
    ENTER(MEMORY);
    if (out->version != (sizeof *out | 2u << 24)) return VERSION_MISMATCH;
    out->total = instance ? instance->memory_mib << 20 : gpu->memory_total;
    out->used = instance ? instance->memory_used : gpu->memory_used;
    out->reserved = instance ? 0 : gpu->memory_reserved;
    out->free = out->total - out->used - out->reserved;
    return SUCCESS;
}
int nvmlDeviceGetBAR1MemoryInfo(device_t handle, struct nvml_bar1 *out) {
    WHOLE(BAR1); out->used = gpu->bar1_used; return SUCCESS;
}
NUMBER(nvmlDeviceGetPowerUsage, POWER, gpu->power_mw)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, LIMIT, gpu->limit_mw)
NUMBER(nvmlDeviceGetFanSpeed, FAN, gpu->fan)
NUMBER(nvmlDeviceGetPerformanceState, PSTATE, gpu->pstate)
NUMBER(nvmlDeviceGetArchitecture, ARCHITECTURE, gpu->architecture)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, PCIE, gpu->pcie[0])
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, PCIE, gpu->pcie[1])
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, PCIE, gpu->pcie[2])
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, PCIE, gpu->pcie[3])
int nvmlDeviceGetTemperatureV(device_t handle, struct nvml_temperature *out) {
    WHOLE(TEMPERATURE);
    if (out->version != (sizeof *out | 1u << 24)) return VERSION_MISMATCH;
    if (out->sensor) return INVALID_ARGUMENT;
    out->temperature = (int)gpu->temperature;
    return SUCCESS;
}
int nvmlDeviceGetTemperature(device_t handle, int sensor, unsigned *out) {
    WHOLE(TEMPERATURE_V1);
    if (sensor) return INVALID_ARGUMENT;
    *out = gpu->temperature;
    return SUCCESS;
}
int nvmlDeviceGetTemperatureThreshold(device_t handle, int threshold, unsigned *out) {
    WHOLE(THRESHOLD);
    if (threshold < 0 || threshold > 1) return INVALID_ARGUMENT;
    *out = gpu->threshold[threshold];
    return *out ? SUCCESS : NOT_SUPPORTED;
}
int nvmlDeviceGetMarginTemperature(device_t handle, struct nvml_margin *out) {
    WHOLE(MARGIN);
    if (out->version != (sizeof *out | 1u << 24)) return VERSION_MISMATCH;
    out->margin = gpu->margin;
    return SUCCESS;
}
int nvmlDeviceGetClockInfo(device_t handle, int clock, unsigned *out) {
    WHOLE(CLOCK);
    if (clock < 0 || clock > 3) return INVALID_ARGUMENT;
    *out = gpu->clock_mhz[clock];
    return SUCCESS;
}
int nvmlDeviceGetCurrentClocksEventReasons(device_t handle, unsigned long long *out) {
    WHOLE(REASONS); *out = gpu->reasons; return SUCCESS;
}
int nvmlDeviceGetCudaComputeCapability(device_t handle, int *major, int *minor) {
    WHOLE(CAPABILITY); *major = (int)gpu->capability[0]; *minor = (int)gpu->capability[1]; return SUCCESS;
}

/* Three lists, told apart by what a process does: 0 computes, 1 computes through MPS, 2 draws, 3 computes and draws. */
static int list(device_t handle, enum call call, unsigned kinds, unsigned *count, struct nvml_process *out) {
    ENTER(call);
    struct process *all = instance ? instance->processes : gpu->processes;
    unsigned used = instance ? instance->processes_used : gpu->processes_used, room = *count, listed = 0;
    for (unsigned i = 0; i < used; i++) {
        if (!all[i].memory || !(kinds & 1u << all[i].does)) continue;
        if (out && listed < room)
            out[listed] = (struct nvml_process){all[i].pid, all[i].memory, instance ? instance->gpu_id : ~0u, ~0u};
        listed++;
    }
    *count = listed;
    return room < listed ? INSUFFICIENT_SIZE : SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device_t handle, unsigned *count, struct nvml_process *out) {
    return list(handle, PROCESSES, 1u << 0 | 1u << 3, count, out);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(device_t handle, unsigned *count, struct nvml_process *out) {
    return list(handle, MPS, 1u << 1, count, out);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t handle, unsigned *count, struct nvml_process *out) {
    return list(handle, GRAPHICS, 1u << 2 | 1u << 3, count, out);
}
int nvmlDeviceGetProcessUtilization(device_t handle, struct nvml_process_sample *out, unsigned *count,
                                    unsigned long long after_us) {
    UNDIVIDED(PROCESS_UTILIZATION);
    unsigned room = out ? *count : 0, fresh = 0;
    for (unsigned i = 0; i < gpu->processes_used; i++) {
        if (gpu->processes[i].time_us <= after_us) continue;
        if (fresh < room)
            out[fresh] = (struct nvml_process_sample){gpu->processes[i].pid, gpu->processes[i].time_us,
                                                      gpu->processes[i].sm, 0, 0, 0};
        fresh++;
    }
    *count = fresh;
    return !fresh ? NOT_FOUND : room < fresh ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetSamples(device_t handle, int kind, unsigned long long after_us, int *type, unsigned *count,
                         struct nvml_sample *out) {
    WHOLE(SAMPLES);
    if (kind < 0 || kind >= RINGS || (kind == 1 && gpu->mig)) return NOT_SUPPORTED;
    unsigned used = gpu->samples_used[kind], fresh = 0;
    if (!used) return NOT_FOUND;
    *type = 1;
    if (!out) { /* how many there can be */
        *count = MAX_SAMPLES;
        return SUCCESS;
    }
    for (unsigned i = 0; i < used && i < MAX_SAMPLES && fresh < *count; i++) {
        struct sample sample = gpu->samples[kind][i];
        if (sample.time_us <= after_us) continue;
        out[fresh].time = sample.time_us;
        out[fresh].value.ull = 0xabcdef0000000000ull; /* what is beyond the type is garbage */
        out[fresh].value.ui = (unsigned)sample.value;
        fresh++;
    }
    *count = fresh;
    return fresh ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetFieldValues(device_t handle, int count, struct nvml_field *out) {
    WHOLE(FIELDS);
    unsigned next = 0; /* fields are mostly asked for in the order they were set in */
    for (int i = 0; i < count; i++) {
        out[i].result = NOT_SUPPORTED;
        for (unsigned j = 0; j < gpu->fields_used && j < MAX_FIELDS; j++) {
            struct field *field = &gpu->fields[(next + j) % gpu->fields_used];
            if (field->id != out[i].id || field->scope != out[i].scope) continue;
            out[i].result = (int)field->result;
            out[i].type = (int)field->type;
            out[i].value.ull = field->value;
            next += j + 1;
            break;
        }
    }
    return SUCCESS;
}

/* Calls of their own for what fields tell, too: whoever reads both must find the same. */
static int field_of(device_t handle, enum call call, unsigned id, unsigned long long *out) {
    ENTER(call);
    for (unsigned i = 0; i < gpu->fields_used; i++)
        if (gpu->fields[i].id == id && gpu->fields[i].scope == 0) {
            *out = gpu->fields[i].value;
            return (int)gpu->fields[i].result;
        }
    return NOT_SUPPORTED;
}
static int small_field_of(device_t handle, enum call call, unsigned id, unsigned *out) {
    unsigned long long wide = 0;
    int result = field_of(handle, call, id, &wide);
    *out = (unsigned)wide;
    return result;
}
int nvmlDeviceGetTotalEnergyConsumption(device_t handle, unsigned long long *out) {
    return field_of(handle, ENERGY, 83, out);
}
int nvmlDeviceGetPcieReplayCounter(device_t handle, unsigned *out) { return small_field_of(handle, PCIE, 94, out); }
int nvmlDeviceGetTotalEccErrors(device_t handle, int type, int counter, unsigned long long *out) {
    if (type < 0 || type > 1 || counter != 0) return INVALID_ARGUMENT;
    return field_of(handle, ECC, 3 + (unsigned)type, out);
}
struct nvml_violation { unsigned long long reference_us, time_ns; };
int nvmlDeviceGetViolationStatus(device_t handle, int policy, struct nvml_violation *out) {
    if (policy < 0 || policy > 1) return INVALID_ARGUMENT;
    return field_of(handle, FIELDS, 74 + (unsigned)policy, &out->time_ns);
}
int nvmlDeviceGetRemappedRows(device_t handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    unsigned *outs[] = {corrected, uncorrected, pending, failed};
    for (unsigned i = 0; i < 4; i++) {
        int result = small_field_of(handle, BANKS, 142 + i, outs[i]);
        if (result && result != NOT_SUPPORTED) return result;
    }
    return SUCCESS;
}
int nvmlDeviceGetPowerManagementLimit(device_t handle, unsigned *out) { return small_field_of(handle, LIMIT, 192, out); }
int nvmlDeviceGetPowerManagementDefaultLimit(device_t handle, unsigned *out) {
    return small_field_of(handle, LIMIT, 189, out);
}
int nvmlDeviceGetPowerManagementLimitConstraints(device_t handle, unsigned *least, unsigned *most) {
    int result = small_field_of(handle, LIMIT, 187, least);
    return result ? result : small_field_of(handle, LIMIT, 188, most);
}

int nvmlDeviceGetGpuFabricInfoV(device_t handle, struct nvml_fabric *out) {
    WHOLE(FABRIC);
    if (out->version != (sizeof *out | 2u << 24)) return VERSION_MISMATCH;
    out->state = (uint8_t)gpu->fabric[0], out->status = gpu->fabric[1];
    return SUCCESS;
}
int nvmlDeviceGetRowRemapperHistogram(device_t handle, struct nvml_banks *out) {
    WHOLE(BANKS);
    memcpy(out, gpu->banks, sizeof *out);
    return SUCCESS;
}
int nvmlDeviceGetMemoryErrorCounter(device_t handle, int type, int counter, int location, unsigned long long *out) {
    WHOLE(ECC);
    if (type < 0 || type > 1 || counter != 1 || location != 2) return INVALID_ARGUMENT;
    *out = gpu->ecc[type];
    return SUCCESS;
}
int nvmlDeviceGetSramEccErrorStatus(device_t handle, struct nvml_sram *out) {
    WHOLE(SRAM);
    if (out->version != (sizeof *out | 1u << 24)) return VERSION_MISMATCH;
    out->corrected = gpu->ecc[2], out->parity = gpu->ecc[3] / 2, out->sec_ded = gpu->ecc[3] - gpu->ecc[3] / 2;
    out->exceeded = gpu->exceeded;
    return SUCCESS;
}

/* NVLink and PCIe topology */
int nvmlDeviceGetNvLinkState(device_t handle, unsigned link, unsigned *out) {
    WHOLE(LINK);
    if (link >= MAX_LINKS) return INVALID_ARGUMENT;
    *out = gpu->links[link].up;
    return SUCCESS;
}
/* replays, recoveries, CRC of flow control, CRC of data, ECC; not on Hopper and later, where these are fields */
int nvmlDeviceGetNvLinkErrorCounter(device_t handle, unsigned link, int counter, unsigned long long *out) {
    WHOLE(LINK_ERRORS);
    if (link >= MAX_LINKS || counter < 0 || counter > 4) return INVALID_ARGUMENT;
    if ((uint32_t)counter >= gpu->links[link].counters) return NOT_SUPPORTED;
    *out = gpu->links[link].errors[counter];
    return SUCCESS;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(device_t handle, unsigned link, unsigned *out) {
    WHOLE(LINK);
    *out = gpu->links[link].far_end;
    return SUCCESS;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t handle, unsigned link, struct nvml_pci *pci) {
    WHOLE(LINK);
    pci->domain = 0, pci->bus = gpu->links[link].bus, pci->device = 0;
    return SUCCESS;
}
int nvmlDeviceGetTopologyCommonAncestor(device_t handle, device_t other_handle, int *out) {
    WHOLE(TOPOLOGY);
    if (!other_handle || other_handle->session != session) return INVALID_ARGUMENT;
    struct gpu *other = other_handle->gpu;
    *out = (int)(gpu->common_ancestor > other->common_ancestor ? gpu->common_ancestor : other->common_ancestor);
    return SUCCESS;
}

/* MIG */
int nvmlDeviceGetMigMode(device_t handle, unsigned *now, unsigned *next) {
    WHOLE(MIG); *now = *next = gpu->mig; return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(device_t handle, unsigned *out) { WHOLE(MIG); *out = 7; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(device_t handle, unsigned index, device_t *out) {
    WHOLE(MIG);
    if (!gpu->mig || index >= MAX_INSTANCES || !gpu->instances[index].used) return NOT_FOUND;
    device_t found = &instance_handles[gpu - state->gpu][index];
    *found = (struct handle){session, gpu, &gpu->instances[index], ""};
    strcpy(found->uuid, gpu->instances[index].uuid);
    *out = found;
    return SUCCESS;
}
int nvmlDeviceGetGpuInstanceId(device_t handle, unsigned *out) {
    ENTER(MIG); if (!instance) return NOT_SUPPORTED; *out = instance->gpu_id; return SUCCESS;
}
int nvmlDeviceGetComputeInstanceId(device_t handle, unsigned *out) {
    ENTER(MIG); if (!instance) return NOT_SUPPORTED; *out = instance->compute_id; return SUCCESS;
}
int nvmlDeviceGetAttributes_v2(device_t handle, struct nvml_attributes *out) {
    ENTER(MIG);
    if (!instance) return NOT_SUPPORTED;
    *out = (struct nvml_attributes){16, 1, 0, 0, 0, 0, instance->gpu_slices, instance->compute_slices, instance->memory_mib};
    return SUCCESS;
}

/* GPM: a sample copies the values; percentages are those of the second sample. */
static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}
int nvmlGpmQueryDeviceSupport(device_t handle, struct nvml_gpm_support *out) {
    WHOLE(GPM);
    if (out->version != 1) return VERSION_MISMATCH;
    out->supported = gpu->gpm;
    return SUCCESS;
}
int nvmlGpmSampleAlloc(struct gpm_sample **out) { *out = calloc(1, sizeof **out); return SUCCESS; }
int nvmlGpmSampleFree(struct gpm_sample *sample) { free(sample); return SUCCESS; }
static int take(struct gpu *gpu, struct gpm_sample *out, double scale) {
    out->gpu = gpu, out->time_s = now_s();
    for (unsigned i = 0; i < MAX_GPM; i++) out->value[i] = gpu->gpm_value[i] * (i < 200 ? scale : 1);
    return SUCCESS;
}
int nvmlGpmSampleGet(device_t handle, struct gpm_sample *out) { UNDIVIDED(GPM); return take(gpu, out, 1); }
int nvmlGpmMigSampleGet(device_t handle, unsigned gpu_instance, struct gpm_sample *out) {
    WHOLE(GPM);
    if (!gpu->mig) return INVALID_ARGUMENT;
    return take(gpu, out, 1.0 / (1 + gpu_instance)); /* so that instances differ */
}
int nvmlGpmMetricsGet(struct nvml_gpm_metrics *get) {
    if (get->version != 1) return VERSION_MISMATCH;
    struct gpm_sample *before = get->before, *after = get->after;
    if (before->gpu != after->gpu || after->time_s - before->time_s < 0.1) return UNKNOWN;
    for (unsigned i = 0; i < get->count; i++) {
        struct nvml_gpm_metric *metric = &get->metrics[i];
        if (metric->id >= MAX_GPM || metric->id > after->gpu->gpm_highest) return INVALID_ARGUMENT;
        metric->result = after->value[metric->id] < 0 ? NOT_SUPPORTED : SUCCESS;
        metric->value = after->value[metric->id];
    }
    return SUCCESS;
}

/* Events: only what a device supports can be registered, and only what is registered is told. */
int nvmlEventSetCreate(void **set) { *set = &registered; return state && users ? SUCCESS : UNINITIALIZED; }
int nvmlEventSetFree(void *set) { return set == &registered ? SUCCESS : INVALID_ARGUMENT; }
int nvmlDeviceGetSupportedEventTypes(device_t handle, unsigned long long *kinds) {
    WHOLE(EVENTS); *kinds = gpu->event_kinds; return SUCCESS;
}
int nvmlDeviceRegisterEvents(device_t handle, unsigned long long kinds, void *set) {
    WHOLE(REGISTER);
    if (set != &registered || !kinds) return INVALID_ARGUMENT;
    if (kinds & ~(unsigned long long)gpu->event_kinds) return NOT_SUPPORTED;
    __atomic_or_fetch(&registered[gpu - state->gpu], kinds, __ATOMIC_RELEASE);
    return SUCCESS;
}
int nvmlEventSetWait_v2(void *set, struct nvml_event *out, unsigned timeout_ms) {
    if (set != &registered) return INVALID_ARGUMENT;
    unsigned poll_ms = state && state->poll_ms ? state->poll_ms : 20;
    for (unsigned waited_ms = 0;; waited_ms += poll_ms) {
        struct state *now = state;
        if (!now || !users) return UNINITIALIZED;
        while (events_seen != __atomic_load_n(&now->events, __ATOMIC_ACQUIRE)) {
            struct event *event = &now->event[events_seen++ % MAX_EVENTS];
            if (!(__atomic_load_n(&registered[event->gpu], __ATOMIC_ACQUIRE) & event->kind) && !event->unasked) continue;
            *out = (struct nvml_event){&handles[event->gpu], event->kind, event->data, ~0u, ~0u};
            return SUCCESS;
        }
        if (waited_ms >= timeout_ms) return TIMEOUT;
        nap(poll_ms * 1000000L);
    }
}
