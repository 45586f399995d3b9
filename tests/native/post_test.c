/* Posting: limits in flight, turns, what a full provider queue does, and
 * operations cut short. */
#include "fake_lane.h"

#include <string.h>

#define PAGE    4096u
#define QUANTUM 16u /* the default */

static struct fab_completion expect_done(struct fake *fake)
{
	struct fab_completion done;

	fake_expect(fake, FAB_TRANSFER_DONE, &done);
	return done;
}

/* How many operations are out, and their bytes. */
static void count_out(const struct fake *fake, uint64_t *count, uint64_t *bytes)
{
	*count = *bytes = 0;
	for (size_t i = 0; i < fake->post_count; i++) {
		if (fake->posts[i].done || fake->posts[i].kind == FAKE_SEND)
			continue;
		(*count)++;
		*bytes += fake->posts[i].bytes;
	}
}

static size_t pick_open(const struct fake *fake, uint64_t *state)
{
	size_t i;

	do
		i = random_below(state, fake->post_count);
	while (fake->posts[i].done);
	return i;
}

/* The lane's two limits hold at any time; completions come in any order. The
 * last operation may begin below the limit of bytes and end above it. */
static void test_limits(uint32_t limit_count, uint64_t limit_bytes)
{
	struct fake_limits limits = {
		.inflight_count = limit_count,
		.inflight_bytes = limit_bytes,
		.operation_bytes = PAGE,
	};
	uint64_t state = 17, count, bytes, most_count = 0, most_bytes = 0;
	struct fab_region *region;
	struct fake fake;
	uint32_t peers[3];

	fake_open(&fake, NULL, &limits);
	region = fake_region(&fake, 1 << 20);
	for (int i = 0; i < 3; i++)
		peers[i] = fake_peer(&fake);
	for (uint64_t i = 0; i < 9; i++)
		(void) fake_start(&fake, peers[i % 3], i & 1, i, region,
				  1 + random_below(&state, 9000), 40);
	fake_run(&fake);
	for (;;) {
		count_out(&fake, &count, &bytes);
		CHECK(count == fake.lane->inflight_count);
		CHECK(bytes == fake.lane->inflight_bytes);
		CHECK(count <= limit_count);
		CHECK(count <= 1 || bytes < limit_bytes + PAGE);
		most_count = count > most_count ? count : most_count;
		most_bytes = bytes > most_bytes ? bytes : most_bytes;
		if (!count)
			break;
		fake_complete(&fake, pick_open(&fake, &state), 0);
		fake_pass(&fake);
		fake_run(&fake);
	}
	CHECK(most_count == limit_count || most_bytes >= limit_bytes);
	for (int i = 0; i < 9; i++)
		CHECK(expect_done(&fake).status == 0);
	fake_close(&fake);
}

/* The lane is full of a peer's operations that never complete: another's
 * transfer waits until they are given up, and is well. */
static void test_full_of_another(void)
{
	struct fake_limits limits = {.operation_bytes = PAGE,
				     .inflight_count = 4};
	struct fab_beat beat = {0};
	struct fab_completion done;
	struct fab_region *region;
	struct fake fake;
	uint32_t stuck, other;
	size_t first;

	fake_open(&fake, NULL, &limits);
	stuck = fake_peer(&fake);
	other = fake_peer(&fake);
	region = fake_region(&fake, 1 << 20);
	(void) fake_start(&fake, stuck, 0, 1, region, PAGE, 4);
	fake_run(&fake);
	first = fake.post_count;
	(void) fake_start(&fake, other, 0, 2, region, PAGE, 1);
	for (int second = 0; second < 12; second++) {
		fake_frame(&fake, stuck, FAB_FRAME_BEAT, &beat, sizeof(beat));
		fake_frame(&fake, other, FAB_FRAME_BEAT, &beat, sizeof(beat));
		fake_run(&fake);
		fake_tick(&fake, FAKE_SECOND_NS);
	}
	fake_run(&fake);
	CHECK(fake_count(&fake, FAKE_WRITE, first) == 1);
	CHECK(fake_slot(&fake, other)->state == FAB_PEER_ATTACHED);
	fake_complete_all(&fake, first);
	fake_run(&fake);
	done = expect_done(&fake);
	CHECK(done.token == 1 && done.status == -FI_ETIMEDOUT);
	done = expect_done(&fake);
	CHECK(done.token == 2 && done.status == 0);
	fake_close(&fake);
}

