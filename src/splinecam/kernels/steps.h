/* Steps for a GPU: functions of one item, such as an edge or a chord. STEP(name, item) begins the
 * definition of a step, and of all_name, which runs it for many items at once. All steps of a file
 * take the structure run_t of that file, which structures.py reads. The source is CUDA, and also
 * plain C, as which tests compile it.
 */
#ifndef STEPS_H
#define STEPS_H

typedef long long i64;
typedef unsigned long long u64;

#ifdef __CUDACC__
#define DEVICE static __device__ __forceinline__
#define POPCOUNT(x) __popcll(x)
#define LOWEST_BIT(x) (__ffsll((long long)(x)) - 1)
#define ADD(at, more) ((i64)atomicAdd((u64 *)(at), (u64)(more)))
#define AT_LEAST(at, value) atomicMax(at, value)
#define AT_MOST(at, value) atomicMin(at, value)
#define STEP(name, item)                                                                  \
    DEVICE void name(const run_t *r, i64 item);                                           \
    extern "C" __global__ void all_##name(const __grid_constant__ run_t run, i64 count) { \
        i64 number = (i64)blockIdx.x * blockDim.x + threadIdx.x;                          \
        if (number < count && !run.status[0]) name(&run, number);                         \
    }                                                                                     \
    DEVICE void name(const run_t *r, i64 item)
#else
#include <math.h>
#define DEVICE static
#define POPCOUNT(x) __builtin_popcountll(x)
#define LOWEST_BIT(x) __builtin_ctzll(x)
#define ADD(at, more) raised(at, more)
#define AT_LEAST(at, value) (*(at) = *(at) > (value) ? *(at) : (value))
#define AT_MOST(at, value) lowered(at, value)
static inline i64 raised(i64 *at, i64 more) {
    *at += more;
    return *at - more;
}
static inline i64 lowered(i64 *at, i64 value) {
    i64 before = *at;
    *at = before < value ? before : value;
    return before;
}
#define STEP(name, item)                                                    \
    DEVICE void name(const run_t *r, i64 item);                             \
    void all_##name(const run_t *run, i64 count) {                          \
        for (i64 number = 0; number < count && !run->status[0]; number++)   \
            name(run, number);                                              \
    }                                                                       \
    DEVICE void name(const run_t *r, i64 item)
#endif

#define ADD_ONE(at) ADD(at, 1)

#endif
