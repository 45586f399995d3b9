/* engine.h: E2 and E3 with a worker's thread, and ends of all kinds. argv[1]
 * names the provider. Commands are endpoints that cannot be added, since their
 * address is of no format: each is answered with its token. */
#include "engine.h"

#include "check.h"

#include <errno.h>
#include <poll.h>
#include <rdma/fi_errno.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MANY       6000u /* more than both rings hold */
#define PATIENCE_S 20

static struct fab_options options = {.frame_bytes = 1024};

static void await(struct fab_engine *engine, struct fab_completion *completion)
{
	struct pollfd fd = {.fd = fab_engine_fd(engine), .events = POLLIN};
	time_t end = time(NULL) + PATIENCE_S;

	while (!fab_engine_reap(engine, completion, 1)) {
		CHECK(time(NULL) <= end);
		poll(&fd, 1, 1000);
	}
	fab_error_free(completion->error);
}

static struct fab_engine *open_engine(void)
{
	struct fab_completion opened;
	struct fab_engine *engine;

	CHECK(!fab_engine_open(&options, &engine));
	await(engine, &opened);
	CHECK(opened.kind == FAB_WORKER_OPENED);
	if (opened.status) {
		printf("%s: %s\n", options.provider,
		       fab_strerror(opened.status));
		fab_engine_close(engine);
		exit(77);
	}
	return engine;
}

static void submit(struct fab_engine *engine, uint64_t token)
{
	uint32_t lanes = 1;

	CHECK(!fab_peer_add(engine, token, 1, "no", 3, &lanes, 1));
}

static void expect_token(const struct fab_completion *completion,
			 uint64_t token)
{
	CHECK(completion->kind == FAB_PEER_ADDED);
	CHECK(completion->status == -FI_EINVAL ||
	      completion->status == -FI_EADDRNOTAVAIL);
	CHECK(completion->token == token);
}

static int commands_wait(struct fab_engine *engine)
{
	struct fab_ring *ring = &engine->workers[0].commands;

	return engine->backlogs[0].count ||
	       atomic_load(&ring->head) != atomic_load(&ring->tail);
}

/* The worker has taken all, answered what it could, and gone to sleep. */
static void await_sleep(struct fab_engine *engine)
{
	struct fab_statistics before, now;
	time_t end = time(NULL) + PATIENCE_S;

	do {
		CHECK(time(NULL) <= end);
		fab_engine_statistics(engine, &before);
		/* Moves on what met a full ring. */
		CHECK(fab_engine_reap(engine, NULL, 0) == 0);
		sched_yield();
	} while (commands_wait(engine));
	do {
		CHECK(time(NULL) <= end);
		sched_yield();
		fab_engine_statistics(engine, &now);
	} while (now.sleeps == before.sleeps);
}

/* E2: in order, also those that met a full ring. */
static void test_e2_commands_in_order(void)
{
	struct fab_engine *engine = open_engine();
	struct fab_completion completion;
	uint64_t state = 3, sent = 0, got = 0;

	while (got < 5 * MANY) {
		uint64_t burst = random_below(&state, 3000);

		for (uint64_t i = 0; i < burst && sent < 5 * MANY; i++)
			submit(engine, sent++);
		for (uint64_t i = 0; i < burst && got < sent; i++) {
			await(engine, &completion);
			expect_token(&completion, got++);
		}
	}
	fab_engine_close(engine);
}

/* E3: more answers than the ring takes, and a worker that has nothing to do
 * but to hand over the rest. */
static void test_e3_completions_wait(void)
{
	struct fab_engine *engine = open_engine();
	struct fab_completion completion;

	for (uint64_t i = 0; i < MANY; i++)
		submit(engine, i);
	await_sleep(engine);
	for (uint64_t i = 0; i < MANY; i++) {
		await(engine, &completion);
		expect_token(&completion, i);
	}
	CHECK(fab_engine_reap(engine, &completion, 1) == 0);
	fab_engine_close(engine);
}

/* What was not reaped is freed: answers in the ring and behind it. */
static void test_close_unreaped(int stop, uint64_t count)
{
	struct fab_engine *engine = open_engine();

	for (uint64_t i = 0; i < count; i++)
		submit(engine, i);
	if (stop)
		fab_engine_stop(engine);
	fab_engine_close(engine);
}

/* Before the worker has opened anything. */
static void test_close_at_once(void)
{
	struct fab_engine *engine;

	for (int i = 0; i < 5; i++) {
		CHECK(!fab_engine_open(&options, &engine));
		fab_engine_close(engine);
	}
}

static void test_no_such_provider(void)
{
	struct fab_options none = {.provider = "no-such-provider"};
	struct fab_completion completion;
	struct fab_attributes attributes;
	struct fab_engine *engine;
	char address[256];

	CHECK(!fab_engine_open(&none, &engine));
	await(engine, &completion);
	CHECK(completion.kind == FAB_WORKER_OPENED && completion.status);
	fab_engine_attributes(engine, &attributes);
	CHECK(fab_engine_lane_count(engine, 0) == 0);
	CHECK(fab_engine_address(engine, 0, 0, address, sizeof(address)) ==
	      -FI_EINVAL);
	submit(engine, 5);
	await(engine, &completion);
	CHECK(completion.kind == FAB_PEER_ADDED && completion.token == 5);
	CHECK(completion.status);
	fab_engine_close(engine);
}

/* No room for the one or the other eventfd. */
static void test_no_descriptors(void)
{
	struct rlimit before, few;
	struct fab_engine *engine;
	int next = dup(0);

	CHECK(next > 0);
	close(next);
	CHECK(!getrlimit(RLIMIT_NOFILE, &before));
	for (int room = 0; room < 2; room++) {
		few = before;
		few.rlim_cur = (rlim_t) (next + room);
		CHECK(!setrlimit(RLIMIT_NOFILE, &few));
		CHECK(fab_engine_open(&options, &engine) == -EMFILE);
	}
	CHECK(!setrlimit(RLIMIT_NOFILE, &before));
}

static void test_options_out_of_range(void)
{
	struct fab_plan plans[FAB_MAX_WORKERS + 1] = {{.lane_count = 0}};
	struct fab_options odd = options;
	struct fab_engine *engine;

	odd.worker_count = 2;
	CHECK(fab_engine_open(&odd, &engine) == -FI_EINVAL);
	odd.plans = plans;
	CHECK(fab_engine_open(&odd, &engine) == -FI_EINVAL);
	plans[0].lane_count = plans[1].lane_count = FAB_MAX_LANES + 1;
	CHECK(fab_engine_open(&odd, &engine) == -FI_EINVAL);
	plans[0].lane_count = plans[1].lane_count = 1;
	plans[1].cpu = 1 << 20;
	CHECK(fab_engine_open(&odd, &engine) == -FI_EINVAL);
	odd.worker_count = FAB_MAX_WORKERS + 1;
	CHECK(fab_engine_open(&odd, &engine) == -FI_EINVAL);
}

int main(int argc, char **argv)
{
	options.provider = argc > 1 ? argv[1] : "tcp";
	if (strncmp(options.provider, "tcp", 3) == 0)
		options.source = "127.0.0.1";
	test_no_such_provider();
	test_options_out_of_range();
	test_e2_commands_in_order();
	test_close_unreaped(0, 0);
	test_close_unreaped(0, MANY);
	test_close_unreaped(1, MANY);
	test_close_at_once();
	test_e3_completions_wait();
	test_no_descriptors();
	return 0;
}
