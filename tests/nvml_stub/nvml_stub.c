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
#define MAX_CALLS 32
#define MAX_FIELDS 32
#define MAX_SAMPLES 128
#define MAX_EVENTS 64

enum result {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, TIMEOUT = 10, VERSION_MISMATCH = 25
};

/* Calls about one device, in the order of CALLS in stub.py. */
enum call {
    UUID, NAME, SERIAL, PCI, UTILIZATION, ENCODER, DECODER, MEMORY, BAR1, POWER, LIMIT, TEMPERATURE, MARGIN, CLOCK,
    REASONS, PSTATE, FAN, PROCESSES, SAMPLES, FIELDS, EVENTS
};

struct field { uint32_t id, scope, type, result; uint64_t value; };
struct sample { uint64_t time_us, percent; };

struct gpu {
    char uuid[80], name[96], serial[32];
    uint32_t lost;                /* not 0: the result of every call */
    uint32_t result[MAX_CALLS];   /* not 0: the result of that call */
    uint32_t asked[MAX_CALLS];    /* how often it was made */
    uint32_t domain, bus, device;
    uint32_t utilization, memory_utilization, encoder, decoder;
    uint64_t memory_total, memory_reserved, memory_used, bar1_used;
    uint32_t power_mw, limit_mw, temperature, clock_mhz[4];
    int32_t margin;
    uint64_t reasons;
    uint32_t pstate, fan, processes, fields_used, samples_used;
    struct field fields[MAX_FIELDS];
    struct sample samples[MAX_SAMPLES];
};

struct event { uint32_t gpu, padding; uint64_t kind, data; };

struct state {
    uint32_t init, count, events, padding;
    struct event event[MAX_EVENTS];
    struct gpu gpu[MAX_GPUS];
};

/* The parts of NVML's ABI that are used, declared from its documentation. */
typedef struct gpu *device_t;
union value { double d; unsigned ui; unsigned long ul; unsigned long long ull; long long sll; int si; unsigned short us; };
struct nvml_field { unsigned id, scope; int64_t time, latency; int type, result; union value value; };
struct nvml_sample { unsigned long long time; union value value; };
struct nvml_memory { unsigned long long total, free, used; };
struct nvml_memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct nvml_bar1 { unsigned long long total, free, used; };
struct nvml_utilization { unsigned gpu, memory; };
struct nvml_pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
struct nvml_process { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };
struct nvml_event { device_t device; unsigned long long kind, data; unsigned gpu_instance, compute_instance; };
struct nvml_temperature { unsigned version, sensor; int temperature; };
struct nvml_margin { unsigned version; int margin; };

static struct state *state;
static uint32_t events_seen;

unsigned long stub_sizeof(const char *name) {
    struct { const char *name; unsigned long size; } sizes[] = {
        {"state", sizeof(struct state)}, {"gpu", sizeof(struct gpu)}, {"field", sizeof(struct field)},
        {"sample", sizeof(struct sample)}, {"event", sizeof(struct event)},
        {"c_nvmlFieldValue_t", sizeof(struct nvml_field)}, {"c_nvmlSample_t", sizeof(struct nvml_sample)},
        {"c_nvmlMemory_t", sizeof(struct nvml_memory)}, {"c_nvmlMemory_v2_t", sizeof(struct nvml_memory_v2)},
        {"c_nvmlBAR1Memory_t", sizeof(struct nvml_bar1)}, {"c_nvmlUtilization_t", sizeof(struct nvml_utilization)},
        {"nvmlPciInfo_t", sizeof(struct nvml_pci)}, {"c_nvmlProcessInfo_v3_t", sizeof(struct nvml_process)},
        {"c_nvmlEventData_t", sizeof(struct nvml_event)}, {"c_nvmlTemperature_v1_t", sizeof(struct nvml_temperature)},
        {"c_nvmlMarginTemperature_v1_t", sizeof(struct nvml_margin)}, {"c_nvmlValue_t", sizeof(union value)},
    };
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(sizes[i].name, name)) return sizes[i].size;
    return 0;
}

int stub_open(const char *path) {
    struct state *old = state;
    state = NULL;
    if (old) munmap(old, sizeof *old);
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0) return 0;
    void *mapped = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return 0;
    state = mapped;
    return 1;
}