/* -FI_EAGAIN n times, then good: nothing is lost, doubled or out of order. */
static void test_again(size_t again)
{
	struct fake_limits limits = {.operation_bytes = PAGE};
	struct fab_region *region;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, &limits);
	peer = fake_peer(&fake);
	region = fake_region(&fake, 1 << 20);
	(void) fake_start(&fake, peer, 0, 1, region, PAGE, 40);
	for (size_t passes = 0; fake.post_count < 40; passes++) {
		CHECK(passes < 40 * (again + 1));
		fake.again = again;
		for (size_t i = 0; i < again; i++)
			fake_pass(&fake);
		CHECK(fake.again == 0);
		fake_pass(&fake);
	}
	for (size_t i = 0; i < 40; i++)
		CHECK(fake.posts[i].remote == 0x5000 + i * PAGE);
	CHECK(atomic_load(&fake.worker->statistics.again) >= again);
	fake_complete_all(&fake, 0);
	fake_run(&fake);
	CHECK(expect_done(&fake).status == 0);
	fake_close(&fake);
}

/* Complete one operation, then 1 + idle passes: how often the worker looks at
 * a full lane must not decide whose turn it is. */
static void complete_one(struct fake *fake, size_t *next, int idle)
{
	while (*next < fake->post_count && fake->posts[*next].done)
		(*next)++;
	if (*next < fake->post_count)
		fake_complete(fake, *next, 0);
	fab_reap_pass(fake->worker, fake->lane);
	for (int i = 0; i <= idle; i++)
		fake_pass(fake);
}

/* A one-page transfer beside a huge one, of the same peer or of another: it
 * waits for one turn of the other. */
static void test_fairness(int same_peer, int idle)
{
	struct fake_limits limits = {.operation_bytes = PAGE,
				     .inflight_count = 4};
	struct fab_region *region;
	struct fake fake;
	uint32_t peer, other;
	size_t begun, next = 0;

	fake_open(&fake, NULL, &limits);
	peer = fake_peer(&fake);
	other = same_peer ? peer : fake_peer(&fake);
	region = fake_region(&fake, 1 << 20);
	(void) fake_start(&fake, peer, 0, 1, region, PAGE, 100000);
	for (int i = 0; i < 100; i++)
		complete_one(&fake, &next, idle);
	begun = fake.post_count;
	(void) fake_start(&fake, other, FAB_TRANSFER_READ, 2, region, PAGE, 1);
	while (fake_count(&fake, FAKE_READ, 0) == 0) {
		CHECK(fake.post_count - begun <= 2 * QUANTUM);
		complete_one(&fake, &next, idle);
	}
	fake_close(&fake);
}

/* Without a wait fd the peer is told to keep polling, now and then, while what
 * is done shows in no CQ of its own. */
static void test_stir(uint32_t no_wait, uint32_t flags, size_t stirs)
{
	struct fake_limits limits = {.no_wait = no_wait, .inflight_count = 1};
	struct fab_options options = {.spin_ns = 1000};
	struct fab_region *region;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, &options, &limits);
	peer = fake_peer(&fake);
	region = fake_region(&fake, 1 << 20);
	(void) fake_start(&fake, peer, flags, 1, region, PAGE, 100);
	for (int i = 0; i < 10; i++) {
		fake.worker->now_ns += 250; /* half of what is due */
		fake_run(&fake);
		fake_complete_all(&fake, 0);
		fake_run(&fake);
	}
	CHECK(fake_count_frames(&fake, FAB_FRAME_STIR, 0) == stirs);
	fake_close(&fake);
}

/* With the lane full of pages, a frame leaves at once. */
static void test_frames_before_pages(void)
{
	struct fake_limits limits = {.operation_bytes = PAGE,
				     .inflight_count = 4};
	struct fab_region *region;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, &limits);
	peer = fake_peer(&fake);
	region = fake_region(&fake, 1 << 20);
	(void) fake_start(&fake, peer, 0, 1, region, PAGE, 100);
	fake_run(&fake);
	fake.again = 1; /* it must wait, and still goes before the next page */
	CHECK(!fab_frame_send(fake.engine, peer, FAB_FRAME_MESSAGE, 0, "x", 1,
			      NULL, 0));
	CHECK(fake.post_count == 4);
	fake_complete_all(&fake, 0);
	fab_reap_pass(fake.worker, fake.lane);
	fake_pass(&fake);
	CHECK(fake.posts[4].kind == FAKE_SEND);
	CHECK(fake.posts[5].kind == FAKE_WRITE);
	fake_close(&fake);
}

/* Frames have slots of their own: pages never use them up. */
static void test_frames_have_room(void)
{
	struct fake_limits limits = {.operation_bytes = PAGE,
				     .inflight_count = 8};
	struct fab_region *region;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, &limits);
	peer = fake_peer(&fake);
	region = fake_region(&fake, 1 << 20);
	(void) fake_start(&fake, peer, 0, 1, region, PAGE, 1000);
	fake_run(&fake);
	CHECK(fake_count(&fake, FAKE_WRITE, 0) == 8);
	for (int i = 0; i < 20; i++)
		CHECK(!fab_frame_send(fake.engine, peer, FAB_FRAME_MESSAGE, 0,
				      "x", 1, NULL, 0));
	fake_run(&fake);
	CHECK(fake_count(&fake, FAKE_SEND, 0) == 20);
	fake_close(&fake);
}

