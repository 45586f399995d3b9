/* supply.h: S1 and S2, alone and with several takers at once. */
#include "supply.h"

#include "check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TAKERS 4

struct tally {
	struct fab_supply supply;
	_Atomic unsigned char *taken; /* one a byte */
	_Atomic uint64_t chunks;
};

static void *take_all(void *argument)
{
	struct tally *tally = argument;
	const struct fab_pages *pages = &tally->supply.pages;
	struct fab_cursor cursor, end;
	struct fab_segment segment;
	uint64_t chunk;

	while (fab_supply_take(&tally->supply, &chunk)) {
		fab_supply_seek(&tally->supply, chunk, &cursor, &end);
		CHECK(fab_cursor_before(&cursor, &end));
		while (fab_cursor_before(&cursor, &end)) {
			fab_pages_next(pages, &cursor, &end, UINT64_MAX, 1,
				       &segment);
			for (uint64_t i = 0; i < segment.bytes; i++)
				tally->taken[segment.local + i]++;
		}
		tally->chunks++;
	}
	return NULL;
}

static uint64_t check_supply(uint64_t count, uint64_t page_bytes,
			     uint32_t parts, uint64_t stripe)
{
	struct fab_pages pages = {
		.page_bytes = page_bytes,
		.count = count,
		.local_stride = page_bytes,
		.remote_stride = page_bytes,
	};
	struct tally tally = {.chunks = 0};
	pthread_t threads[TAKERS];
	size_t bytes = count * page_bytes;
	uint64_t chunk;

	tally.taken = calloc(bytes ? bytes : 1, 1);
	CHECK(tally.taken);
	fab_supply_construct(&tally.supply, &pages, parts, stripe);
	for (int i = 0; i < TAKERS; i++)
		CHECK(!pthread_create(&threads[i], NULL, take_all, &tally));
	for (int i = 0; i < TAKERS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	for (size_t i = 0; i < bytes; i++)
		CHECK(tally.taken[i] == 1);
	CHECK(!fab_supply_take(&tally.supply, &chunk));
	free((void *) tally.taken);
	return tally.chunks;
}

static void test_s2_order(void)
{
	struct fab_pages pages = {.page_bytes = 10, .count = 100};
	struct fab_cursor cursor, end, before = {0};
	struct fab_supply supply;
	uint64_t chunk;

	fab_supply_construct(&supply, &pages, 3, 4);
	while (fab_supply_take(&supply, &chunk)) {
		fab_supply_seek(&supply, chunk, &cursor, &end);
		CHECK(cursor.page == before.page);
		CHECK(cursor.offset == before.offset);
		before = end;
	}
	CHECK(before.page == 100 && before.offset == 0);
}

int main(void)
{
	CHECK(check_supply(0, 100, 3, 1000) == 0);
	/* One part takes all at once. */
	CHECK(check_supply(1000, 100, 1, 1000) == 1);
	/* Small pages go by the stripe. */
	CHECK(check_supply(1000, 100, 2, 1000) == 100);
	/* Few pages go one by one. */
	CHECK(check_supply(3, 100, 4, 1000) == 3);
	/* Long ones are cut, and the last piece of each is shorter. */
	CHECK(check_supply(2, 1050, 2, 100) == 22);
	for (uint64_t count = 1; count < 60; count += 7) {
		for (uint64_t bytes = 1; bytes < 70; bytes += 11) {
			for (uint32_t parts = 1; parts < 5; parts++)
				(void) check_supply(count, bytes, parts, 16);
		}
	}
	test_s2_order();
	return 0;
}
