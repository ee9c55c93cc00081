/* What cuda_device.c (devices, contexts) and cuda_work.c (memory, streams,
 * modules) share.  Types are spelled out so that no CUDA header is needed. */
#ifndef K80SIM_CUDA_H
#define K80SIM_CUDA_H
#include "scenario.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef uint64_t CUdeviceptr;
enum { CUDA_SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100,
       INVALID_DEVICE = 101, INVALID_CONTEXT = 201, PEER_ACCESS_UNSUPPORTED = 217, NOT_FOUND = 500,
       PEER_ALREADY_ENABLED = 704, PEER_NOT_ENABLED = 705, NOT_SUPPORTED = 801, UNKNOWN = 999 };

/* A visible device.  A context is the address of its device's entry: one
 * primary context per device is all that TensorFlow uses. */
struct device {
    int die;                    /* number in the scenario (NVML order) */
    int active;                 /* primary context retained */
    size_t allocated;           /* by this process */
    char peer_enabled[MAX_DIES];
};
extern struct device cuda_devices[MAX_DIES];
extern int cuda_count;

struct device *cuda_current(void);          /* NULL: no context is current */
int cuda_index(const struct device *d);
int cuda_visible(int dies[MAX_DIES]);       /* obeys CUDA_VISIBLE_DEVICES */

int cuda_owned(CUdeviceptr p);              /* does p lie in memory handed out here? */
int elementwise(const char *kernel, void **params);     /* 1 = done on the host */
const char *elementwise_name(const void *cubin);        /* of its "main_kernel"; NULL: not known */

/* First in each function that touches a die: scenario's delays and errors, and
 * "unknown error" once the die is lost (a real one says that or hangs). */
CUresult cuda_enter(const char *function, const struct device *d);
#define TOUCH() CUresult err = cuda_enter(__func__, cuda_current()); if (err) return err
#endif
