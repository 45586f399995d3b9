/* Memory runs out at the n-th allocation, for each n of a whole scenario: one
 * allocation fails, or all from there on. Calls say so, endpoints may break;
 * nothing crashes, hangs or leaks, and each transfer ends exactly once.
 * Link with -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,
 * --wrap=mmap as well. */
#include "fake_lane.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE      64u
#define TRANSFERS 64u
#define LIMIT_S   120 /* of the whole program */

/* Allocations to go until one fails; the test's own are not counted. */
static uint64_t until_failure = UINT64_MAX;
static int all_fail;
static uint64_t failures;

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
char *__wrap_strdup(const char *text);
void *__wrap_mmap(void *address, size_t bytes, int access, int flags, int fd,
		  off_t offset);
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
char *__real_strdup(const char *text);
void *__real_mmap(void *address, size_t bytes, int access, int flags, int fd,
		  off_t offset);

static int fails(void)
{
	if (until_failure == UINT64_MAX)
		return 0;
	if (until_failure) {
		until_failure--;
		return 0;
	}
	if (!all_fail)
		until_failure = UINT64_MAX;
	failures++;
	return 1;
}

void *__wrap_malloc(size_t bytes)
{
	return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	return fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
	return fails() ? NULL : __real_realloc(memory, bytes);
}

char *__wrap_strdup(const char *text)
{
	return fails() ? NULL : __real_strdup(text);
}

void *__wrap_mmap(void *address, size_t bytes, int access, int flags, int fd,
		  off_t offset)
{
	return fails() ? MAP_FAILED :
			 __real_mmap(address, bytes, access, flags, fd, offset);
}

struct scenario {
	struct fake fake;
	struct fab_region *region;
	uint32_t registered;
	uint32_t peers[2];
	uint32_t peer_count;
	uint32_t started; /* transfers; token and sequence are the number */
	struct fab_transfer *transfers[TRANSFERS];
	uint8_t done[TRANSFERS], quiet[TRANSFERS], released[TRANSFERS];
};

static void reap(struct scenario *scenario)
{
	struct fab_completion one;

	while (fake_reap(&scenario->fake, &one)) {
		if (one.kind == FAB_PEER_ADDED && !one.status)
			scenario->peers[scenario->peer_count++] = one.peer;
		if (one.kind == FAB_REGION_REGISTERED)
			scenario->registered = one.status == 0;
		if (one.kind == FAB_TRANSFER_DONE) {
			CHECK(one.token < scenario->started);
			CHECK(!scenario->done[one.token]);
			scenario->done[one.token] = 1;
			scenario->quiet[one.token] = one.quiet != 0;
		}
		if (one.kind == FAB_TRANSFER_QUIET) {
			CHECK(scenario->done[one.token]);
			CHECK(!scenario->quiet[one.token]);
			scenario->quiet[one.token] = 1;
		}
	}
}

/* Run what is queued; then reap, and release what is over. */
static void turn(struct scenario *scenario)
{
	fake_run(&scenario->fake);
	reap(scenario);
	for (uint32_t i = 0; i < scenario->started; i++) {
		if (!scenario->quiet[i] || scenario->released[i])
			continue;
		scenario->released[i] = 1;
		CHECK(!fab_transfer_release(scenario->fake.engine,
					    scenario->transfers[i]));
	}
	fake_run(&scenario->fake);
	reap(scenario);
}

static void start(struct scenario *scenario, uint32_t peer, uint32_t flags)
{
	struct fab_pages pages = {
		.page_bytes = PAGE,
		.count = 3,
		.local_stride = PAGE,
		.remote_stride = PAGE,
	};
	struct fab_remote remote = fake_remote();
	uint32_t i = scenario->started;

	CHECK(i < TRANSFERS);
	if (scenario->registered &&
	    !fab_transfer_start(scenario->fake.engine, peer, flags, i, i,
				scenario->region, &remote, &pages,
				&scenario->transfers[i]))
		scenario->started++;
}

static void frame(struct scenario *scenario, uint32_t peer, uint32_t kind)
{
	(void) fab_frame_send(scenario->fake.engine, peer, kind, 7, "abc", 3,
			      "de", 2);
}

static void heartbeat(struct scenario *scenario)
{
	for (uint32_t i = 0; i < scenario->peer_count; i++) {
		if (scenario->fake.receive_count)
			fake_frame(&scenario->fake, scenario->peers[i],
				   FAB_FRAME_MESSAGE, "x", 1);
	}
}

/* Transfers that wait, since the peer is not attached yet; some are cancelled,
 * told and released, and still owe the peer a word. */
static void wait_and_cancel(struct scenario *scenario, uint32_t peer)
{
	uint32_t first = scenario->started;

	for (int i = 0; i < 4; i++)
		start(scenario, peer, FAB_TRANSFER_NOTIFY);
	start(scenario, peer, FAB_TRANSFER_CONFIRM);
	turn(scenario);
	for (uint32_t i = first; i < scenario->started; i += 2)
		CHECK(!fab_transfer_cancel(scenario->fake.engine,
					   scenario->transfers[i]));
	turn(scenario);
	fake_attach(&scenario->fake, peer);
	turn(scenario);
}

