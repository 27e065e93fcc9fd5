/* A small pool of threads that share loops; the caller takes part. */
#pragma once

#include "kernel.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Does the part [begin, end) of a loop and returns a status; the loop has the worst of them. */
typedef int sc_work(void *context, int thread, int64_t begin, int64_t end);

int sc_threads(const sc_pool *pool);

/* Call `work` for 0, ..., count - 1 in parts of `step`, on whichever thread is free. */
int sc_parallel(sc_pool *pool, int64_t count, int64_t step, sc_work *work, void *context);
