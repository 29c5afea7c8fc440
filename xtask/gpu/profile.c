// Time by kernel on a machine without a profiler: the driver loads this library into a process (CUDA_INJECTION64_PATH), and
// CUPTI, which lies beside CUDA's other libraries, tells it when each kernel began and ended. In graphs too.
//
// At the end of the process the file TOWERS_PROFILE receives a line a kernel, the costliest first: milliseconds in all, share,
// launches, microseconds of the median launch and of the longest, registers, name. Copies and clears are not counted.
// TOWERS_TIMELINE receives a line for each of the last 512 launches, in their order: microseconds of the beginning, of the time
// taken, blocks, name.
//
// The records are those of CUPTI 13; of a kernel's only what stands at the same place since 12 is read.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONCURRENT_KERNEL = 10, BUFFER = 4 << 20, MOST = 1024, BUCKETS = 512, LAST = 512 };

// The beginning of CUpti_ActivityKernel10.
typedef struct {
    uint32_t kind;
    uint8_t caches[2];
    uint16_t registers;
    uint32_t partitioned[2];
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3], shared[2];
    uint32_t local[2], correlation;
    int64_t grid_id;
    const char* name;
} Kernel;

typedef int (*Register)(void (*)(uint8_t**, size_t*, size_t*), void (*)(void*, uint32_t, uint8_t*, size_t, size_t));
typedef int (*Enable)(uint32_t);
typedef int (*Next)(uint8_t*, size_t, Kernel**);
typedef int (*Flush)(uint32_t);

static Next next_record;
static Flush flush_all;

// Launches by the logarithm of their time, sixteen steps to an octave: enough for a median.
static struct { char* name; uint64_t total, longest, launches; uint32_t times[BUCKETS]; uint16_t registers; } all[MOST];
static int count;

static struct { uint64_t start, end; int kernel, blocks; } last[LAST];
static uint64_t launches;

static int bucket(uint64_t ns) {
    int octave = 63 - __builtin_clzll(ns | 16), at = (octave << 4 | (ns >> (octave - 4) & 15)) - 64;
    return at < BUCKETS ? at : BUCKETS - 1;
}
static double middle(int bucket) { return (double)((16 | (bucket & 15)) * 2 + 1) * (1ull << (bucket >> 4)) / 2; }

static void account(const Kernel* kernel) {
    const char* name = kernel->name ? kernel->name : "?";
    int k = 0;
    while (k < count && strcmp(all[k].name, name)) ++k;
    if (k == MOST) return;
    if (k == count) all[count++].name = strdup(name);
    uint64_t ns = kernel->end - kernel->start;
    all[k].total += ns, ++all[k].launches, ++all[k].times[bucket(ns)];
    all[k].registers = kernel->registers;
    if (ns > all[k].longest) all[k].longest = ns;
    int at = launches++ % LAST;
    last[at].start = kernel->start, last[at].end = kernel->end, last[at].kernel = k;
    last[at].blocks = kernel->grid[0] * kernel->grid[1] * kernel->grid[2];
}

static void requested(uint8_t** buffer, size_t* size, size_t* records) {
    *buffer = aligned_alloc(8, *size = BUFFER);
    *records = 0;
}

static void completed(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size;
    for (Kernel* record = NULL; valid && next_record(buffer, valid, &record) == 0;) {
        if (record->kind == CONCURRENT_KERNEL) account(record);
    }
    free(buffer);
}

static int by_total(const void* a, const void* b) {
    uint64_t x = all[*(const int*)a].total, y = all[*(const int*)b].total;
    return x < y ? 1 : x > y ? -1 : 0;
}

static int by_start(const void* a, const void* b) {
    uint64_t x = *(const uint64_t*)a, y = *(const uint64_t*)b;
    return x < y ? -1 : x > y;
}

static void timeline(void) {
    const char* path = getenv("TOWERS_TIMELINE");
    FILE* file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    int known = launches < LAST ? launches : LAST;
    qsort(last, known, sizeof *last, by_start);
    for (int i = 0; i < known; ++i) {
        fprintf(file, "%10.2f %8.2f %7d  %.100s\n", (last[i].start - last[0].start) / 1e3, (last[i].end - last[i].start) / 1e3,
                last[i].blocks, all[last[i].kernel].name);
    }
    fclose(file);
}

static void report(void) {
    const char* path = getenv("TOWERS_PROFILE");
    flush_all(1);
    FILE* file = path ? fopen(path, "w") : stderr;
    if (!file) return;
    int order[MOST];
    uint64_t total = 0;
    for (int k = 0; k < count; ++k) order[k] = k, total += all[k].total;
    qsort(order, count, sizeof *order, by_total);
    fprintf(file, "      ms  share  launches  median us  longest us  registers  kernel; in all %.3f ms\n", total / 1e6);
    for (int i = 0; i < count; ++i) {
        int k = order[i], at = 0;
        for (uint64_t seen = all[k].times[0]; 2 * seen < all[k].launches && at < BUCKETS - 1;) seen += all[k].times[++at];
        fprintf(file, "%8.2f %5.1f%% %9lu %10.1f %11.1f %10u  %.160s\n", all[k].total / 1e6, 100.0 * all[k].total / total,
                (unsigned long)all[k].launches, middle(at) / 1e3, all[k].longest / 1e3, all[k].registers, all[k].name);
    }
    if (path) fclose(file);
    timeline();
}

// What the driver calls when it starts. A process that can't be watched runs all the same.
int InitializeInjection(void) {
    void* cupti = dlopen("libcupti.so.13", RTLD_NOW);
    if (!cupti) cupti = dlopen("libcupti.so", RTLD_NOW);
    if (!cupti) return fprintf(stderr, "profile: %s\n", dlerror()), 1;
    Register callbacks = (Register)dlsym(cupti, "cuptiActivityRegisterCallbacks");
    Enable enable = (Enable)dlsym(cupti, "cuptiActivityEnable");
    next_record = (Next)dlsym(cupti, "cuptiActivityGetNextRecord");
    flush_all = (Flush)dlsym(cupti, "cuptiActivityFlushAll");
    if (!callbacks || !enable || !next_record || !flush_all) return fprintf(stderr, "profile: not CUPTI\n"), 1;
    int failed = callbacks(requested, completed);
    if (!failed) failed = enable(CONCURRENT_KERNEL);
    if (failed) return fprintf(stderr, "profile: CUPTI refuses with %d\n", failed), 1;
    atexit(report);
    return 1;
}
