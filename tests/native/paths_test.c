/* Several workers and lanes on either side: every byte arrives once, whatever
 * their numbers (route.h, transfer.h). */
#include "pair.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY (1u << 20)
#define STRIPE (16u << 10)
#define ROUNDS 40
#define MOST   4u /* workers of a side, and lanes of a worker */

struct shape {
	uint32_t workers;
	uint32_t lanes;
};

static unsigned char source[MEMORY], target[MEMORY], model[MEMORY];

static uint64_t below(uint64_t *state, uint64_t limit)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (*state >> 33) % limit;
}

static struct fab_options shaped(const struct shape *shape,
				 struct fab_plan plans[MOST])
{
	struct fab_options options = {
		.plans = plans,
		.worker_count = shape->workers,
		.stripe_bytes = STRIPE,
		.merge = 1,
	};

	for (uint32_t i = 0; i < shape->workers; i++)
		plans[i] = (struct fab_plan) {.lane_count = shape->lanes,
					      .cpu = -1};
	return options;
}

static void fill(unsigned char *memory, uint64_t state)
{
	for (size_t i = 0; i < MEMORY; i++)
		memory[i] = (unsigned char) (i * 31 + state * 7 + (i >> 12));
}

/* Some pages, each at one random place of either side. */
static void draw(uint64_t *state, struct fab_pages *pages, int64_t *local,
		 int64_t *remote)
{
	static const uint64_t sizes[] = {64, 4096, 16384, 70000, 512 << 10};
	uint64_t bytes = sizes[below(state, 5)];
	uint64_t fit = MEMORY / bytes;

	*pages = (struct fab_pages) {
		.page_bytes = bytes,
		.count = 1 + below(state, fit < 500 ? fit : 500),
		.local_index = local,
		.remote_index = remote,
		.local_stride = bytes,
		.remote_stride = bytes,
		.local_bytes = MEMORY,
		.remote_bytes = MEMORY,
	};
	for (uint64_t i = 0; i < fit; i++)
		local[i] = remote[i] = (int64_t) i;
	for (uint64_t i = fit - 1; i > 0; i--) {
		uint64_t other = below(state, i + 1);
		int64_t kept = remote[i];

		remote[i] = remote[other];
		remote[other] = kept;
		local[i] = (int64_t) below(state, fit);
	}
}

static void model_move(const struct fab_pages *pages, int read)
{
	for (uint64_t i = 0; i < pages->count; i++) {
		uint64_t l =
			(uint64_t) pages->local_index[i] * pages->page_bytes;
		uint64_t r =
			(uint64_t) pages->remote_index[i] * pages->page_bytes;

		if (read)
			memcpy(model + l, target + r, pages->page_bytes);
		else
			memcpy(model + r, source + l, pages->page_bytes);
	}
}

static void move(struct side *a, struct side *b, struct fab_region *local,
		 const struct fab_remote *remote, uint64_t sequence,
		 uint64_t *state)
{
	static int64_t here[MEMORY / 64], there[MEMORY / 64];
	uint32_t flags = FAB_TRANSFER_CONFIRM;
	struct fab_transfer *transfer;
	struct fab_completion done;
	struct fab_pages pages;
	uint64_t position, first;
	int read = below(state, 3) == 0;

	draw(state, &pages, here, there);
	if (read) {
		/* Where it lands must be named once. */
		pages.local_index = there;
		pages.remote_index = here;
		flags |= FAB_TRANSFER_READ;
	}
	if (below(state, 2))
		flags |= FAB_TRANSFER_NOTIFY;
	CHECK(!fab_pages_check(&pages, read, &position, &first));
	fill(read ? target : source, sequence);
	memcpy(model, read ? source : target, MEMORY);
	model_move(&pages, read);
	CHECK(!fab_transfer_start(a->engine, a->peer, flags, sequence, sequence,
				  local, remote, &pages, &transfer));
	side_await(a, FAB_TRANSFER_DONE, &done);
	CHECK(done.status == 0 && done.quiet && done.token == sequence);
	CHECK(fab_transfer_bytes_done(transfer) ==
	      pages.count * pages.page_bytes);
	CHECK(fab_transfer_pages_done(transfer) == pages.count);
	CHECK(!fab_transfer_release(a->engine, transfer));
	if (flags & FAB_TRANSFER_NOTIFY) {
		side_await(b, FAB_TRANSFER_ARRIVED, &done);
		CHECK(done.status == 0 && done.sequence == sequence);
		CHECK(done.peer == b->peer);
	}
	CHECK(!memcmp(model, read ? source : target, MEMORY));
}

