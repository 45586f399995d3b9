/* Single-producer single-consumer ring. Producer writes tail, consumer head.
 * I1 capacity is a power of two (construct returns -FI_EINVAL otherwise).
 * I2 0 <= tail - head <= capacity; both run free and wrap; compare only by
 *    unsigned difference.
 * I3 slots [head, tail) are the consumer's, all others the producer's.
 * I4 store-release of tail publishes slot writes; pairs with the consumer's
 *    load-acquire.
 * I5 store-release of head lets the producer overwrite; pairs with its
 *    load-acquire.
 * I6 the slots are on the NUMA node of whoever settles the ring, if nobody has
 *    pushed before; otherwise where the system put them.
 * Slots are copied whole. Pointers inside a slot change owner with it. */
#ifndef FAB_RING_H
#define FAB_RING_H

#include <rdma/fi_errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct fab_ring {
	_Alignas(64) _Atomic uint32_t tail; /* producer writes */
	uint32_t head_seen;                 /* producer's copy of head */
	_Alignas(64) _Atomic uint32_t head; /* consumer writes */
	uint32_t tail_seen;                 /* consumer's copy of tail */
	_Alignas(64) uint32_t capacity;     /* constant after construct */
	uint32_t slot_bytes;                /* constant after construct */
	unsigned char *slots;               /* owned, mapped */
};

/* [any] before either side uses the ring. */
static inline int fab_ring_construct(struct fab_ring *ring, uint32_t capacity,
				     uint32_t slot_bytes)
{
	if (capacity == 0 || (capacity & (capacity - 1)) || slot_bytes == 0)
		return -FI_EINVAL;
	memset(ring, 0, sizeof(*ring));
	ring->slots = mmap(NULL, (size_t) capacity * slot_bytes,
			   PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);
	if (ring->slots == MAP_FAILED) {
		ring->slots = NULL;
		return -FI_ENOMEM;
	}
	ring->capacity = capacity;
	ring->slot_bytes = slot_bytes;
	return 0;
}

/* [any] Take the slots' pages now, by the memory policy of this thread (I6).
 * An old kernel cannot; they come with the first pushes then. */
static inline void fab_ring_settle(struct fab_ring *ring)
{
	(void) madvise(ring->slots, (size_t) ring->capacity * ring->slot_bytes,
		       MADV_POPULATE_WRITE);
}

/* [any] after both sides stopped. */
static inline void fab_ring_destruct(struct fab_ring *ring)
{
	if (ring->slots)
		munmap(ring->slots, (size_t) ring->capacity * ring->slot_bytes);
	ring->slots = NULL;
}

/* [producer] Copy one slot in. 0, or -FI_EAGAIN when full. */
static inline int fab_ring_push(struct fab_ring *ring, const void *slot)
{
	uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);

	if (tail - ring->head_seen == ring->capacity) {
		ring->head_seen =
			atomic_load_explicit(&ring->head, memory_order_acquire);
		if (tail - ring->head_seen == ring->capacity)
			return -FI_EAGAIN;
	}
	memcpy(ring->slots + (size_t) (tail & (ring->capacity - 1)) *
				     ring->slot_bytes,
	       slot, ring->slot_bytes);
	atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
	return 0;
}

/* [consumer] Copy one slot out. 0, or -FI_EAGAIN when empty. */
static inline int fab_ring_pop(struct fab_ring *ring, void *slot)
{
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	if (head == ring->tail_seen) {
		ring->tail_seen =
			atomic_load_explicit(&ring->tail, memory_order_acquire);
		if (head == ring->tail_seen)
			return -FI_EAGAIN;
	}
	memcpy(slot,
	       ring->slots + (size_t) (head & (ring->capacity - 1)) *
				     ring->slot_bytes,
	       ring->slot_bytes);
	atomic_store_explicit(&ring->head, head + 1, memory_order_release);
	return 0;
}

/* [producer] 1 if a push would fail now. */
static inline int fab_ring_full(struct fab_ring *ring)
{
	ring->head_seen =
		atomic_load_explicit(&ring->head, memory_order_acquire);
	return atomic_load_explicit(&ring->tail, memory_order_relaxed) -
		       ring->head_seen ==
	       ring->capacity;
}

/* [consumer] 1 if nothing is there to pop. */
static inline int fab_ring_empty(struct fab_ring *ring)
{
	if (atomic_load_explicit(&ring->head, memory_order_relaxed) !=
	    ring->tail_seen)
		return 0;
	ring->tail_seen =
		atomic_load_explicit(&ring->tail, memory_order_acquire);
	return atomic_load_explicit(&ring->head, memory_order_relaxed) ==
	       ring->tail_seen;
}

#endif
