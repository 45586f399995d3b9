/* pages.h: every fault with its position, up to the edges of 64 bits, and
 * expansion against a model that moves single bytes. */
#include "check.h"
#include "pages.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A case of fab_pages_check; the untested side always fits. */
static void expect(const struct fab_pages *pages, int read, int fault,
		   uint64_t position, uint64_t first)
{
	uint64_t at = 99, twin = 99;
	int ret = fab_pages_check(pages, read, &at, &twin);

	if (ret == fault && at == position && twin == first)
		return;
	fprintf(stderr, "fault %d at %llu (%llu), expected %d at %llu (%llu)\n",
		ret, (unsigned long long) at, (unsigned long long) twin, fault,
		(unsigned long long) position, (unsigned long long) first);
	abort();
}

static struct fab_pages plain(uint64_t count, uint64_t page_bytes,
			      uint64_t bytes)
{
	return (struct fab_pages) {
		.page_bytes = page_bytes,
		.count = count,
		.local_stride = page_bytes,
		.remote_stride = page_bytes,
		.local_bytes = bytes,
		.remote_bytes = bytes,
	};
}

static void test_nothing_to_move(void)
{
	int64_t index[] = {-1};
	struct fab_pages pages = plain(0, 4096, 0);

	pages.local_index = index;
	expect(&pages, 0, FAB_PAGES_OK, 0, 0);
	pages.count = 1;
	pages.page_bytes = 0;
	expect(&pages, 0, FAB_PAGES_OK, 0, 0);
}

static void test_range_with_indices(void)
{
	int64_t good[] = {3, 0, 2, 1}, far[] = {0, 1, 4, -1},
		negative[] = {0, -1, 2, 9}, lowest[] = {INT64_MIN, 0, 0, 0},
		highest[] = {0, 1, 2, INT64_MAX};
	struct fab_pages pages = plain(4, 10, 40);

	pages.local_index = pages.remote_index = good;
	expect(&pages, 0, FAB_PAGES_OK, 0, 0);
	expect(&pages, 1, FAB_PAGES_OK, 0, 0);
	for (int read = 0; read < 2; read++) {
		pages.remote_index = good;
		pages.local_index = far;
		expect(&pages, read, FAB_PAGES_LOCAL_RANGE, 2, 0);
		pages.local_index = negative;
		expect(&pages, read, FAB_PAGES_LOCAL_RANGE, 1, 0);
		pages.local_index = lowest;
		expect(&pages, read, FAB_PAGES_LOCAL_RANGE, 0, 0);
		pages.local_index = highest;
		expect(&pages, read, FAB_PAGES_LOCAL_RANGE, 3, 0);
		pages.local_index = good;
		pages.remote_index = far;
		expect(&pages, read, FAB_PAGES_REMOTE_RANGE, 2, 0);
		pages.remote_index = negative;
		expect(&pages, read, FAB_PAGES_REMOTE_RANGE, 1, 0);
		/* Both are wrong: the local side is told first. */
		pages.local_index = far;
		expect(&pages, read, FAB_PAGES_LOCAL_RANGE, 2, 0);
	}
}

static void test_range_of_a_side(void)
{
	struct fab_pages pages = plain(4, 10, 40);

	expect(&pages, 0, FAB_PAGES_OK, 0, 0);
	pages.local_bytes = 39;
	expect(&pages, 0, FAB_PAGES_LOCAL_RANGE, 3, 0);
	pages.local_bytes = 9; /* not even the first fits */
	expect(&pages, 0, FAB_PAGES_LOCAL_RANGE, 0, 0);
	pages = plain(4, 10, 40);
	pages.remote_offset = 1;
	expect(&pages, 0, FAB_PAGES_REMOTE_RANGE, 3, 0);
	pages.remote_bytes = 41;
	expect(&pages, 0, FAB_PAGES_OK, 0, 0);
	pages.remote_offset = 42; /* starts past the end */
	expect(&pages, 0, FAB_PAGES_REMOTE_RANGE, 0, 0);
	pages = plain(4, 10, 40);
	pages.local_stride = 11;
	expect(&pages, 0, FAB_PAGES_LOCAL_RANGE, 3, 0);
	pages.local_bytes = 43;
	expect(&pages, 0, FAB_PAGES_OK, 0, 0);
}

