/* queue.h: order over growth and wrap, against a model. */
#include "check.h"
#include "queue.h"

static void test_empty(void)
{
	struct fab_queue queue;

	fab_queue_construct(&queue, 8);
	CHECK(fab_queue_first(&queue) == NULL);
	fab_queue_destruct(&queue);
	CHECK(queue.items == NULL && queue.count == 0);
}

/* The items are numbers in order: the model is the range [dropped, pushed). */
static void test_random(uint64_t seed, uint64_t bias)
{
	uint64_t state = seed, pushed = 0, dropped = 0, most = 0;
	struct fab_queue queue;

	fab_queue_construct(&queue, 3 * sizeof(uint64_t));
	for (int i = 0; i < 50000; i++) {
		uint64_t item[3] = {pushed, ~pushed, pushed ^ seed};

		if (random_below(&state, 100) < bias) {
			CHECK(!fab_queue_push(&queue, item));
			pushed++;
		} else if (pushed > dropped) {
			fab_queue_drop(&queue);
			dropped++;
		}
		CHECK(queue.count == pushed - dropped);
		if (pushed - dropped > most)
			most = pushed - dropped;
		if (pushed == dropped) {
			CHECK(fab_queue_first(&queue) == NULL);
			continue;
		}
		memcpy(item, fab_queue_first(&queue), sizeof(item));
		CHECK(item[0] == dropped && item[1] == ~dropped &&
		      item[2] == (dropped ^ seed));
		memcpy(item, fab_queue_at(&queue, queue.count - 1),
		       sizeof(item));
		CHECK(item[0] == pushed - 1);
	}
	CHECK(bias <= 50 || most > 64); /* it has grown */
	fab_queue_destruct(&queue);
}

/* Growth while the oldest item is not at the start of the memory. */
static void test_growth_over_the_wrap(void)
{
	struct fab_queue queue;
	int item, next = 0;

	fab_queue_construct(&queue, sizeof(item));
	for (item = 0; item < 64; item++)
		CHECK(!fab_queue_push(&queue, &item));
	for (int i = 0; i < 40; i++, next++) {
		CHECK(*(int *) fab_queue_first(&queue) == next);
		fab_queue_drop(&queue);
	}
	for (; item < 200; item++)
		CHECK(!fab_queue_push(&queue, &item));
	for (; queue.count; next++) {
		CHECK(*(int *) fab_queue_first(&queue) == next);
		fab_queue_drop(&queue);
	}
	CHECK(next == 200);
	fab_queue_destruct(&queue);
}

int main(void)
{
	test_empty();
	test_random(11, 50);
	test_random(12, 60);
	test_random(13, 90);
	test_growth_over_the_wrap();
	return 0;
}
