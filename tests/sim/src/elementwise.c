/* TensorFlow's MLIR-made elementwise kernels, done on the host where a program's
 * course can depend on them: comparisons, logic, casts and integer arithmetic on
 * small tensors.  (Keras, say, compares a dataset's int64 length on the die.)
 *
 * Their names say it all: "Equal_GPU_DT_INT64_DT_BOOL_kernel".  Their arguments
 * are the element count, then each operand and the result as a "memref": base,
 * start, offset and, unless it is a scalar, length and stride.
 *
 * LogicalAnd and LogicalOr are not among the kernels in the wheel: TensorFlow
 * compiles each at its first use, and calls it "main_kernel". */
#include "cuda.h"
#include <elf.h>
#include <math.h>

enum { LIMIT = 65536 };                         /* larger tensors are data: leave them */
typedef enum { BOOL, INT32, INT64, FLOAT } type_t;
typedef struct { char *start; long length; } operand_t;

static const char *const type_names[] = { "BOOL", "INT32", "INT64", "FLOAT" };
static const size_t type_sizes[] = { 1, 4, 8, 4 };

static int type_of(const char *name, size_t n, type_t *out)
{
    for (int t = BOOL; t <= FLOAT; t++)
        if (strlen(type_names[t]) == n && !strncmp(type_names[t], name, n)) { *out = t; return 1; }
    return 0;
}

static double load(type_t t, const char *p)
{
    switch (t) {
    case BOOL: return *p != 0;
    case INT32: return *(const int32_t *)p;
    case INT64: return (double)*(const int64_t *)p;
    default: return *(const float *)p;
    }
}

static void store(type_t t, char *p, double v)
{
    switch (t) {
    case BOOL: *p = v != 0; break;
    case INT32: *(int32_t *)p = (int32_t)v; break;
    case INT64: *(int64_t *)p = (int64_t)v; break;
    default: *(float *)p = (float)v;
    }
}

static int compute(const char *op, double a, double b, type_t in, double *out)
{
#define OP(name, value) if (!strcmp(op, name)) { *out = (value); return 1; }
    OP("Equal", a == b) OP("NotEqual", a != b) OP("Less", a < b) OP("LessEqual", a <= b)
    OP("Greater", a > b) OP("GreaterEqual", a >= b)
    OP("LogicalAnd", a && b) OP("LogicalOr", a || b)
    if (in == FLOAT) return 0;                  /* a model's numbers stay meaningless */
    OP("AddV2", a + b) OP("Sub", a - b) OP("Mul", a * b) OP("Maximum", a > b ? a : b) OP("Minimum", a < b ? a : b)
    return 0;
}

/* Read one memref from *at on.  A scalar is followed at once by the next one's
 * two equal addresses; the last one needs no length. */
static int operand(void ***at, int last, operand_t *out)
{
    void **p = *at;
    uintptr_t base = *(uintptr_t *)p[0], start = *(uintptr_t *)p[1];
    if (base != start || !cuda_owned(start)) return 0;
    out->start = (char *)start;
    out->length = 1;
    *at += 3;
    if (last) return 1;
    uintptr_t next = *(uintptr_t *)p[3];
    if (cuda_owned(next)) return 1;
    out->length = (long)next;
    *at += 2;
    return 1;
}

int elementwise(const char *kernel, void **params)
{
    char op[32];
    const char *gpu = strstr(kernel, "_GPU_DT_"), *second = gpu ? strstr(gpu + 8, "_DT_") : NULL;
    const char *tail = second ? strstr(second + 4, "_kernel") : NULL;
    type_t in, result;
    if (!tail || tail[7] || (size_t)(gpu - kernel) >= sizeof op || !params) return 0;
    snprintf(op, sizeof op, "%.*s", (int)(gpu - kernel), kernel);
    if (!type_of(gpu + 8, second - gpu - 8, &in) || !type_of(second + 4, tail - second - 4, &result)) return 0;
    int finite = !strcmp(op, "IsFinite"), unary = finite || !strcmp(op, "Cast");
    double v;
    if (!unary && !compute(op, 0, 0, in, &v)) return 0;

    long n = *(long *)params[0];
    void **at = params + 1;
    operand_t a, b, out;
    if (n < 1 || n > LIMIT || !operand(&at, 0, &a)) return 0;
    b = a;
    if (!unary && !operand(&at, 0, &b)) return 0;
    if (!operand(&at, 1, &out)) return 0;
    if ((a.length != 1 && a.length != n) || (b.length != 1 && b.length != n)) return 0;
    for (long i = 0; i < n; i++) {
        double x = load(in, a.start + (a.length > 1 ? i : 0) * type_sizes[in]);
        double y = load(in, b.start + (b.length > 1 ? i : 0) * type_sizes[in]);
        if (unary) v = finite ? isfinite(x) : x;
        else compute(op, x, y, in, &v);
        store(result, out.start + i * type_sizes[result], v);
    }
    return 1;
}

/* A compiled logical operation loads two bytes, and has one LOP instruction, of
 * which two bits tell AND from OR (sm_3x; seen in what ptxas 11.8 makes). */
const char *elementwise_name(const void *cubin)
{
    const Elf64_Ehdr *header = cubin;
    const Elf64_Shdr *section = (const void *)((const char *)cubin + header->e_shoff);
    int byte_loads = 0, logical = 0, op = -1;
    if (memcmp(cubin, ELFMAG, SELFMAG)) return NULL;
    for (int i = 0; i < header->e_shnum; i++) {
        if (!(section[i].sh_flags & SHF_EXECINSTR)) continue;
        const uint64_t *word = (const void *)((const char *)cubin + section[i].sh_offset);
        for (uint64_t k = 0; k < section[i].sh_size / sizeof *word; k++) {
            if ((word[k] >> 48 & ~0x200) == 0xc080) byte_loads++;      /* a scalar: c280 */
            if (word[k] >> 54 == 0xe20 >> 2 && (word[k] & 3) == 2) {
                logical++;
                op = word[k] >> 44 & 3;
            }
        }
    }
    if (byte_loads != 2 || logical != 1) return NULL;
    return op == 0 ? "LogicalAnd_GPU_DT_BOOL_DT_BOOL_kernel" : op == 1 ? "LogicalOr_GPU_DT_BOOL_DT_BOOL_kernel" : NULL;
}
