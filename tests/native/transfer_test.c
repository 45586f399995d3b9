/* The whole engine over a real provider: argv[1] names it. Random page lists
 * against a model of the target's memory. */
#include "pair.h"

#include <rdma/fi_errno.h>
#include <string.h>

#define PAGES  512
#define PAGE   4096
#define ROUNDS 40

static uint64_t state = 88172645463325252ull;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void shuffle(int64_t *index, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		index[i] = i;
	for (int64_t i = count - 1; i > 0; i--) {
		int64_t j = (int64_t) (next_random() % (uint64_t) (i + 1));
		int64_t t = index[i];

		index[i] = index[j];
		index[j] = t;
	}
}

struct work {
	struct side a, b;
	struct fab_region *source, *target;
	unsigned char *from, *to, *model;
};

static void move(struct work *work, uint32_t flags, uint64_t sequence,
		 const struct fab_pages *pages, uint64_t key,
		 struct fab_completion *done)
{
	struct fab_remote remote = {.base = fab_region_base(work->target),
				    .workers = 1,
				    .keys = &key,
				    .key_count = 1};
	struct fab_transfer *transfer;
	uint64_t position, first;

	CHECK(!fab_pages_check(pages, flags & FAB_TRANSFER_READ, &position,
			       &first));
	CHECK(!fab_transfer_start(work->a.engine, work->a.peer, flags, 7,
				  sequence, work->source, &remote, pages,
				  &transfer));
	side_await(&work->a, FAB_TRANSFER_DONE, done);
	CHECK(done->token == 7);
	if (!done->status)
		CHECK(done->quiet && fab_transfer_bytes_done(transfer) ==
					     pages->count * pages->page_bytes);
	CHECK(!fab_transfer_release(work->a.engine, transfer));
}

static void random_transfers(struct work *work)
{
	static int64_t local[PAGES], remote[PAGES];
	uint64_t key = fab_region_key(work->target, 0, 0);

	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct fab_completion done, arrived;
		uint32_t flags = FAB_TRANSFER_CONFIRM | FAB_TRANSFER_NOTIFY;
		struct fab_pages pages = {
			.page_bytes = PAGE,
			.count = next_random() % PAGES,
			.local_index = local,
			.remote_index = remote,
			.local_stride = PAGE,
			.remote_stride = PAGE,
			.local_bytes = PAGES * PAGE,
			.remote_bytes = PAGES * PAGE,
		};

		shuffle(local, PAGES);
		shuffle(remote, PAGES);
		if (round % 4 == 1)
			for (int64_t i = 0; i < PAGES; i++)
				remote[i] = local[i] = i;
		if (round % 4 == 2)
			flags = FAB_TRANSFER_READ;
		for (size_t i = 0; i < PAGES * PAGE; i++)
			work->from[i] = (unsigned char) next_random();
		if (flags & FAB_TRANSFER_READ)
			memcpy(work->model, work->from, PAGES * PAGE);
		for (uint64_t i = 0; i < pages.count; i++) {
			if (flags & FAB_TRANSFER_READ)
				memcpy(work->model + local[i] * PAGE,
				       work->to + remote[i] * PAGE, PAGE);
			else
				memcpy(work->model + remote[i] * PAGE,
				       work->from + local[i] * PAGE, PAGE);
		}
		move(work, flags, round, &pages, key, &done);
		CHECK(done.status == 0);
		if (flags & FAB_TRANSFER_READ) {
			CHECK(!memcmp(work->from, work->model, PAGES * PAGE));
			memcpy(work->model, work->to, PAGES * PAGE);
			continue;
		}
		side_await(&work->b, FAB_TRANSFER_ARRIVED, &arrived);
		CHECK(arrived.sequence == round && arrived.status == 0);
		CHECK(!memcmp(work->to, work->model, PAGES * PAGE));
	}
}

/* A peer with a wrong key must not look like success. */
static int wrong_key(struct work *work)
{
	struct fab_completion done;
	struct fab_pages pages = {
		.page_bytes = PAGE,
		.count = 3,
		.local_stride = PAGE,
		.remote_stride = PAGE,
		.local_bytes = PAGES * PAGE,
		.remote_bytes = PAGES * PAGE,
	};

	move(work, FAB_TRANSFER_CONFIRM, ROUNDS, &pages,
	     fab_region_key(work->target, 0, 0) ^ 0x5555, &done);
	CHECK(done.status != 0);
	printf("wrong key: %s (%s: %s), quiet %u\n",
	       fab_errno_name(done.status), done.error->call, done.error->text,
	       done.quiet);
	fab_error_free(done.error);
	return done.quiet != 0;
}

static void messages(struct work *work)
{
	struct fab_completion received;
	char text[32];

	for (int i = 0; i < 1000; i++) {
		snprintf(text, sizeof(text), "message %d", i);
		CHECK(!fab_frame_send(work->a.engine, work->a.peer,
				      FAB_FRAME_MESSAGE, 0, text, 8, text + 8,
				      (uint32_t) strlen(text + 8)));
	}
	for (int i = 0; i < 1000; i++) {
		snprintf(text, sizeof(text), "message %d", i);
		side_await(&work->b, FAB_FRAME_RECEIVED, &received);
		CHECK(received.bytes == strlen(text));
		CHECK(!memcmp(received.data, text, strlen(text)));
	}
}

int main(int argc, char **argv)
{
	const char *provider = argc > 1 ? argv[1] : "tcp";
	struct fab_options options = {
		.merge = 1,
		.peer_timeout_ns = 2000000000ull,
		.max_operation_bytes = argc > 2 ? 10000 : 0,
	};
	struct work work = {0};

	work.from = malloc(PAGES * PAGE);
	work.to = calloc(PAGES, PAGE);
	work.model = calloc(PAGES, PAGE);
	CHECK(work.from && work.to && work.model);
	pair_open(&work.a, &work.b, provider, &options);
	work.source = side_register(&work.a, work.from, PAGES * PAGE, 0);
	work.target =
		side_register(&work.b, work.to, PAGES * PAGE,
			      FAB_ACCESS_REMOTE_WRITE | FAB_ACCESS_REMOTE_READ);
	messages(&work);
	random_transfers(&work);
	/* Where the operation never comes back, the region stays pinned until
	 * the engine is closed. */
	if (wrong_key(&work))
		side_deregister(&work.a, work.source);
	pair_close(&work.a, &work.b);
	free(work.from);
	free(work.to);
	free(work.model);
	return 0;
}
