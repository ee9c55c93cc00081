/* Fake libcuda.so.1, second half: memory, copies, streams, events, modules,
 * launches.  "Device memory" is host memory that starts as zeros; copies really
 * copy; kernels do nothing; everything is done when the call returns. */
#define _GNU_SOURCE
#include "cuda.h"
#include <pthread.h>
#include <sys/mman.h>

/* ---- memory ------------------------------------------------------------- */

struct block { CUdeviceptr start; size_t size; struct device *owner; struct block *next; };
static struct block *blocks;                     /* few: TensorFlow takes big ones */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct block **find(CUdeviceptr p)
{
    struct block **b = &blocks;
    while (*b && !(p >= (*b)->start && p < (*b)->start + (*b)->size)) b = &(*b)->next;
    return b;
}

static size_t room(const struct device *d)
{
    size_t total = scn_memory_total(d->die), used = (size_t)scn_num(d->die, "memory_used", 0) + d->allocated;
    return used < total ? total - used : 0;
}

int cuda_owned(CUdeviceptr p)
{
    pthread_mutex_lock(&lock);
    int yes = *find(p) != NULL;
    pthread_mutex_unlock(&lock);
    return yes;
}

/* owner NULL: pinned host memory, which counts for no die.  NORESERVE lets four
 * 11 GiB dies fit a small machine: pages exist once something is written. */
static CUresult take(CUdeviceptr *out, size_t size, struct device *owner)
{
    if (!size) return INVALID_VALUE;
    size = (size + 4095) & ~(size_t)4095;
    if (owner && size > room(owner)) return OUT_OF_MEMORY;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return OUT_OF_MEMORY;
    struct block *b = malloc(sizeof *b);
    *out = (CUdeviceptr)p;
    pthread_mutex_lock(&lock);
    *b = (struct block){ *out, size, owner, blocks };
    blocks = b;
    if (owner) owner->allocated += size;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult give_back(CUdeviceptr p)
{
    if (!p) return CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    struct block **at = find(p), *b = *at;
    if (b) {
        *at = b->next;
        if (b->owner) b->owner->allocated -= b->size;
    }
    pthread_mutex_unlock(&lock);
    if (!b) return INVALID_VALUE;
    munmap((void *)b->start, b->size);
    free(b);
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    struct device *d = cuda_current();
    if (!d) return INVALID_CONTEXT;
    *total = scn_memory_total(d->die);
    *available = room(d);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t n)
{
    TOUCH();
    err = cuda_current() ? take(out, n, cuda_current()) : INVALID_CONTEXT;
    scn_log("%s %zu bytes -> %d", __func__, n, err);
    return err;
}
CUresult cuMemAllocManaged(CUdeviceptr *out, size_t n, unsigned flags) { (void)flags; return cuMemAlloc_v2(out, n); }
CUresult cuMemFree_v2(CUdeviceptr p) { return give_back(p); }
CUresult cuMemHostAlloc(void **out, size_t n, unsigned flags) { (void)flags; return take((CUdeviceptr *)out, n, NULL); }
CUresult cuMemAllocHost_v2(void **out, size_t n) { return cuMemHostAlloc(out, n, 0); }
CUresult cuMemFreeHost(void *p) { return give_back((CUdeviceptr)p); }
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned flags)
{ (void)flags; *out = (CUdeviceptr)p; return CUDA_SUCCESS; }

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr p)
{
    pthread_mutex_lock(&lock);
    struct block *b = *find(p);
    if (b && base) *base = b->start;
    if (b && size) *size = b->size;
    pthread_mutex_unlock(&lock);
    return b ? CUDA_SUCCESS : NOT_FOUND;
}

/* 1 context, 2 memory type (1 host, 2 device), 3/4 device and host pointer, 8 managed, 9 device. */
CUresult cuPointerGetAttribute(void *out, int what, CUdeviceptr p)
{
    pthread_mutex_lock(&lock);
    struct block *b = *find(p);
    struct device *owner = b ? b->owner : NULL;
    pthread_mutex_unlock(&lock);
    if (!b) return INVALID_VALUE;
    switch (what) {
    case 1: *(void **)out = owner; return CUDA_SUCCESS;
    case 2: *(unsigned *)out = owner ? 2 : 1; return CUDA_SUCCESS;
    case 3: case 4: *(CUdeviceptr *)out = p; return CUDA_SUCCESS;
    case 8: *(unsigned char *)out = 0; return CUDA_SUCCESS;
    case 9: *(int *)out = owner ? cuda_index(owner) : 0; return CUDA_SUCCESS;
    default: return NOT_SUPPORTED;
    }
}