/* A region that only some workers have is reached over their paths, and one
 * that no path reaches is refused. */
static void test_few_workers(struct side *a, struct fab_region *target_region)
{
	struct fab_pages pages = {.page_bytes = 4096,
				  .count = 1,
				  .local_bytes = MEMORY,
				  .remote_bytes = MEMORY};
	uint64_t keys[MOST * MOST];
	struct fab_remote remote = side_remote(target_region, keys);
	struct fab_transfer *transfer;
	struct fab_completion done;
	struct fab_region *region;

	CHECK(!fab_region_register(a->engine, 2, (uint64_t) (uintptr_t) source,
				   MEMORY, 0, 77777, 2, &region));
	side_await(a, FAB_REGION_REGISTERED, &done);
	CHECK(done.status == 0);
	CHECK(fab_region_key(region, 0, 0) == 0);
	remote.workers = 1;
	CHECK(fab_transfer_start(a->engine, a->peer, 0, 1, 5000, region,
				 &remote, &pages, &transfer) == -FI_EINVAL);
	remote.workers = 2;
	CHECK(!fab_transfer_start(a->engine, a->peer, FAB_TRANSFER_CONFIRM, 1,
				  5001, region, &remote, &pages, &transfer));
	side_await(a, FAB_TRANSFER_DONE, &done);
	CHECK(done.status == 0);
	CHECK(!fab_transfer_release(a->engine, transfer));
	remote.key_count++;
	CHECK(fab_transfer_start(a->engine, a->peer, 0, 1, 5002, region,
				 &remote, &pages, &transfer) == -FI_EINVAL);
	side_deregister(a, region);
}

static void test_shapes(const char *provider, struct shape first,
			struct shape second)
{
	struct fab_plan plans[2][MOST];
	struct fab_options options[2] = {shaped(&first, plans[0]),
					 shaped(&second, plans[1])};
	struct fab_region *local, *remote;
	uint64_t keys[MOST * MOST], state = 5;
	struct fab_remote named;
	struct side a, b;

	side_open(&a, provider, &options[0]);
	side_open(&b, provider, &options[1]);
	pair_connect(&a, &b);
	CHECK(fab_peer_path_count(a.engine, a.peer) ==
	      (first.workers > second.workers ? first.workers :
						second.workers));
	local = side_register(&a, source, MEMORY, 0);
	remote =
		side_register(&b, target, MEMORY,
			      FAB_ACCESS_REMOTE_READ | FAB_ACCESS_REMOTE_WRITE);
	named = side_remote(remote, keys);
	for (uint64_t i = 1; i <= ROUNDS; i++)
		move(&a, &b, local, &named, i, &state);
	if (first.workers == 2 && second.workers == 2)
		test_few_workers(&a, remote);
	pair_close(&a, &b);
}

int main(int argc, char **argv)
{
	static const struct shape shapes[][2] = {
		{{1, 3}, {1, 3}}, {{2, 1}, {2, 1}}, {{2, 2}, {2, 2}},
		{{3, 1}, {1, 2}}, {{1, 3}, {2, 2}}, {{2, 1}, {3, 2}},
	};

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		test_shapes(argc > 1 ? argv[1] : "tcp", shapes[i][0],
			    shapes[i][1]);
	return 0;
}
