/* A path fails, and the others take over: its pages (Y3), its word (T9), what
 * became of it (C8, Q1), and both sides agree (R5). On simulated NICs. */
#include "pair.h"
#include "sim_node.h"

#include <poll.h>
#include <rdma/fi_errno.h>
#include <string.h>
#include <time.h>

#define WORKERS 4u
#define BYTES   (1u << 20)
#define STRIPE  (4u << 10)
#define ROUNDS  60u

static unsigned char source[BYTES], target[BYTES];

struct world {
	struct side a, b; /* on the first and the second half of the NICs */
	struct fab_completion told[2][64]; /* a's and b's, not asked for yet */
	uint32_t told_count[2];
	struct fab_region *local, *remote;
	uint64_t keys[WORKERS];
	struct fab_remote named;
};

static uint64_t below(uint64_t *state, uint64_t limit)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (*state >> 33) % limit;
}

static void world_open_side(struct side *side, uint32_t first_nic)
{
	static char names[2 * WORKERS][16];
	static const char *nics[2 * WORKERS];
	struct fab_plan plans[WORKERS];
	struct fab_options options = {
		.plans = plans,
		.worker_count = WORKERS,
		.stripe_bytes = STRIPE,
	};

	for (uint32_t i = 0; i < WORKERS; i++) {
		uint32_t nic = first_nic + i;

		snprintf(names[nic], sizeof(names[nic]), "sim%u-rdm", nic);
		nics[nic] = names[nic];
		plans[i] = (struct fab_plan) {.nics = &nics[nic],
					      .lane_count = 1,
					      .cpu = -1};
	}
	side_open(side, "sim", &options);
}

static void world_open(struct world *world, uint64_t seed)
{
	char settings[64];

	memset(world->told_count, 0, sizeof(world->told_count));
	snprintf(settings, sizeof(settings), "nics=%u,order=random,seed=%llu",
		 2 * WORKERS, (unsigned long long) seed);
	sim_settings(settings);
	world_open_side(&world->a, 0);
	world_open_side(&world->b, WORKERS);
	pair_connect(&world->a, &world->b);
	world->local = side_register(&world->a, source, BYTES, 0);
	world->remote =
		side_register(&world->b, target, BYTES,
			      FAB_ACCESS_REMOTE_READ | FAB_ACCESS_REMOTE_WRITE);
	world->named = side_remote(world->remote, world->keys);
}

static void world_reap(struct world *world, uint32_t which)
{
	struct side *side = which ? &world->b : &world->a;
	uint32_t *count = &world->told_count[which];

	CHECK(*count < 64);
	*count += (uint32_t) fab_engine_reap(
		side->engine, &world->told[which][*count], (int) (64 - *count));
}

/* The first completion of this kind. Both loops run meanwhile: it is they that
 * agree on paths. Bounded by 20 s. */
static void world_await(struct world *world, const struct side *side,
			uint32_t kind, struct fab_completion *completion)
{
	uint32_t which = side == &world->b;
	time_t end = time(NULL) + 20;

	for (;;) {
		struct fab_completion *told = world->told[which];

		for (uint32_t i = 0; i < world->told_count[which]; i++) {
			if (told[i].kind != kind)
				continue;
			*completion = told[i];
			world->told_count[which]--;
			memmove(&told[i], &told[i + 1],
				(world->told_count[which] - i) *
					sizeof(told[0]));
			return;
		}
		CHECK(time(NULL) < end);
		struct pollfd fds[2] = {
			{.fd = fab_engine_fd(world->a.engine),
			 .events = POLLIN},
			{.fd = fab_engine_fd(world->b.engine),
			 .events = POLLIN},
		};

		poll(fds, 2, 1000);
		world_reap(world, 0);
		world_reap(world, 1);
	}
}