/* ---- copies ------------------------------------------------------------- */

#define COPY(function) \
    CUresult function(void *to, const void *from, size_t n) { TOUCH(); memmove(to, from, n); return CUDA_SUCCESS; }
#define COPY_ASYNC(function) \
    CUresult function(void *to, const void *from, size_t n, void *stream) \
    { (void)stream; TOUCH(); memmove(to, from, n); return CUDA_SUCCESS; }
COPY(cuMemcpyHtoD_v2) COPY(cuMemcpyDtoH_v2) COPY(cuMemcpyDtoD_v2) COPY(cuMemcpy)
COPY_ASYNC(cuMemcpyHtoDAsync_v2) COPY_ASYNC(cuMemcpyDtoHAsync_v2) COPY_ASYNC(cuMemcpyDtoDAsync_v2) COPY_ASYNC(cuMemcpyAsync)

CUresult cuMemcpyPeer(void *to, void *tc, const void *from, void *fc, size_t n)
{ (void)tc; (void)fc; TOUCH(); memmove(to, from, n); return CUDA_SUCCESS; }
CUresult cuMemcpyPeerAsync(void *to, void *tc, const void *from, void *fc, size_t n, void *stream)
{ (void)stream; return cuMemcpyPeer(to, tc, from, fc, n); }

CUresult cuMemsetD8_v2(void *p, unsigned char v, size_t n) { TOUCH(); memset(p, v, n); return CUDA_SUCCESS; }
CUresult cuMemsetD8Async(void *p, unsigned char v, size_t n, void *s) { (void)s; return cuMemsetD8_v2(p, v, n); }
CUresult cuMemsetD32_v2(uint32_t *p, uint32_t v, size_t n)
{
    TOUCH();
    for (size_t i = 0; i < n; i++) p[i] = v;
    return CUDA_SUCCESS;
}
CUresult cuMemsetD32Async(uint32_t *p, uint32_t v, size_t n, void *s) { (void)s; return cuMemsetD32_v2(p, v, n); }

/* ---- streams and events ------------------------------------------------- */

struct stream { struct device *device; unsigned flags; };

CUresult cuStreamCreateWithPriority(struct stream **out, unsigned flags, int priority)
{
    (void)priority;
    TOUCH();
    *out = malloc(sizeof **out);
    **out = (struct stream){ cuda_current(), flags };
    return CUDA_SUCCESS;
}
CUresult cuStreamCreate(struct stream **out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }
CUresult cuStreamDestroy_v2(struct stream *s) { free(s); return CUDA_SUCCESS; }
CUresult cuStreamGetCtx(struct stream *s, struct device **out) { *out = s ? s->device : cuda_current(); return CUDA_SUCCESS; }
CUresult cuStreamGetFlags(struct stream *s, unsigned *out) { *out = s ? s->flags : 0; return CUDA_SUCCESS; }
CUresult cuStreamGetPriority(struct stream *s, int *out) { (void)s; *out = 0; return CUDA_SUCCESS; }
CUresult cuStreamQuery(void *s) { (void)s; TOUCH(); return CUDA_SUCCESS; }
CUresult cuStreamSynchronize(void *s) { (void)s; TOUCH(); return CUDA_SUCCESS; }
CUresult cuCtxSynchronize(void) { TOUCH(); return CUDA_SUCCESS; }
CUresult cuStreamIsCapturing(void *s, int *out) { (void)s; *out = 0; return CUDA_SUCCESS; }
CUresult cuStreamGetCaptureInfo(void *s, int *out, uint64_t *id) { (void)s; *out = 0; if (id) *id = 0; return CUDA_SUCCESS; }
CUresult cuStreamGetCaptureInfo_v2(void *s, int *out, uint64_t *id, void **graph, void **deps, size_t *n)
{
    if (graph) *graph = NULL;
    if (deps) *deps = NULL;
    if (n) *n = 0;
    return cuStreamGetCaptureInfo(s, out, id);
}
/* The stream is always idle, so a callback is due at once. */
CUresult cuStreamAddCallback(void *s, void (*f)(void *, CUresult, void *), void *data, unsigned flags)
{ (void)flags; f(s, CUDA_SUCCESS, data); return CUDA_SUCCESS; }
CUresult cuLaunchHostFunc(void *s, void (*f)(void *), void *data) { (void)s; f(data); return CUDA_SUCCESS; }

