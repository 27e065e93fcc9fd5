/* Steps for a GPU. A step is a function of one item, such as an edge or a chord; STEP(name) makes
 * all_name of it, which runs it for many items at once. What all steps of a file are given, run_t,
 * is described there and read from there by gpu.py. The source is CUDA, and also plain C, in which
 * tests compile it.
 */
#ifndef STEPS_H
#define STEPS_H

typedef long long whole;
typedef unsigned long long word;

#ifdef __CUDACC__
#define DEVICE static __device__ __forceinline__
#define POPCOUNT(x) __popcll(x)
#define LOWEST_BIT(x) (__ffsll((long long)(x)) - 1)
#define ADD_ONE(at) ((whole)atomicAdd((word *)(at), 1ull))
#define AT_LEAST(at, value) atomicMax(at, value)
#define AT_MOST(at, value) atomicMin(at, value)
#define STEP(name)                                                                     \
    extern "C" __global__ void all_##name(const __grid_constant__ run_t run, whole count) { \
        whole item = (whole)blockIdx.x * blockDim.x + threadIdx.x;                     \
        if (item < count && !run.status[0]) name(&run, item);                          \
    }
#else
#include <math.h>
#define DEVICE static
#define POPCOUNT(x) __builtin_popcountll(x)
#define LOWEST_BIT(x) __builtin_ctzll(x)
#define ADD_ONE(at) ((*(at))++)
#define AT_LEAST(at, value) (*(at) = *(at) > (value) ? *(at) : (value))
#define AT_MOST(at, value) lowered(at, value)
static inline whole lowered(whole *at, whole value) {
    whole before = *at;
    *at = before < value ? before : value;
    return before;
}
#define STEP(name)                                                    \
    void all_##name(const run_t *run, whole count) {                  \
        for (whole item = 0; item < count && !run->status[0]; item++) \
            name(run, item);                                          \
    }
#endif

#endif