/* Sums and products near 2^63 and 2^64 do not wrap. */
static void test_wide(void)
{
	uint64_t top = UINT64_MAX, half = 1ull << 63;
	int64_t one[] = {1}, high[] = {INT64_MAX}, two[] = {2};
	struct fab_pages pages = plain(1, 1, top);

	pages.remote_offset = top; /* offset + page_bytes is 2^64 */
	expect(&pages, 0, FAB_PAGES_REMOTE_RANGE, 0, 0);
	pages.remote_offset = top - 1;
	expect(&pages, 0, FAB_PAGES_OK, 0, 0);
	pages.page_bytes = top;
	expect(&pages, 0, FAB_PAGES_REMOTE_RANGE, 0, 0);
	pages.remote_offset = 0;
	expect(&pages, 0, FAB_PAGES_OK, 0, 0);

	pages = plain(1, 16, 1024);
	pages.remote_index = two; /* 2 * 2^63 is 2^64 */
	pages.remote_stride = half;
	expect(&pages, 0, FAB_PAGES_REMOTE_RANGE, 0, 0);
	pages.remote_index = one; /* 2^63 + 2^63 likewise */
	pages.remote_offset = half;
	pages.remote_bytes = half + 1024;
	expect(&pages, 0, FAB_PAGES_REMOTE_RANGE, 0, 0);
	pages.remote_offset = 0; /* but this fits */
	expect(&pages, 0, FAB_PAGES_OK, 0, 0);
	pages.remote_bytes = half + 15;
	expect(&pages, 0, FAB_PAGES_REMOTE_RANGE, 0, 0);

	pages = plain(1, 1, top); /* INT64_MAX * 2 + 1 is 2^64 - 1 */
	pages.remote_index = high;
	pages.remote_stride = 2;
	expect(&pages, 0, FAB_PAGES_OK, 0, 0);
	pages.remote_offset = 1;
	expect(&pages, 0, FAB_PAGES_REMOTE_RANGE, 0, 0);
	pages.remote_stride = top;
	expect(&pages, 0, FAB_PAGES_REMOTE_RANGE, 0, 0);

	pages = plain(half, 1, half); /* 2^63 pages without a list */
	expect(&pages, 0, FAB_PAGES_OK, 0, 0);
	pages.count = half + 1;
	expect(&pages, 0, FAB_PAGES_LOCAL_RANGE, half, 0);
}

/* A side may be said to be longer than any index reaches: a peer says so. */
static void test_negative_in_a_huge_side(void)
{
	int64_t low[] = {-2}, wide[] = {INT64_MAX, INT64_MIN};
	struct fab_pages pages = plain(1, 1, UINT64_MAX);

	pages.remote_index = low;
	expect(&pages, 0, FAB_PAGES_REMOTE_RANGE, 0, 0);
	pages.count = 2;
	pages.remote_index = wide;
	expect(&pages, 0, FAB_PAGES_REMOTE_RANGE, 1, 0);
}

static void test_stride(void)
{
	int64_t zeros[] = {0, 0, 0}, many[] = {0, 7, INT64_MAX},
		minus[] = {0, -7, 3};
	struct fab_pages pages = plain(3, 10, 30);

	pages.remote_stride = 9;
	expect(&pages, 0, FAB_PAGES_STRIDE, 0, 0);
	expect(&pages, 1, FAB_PAGES_OK, 0, 0); /* a source may overlap */
	pages.remote_stride = 0;
	expect(&pages, 0, FAB_PAGES_STRIDE, 0, 0);
	pages.count = 1; /* one page meets no other */
	expect(&pages, 0, FAB_PAGES_OK, 0, 0);
	pages.count = 3;
	pages.remote_stride = 10;
	pages.local_stride =
		0; /* the same page thrice, whatever it is called */
	expect(&pages, 0, FAB_PAGES_OK, 0, 0);
	pages.local_index = zeros;
	expect(&pages, 0, FAB_PAGES_OK, 0, 0);
	pages.local_index = many;
	expect(&pages, 0, FAB_PAGES_OK, 0, 0);
	pages.local_index = minus;
	expect(&pages, 0, FAB_PAGES_LOCAL_RANGE, 1, 0);
}

/* A list that is no ascending one: `spread` decides which way is taken. */
static void test_duplicates(int64_t spread, int64_t low)
{
	enum { MANY = 3000 };
	static int64_t index[MANY];
	uint64_t state = 3;
	struct fab_pages pages = plain(MANY, 1, INT64_MAX);

	for (int64_t i = 0; i < MANY; i++)
		index[i] = low + (MANY - 1 - i) * spread;
	pages.remote_index = index;
	expect(&pages, 0, FAB_PAGES_OK, 0, 0);
	for (int i = 0; i < 300; i++) {
		uint64_t a = random_below(&state, MANY);
		uint64_t b = random_below(&state, MANY);
		int64_t kept;

		if (a >= b)
			continue;
		kept = index[b];
		index[b] = index[a];
		expect(&pages, 0, FAB_PAGES_DUPLICATE, b, a);
		index[b] = kept;
	}
	/* A source may name a page twice. */
	index[7] = index[5];
	expect(&pages, 1, FAB_PAGES_OK, 0, 0);
	expect(&pages, 0, FAB_PAGES_DUPLICATE, 7, 5);
	pages.local_index = index;
	pages.remote_index = NULL;
	expect(&pages, 1, FAB_PAGES_DUPLICATE, 7, 5);
	expect(&pages, 0, FAB_PAGES_OK, 0, 0);
}