static void world_close(struct world *world)
{
	for (uint32_t which = 0; which < 2; which++) {
		for (uint32_t i = 0; i < world->told_count[which]; i++)
			fab_error_free(world->told[which][i].error);
	}
	pair_close(&world->a, &world->b);
	sim.heal();
}

static struct fab_transfer *world_start(struct world *world, uint32_t flags,
					uint64_t sequence)
{
	struct fab_pages pages = {
		.page_bytes = 4096,
		.count = BYTES / 4096,
		.local_stride = 4096,
		.remote_stride = 4096,
		.local_bytes = BYTES,
		.remote_bytes = BYTES,
	};
	struct fab_transfer *transfer;

	CHECK(!fab_transfer_start(world->a.engine, world->a.peer, flags,
				  sequence, sequence, world->local,
				  &world->named, &pages, &transfer));
	return transfer;
}

/* Three of four paths fail, each at a random moment, on one side or the other:
 * what is whole was notified once, with its bytes; what was cancelled may have
 * failed, and then the target hears that. */
static void test_random(uint64_t seed)
{
	uint64_t state = seed;
	struct world world;
	uint32_t failed = 0;

	world_open(&world, seed);
	for (uint64_t number = 1; number <= 6; number++) {
		uint32_t flags = FAB_TRANSFER_CONFIRM | FAB_TRANSFER_NOTIFY;
		int cancel = below(&state, 4) == 0,
		    read = below(&state, 3) == 0;
		struct fab_completion done, arrived;
		struct fab_transfer *transfer;

		if (failed < WORKERS - 1 && below(&state, 3)) {
			uint32_t nic = failed++;
			const char *kind = below(&state, 2) ? "send" : "rma";

			if (below(&state, 2))
				nic += WORKERS;
			CHECK(!sim.fail(nic, kind, below(&state, 60),
					FI_EHOSTUNREACH, 0));
		}
		memset(source, (int) (2 * number), BYTES);
		memset(target, (int) (2 * number + 1), BYTES);
		transfer = world_start(&world,
				       read ? flags | FAB_TRANSFER_READ : flags,
				       number);
		if (cancel)
			CHECK(!fab_transfer_cancel(world.a.engine, transfer));
		world_await(&world, &world.a, FAB_TRANSFER_DONE, &done);
		CHECK(done.token == number && done.quiet && !done.bytes);
		if (done.error && done.status != -FI_ECANCELED)
			fprintf(stderr, "seed %llu: %s: %s\n",
				(unsigned long long) seed, done.error->call,
				done.error->text);
		CHECK(done.status == 0 ||
		      (cancel && done.status == -FI_ECANCELED));
		fab_error_free(done.error);
		world_await(&world, &world.b, FAB_TRANSFER_ARRIVED, &arrived);
		CHECK(arrived.sequence == number && !arrived.token);
		CHECK(done.status || arrived.status == 0);
		if (!done.status) {
			CHECK(fab_transfer_bytes_done(transfer) == BYTES);
			CHECK(!memcmp(source, target, BYTES));
		}
		CHECK(!fab_transfer_release(world.a.engine, transfer));
	}
	world_close(&world);
}

/* Y3: where no other path may carry it, the target hears that it failed. */
static void test_doomed(void)
{
	struct fab_completion done, arrived;
	struct fab_transfer *transfer;
	struct world world;

	world_open(&world, 1);
	world.named.workers = 2;
	CHECK(!sim.fail(1, "write", 5, FI_EHOSTUNREACH, 0));
	transfer = world_start(&world,
			       FAB_TRANSFER_CONFIRM | FAB_TRANSFER_NOTIFY, 7);
	world_await(&world, &world.a, FAB_TRANSFER_DONE, &done);
	CHECK(done.status == -FI_EHOSTUNREACH && done.quiet);
	fab_error_free(done.error);
	world_await(&world, &world.b, FAB_TRANSFER_ARRIVED, &arrived);
	CHECK(arrived.status == -FI_EHOSTUNREACH && arrived.sequence == 7);
	CHECK(!fab_transfer_release(world.a.engine, transfer));
	world_close(&world);
}

