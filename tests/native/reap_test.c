/* Reading a CQ that says all it can say: errors in every form, an overrun,
 * completions in any order, receives that cannot be posted again. */
#include "fake_lane.h"

#include <string.h>

#define PAGE 100u

static const struct fake_limits limits = {.operation_bytes = PAGE};

/* The error's code, whatever its sign; the provider's code and text. */
static void test_error_entry(int err, int code)
{
	struct fab_completion done;
	struct fab_region *region;
	struct fake fake;

	fake_open(&fake, NULL, &limits);
	region = fake_region(&fake, 1 << 20);
	(void) fake_start(&fake, fake_peer(&fake), 0, 1, region, PAGE, 1);
	fake_run(&fake);
	fake_complete(&fake, 0, FI_EIO);
	fake.events[fake.event_count - 1].error.err = err;
	fake_run(&fake);
	CHECK(fab_engine_reap(fake.engine, &done, 1) == 1);
	CHECK(done.kind == FAB_TRANSFER_DONE && done.status == code);
	CHECK(done.error->code == code && done.error->provider_code == 77);
	CHECK(!strcmp(done.error->call, "fi_cq_readerr"));
	CHECK(!strcmp(done.error->text, "scripted 77"));
	fab_error_free(done.error);
	CHECK(fake.worker->statistics.operations_failed == 1);
	fake_close(&fake);
}

/* The CQ is dead: one report, every peer breaks, each transfer ends once, and
 * what is out is quiet when the lane is closed. */
static void test_dead_queue(ssize_t code)
{
	enum { PEERS = 3, EACH = 4 };
	struct fab_completion completion;
	struct fab_region *region;
	struct fake fake;
	uint32_t peers[PEERS];
	uint64_t done = 0, quiet = 0, failed = 0;

	fake_open(&fake, NULL, &limits);
	region = fake_region(&fake, 1 << 20);
	for (uint32_t i = 0; i < PEERS; i++)
		peers[i] = fake_peer(&fake);
	for (uint64_t i = 0; i < PEERS * EACH; i++)
		(void) fake_start(&fake, peers[i % PEERS],
				  FAB_TRANSFER_CONFIRM | FAB_TRANSFER_NOTIFY, i,
				  region, PAGE, i % 5);
	fake_run(&fake);
	fake_complete(&fake, 0, 0);
	fake_say(&fake, code);
	fake_say(&fake, code);
	fake_run(&fake);
	fake_expect(&fake, FAB_WORKER_FAILED, &completion);
	CHECK(completion.status == code);
	fake_tick(&fake, FAB_GRACE_NS + 1);
	(void) fake_start(&fake, peers[0], 0, PEERS * EACH, region, PAGE, 1);
	fake_run(&fake);
	fake_stop(&fake);
	while (fake_reap(&fake, &completion)) {
		if (completion.kind == FAB_PEER_FAILED) {
			CHECK(completion.status == code);
			CHECK(!(failed >> completion.peer & 1));
			failed |= 1ull << completion.peer;
		} else if (completion.kind == FAB_TRANSFER_DONE) {
			CHECK(!(done >> completion.token & 1));
			done |= 1ull << completion.token;
			CHECK(completion.status == code ||
			      completion.token == PEERS * EACH);
			CHECK(completion.status != 0);
			if (completion.quiet)
				quiet |= 1ull << completion.token;
		} else if (completion.kind == FAB_TRANSFER_QUIET) {
			CHECK(done >> completion.token & 1);
			CHECK(!(quiet >> completion.token & 1));
			quiet |= 1ull << completion.token;
		} else {
			CHECK(completion.kind == FAB_PEER_REMOVED);
		}
	}
	CHECK(failed == (1ull << PEERS) - 1);
	CHECK(done == (2ull << PEERS * EACH) - 1 && quiet == done);
	fake_close(&fake);
}

/* After the failure nothing is opened any more. */
static void test_failed_engine_refuses(void)
{
	struct fab_completion completion;
	struct fab_region *region;
	struct fake fake;
	uint64_t address = 5;
	uint32_t lanes = 1;

	fake_open(&fake, NULL, &limits);
	fake_say(&fake, -FI_EOVERRUN);
	fake_run(&fake);
	fake_expect(&fake, FAB_WORKER_FAILED, &completion);
	CHECK(!fab_peer_add(fake.engine, 3, 1, &address, 8, &lanes, 1));
	CHECK(!fab_region_register(fake.engine, 4, 4096, 1, 0, 0, 1, &region));
	fake_run(&fake);
	fake_expect(&fake, FAB_PEER_ADDED, &completion);
	CHECK(completion.status == -FI_EOPBADSTATE && completion.token == 3);
	CHECK(completion.peer == FAB_NO_PEER);
	fake_expect(&fake, FAB_REGION_REGISTERED, &completion);
	CHECK(completion.status == -FI_EOPBADSTATE && completion.token == 4);
	CHECK(!fab_region_deregister(fake.engine, region));
	fake_run(&fake);
	fake_expect(&fake, FAB_REGION_DEREGISTERED, &completion);
	fake_close(&fake);
}

