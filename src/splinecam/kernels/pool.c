/* A small pool of threads that share loops; the caller takes part. */
#include "pool.h"

#include <stdatomic.h>
#include <stdlib.h>

#if defined(_WIN32)
#include <windows.h>
typedef SRWLOCK lock_t;
typedef CONDITION_VARIABLE signal_t;
typedef HANDLE thread_t;
#define lock_init(l) InitializeSRWLock(l)
#define lock_take(l) AcquireSRWLockExclusive(l)
#define lock_drop(l) ReleaseSRWLockExclusive(l)
#define lock_end(l) ((void)(l))
#define signal_init(s) InitializeConditionVariable(s)
#define signal_all(s) WakeAllConditionVariable(s)
#define signal_wait(s, l) SleepConditionVariableSRW(s, l, INFINITE, 0)
#define signal_end(s) ((void)(s))
#define thread_result DWORD WINAPI
#define thread_start(h) (((h)->thread = CreateThread(NULL, 0, helper_main, h, 0, NULL)) == NULL)
#define thread_join(h) (WaitForSingleObject((h)->thread, INFINITE), CloseHandle((h)->thread))
#else
#include <pthread.h>
typedef pthread_mutex_t lock_t;
typedef pthread_cond_t signal_t;
typedef pthread_t thread_t;
#define lock_init(l) pthread_mutex_init(l, NULL)
#define lock_take(l) pthread_mutex_lock(l)
#define lock_drop(l) pthread_mutex_unlock(l)
#define lock_end(l) pthread_mutex_destroy(l)
#define signal_init(s) pthread_cond_init(s, NULL)
#define signal_all(s) pthread_cond_broadcast(s)
#define signal_wait(s, l) pthread_cond_wait(s, l)
#define signal_end(s) pthread_cond_destroy(s)
#define thread_result void *
#define thread_start(h) pthread_create(&(h)->thread, NULL, helper_main, h)
#define thread_join(h) pthread_join((h)->thread, NULL)
#endif

enum {
    SPIN = 500, /* polls before a thread goes to sleep */
    MAX_THREADS = 256,
    CLOSED = 1 << 20, /* subtracted from the number of helpers in a loop when it ends */
};

typedef struct {
    sc_pool *pool;
    int number;
    thread_t thread;
} helper_t;

struct sc_pool {
    int threads, started;
    lock_t lock;
    signal_t begin, end;
    helper_t *helpers;
    /* There is one loop at a time. `loop_number` counts the loops, and wakes helpers when it
     * changes. `entrants` counts the helpers in the loop, and is negative when no more may enter:
     * so the caller never waits for a helper that wakes up too late. */
    atomic_int loop_number, entrants;
    atomic_int status;
    atomic_llong next;
    int closing;
    int64_t count, step;
    sc_work *work;
    void *context;
};

static void take_parts(sc_pool *pool, int thread) {
    for (;;) {
        int64_t begin = atomic_fetch_add(&pool->next, pool->step);
        if (begin >= pool->count || atomic_load(&pool->status) < 0) return;
        int64_t end = MIN(begin + pool->step, pool->count);
        int status = pool->work(pool->context, thread, begin, end);
        /* An error takes precedence over "degenerate", which does so over "done". */
        int known = atomic_load(&pool->status);
        while (status && known >= 0 && (status < 0 || status > known))
            if (atomic_compare_exchange_weak(&pool->status, &known, status)) break;
    }
}

static void help(helper_t *helper) {
    sc_pool *pool = helper->pool;
    int seen = 0;
    for (;;) {
        /* Loops follow each other closely, so it pays to poll a few times before sleeping. */
        for (int i = 0; i < SPIN && atomic_load(&pool->loop_number) == seen; i++) {
#if defined(__aarch64__)
            __asm__ volatile("yield");
#elif defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
        if (atomic_load(&pool->loop_number) == seen) {
            lock_take(&pool->lock);
            while (atomic_load(&pool->loop_number) == seen) signal_wait(&pool->begin, &pool->lock);
            lock_drop(&pool->lock);
        }
        seen = atomic_load(&pool->loop_number);
        if (pool->closing) return;
        int inside = atomic_load(&pool->entrants);
        while (inside >= 0 &&
               !atomic_compare_exchange_weak(&pool->entrants, &inside, inside + 1)) {
        }
        if (inside < 0) continue;
        take_parts(pool, helper->number);
        if (atomic_fetch_sub(&pool->entrants, 1) == 1 - CLOSED) {
            lock_take(&pool->lock);
            signal_all(&pool->end);
            lock_drop(&pool->lock);
        }
    }
}

static thread_result helper_main(void *helper) {
    help(helper);
    return 0;
}

sc_pool *sc_pool_new(int64_t threads) {
    threads = MIN(MAX(threads, 1), MAX_THREADS);
    sc_pool *pool = calloc(1, sizeof *pool);
    helper_t *helpers = calloc((size_t)threads, sizeof *helpers);
    if (!pool || !helpers) {
        free(pool);
        free(helpers);
        return NULL;
    }
    pool->threads = (int)threads;
    pool->helpers = helpers;
    atomic_store(&pool->entrants, -CLOSED);
    lock_init(&pool->lock);
    signal_init(&pool->begin);
    signal_init(&pool->end);
    return pool;
}

void sc_pool_free(sc_pool *pool) {
    if (!pool) return;
    lock_take(&pool->lock);
    pool->closing = 1;
    atomic_fetch_add(&pool->loop_number, 1);
    signal_all(&pool->begin);
    lock_drop(&pool->lock);
    for (int i = 0; i < pool->started; i++) thread_join(&pool->helpers[i]);
    signal_end(&pool->begin);
    signal_end(&pool->end);
    lock_end(&pool->lock);
    free(pool->helpers);
    free(pool);
}

int sc_threads(const sc_pool *pool) { return pool->threads; }

/* Start helpers, but no more than there are parts. */
static void start_helpers(sc_pool *pool, int64_t parts) {
    while (pool->started < pool->threads - 1 && pool->started + 1 < parts) {
        helper_t *helper = &pool->helpers[pool->started];
        helper->pool = pool;
        helper->number = pool->started + 1;
        if (thread_start(helper)) {
            pool->threads = pool->started + 1; /* the system grants no more */
            return;
        }
        pool->started++;
    }
}

int sc_parallel(sc_pool *pool, int64_t count, int64_t step, sc_work *work, void *context) {
    if (count <= 0) return SC_DONE;
    if (pool->threads == 1 || count <= step) return work(context, 0, 0, count);
    start_helpers(pool, (count + step - 1) / step);
    if (pool->started == 0) return work(context, 0, 0, count);
    pool->count = count;
    pool->step = step;
    pool->work = work;
    pool->context = context;
    atomic_store(&pool->next, 0);
    atomic_store(&pool->status, SC_DONE);
    atomic_store(&pool->entrants, 0);
    lock_take(&pool->lock);
    atomic_fetch_add(&pool->loop_number, 1);
    signal_all(&pool->begin);
    lock_drop(&pool->lock);
    take_parts(pool, 0);
    atomic_fetch_sub(&pool->entrants, CLOSED);
    for (int i = 0; i < SPIN && atomic_load(&pool->entrants) != -CLOSED; i++) {
    }
    if (atomic_load(&pool->entrants) != -CLOSED) {
        lock_take(&pool->lock);
        while (atomic_load(&pool->entrants) != -CLOSED) signal_wait(&pool->end, &pool->lock);
        lock_drop(&pool->lock);
    }
    return atomic_load(&pool->status);
}