/* C8: a part that was cancelled tells the target, whose answer is lost with its
 * path. It asks on another path, and the target's loop is told no more of it. */
static void test_told_once(void)
{
	struct fab_completion done, arrived;
	struct fab_transfer *transfer;
	struct world world;

	world_open(&world, 3);
	CHECK(!sim.fail(WORKERS, "send", 0, FI_EHOSTUNREACH, 0));
	transfer = world_start(&world,
			       FAB_TRANSFER_CONFIRM | FAB_TRANSFER_NOTIFY, 7);
	CHECK(!fab_transfer_cancel(world.a.engine, transfer));
	world_await(&world, &world.a, FAB_TRANSFER_DONE, &done);
	CHECK(done.status == -FI_ECANCELED && done.quiet);
	fab_error_free(done.error);
	CHECK(!fab_transfer_release(world.a.engine, transfer));
	world_await(&world, &world.b, FAB_TRANSFER_ARRIVED, &arrived);
	CHECK(arrived.status == -FI_ECANCELED && arrived.sequence == 7);
	transfer = world_start(&world,
			       FAB_TRANSFER_CONFIRM | FAB_TRANSFER_NOTIFY, 8);
	world_await(&world, &world.a, FAB_TRANSFER_DONE, &done);
	CHECK(done.status == 0);
	CHECK(!fab_transfer_release(world.a.engine, transfer));
	world_await(&world, &world.b, FAB_TRANSFER_ARRIVED, &arrived);
	CHECK(arrived.status == 0 && arrived.sequence == 8);
	world_close(&world);
}

static void expect_path(struct world *world, const struct side *side,
			uint32_t path)
{
	struct fab_completion failed;

	world_await(world, side, FAB_PATH_FAILED, &failed);
	CHECK(failed.peer == side->peer && failed.sequence == path);
	CHECK(failed.status == -FI_EHOSTUNREACH);
	fab_error_free(failed.error);
}

/* R1, R4, R5: messages go on by another path, the peer severs what this side
 * has lost, and with the last path it has failed, told once. */
static void test_all(void)
{
	struct fab_completion completion;
	struct world world;

	world_open(&world, 2);
	for (uint32_t i = 0; i < WORKERS; i++) {
		CHECK(!sim.fail(i, "send", 0, FI_EHOSTUNREACH, 0));
		CHECK(!fab_frame_send(world.a.engine, world.a.peer,
				      FAB_FRAME_MESSAGE, 0, "lost", 4, NULL,
				      0));
		if (i + 1 == WORKERS)
			break;
		expect_path(&world, &world.a, i);
		expect_path(&world, &world.b, i);
		CHECK(!fab_frame_send(world.a.engine, world.a.peer,
				      FAB_FRAME_MESSAGE, 0, "here", 4, NULL,
				      0));
		world_await(&world, &world.b, FAB_FRAME_RECEIVED, &completion);
		CHECK(completion.bytes == 4);
		CHECK(!memcmp(completion.data, "here", 4));
	}
	world_await(&world, &world.a, FAB_PEER_FAILED, &completion);
	CHECK(completion.peer == world.a.peer && !completion.sequence);
	fab_error_free(completion.error);
	CHECK(!fab_peer_remove(world.a.engine, world.a.peer));
	world_await(&world, &world.a, FAB_PEER_REMOVED, &completion);
	world_close(&world);
}

int main(void)
{
	sim_load();
	sim_settings("");
	/* libfabric loads providers at its first call, under no lock that a
	 * sanitizer sees. */
	fi_freeinfo(sim_info(0));
	test_all();
	test_doomed();
	test_told_once();
	for (uint64_t seed = 1; seed <= ROUNDS; seed++)
		test_random(seed);
	return 0;
}