CUresult cuEventCreate(void **out, unsigned flags) { (void)flags; TOUCH(); *out = malloc(8); return CUDA_SUCCESS; }
CUresult cuEventDestroy_v2(void *e) { free(e); return CUDA_SUCCESS; }
CUresult cuEventQuery(void *e) { (void)e; TOUCH(); return CUDA_SUCCESS; }
CUresult cuEventSynchronize(void *e) { (void)e; TOUCH(); return CUDA_SUCCESS; }
CUresult cuEventElapsedTime(float *ms, void *a, void *b) { (void)a; (void)b; *ms = 1.0f; return CUDA_SUCCESS; }

/* ---- modules and launches ----------------------------------------------- */

/* Say what kind of code was handed over: a test can see from the log that a
 * kernel was compiled for sm_37, or that PTX was left to the driver. */
static void describe(const char *function, const void *image)
{
    const unsigned char *p = image;
    uint32_t word;
    memcpy(&word, p, 4);
    if (!memcmp(p, "\177ELF", 4)) {
        memcpy(&word, p + 48, 4);                       /* e_flags: low byte = SM */
        scn_log("%s cubin sm_%u", function, word & 0xff);
    } else if (word == 0xBA55ED50)
        scn_log("%s fatbin", function);
    else {
        const char *target = strstr(image, ".target");
        scn_log("%s ptx %.14s", function, target ? target : "?");
    }
}

static CUresult load(const char *function, void **out, const void *image)
{
    CUresult err = cuda_enter(function, cuda_current());
    if (err) return err;
    describe(function, image);
    const char **module = malloc(sizeof *module);
    *module = elementwise_name(image);
    *out = module;
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(void **m, const void *image) { return load(__func__, m, image); }
CUresult cuModuleLoadFatBinary(void **m, const void *image) { return load(__func__, m, image); }
CUresult cuModuleLoadDataEx(void **m, const void *image, unsigned n, int *o, void **v)
{ (void)n; (void)o; (void)v; return load(__func__, m, image); }
CUresult cuModuleUnload(void *m) { free(m); return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(char **f, const char **m, const char *name)     /* a function is its name */
{
    scn_log("cuModuleGetFunction %s", name);
    *f = strdup(*m && !strcmp(name, "main_kernel") ? *m : name);
    return CUDA_SUCCESS;
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr *p, size_t *n, void *m, const char *name)
{
    (void)m; (void)name;                                /* its size is unknown here: be generous */
    if (n) *n = 1 << 20;
    return p ? cuMemAlloc_v2(p, 1 << 20) : CUDA_SUCCESS;
}

CUresult cuLaunchKernel(const char *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, void *stream, void **params, void **extra)
{
    (void)gx; (void)gy; (void)gz; (void)bx; (void)by; (void)bz; (void)shared; (void)stream; (void)extra;
    TOUCH();
    int done = elementwise(f, params);
    scn_log("kernel %s%s", (char *)f, done ? " (done on the host)" : "");
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *out, int what, void *f)
{ (void)f; *out = what == 0 ? 1024 : what == 4 ? 32 : what == 6 ? 37 : 0; return CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int b, size_t s)
{ (void)f; (void)b; (void)s; *n = 8; return CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, void *f, int b, size_t s, unsigned flags)
{ (void)flags; return cuOccupancyMaxActiveBlocksPerMultiprocessor(n, f, b, s); }
CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, void *f, void *x, size_t s, int limit)
{ (void)f; (void)x; (void)s; (void)limit; *grid = 26; *block = 256; return CUDA_SUCCESS; }