static void test_duplicates_small(void)
{
	int64_t pair[] = {5, 5}, neighbours[] = {1, 2, 2},
		ends[] = {INT64_MAX - 1, 0, INT64_MAX - 1},
		three[] = {9, 4, 9, 4, 9};
	struct fab_pages pages = plain(2, 1, INT64_MAX);

	pages.remote_index = pair;
	expect(&pages, 0, FAB_PAGES_DUPLICATE, 1, 0);
	pages.count = COUNT(neighbours);
	pages.remote_index = neighbours;
	expect(&pages, 0, FAB_PAGES_DUPLICATE, 2, 1);
	pages.remote_index = ends;
	expect(&pages, 0, FAB_PAGES_DUPLICATE, 2, 0);
	pages.count = COUNT(three); /* the first that repeats is told */
	pages.remote_index = three;
	expect(&pages, 0, FAB_PAGES_DUPLICATE, 2, 0);
}

/* --- expansion ----------------------------------------------------------- */

enum { SIDE = 600, PAGES_MAX = 24 };

struct list {
	int64_t local[PAGES_MAX], remote[PAGES_MAX];
	struct fab_pages pages;
};

static void fill_side(uint64_t *state, int64_t *index, uint64_t count,
		      int unique)
{
	for (uint64_t i = 0; i < PAGES_MAX; i++)
		index[i] = (int64_t) i;
	if (random_below(state, 3) == 0) /* runs stay as they are */
		return;
	for (uint64_t i = PAGES_MAX - 1; i > 0; i--) {
		uint64_t j = unique ? random_below(state, i + 1) :
				      random_below(state, PAGES_MAX);
		int64_t kept = index[i];

		if (random_below(state, 4) && i < count)
			continue; /* leave neighbours together */
		index[i] = index[j];
		if (unique)
			index[j] = kept;
	}
}

static void fill(uint64_t *state, struct list *list)
{
	struct fab_pages *pages = &list->pages;

	*pages = plain(1 + random_below(state, PAGES_MAX),
		       1 + random_below(state, 12), SIDE);
	fill_side(state, list->local, pages->count, 0);
	fill_side(state, list->remote, pages->count, 1);
	pages->local_index = random_below(state, 4) ? list->local : NULL;
	pages->remote_index = random_below(state, 4) ? list->remote : NULL;
	pages->local_offset = random_below(state, 20);
	pages->remote_offset = random_below(state, 20);
	if (random_below(state, 3) == 0)
		pages->remote_stride += random_below(state, 3);
	if (random_below(state, 4) == 0)
		pages->local_stride = random_below(state, 14);
}

/* Where each byte of the remote side comes from, page by page; -1: nowhere. */
static void model_fill(const struct fab_pages *pages, int *from)
{
	for (int i = 0; i < SIDE; i++)
		from[i] = -1;
	for (uint64_t i = 0; i < pages->count; i++) {
		uint64_t local =
			pages->local_offset +
			(pages->local_index ? (uint64_t) pages->local_index[i] :
					      i) *
				pages->local_stride;
		uint64_t remote = pages->remote_offset +
				  (pages->remote_index ?
					   (uint64_t) pages->remote_index[i] :
					   i) *
					  pages->remote_stride;

		for (uint64_t byte = 0; byte < pages->page_bytes; byte++)
			from[remote + byte] = (int) (local + byte);
	}
}

