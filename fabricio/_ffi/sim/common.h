/* What every file of the simulated provider uses.
 *
 * The provider is for tests and benchmarks: its NICs exist in this process
 * only, and whoever posts an operation moves the data, with memcpy.
 *
 * Thread marks: [domain] the thread that may use the domain and all that was
 * opened on it (FI_THREAD_DOMAIN: one at a time), [any] any thread. */
#ifndef SIM_COMMON_H
#define SIM_COMMON_H

#include "list.h"

#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SIM_CACHE_LINE 64

/* A lock for short sections that are seldom contended: an uncontended pair of
 * take and give is what an operation pays for the safety of its target.
 * L1 take acquires what the last give released. */
struct sim_lock {
	atomic_int taken;
};

static inline void sim_lock_take(struct sim_lock *lock)
{
	while (atomic_exchange_explicit(&lock->taken, 1, memory_order_acquire))
		sched_yield();
}

static inline void sim_lock_give(struct sim_lock *lock)
{
	atomic_store_explicit(&lock->taken, 0, memory_order_release);
}

/* Zeroed memory on a cache line of its own; freed by free(). NULL: none. */
static inline void *sim_alloc(size_t bytes)
{
	size_t rounded =
		(bytes + SIM_CACHE_LINE - 1) & ~(size_t) (SIM_CACHE_LINE - 1);
	void *memory = aligned_alloc(SIM_CACHE_LINE, rounded);

	if (memory)
		memset(memory, 0, rounded);
	return memory;
}

/* splitmix64: the same numbers from the same seed. */
static inline uint64_t sim_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

#endif