/* Every limit of an operation's length, down to 1 byte: whole coverage, in
 * order, none longer. */
static void test_operation_bytes(uint64_t operation_bytes, uint32_t segments,
				 uint32_t merge)
{
	enum { BYTES = 37, COUNT = 5 };
	struct fake_limits limits = {
		.operation_bytes = operation_bytes,
		.segments = segments,
		.inflight_count = 300,
	};
	struct fab_options options = {.merge = merge};
	uint64_t pages = 0;
	struct fab_transfer *transfer;
	struct fab_region *region;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, &options, &limits);
	peer = fake_peer(&fake);
	region = fake_region(&fake, 1 << 20);
	transfer = fake_start(&fake, peer, FAB_TRANSFER_CONFIRM, 1, region,
			      BYTES, COUNT);
	fake_run(&fake);
	for (size_t i = 0, at = 0; i < fake.post_count; i++) {
		if (fake.posts[i].kind == FAKE_SEND) {
			CHECK(at == BYTES * COUNT);
			CHECK(fake.posts[i].announce.count == i);
			continue;
		}
		CHECK(fake.posts[i].bytes <= operation_bytes);
		CHECK(fake.posts[i].segments <= segments);
		CHECK(fake.posts[i].remote == 0x5000 + at);
		at += fake.posts[i].bytes;
		fake_complete(&fake, i, 0);
		fake_pass(&fake);
		pages = fab_transfer_pages_done(transfer);
		/* A page is done with its last byte. */
		CHECK(pages == at / BYTES);
		CHECK(fab_transfer_bytes_done(transfer) == at);
	}
	CHECK(pages == COUNT);
	fake_close(&fake);
}

/* The two stopped at n operations: the provider refuses for good. */
static void test_hard_error_in_a_turn(void)
{
	struct fake_limits limits = {.operation_bytes = PAGE};
	struct fab_completion done;
	struct fab_region *region;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, &limits);
	peer = fake_peer(&fake);
	region = fake_region(&fake, 1 << 20);
	fake.fail_at = 20;
	fake.fail_code = -FI_ENOMEM;
	(void) fake_start(&fake, peer, 0, 1, region, PAGE, 50);
	(void) fake_start(&fake, peer, 0, 2, region, PAGE, 50);
	fake_run(&fake);
	fake_complete_all(&fake, 0);
	fake_run(&fake);
	done = expect_done(&fake); /* of the first, in its second turn? */
	CHECK(done.token == 2 && done.status == -FI_ENOMEM && done.quiet);
	done = expect_done(&fake);
	CHECK(done.token == 1 && done.status == 0);
	CHECK(fake.post_count == 54);
	fake_close(&fake);
}

/* One peer may have fewer operations out than the lane may. */
static void test_limit_of_a_peer(void)
{
	struct fake_limits limits = {.operation_bytes = PAGE};
	struct fab_region *region;
	uint64_t count, bytes;
	struct fake fake;

	fake_open(&fake, NULL, &limits);
	fake.lane->peer_inflight = 4;
	region = fake_region(&fake, 1 << 20);
	for (int i = 0; i < 2; i++)
		(void) fake_start(&fake, fake_peer(&fake), 0, (uint64_t) i,
				  region, PAGE, 10);
	fake_run(&fake);
	for (int round = 0; round < 2; round++) {
		count_out(&fake, &count, &bytes);
		CHECK(count == 8);
		fake_complete_all(&fake, 0);
		fake_run(&fake);
	}
	count_out(&fake, &count, &bytes);
	CHECK(count == 4);
	fake_complete_all(&fake, 0);
	fake_run(&fake);
	CHECK(fake_count(&fake, FAKE_WRITE, 0) == 20);
	fake_close(&fake);
}

int main(void)
{
	test_limit_of_a_peer();
	test_limits(1, 1ull << 30);
	test_limits(7, 1ull << 30);
	test_limits(64, 1);
	test_limits(64, 3 * PAGE);
	test_limits(64, 50000);
	for (size_t again = 0; again < 4; again++)
		test_again(again);
	test_full_of_another();
	test_frames_have_room();
	for (uint64_t bytes = 1; bytes <= 200; bytes += bytes < 40 ? 1 : 37) {
		test_operation_bytes(bytes, 1, 0);
		test_operation_bytes(bytes, 1, 1);
		test_operation_bytes(bytes, 4, 0);
		test_operation_bytes(bytes, 4, 1);
	}
	test_hard_error_in_a_turn();
	test_stir(0, 0, 0);
	test_stir(1, FAB_TRANSFER_CONFIRM, 0);
	test_stir(1, 0, 5);
	test_stir(1, FAB_TRANSFER_READ, 5);
	test_frames_before_pages();
	for (int idle = 0; idle < 4; idle++)
		test_fairness(1, idle);
	for (int idle = 0; idle < 4; idle++)
		test_fairness(0, idle);
	return 0;
}