/* Expand with limits drawn anew each time; returns the segments. */
static uint64_t check_expansion(uint64_t *state, const struct fab_pages *pages,
				int merge, uint64_t most)
{
	struct fab_cursor cursor = {0}, end = {.page = pages->count};
	uint64_t segments = 0, ended = 0, bytes = 0;
	int from[SIDE], model[SIDE];

	for (int i = 0; i < SIDE; i++)
		from[i] = -1;
	model_fill(pages, model);
	while (cursor.page < pages->count) {
		uint64_t limit = 1 + random_below(state, most);
		struct fab_cursor before = cursor;
		struct fab_segment segment;

		fab_pages_next(pages, &cursor, &end, limit, merge, &segment);
		CHECK(segment.bytes > 0 && segment.bytes <= limit);
		CHECK(cursor.page == before.page + segment.pages_ended);
		CHECK(cursor.offset < pages->page_bytes);
		CHECK(merge || segment.pages_ended <= 1);
		for (uint64_t i = 0; i < segment.bytes; i++) {
			CHECK(from[segment.remote + i] == -1);
			from[segment.remote + i] = (int) (segment.local + i);
		}
		ended += segment.pages_ended;
		bytes += segment.bytes;
		segments++;
	}
	CHECK(cursor.page == pages->count && cursor.offset == 0);
	CHECK(ended == pages->count);
	CHECK(bytes == pages->count * pages->page_bytes);
	CHECK(!memcmp(from, model, sizeof(from)));
	return segments;
}

static void test_next_random(void)
{
	uint64_t state = 99, merged = 0, apart = 0, one = 1;
	struct list list;

	for (int round = 0; round < 20000; round++) {
		uint64_t position, first;

		fill(&state, &list);
		CHECK(!fab_pages_check(&list.pages, 0, &position, &first));
		merged += check_expansion(&state, &list.pages, 1, SIDE);
		apart += check_expansion(&state, &list.pages, 0, SIDE);
		(void) check_expansion(&state, &list.pages, 1, 9);
		(void) check_expansion(&one, &list.pages, 1, 1);
	}
	CHECK(merged < apart);
}

/* Neighbours on both sides become one segment; a limit cuts whole pages off
 * first, and a page only when it alone is too long. */
static void test_next_merge(void)
{
	int64_t both[] = {2, 3, 4, 7}, other[] = {5, 6, 8, 9};
	struct fab_pages pages = plain(4, 10, 200);
	struct fab_cursor cursor = {0}, end = {.page = 4};
	struct fab_segment segment;

	pages.local_index = pages.remote_index = both;
	fab_pages_next(&pages, &cursor, &end, 1000, 1, &segment);
	CHECK(segment.bytes == 30 && segment.pages_ended == 3);
	CHECK(segment.local == 20 && segment.remote == 20);
	fab_pages_next(&pages, &cursor, &end, 1000, 1, &segment);
	CHECK(segment.bytes == 10 && segment.local == 70);
	CHECK(cursor.page == 4);

	cursor = (struct fab_cursor) {0};
	fab_pages_next(&pages, &cursor, &end, 29, 1, &segment);
	CHECK(segment.bytes == 20 && cursor.page == 2 && !cursor.offset);

	cursor = (struct fab_cursor) {0};
	fab_pages_next(&pages, &cursor, &end, 7, 1, &segment);
	CHECK(segment.bytes == 7 && cursor.page == 0 && cursor.offset == 7);
	CHECK(segment.pages_ended == 0);
	fab_pages_next(&pages, &cursor, &end, 1000, 1, &segment);
	CHECK(segment.local == 27 && segment.bytes == 23 &&
	      segment.pages_ended == 3);

	cursor = (struct fab_cursor) {0};
	pages.remote_index = other; /* neighbours on one side only */
	fab_pages_next(&pages, &cursor, &end, 1000, 1, &segment);
	CHECK(segment.bytes == 20 && segment.pages_ended == 2);

	/* An end within a page: what is taken of it ends no page. */
	cursor = (struct fab_cursor) {0};
	pages.remote_index = both;
	end = (struct fab_cursor) {.page = 2, .offset = 3};
	fab_pages_next(&pages, &cursor, &end, 1000, 1, &segment);
	CHECK(segment.bytes == 20 && segment.pages_ended == 2);
	fab_pages_next(&pages, &cursor, &end, 1000, 1, &segment);
	CHECK(segment.bytes == 3 && segment.pages_ended == 0);
	CHECK(!fab_cursor_before(&cursor, &end));
}

int main(void)
{
	test_nothing_to_move();
	test_range_with_indices();
	test_range_of_a_side();
	test_wide();
	test_stride();
	test_duplicates(1, 0);                /* bitmap */
	test_duplicates(1, INT64_MAX - 5000); /* bitmap, high */
	test_duplicates(1000000007, 0);       /* hashed */
	test_duplicates(1ll << 40, 12345);    /* hashed */
	test_duplicates(INT64_MAX / 3001, 3); /* hashed, widest */
	test_duplicates_small();
	test_next_merge();
	test_next_random();
	test_negative_in_a_huge_side();
	return 0;
}