/* Completions in every order drawn, errors of operations among them. */
static void test_out_of_order(uint64_t seed)
{
	enum { TRANSFERS = 6, COUNT = 30 };
	uint64_t state = seed, failed = 0, seen = 0;
	struct fab_completion done;
	struct fab_region *region;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, &limits);
	peer = fake_peer(&fake);
	region = fake_region(&fake, 1 << 20);
	for (uint64_t i = 0; i < TRANSFERS; i++)
		(void) fake_start(&fake, peer, i & 1, i, region, PAGE, COUNT);
	fake_run(&fake);
	for (size_t open = fake.post_count; open > 0;) {
		size_t i = random_below(&state, fake.post_count);
		uint64_t number;
		int bad;

		if (fake.posts[i].done)
			continue;
		number = ((struct fab_op *) fake.posts[i].context)
				 ->part->sequence;
		bad = random_below(&state, 50) == 0;
		failed |= (uint64_t) bad << number;
		fake_complete(&fake, i, bad ? FI_EACCES : 0);
		fake_run(&fake);
		open = 0;
		for (size_t k = 0; k < fake.post_count; k++)
			open += !fake.posts[k].done;
	}
	for (int i = 0; i < TRANSFERS; i++) {
		fake_expect(&fake, FAB_TRANSFER_DONE, &done);
		CHECK(!(seen >> done.token & 1) && done.quiet);
		seen |= 1ull << done.token;
		CHECK(done.status ==
		      (failed >> done.token & 1 ? -FI_EACCES : 0));
	}
	fake_expect_none(&fake);
	CHECK(fake.lane->ops.used == 0);
	CHECK(fake.lane->inflight_count == 0 && !fake.lane->inflight_bytes);
	fake_close(&fake);
}

/* A receive that fails is posted again; one that meets -FI_EAGAIN, later. */
static void test_receives(void)
{
	struct fab_completion received;
	struct fake_receive first;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, &limits);
	peer = fake_peer(&fake);
	CHECK(fake.receive_count == 16);
	first = fake.receives[0];
	fake_frame(&fake, peer, FAB_FRAME_MESSAGE, "x", 1);
	fake.events[fake.event_count - 1].ret = -FI_EAVAIL;
	fake.events[fake.event_count - 1].error.op_context = first.context;
	fake.events[fake.event_count - 1].error.err = FI_ETRUNC;
	fake.recv_again = 2;
	fake_pass(&fake);
	CHECK(fake.receive_count == 15);
	CHECK(fake.worker->statistics.malformed_frames == 1);
	fake_pass(&fake);
	CHECK(fake.receive_count == 15);
	fake_pass(&fake);
	CHECK(fake.receive_count == 16);
	for (int i = 0; i < 16; i++)
		fake_frame(&fake, peer, FAB_FRAME_MESSAGE, "y", 1);
	fake.recv_again = 30;
	fake_run(&fake);
	while (fake.receive_count < 16)
		fake_pass(&fake);
	for (int i = 0; i < 16; i++)
		fake_expect(&fake, FAB_FRAME_RECEIVED, &received);
	fake_expect_none(&fake);
	fake_close(&fake);
}

/* Immediates that consume a receive, as FI_RX_CQ_DATA says. */
static void test_immediates_consume_receives(void)
{
	struct fake fake;

	fake_open(&fake, NULL, &limits);
	(void) fake_peer(&fake);
	fake.lane->consumes_receives = 1;
	for (int i = 0; i < 100; i++) {
		fake_immediate(&fake, fab_immediate(0, 0, 0));
		fake.events[fake.event_count - 1].entry.op_context =
			fake.receives[--fake.receive_count].context;
		fake_run(&fake);
		CHECK(fake.receive_count == 16);
	}
	CHECK(fake.worker->statistics.immediates_received == 100);
	fake_close(&fake);
}

/* Nothing of it is ours, or nothing is there after all. */
static void test_strays(void)
{
	struct fake fake;

	fake_open(&fake, NULL, &limits);
	fake_say(&fake, 1); /* no context */
	fake_say(&fake, -FI_EAVAIL);
	fake.events[fake.event_count - 1].error.err = FI_EIO;
	fake_run(&fake);
	CHECK(fake.worker->statistics.stray_completions == 2);
	CHECK(!fake.worker->failed);
	fake_expect_none(&fake);
	fake_close(&fake);
}

/* The peer sends more than its window: frames that nobody reaps pile up. */
static void test_window(void)
{
	struct fab_options options = {.frame_window_bytes = 1000};
	struct fab_completion completion;
	struct fake fake;
	uint32_t peer;
	int received = 0;

	fake_open(&fake, &options, &limits);
	peer = fake_peer(&fake);
	for (int round = 0; round < 3; round++) { /* reaped, all is well */
		for (int i = 0; i < 8; i++)
			fake_frame(&fake, peer, FAB_FRAME_MESSAGE, "x", 1);
		fake_run(&fake);
		while (fake_reap(&fake, &completion))
			received += completion.kind == FAB_FRAME_RECEIVED;
	}
	CHECK(received == 24);
	for (int i = 0; i < 40; i++) {
		fake_frame(&fake, peer, FAB_FRAME_MESSAGE, "x", 1);
		fake_run(&fake);
	}
	for (received = 0; fake_reap(&fake, &completion); received++) {
		if (completion.kind == FAB_PEER_FAILED)
			break;
		CHECK(completion.kind == FAB_FRAME_RECEIVED);
	}
	CHECK(completion.kind == FAB_PEER_FAILED);
	CHECK(received * 65 <= 1000 + 65 + 65);
	fake_expect_none(&fake);
	fake_close(&fake);
}

int main(void)
{
	test_error_entry(FI_EACCES, -FI_EACCES);
	test_error_entry(-FI_EACCES, -FI_EACCES);
	test_error_entry(0, -FI_EOTHER);
	test_dead_queue(-FI_EOVERRUN);
	test_dead_queue(-FI_EIO);
	test_failed_engine_refuses();
	for (uint64_t seed = 1; seed <= 30; seed++)
		test_out_of_order(seed);
	test_receives();
	test_immediates_consume_receives();
	test_strays();
	test_window();
	return 0;
}