/* The other direction: the peer's transfers, counted here. */
static void serve(struct scenario *scenario, uint32_t peer)
{
	for (uint32_t slot = 0; slot < 40; slot += 13) {
		struct fab_announce announce = {
			.parts = 1,
			.sequence = slot,
			.count = 1,
			.immediate = fab_immediate(peer, slot, 0),
			.flags = FAB_ANNOUNCE_NOTIFY | FAB_ANNOUNCE_QUERY,
		};

		fake_immediate(&scenario->fake, announce.immediate);
		if (scenario->fake.receive_count)
			fake_announce(&scenario->fake, peer, &announce);
		turn(scenario);
	}
}

/* What is announced is answered once, with too little; then no more. */
static void answer_badly(struct scenario *scenario)
{
	for (size_t i = 0; i < scenario->fake.post_count; i++) {
		const struct fake_post *post = &scenario->fake.posts[i];

		if (post->kind == FAKE_SEND && i % 2 &&
		    post->header.kind == FAB_FRAME_ANNOUNCE &&
		    scenario->fake.receive_count)
			fake_answer(&scenario->fake, scenario->peers[0], post,
				    i % 4 == 1 ? 0 : -FI_EAGAIN, 1);
	}
	turn(scenario);
}

static void play(struct scenario *scenario)
{
	struct fake *fake = &scenario->fake;
	uint64_t addresses[2] = {100, 101};
	uint32_t lanes = 1;

	(void) fab_region_register(fake->engine, 1, 4096, 4096, 0, 3, 1,
				   &scenario->region);
	for (int i = 0; i < 2; i++)
		(void) fab_peer_add(fake->engine, 2, FAKE_COOKIE, &addresses[i],
				    sizeof(addresses[i]), &lanes, 1);
	turn(scenario);
	for (uint32_t i = 0; i < scenario->peer_count; i++) {
		uint32_t peer = scenario->peers[i];

		frame(scenario, peer, FAB_FRAME_HELLO);
		wait_and_cancel(scenario, peer);
		frame(scenario, peer, FAB_FRAME_MESSAGE);
		for (uint32_t flags = 0; flags < 20; flags++)
			start(scenario, peer, flags % 8);
		turn(scenario);
		fake_complete_all(fake, 0);
		turn(scenario);
		serve(scenario, peer);
		fake_complete_all(fake, 0);
	}
	if (scenario->peer_count)
		answer_badly(scenario);
	/* Silence: queries, and giving up. */
	for (int i = 0; i < 12; i++) {
		heartbeat(scenario);
		turn(scenario);
		fake_tick(fake, FAKE_SECOND_NS);
		turn(scenario);
		fake_complete_all(fake, 0);
	}
	if (scenario->peer_count)
		(void) fab_peer_remove(fake->engine, scenario->peers[0]);
	turn(scenario);
}

/* Returns whether an allocation failed: if not, the scenario is over. */
static int run(uint64_t n, int all)
{
	static struct scenario scenario;
	int failed;

	memset(&scenario, 0, sizeof(scenario));
	fake_open(&scenario.fake, NULL, NULL);
	all_fail = all;
	until_failure = n;
	failures = 0;
	play(&scenario);
	failed = failures != 0;
	fake_stop(&scenario.fake);
	reap(&scenario);
	until_failure = UINT64_MAX;
	for (uint32_t i = 0; i < scenario.started; i++)
		CHECK(scenario.done[i] && scenario.quiet[i]);
	fake_close(&scenario.fake);
	return failed;
}

static int run_open(uint64_t n, int all)
{
	const char *nics[] = {"lo"};
	struct fab_plan plan = {.nics = nics, .lane_count = 1, .cpu = -1};
	struct fab_options options = {.provider = "tcp",
				      .source = "127.0.0.1",
				      .plans = &plan,
				      .worker_count = 1};
	struct fab_engine *engine;
	int ret, failed;

	all_fail = all;
	until_failure = n;
	failures = 0;
	ret = fab_engine_open(&options, &engine);
	failed = failures != 0;
	until_failure = UINT64_MAX;
	CHECK(ret == (failed ? -FI_ENOMEM : 0));
	if (!ret)
		fab_engine_close(engine);
	return failed;
}

static void every(int (*what)(uint64_t n, int all), int all, uint64_t least)
{
	uint64_t n = 0;

	while (what(n, all))
		n++;
	CHECK(n >= least);
}

int main(void)
{
	alarm(LIMIT_S);
	every(run_open, 0, 6);
	every(run_open, 1, 6);
	every(run, 0, 100);
	every(run, 1, 100);
	return 0;
}