/* Every device call begins here: count it, and answer what the test wants it to answer. */
static int enter(device_t gpu, enum call call) {
    if (!state) return UNINITIALIZED;
    gpu->asked[call]++;
    return gpu->lost ? (int)gpu->lost : (int)gpu->result[call];
}
#define ENTER(call) do { int result_ = enter(gpu, call); if (result_) return result_; } while (0)

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (!state) stub_open(getenv("FLYBALL_NVML_STUB"));
    if (!state) return DRIVER_NOT_LOADED;
    events_seen = __atomic_load_n(&state->events, __ATOMIC_ACQUIRE);
    return (int)state->init;
}
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int result) {
    return result == DRIVER_NOT_LOADED ? "Driver Not Loaded" : result == 15 ? "GPU is lost" : "an error";
}
int nvmlSystemGetDriverVersion(char *out, unsigned size) { strncpy(out, "580.1-stub", size); return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    if (!state) return UNINITIALIZED;
    *count = state->count;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *gpu) {
    if (!state || index >= state->count) return INVALID_ARGUMENT;
    *gpu = &state->gpu[index];
    return SUCCESS;
}

static int text(char *out, unsigned size, const char *from) { strncpy(out, from, size); return SUCCESS; }
int nvmlDeviceGetUUID(device_t gpu, char *out, unsigned size) { ENTER(UUID); return text(out, size, gpu->uuid); }
int nvmlDeviceGetName(device_t gpu, char *out, unsigned size) { ENTER(NAME); return text(out, size, gpu->name); }
int nvmlDeviceGetSerial(device_t gpu, char *out, unsigned size) { ENTER(SERIAL); return text(out, size, gpu->serial); }
int nvmlDeviceGetPciInfo_v3(device_t gpu, struct nvml_pci *pci) {
    ENTER(PCI);
    pci->domain = gpu->domain, pci->bus = gpu->bus, pci->device = gpu->device;
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(device_t gpu, struct nvml_utilization *out) {
    ENTER(UTILIZATION);
    out->gpu = gpu->utilization, out->memory = gpu->memory_utilization;
    return SUCCESS;
}
int nvmlDeviceGetEncoderUtilization(device_t gpu, unsigned *out, unsigned *period_us) {
    ENTER(ENCODER); *out = gpu->encoder; *period_us = 167000; return SUCCESS;
}
int nvmlDeviceGetDecoderUtilization(device_t gpu, unsigned *out, unsigned *period_us) {
    ENTER(DECODER); *out = gpu->decoder; *period_us = 167000; return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(device_t gpu, struct nvml_memory *out) {
    if (!state) return UNINITIALIZED;
    if (gpu->lost) return (int)gpu->lost; /* version 1 counts what is reserved as used */
    out->total = gpu->memory_total, out->used = gpu->memory_used + gpu->memory_reserved;
    out->free = out->total - out->used;
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(device_t gpu, struct nvml_memory_v2 *out) {
    ENTER(MEMORY);
    if (out->version != (sizeof *out | 2u << 24)) return VERSION_MISMATCH;
    out->total = gpu->memory_total, out->used = gpu->memory_used, out->reserved = gpu->memory_reserved;
    out->free = out->total - out->used - out->reserved;
    return SUCCESS;
}
int nvmlDeviceGetBAR1MemoryInfo(device_t gpu, struct nvml_bar1 *out) {
    ENTER(BAR1); out->used = gpu->bar1_used; return SUCCESS;
}
int nvmlDeviceGetPowerUsage(device_t gpu, unsigned *out) { ENTER(POWER); *out = gpu->power_mw; return SUCCESS; }
int nvmlDeviceGetEnforcedPowerLimit(device_t gpu, unsigned *out) { ENTER(LIMIT); *out = gpu->limit_mw; return SUCCESS; }
int nvmlDeviceGetTemperatureV(device_t gpu, struct nvml_temperature *out) {
    ENTER(TEMPERATURE);
    if (out->version != (sizeof *out | 1u << 24)) return VERSION_MISMATCH;
    out->temperature = (int)gpu->temperature;
    return SUCCESS;
}
int nvmlDeviceGetTemperature(device_t gpu, int sensor, unsigned *out) {
    (void)sensor;
    if (!state) return UNINITIALIZED;
    *out = gpu->temperature;
    return (int)gpu->lost;
}
int nvmlDeviceGetMarginTemperature(device_t gpu, struct nvml_margin *out) {
    ENTER(MARGIN); out->margin = gpu->margin; return SUCCESS;
}
int nvmlDeviceGetClockInfo(device_t gpu, int clock, unsigned *out) {
    ENTER(CLOCK);
    if (clock < 0 || clock > 3) return INVALID_ARGUMENT;
    *out = gpu->clock_mhz[clock];
    return SUCCESS;
}
int nvmlDeviceGetCurrentClocksEventReasons(device_t gpu, unsigned long long *out) {
    ENTER(REASONS); *out = gpu->reasons; return SUCCESS;
}
int nvmlDeviceGetPerformanceState(device_t gpu, int *out) { ENTER(PSTATE); *out = (int)gpu->pstate; return SUCCESS; }
int nvmlDeviceGetFanSpeed(device_t gpu, unsigned *out) { ENTER(FAN); *out = gpu->fan; return SUCCESS; }
int nvmlDeviceGetComputeRunningProcesses_v3(device_t gpu, unsigned *count, struct nvml_process *out) {
    ENTER(PROCESSES);
    unsigned room = *count;
    *count = gpu->processes;
    if (room < gpu->processes) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < gpu->processes; i++) out[i] = (struct nvml_process){1000 + i, 1 << 20, ~0u, ~0u};
    return SUCCESS;
}

int nvmlDeviceGetSamples(device_t gpu, int kind, unsigned long long after_us, int *type, unsigned *count,
                         struct nvml_sample *out) {
    ENTER(SAMPLES);
    if (kind != 1) return NOT_SUPPORTED;
    unsigned fresh = 0;
    for (unsigned i = 0; i < gpu->samples_used && i < MAX_SAMPLES; i++) {
        if (gpu->samples[i].time_us <= after_us) continue;
        if (out && fresh < *count) {
            out[fresh].time = gpu->samples[i].time_us;
            out[fresh].value.ull = 0;
            out[fresh].value.ui = (unsigned)gpu->samples[i].percent;
        }
        fresh++;
    }
    *type = 1;
    if (!out) *count = fresh;
    else if (fresh < *count) *count = fresh;
    return fresh ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetFieldValues(device_t gpu, int count, struct nvml_field *out) {
    ENTER(FIELDS);
    for (int i = 0; i < count; i++) {
        out[i].result = NOT_SUPPORTED;
        for (unsigned j = 0; j < gpu->fields_used && j < MAX_FIELDS; j++) {
            struct field *field = &gpu->fields[j];
            if (field->id != out[i].id || field->scope != out[i].scope) continue;
            out[i].result = (int)field->result;
            out[i].type = (int)field->type;
            out[i].value.ull = field->value;
        }
    }
    return SUCCESS;
}

int nvmlEventSetCreate(void **set) { *set = &events_seen; return state ? SUCCESS : UNINITIALIZED; }
int nvmlEventSetFree(void *set) { (void)set; return SUCCESS; }
int nvmlDeviceGetSupportedEventTypes(device_t gpu, unsigned long long *kinds) {
    ENTER(EVENTS); *kinds = 0xffff; return SUCCESS;
}
int nvmlDeviceRegisterEvents(device_t gpu, unsigned long long kinds, void *set) {
    (void)gpu, (void)kinds, (void)set;
    return state ? SUCCESS : UNINITIALIZED;
}
int nvmlEventSetWait_v2(void *set, struct nvml_event *out, unsigned timeout_ms) {
    (void)set;
    for (unsigned waited_ms = 0;; waited_ms += 20) {
        struct state *now = state;
        if (!now) return UNINITIALIZED;
        if (events_seen != __atomic_load_n(&now->events, __ATOMIC_ACQUIRE)) {
            struct event *event = &now->event[events_seen++ % MAX_EVENTS];
            *out = (struct nvml_event){&now->gpu[event->gpu], event->kind, event->data, ~0u, ~0u};
            return SUCCESS;
        }
        if (waited_ms >= timeout_ms) return TIMEOUT;
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
}
