/* ring.h: the invariants I1 to I6. */
#include "check.h"
#include "ring.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#define START 0xffff0000u /* so that the counters wrap soon */

struct item {
	uint64_t number;
	uint64_t twice;
};

/* I1: nothing but a power of two. */
static void test_i1_capacity(void)
{
	struct fab_ring ring;
	uint32_t bad[] = {0, 3, 5, 6, 7, 12, 1023, 1025, UINT32_MAX};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(fab_ring_construct(&ring, bad[i], 8) == -FI_EINVAL);
	CHECK(fab_ring_construct(&ring, 8, 0) == -FI_EINVAL);
	for (uint32_t capacity = 1; capacity <= 4096; capacity *= 2) {
		CHECK(!fab_ring_construct(&ring, capacity, 8));
		CHECK(ring.capacity == capacity);
		fab_ring_destruct(&ring);
		CHECK(ring.slots == NULL);
	}
}

/* I2 and I3 while the counters wrap: a model of the ring is a range of
 * numbers. */
static void test_i2_wrap(uint32_t start)
{
	uint64_t state = 7, pushed = 0, popped = 0;
	struct fab_ring ring;
	struct item item;

	CHECK(!fab_ring_construct(&ring, 8, sizeof(item)));
	atomic_store(&ring.head, start);
	atomic_store(&ring.tail, start);
	ring.head_seen = ring.tail_seen = start;
	for (int i = 0; i < 20000; i++) {
		if (random_next(&state) & 1) {
			item.number = pushed;
			item.twice = 2 * pushed;
			CHECK(fab_ring_push(&ring, &item) ==
			      (pushed - popped == 8 ? -FI_EAGAIN : 0));
			pushed += pushed - popped < 8;
		} else if (pushed == popped) {
			CHECK(fab_ring_pop(&ring, &item) == -FI_EAGAIN);
		} else {
			CHECK(!fab_ring_pop(&ring, &item));
			CHECK(item.number == popped);
			CHECK(item.twice == 2 * popped);
			popped++;
		}
		CHECK(fab_ring_empty(&ring) == (pushed == popped));
		CHECK(atomic_load(&ring.tail) - atomic_load(&ring.head) ==
		      (uint32_t) (pushed - popped));
	}
	CHECK(pushed > 1000);
	fab_ring_destruct(&ring);
}

/* I3: a slot of the consumer is not written before it was popped. */
static void test_i3_ownership(void)
{
	struct fab_ring ring;
	uint64_t value = 1, seen;

	CHECK(!fab_ring_construct(&ring, 1, sizeof(value)));
	CHECK(!fab_ring_push(&ring, &value));
	value = 2;
	CHECK(fab_ring_push(&ring, &value) == -FI_EAGAIN);
	CHECK(!fab_ring_pop(&ring, &seen) && seen == 1);
	CHECK(!fab_ring_push(&ring, &value));
	CHECK(!fab_ring_pop(&ring, &seen) && seen == 2);
	fab_ring_destruct(&ring);
}

struct line {
	struct fab_ring ring;
	uint64_t items;
};

static void *produce(void *argument)
{
	struct line *line = argument;

	for (uint64_t i = 0; i < line->items; i++) {
		struct item item = {i, 2 * i};

		while (fab_ring_push(&line->ring, &item))
			sched_yield();
	}
	return NULL;
}

/* I4 and I5: whole items arrive, each once and in order, over the wrap. */
static void test_i4_i5_two_threads(uint32_t capacity, uint64_t items)
{
	struct line line = {.items = items};
	struct fab_ring *ring = &line.ring;
	pthread_t producer;
	struct item item;

	CHECK(!fab_ring_construct(ring, capacity, sizeof(item)));
	atomic_store(&ring->head, START);
	atomic_store(&ring->tail, START);
	ring->head_seen = ring->tail_seen = START;
	CHECK(!pthread_create(&producer, NULL, produce, &line));
	for (uint64_t i = 0; i < items; i++) {
		while (fab_ring_pop(ring, &item))
			sched_yield();
		CHECK(item.number == i && item.twice == 2 * i);
	}
	pthread_join(producer, NULL);
	CHECK(fab_ring_empty(ring));
	CHECK(atomic_load(&ring->tail) < START);
	fab_ring_destruct(ring);
}

/* I6: settling takes the pages and changes nothing in them. */
static void test_i6_settled(void)
{
	struct item in = {7, 14}, out;
	unsigned char resident[16];
	struct fab_ring ring;
	size_t page = (size_t) sysconf(_SC_PAGESIZE);
	uint32_t capacity = (uint32_t) (16 * page / sizeof(in));

	CHECK(!fab_ring_construct(&ring, capacity, sizeof(in)));
	CHECK(!fab_ring_push(&ring, &in));
	if (madvise(ring.slots, page, MADV_POPULATE_WRITE)) {
		fab_ring_destruct(&ring);
		return; /* the kernel cannot */
	}
	fab_ring_settle(&ring);
	CHECK(!mincore(ring.slots, 16 * page, resident));
	for (int i = 0; i < 16; i++)
		CHECK(resident[i] & 1);
	CHECK(!fab_ring_pop(&ring, &out));
	CHECK(out.number == 7 && out.twice == 14);
	fab_ring_destruct(&ring);
}

int main(void)
{
	test_i6_settled();
	test_i1_capacity();
	test_i2_wrap(0);
	test_i2_wrap(UINT32_MAX - 3000);
	test_i2_wrap(INT32_MAX - 3000u);
	test_i3_ownership();
	test_i4_i5_two_threads(1024, 4000000);
	test_i4_i5_two_threads(2, 300000);
	return 0;
}
