/* The loops of vector_loops.h, compiled for several instruction sets, and the choice among them. */
#include "loops.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { PREFETCH = 4 }; /* rows that are fetched before they are read */

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

static const double ZEROS[64]; /* the largest number of columns of a tile */

#define P1(i) 1ull << (i)
#define P4(i) P1(i), P1(i + 1), P1(i + 2), P1(i + 3)
#define P16(i) P4(i), P4(i + 4), P4(i + 8), P4(i + 12)
static const uint64_t PLACES[64] = {P16(0), P16(16), P16(32), P16(48)};

/* Between these the sum of squares of errors is as precise as other numbers. */
#define LEAST_SQUARE 0x1p-900
#define LARGEST_SQUARE 0x1p1000

/* The sum of the errors that a unit passes on: it is larger than the root of the sum of squares,
 * and neither overflows nor vanishes where those do. */
static double sum_of_errors(const sc_dense *dense, int64_t unit) {
    double sum = 0;
    for (int64_t u = 0; u < dense->units; u++)
        sum += fabs(dense->column[u * dense->width + unit]) * dense->error[u];
    return sum;
}

/* These depend on what is defined before each inclusion of vector_loops.h. */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(name) JOIN(name, SUFFIX)
#define vec NAME(vec)
#define bits NAME(bits)
#define singles NAME(singles)
#define single_bits NAME(single_bits)
#define TILE_COLUMNS (TILE_VECTORS * LANES)

#if defined(__x86_64__)
#include <cpuid.h>
#define SUFFIX _sse2
#define TARGET
#define LANES 2
#define TILE_ROWS 4
#define TILE_VECTORS 2
#include "vector_loops.h"
#define SUFFIX _avx2
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 4
#define TILE_ROWS 6
#define TILE_VECTORS 2
#include "vector_loops.h"
#define SUFFIX _avx512
#define TARGET __attribute__((target("avx512f,avx512dq,avx2,fma")))
#define LANES 8
#define TILE_ROWS 8
#define TILE_VECTORS 3
#include "vector_loops.h"

/* Whether the processor has the given features and the system saves their registers. */
static int has(unsigned ebx, unsigned states) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_FMA)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & states) != states || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    return (b & ebx) == ebx;
}
const loops_t *sc_loops(void) {
    if (has(bit_AVX2 | bit_AVX512F | bit_AVX512DQ, 0xe6)) return &loops_avx512;
    return has(bit_AVX2, 0x06) ? &loops_avx2 : &loops_sse2;
}
#else
#define SUFFIX _plain
#define TARGET
#define LANES 2
#if defined(__wasm__) /* on most machines 16 registers are behind it */
#define TILE_ROWS 4
#define TILE_VECTORS 2
#else
#define TILE_ROWS 6
#define TILE_VECTORS 4
#endif
#include "vector_loops.h"
const loops_t *sc_loops(void) { return &loops_plain; }
#endif
