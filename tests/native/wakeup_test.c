/* wakeup.h: the invariants W1 to W4. A lost wake-up is a sleep that does not
 * end: poll(2) gets a limit that is far above any wait that can happen. */
#include "check.h"
#include "ring.h"
#include "wakeup.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#define ROUNDS      1000000u
#define PATIENCE_MS 30000

struct shared {
	struct fab_ring ring;
	struct fab_wakeup wakeup;
};

static int readable(const struct fab_wakeup *wakeup, int timeout_ms)
{
	struct pollfd fd = {.fd = wakeup->fd, .events = POLLIN};

	return poll(&fd, 1, timeout_ms);
}

static void open_shared(struct shared *shared)
{
	CHECK(!fab_ring_construct(&shared->ring, 64, sizeof(uint32_t)));
	CHECK(!fab_wakeup_open(&shared->wakeup));
}

static void close_shared(struct shared *shared)
{
	fab_ring_destruct(&shared->ring);
	fab_wakeup_close(&shared->wakeup);
	CHECK(shared->wakeup.fd == -1);
}

/* Rings coalesce: the fd is written once until it was cleared. */
static void test_coalesced(void)
{
	struct fab_wakeup wakeup;

	CHECK(!fab_wakeup_open(&wakeup));
	CHECK(!readable(&wakeup, 0));
	CHECK(fab_wakeup_ring(&wakeup) == 1);
	CHECK(fab_wakeup_ring(&wakeup) == 0);
	CHECK(readable(&wakeup, 0));
	fab_wakeup_clear(&wakeup);
	CHECK(!readable(&wakeup, 0));
	CHECK(fab_wakeup_ring(&wakeup) == 1);
	CHECK(readable(&wakeup, 0));
	fab_wakeup_close(&wakeup);
}

/* Nobody sleeps: nothing is written. */
static void test_w4_no_sleeper(void)
{
	struct fab_wakeup wakeup;

	CHECK(!fab_wakeup_open(&wakeup));
	fab_wakeup_rouse(&wakeup);
	CHECK(!readable(&wakeup, 0));
	fab_wakeup_prepare(&wakeup);
	fab_wakeup_rouse(&wakeup);
	fab_wakeup_rouse(&wakeup);
	CHECK(readable(&wakeup, 0));
	fab_wakeup_finish(&wakeup);
	CHECK(!readable(&wakeup, 0));
	fab_wakeup_prepare(&wakeup);
	fab_wakeup_finish(&wakeup);
	fab_wakeup_rouse(&wakeup);
	CHECK(!readable(&wakeup, 0));
	fab_wakeup_close(&wakeup);
}

/* A waker that is slow between taking the flag and writing: its write ends one
 * later sleep, not all of them. */
static void test_w4_late_write(void)
{
	struct fab_wakeup wakeup;
	uint64_t one = 1;

	CHECK(!fab_wakeup_open(&wakeup));
	fab_wakeup_prepare(&wakeup);
	CHECK(atomic_exchange(&wakeup.flag, 0) == 1); /* fab_wakeup_rouse .. */
	fab_wakeup_finish(&wakeup);
	CHECK(write(wakeup.fd, &one, sizeof(one)) == sizeof(one)); /* .. ends */
	fab_wakeup_prepare(&wakeup);
	CHECK(readable(&wakeup, 0));
	fab_wakeup_finish(&wakeup);
	fab_wakeup_prepare(&wakeup);
	CHECK(!readable(&wakeup, 0));
	fab_wakeup_finish(&wakeup);
	fab_wakeup_close(&wakeup);
}

static void *ring_all(void *argument)
{
	struct shared *shared = argument;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		while (fab_ring_push(&shared->ring, &i))
			sched_yield();
		fab_wakeup_ring(&shared->wakeup);
	}
	return NULL;
}

/* W1 and W2: the loop reads as long as something is there, and sleeps on the
 * fd otherwise. */
static void test_w1_w2_doorbell(void)
{
	struct shared shared;
	pthread_t ringer;
	uint32_t expected = 0, number;

	open_shared(&shared);
	CHECK(!pthread_create(&ringer, NULL, ring_all, &shared));
	while (expected < ROUNDS) {
		CHECK(readable(&shared.wakeup, PATIENCE_MS) == 1);
		fab_wakeup_clear(&shared.wakeup);
		while (!fab_ring_pop(&shared.ring, &number))
			CHECK(number == expected++);
	}
	pthread_join(ringer, NULL);
	close_shared(&shared);
}

static void *rouse_all(void *argument)
{
	struct shared *shared = argument;
	uint64_t state = 5;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		while (fab_ring_push(&shared->ring, &i))
			sched_yield();
		fab_wakeup_rouse(&shared->wakeup);
		if (random_below(&state, 64) == 0)
			sched_yield();
	}
	return NULL;
}

/* W3 and W4: the worker looks once more after it said that it will sleep. */
static void test_w3_w4_sleeper(void)
{
	struct shared shared;
	pthread_t rouser;
	uint32_t expected = 0, number;

	open_shared(&shared);
	CHECK(!pthread_create(&rouser, NULL, rouse_all, &shared));
	while (expected < ROUNDS) {
		while (!fab_ring_pop(&shared.ring, &number))
			CHECK(number == expected++);
		fab_wakeup_prepare(&shared.wakeup);
		if (expected < ROUNDS && fab_ring_empty(&shared.ring))
			CHECK(readable(&shared.wakeup, PATIENCE_MS) == 1);
		fab_wakeup_finish(&shared.wakeup);
	}
	pthread_join(rouser, NULL);
	close_shared(&shared);
}

/* Both ways at once, one item in flight: each round sleeps twice. */
struct table {
	struct shared there, back;
};

#define VOLLEYS 100000u

static void *return_all(void *argument)
{
	struct table *table = argument;
	uint32_t number;

	for (uint32_t i = 0; i < VOLLEYS;) {
		fab_wakeup_prepare(&table->there.wakeup);
		if (fab_ring_empty(&table->there.ring))
			CHECK(readable(&table->there.wakeup, PATIENCE_MS) == 1);
		fab_wakeup_finish(&table->there.wakeup);
		while (!fab_ring_pop(&table->there.ring, &number)) {
			CHECK(number == i++);
			CHECK(!fab_ring_push(&table->back.ring, &number));
			fab_wakeup_ring(&table->back.wakeup);
		}
	}
	return NULL;
}

static void test_volley(void)
{
	struct table table;
	pthread_t other;
	uint32_t number;

	open_shared(&table.there);
	open_shared(&table.back);
	CHECK(!pthread_create(&other, NULL, return_all, &table));
	for (uint32_t i = 0; i < VOLLEYS; i++) {
		CHECK(!fab_ring_push(&table.there.ring, &i));
		fab_wakeup_rouse(&table.there.wakeup);
		for (;;) {
			CHECK(readable(&table.back.wakeup, PATIENCE_MS) == 1);
			fab_wakeup_clear(&table.back.wakeup);
			if (!fab_ring_pop(&table.back.ring, &number))
				break;
		}
		CHECK(number == i);
	}
	pthread_join(other, NULL);
	close_shared(&table.there);
	close_shared(&table.back);
}

int main(void)
{
	test_coalesced();
	test_w4_no_sleeper();
	test_w1_w2_doorbell();
	test_w3_w4_sleeper();
	test_volley();
	test_w4_late_write();
	return 0;
}
