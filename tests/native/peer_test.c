/* peer.h: P1 to P3, frames in order, and what happens when a peer is lost. */
#include "fake_lane.h"

#include <errno.h>
#include <string.h>

#define PAGE       100u
#define TIMEOUT    (8 * FAKE_SECOND_NS)
#define QUARANTINE 256u

static void remove_peer(struct fake *fake, uint32_t peer)
{
	CHECK(!fab_peer_remove(fake->engine, peer));
	fake_run(fake);
}

static void expect_removed(struct fake *fake, uint32_t peer)
{
	struct fab_completion removed;

	fake_expect(fake, FAB_PEER_REMOVED, &removed);
	CHECK(removed.peer == peer);
}

static void expect_done(struct fake *fake, uint64_t token, int32_t status,
			uint32_t quiet)
{
	struct fab_completion done;

	fake_expect(fake, FAB_TRANSFER_DONE, &done);
	CHECK(done.token == token);
	CHECK(done.status == status && done.quiet == quiet);
}

static void send_text(struct fake *fake, uint32_t peer, uint32_t kind,
		      uint64_t token)
{
	CHECK(!fab_frame_send(fake->engine, peer, kind, token, "a", 1, "bc",
			      2));
}

static uint32_t next_slot(struct fake *fake)
{
	return fab_peer_slot(fake->engine, fake_peer_open(fake), 0);
}

/* P1 and P2: slots come back in turn, and not before many others are free. */
static void test_p2_turn(void)
{
	uint32_t peers[QUARANTINE + 8];
	struct fake fake;

	fake_open(&fake, NULL, NULL);
	for (uint32_t i = 0; i < QUARANTINE + 8; i++) {
		peers[i] = fake_peer_open(&fake);
		CHECK(fab_peer_slot(fake.engine, peers[i], 0) == i);
	}
	for (uint32_t i = 0; i < QUARANTINE; i++) {
		remove_peer(&fake, peers[i]);
		expect_removed(&fake, peers[i]);
	}
	CHECK(next_slot(&fake) == QUARANTINE + 8); /* a new one */
	remove_peer(&fake, peers[QUARANTINE + 1]);
	expect_removed(&fake, peers[QUARANTINE + 1]);
	CHECK(next_slot(&fake) == 0); /* the oldest */
	CHECK(next_slot(&fake) == QUARANTINE + 9);
	fake_close(&fake);
}

/* P1: not while a transfer, a frame or an operation of the old peer is out,
 * nor while the loop has not released one. */
static void test_p1_nothing_out(void)
{
	struct fab_region *region;
	struct fab_transfer *transfer;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, NULL);
	peer = fake_peer(&fake);
	region = fake_region(&fake, PAGE);
	transfer = fake_start(&fake, peer, 0, 1, region, PAGE, 1);
	send_text(&fake, peer, FAB_FRAME_MESSAGE, 9);
	fake_run(&fake);
	remove_peer(&fake, peer);
	fake_expect_none(&fake);
	fake_complete(&fake, 0, 0);
	fake_run(&fake);
	fake_complete(&fake, 1, 0);
	fake_run(&fake);
	for (int i = 0; i < 2; i++) {
		struct fab_completion completion;

		CHECK(fake_reap(&fake, &completion));
		CHECK(completion.kind ==
		      (i ? FAB_TRANSFER_DONE : FAB_FRAME_SENT));
	}
	expect_removed(&fake, peer);
	CHECK(fake_slot(&fake, peer)->state == FAB_PEER_ORPHANED);
	CHECK(!fab_transfer_release(fake.engine, transfer));
	fake_run(&fake);
	CHECK(fake_slot(&fake, peer)->state == FAB_PEER_FREE);
	CHECK(fake.addresses == 0);
	fake_close(&fake);
}

/* P1: operations that never come back are waited for, but not for ever. When
 * they do come back, nothing more is said of the peer. */
static void test_p1_never_comes_back(void)
{
	struct fab_completion completion;
	struct fab_region *region;
	struct fab_transfer *transfer;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, NULL);
	peer = fake_peer(&fake);
	region = fake_region(&fake, PAGE);
	transfer = fake_start(&fake, peer, 0, 1, region, PAGE, 2);
	send_text(&fake, peer, FAB_FRAME_MESSAGE, 9);
	fake_run(&fake);
	remove_peer(&fake, peer);
	fake_tick(&fake, TIMEOUT);
	fake_expect_none(&fake);
	fake_tick(&fake, 1);
	expect_done(&fake, 1, -FI_ECANCELED, 0);
	expect_removed(&fake, peer);
	CHECK(fake_slot(&fake, peer)->state == FAB_PEER_ORPHANED);
	fake_tick(&fake, 10 * TIMEOUT);
	fake_expect_none(&fake);
	fake_complete(&fake, 1, 0);
	fake_complete(&fake, 2, FI_ECANCELED);
	fake_run(&fake);
	fake_expect(&fake, FAB_TRANSFER_QUIET, &completion);
	CHECK(completion.token == 1);
	CHECK(!fab_transfer_release(fake.engine, transfer));
	fake_run(&fake);
	CHECK(fake_slot(&fake, peer)->state == FAB_PEER_ORPHANED);
	fake_complete(&fake, 0, 0);
	fake_run(&fake);
	CHECK(fake_slot(&fake, peer)->state == FAB_PEER_FREE);
	fake_expect_none(&fake); /* no FRAME_SENT either */
	fake_close(&fake);
}

/* P3: one report; its transfers end, each once; another peer goes on. */
static void test_p3_broken_once(int by_post)
{
	struct fab_completion failed;
	struct fab_region *region;
	struct fab_transfer *transfers[4];
	struct fake fake;
	uint32_t lost, other;

	fake_open(&fake, NULL, NULL);
	lost = fake_peer(&fake);
	other = fake_peer(&fake);
	region = fake_region(&fake, PAGE);
	for (uint64_t i = 0; i < 3; i++)
		transfers[i] = fake_start(&fake, lost, FAB_TRANSFER_CONFIRM, i,
					  region, PAGE, 1);
	transfers[3] = fake_start(&fake, other, 0, 3, region, PAGE, 1);
	send_text(&fake, other, FAB_FRAME_MESSAGE, 0);
	fake_run(&fake);
	if (by_post) {
		fake.send_code = -FI_ECONNREFUSED;
		send_text(&fake, lost, FAB_FRAME_MESSAGE, 5);
	} else {
		fake_complete(&fake, 0, FI_ECONNRESET);
	}
	fake_run(&fake);
	fake.send_code = 0;
	fake_expect(&fake, FAB_PEER_FAILED, &failed);
	CHECK(failed.peer == lost);
	CHECK(failed.status == (by_post ? -FI_ECONNREFUSED : -FI_ECONNRESET));
	send_text(&fake, lost, FAB_FRAME_MESSAGE, 6); /* dropped */
	for (size_t i = 0; i < fake.post_count; i++) {
		if (!fake.posts[i].done && fake.posts[i].address == 100 + lost)
			fake_complete(&fake, i, FI_ECONNRESET);
	}
	fake_run(&fake);
	for (int seen = 0, i = 0; i < 3; i++) {
		struct fab_completion done;

		fake_expect(&fake, FAB_TRANSFER_DONE, &done);
		CHECK(done.peer == lost && done.status == failed.status);
		CHECK(done.quiet && !(seen >> done.token & 1));
		seen |= 1 << done.token;
	}
	fake_expect_none(&fake);
	CHECK(fake_slot(&fake, other)->state == FAB_PEER_ATTACHED);
	/* One that comes later ends at once. */
	fake_start(&fake, lost, FAB_TRANSFER_NOTIFY, 8, region, PAGE, 1);
	fake_run(&fake);
	expect_done(&fake, 8, -FI_ESHUTDOWN, 1);
	fake_complete_all(&fake, 0);
	fake_run(&fake);
	expect_done(&fake, 3, 0, 1);
	for (int i = 0; i < 4; i++)
		CHECK(!fab_transfer_release(fake.engine, transfers[i]));
	remove_peer(&fake, lost);
	expect_removed(&fake, lost);
	CHECK(fab_peer_remove(fake.engine, lost) == -FI_EINVAL);
	fake_expect_none(&fake);
	fake_close(&fake);
}

/* The lost peer's operations do not come back: DONE after the grace, and the
 * loop may remove it before or after that. */
static void test_p3_broken_and_stuck(int remove_late)
{
	struct fab_completion completion;
	struct fab_region *region;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, NULL);
	peer = fake_peer(&fake);
	region = fake_region(&fake, PAGE);
	(void) fake_start(&fake, peer, 0, 1, region, PAGE, 2);
	fake_run(&fake);
	fake_complete(&fake, 0, FI_ECONNRESET);
	fake_run(&fake);
	fake_expect(&fake, FAB_PEER_FAILED, &completion);
	if (!remove_late)
		remove_peer(&fake, peer);
	fake_tick(&fake, FAB_GRACE_NS);
	fake_expect_none(&fake);
	fake_tick(&fake, 1);
	expect_done(&fake, 1, -FI_ECONNRESET, 0);
	if (remove_late) {
		fake_expect_none(&fake);
		remove_peer(&fake, peer); /* waits no second time */
	}
	expect_removed(&fake, peer);
	fake_stop(&fake);
	fake_expect(&fake, FAB_TRANSFER_QUIET, &completion);
	fake_close(&fake);
}

/* Frames wait until the peer is attached, all but hellos; then leave in order
 * and before pages. A frame is completed before its token is told. */
static void test_frames(int bounce)
{
	struct fake_limits limits = {.bounce = (uint32_t) bounce};
	struct fab_completion sent;
	struct fab_region *region;
	struct fake fake;
	uint32_t peer, slot = 3;

	fake_open(&fake, NULL, &limits);
	peer = fake_peer_open(&fake);
	region = fake_region(&fake, PAGE);
	send_text(&fake, peer, FAB_FRAME_HELLO, 1);
	(void) fake_start(&fake, peer, 0, 50, region, PAGE, 1);
	for (uint64_t token = 2; token < 20; token++)
		send_text(&fake, peer, FAB_FRAME_MESSAGE, token);
	fake_run(&fake);
	CHECK(fake.post_count == 1);
	CHECK(fake.posts[0].header.kind == FAB_FRAME_HELLO);
	CHECK(fake.posts[0].header.peer == FAB_NO_PEER);
	CHECK(fake.posts[0].header.cookie == 0);
	CHECK(fake.posts[0].bytes == sizeof(struct fab_frame_header) + 3);
	CHECK(!fab_peer_attach(fake.engine, peer, &slot, 1, 44, 0));
	fake.again = 2;
	for (size_t i = 0; i < 20; i++) {
		fake_run(&fake);
		if (i < fake.post_count && !fake.posts[i].done)
			fake_complete(&fake, i, 0);
	}
	fake_run(&fake);
	CHECK(fake.post_count == 20);
	for (size_t i = 1; i < 19; i++) {
		CHECK(fake.posts[i].kind == FAKE_SEND);
		CHECK(fake.posts[i].header.peer == 3);
		CHECK(fake.posts[i].header.cookie == 44);
	}
	CHECK(fake.posts[19].kind == FAKE_WRITE);
	for (uint64_t token = 1; token < 20; token++) {
		fake_expect(&fake, FAB_FRAME_SENT, &sent);
		CHECK(sent.token == token && sent.peer == peer);
	}
	expect_done(&fake, 50, 0, 1);
	CHECK(fake.lane->ops.used == 0);
	fake_close(&fake);
}

/* K2 of worker.h: a frame leaves within the call, unless a command waits that
 * it must not overtake. */
static void test_k2_express(void)
{
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, NULL);
	peer = fake_peer(&fake);
	send_text(&fake, peer, FAB_FRAME_MESSAGE, 0);
	CHECK(fake.post_count == 1);
	fake.again = 1;
	send_text(&fake, peer, FAB_FRAME_HELLO, 0); /* kept */
	CHECK(fake.post_count == 1);
	send_text(&fake, peer, FAB_FRAME_MESSAGE, 0); /* both */
	CHECK(fake.post_count == 3);
	CHECK(fake.posts[1].header.kind == FAB_FRAME_HELLO);
	CHECK(!fab_peer_remove(fake.engine, peer));
	send_text(&fake, peer, FAB_FRAME_MESSAGE, 0); /* behind the removal */
	CHECK(fake.post_count == 3);
	fake_run(&fake);
	CHECK(fake.post_count == 3);
	send_text(&fake, peer, FAB_FRAME_MESSAGE, 0);
	CHECK(fab_frame_send(fake.engine, peer + 1, FAB_FRAME_MESSAGE, 0, "a",
			     1, NULL, 0) == -FI_EINVAL); /* nobody */
	fake_run(&fake);
	CHECK(fake.post_count == 3);
	fake_close(&fake);
}

static void expect_timed_out(struct fake *fake, uint32_t peer)
{
	struct fab_completion failed;

	fake_expect(fake, FAB_PEER_FAILED, &failed);
	CHECK(failed.peer == peer && failed.status == -FI_ETIMEDOUT);
}

/* Without a heartbeat a silent peer is lost only while something waits for it. */
static void test_timeout(void)
{
	struct fab_completion received;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, NULL);
	peer = fake_peer(&fake);
	fake_tick(&fake, 100 * TIMEOUT);
	fake_expect_none(&fake);
	send_text(&fake, peer, FAB_FRAME_MESSAGE, 0);
	fake_run(&fake);
	fake_tick(&fake, 1); /* the wait begins */
	fake_tick(&fake, TIMEOUT);
	fake_expect_none(&fake);
	fake_frame(&fake, peer, FAB_FRAME_MESSAGE, "x", 1); /* life */
	fake_run(&fake);
	fake_expect(&fake, FAB_FRAME_RECEIVED, &received);
	fake_tick(&fake, TIMEOUT);
	fake_expect_none(&fake);
	fake_tick(&fake, 1);
	expect_timed_out(&fake, peer);
	fake_tick(&fake, 100 * TIMEOUT);
	fake_expect_none(&fake);
	fake_close(&fake);
}

static uint32_t attach_beating(struct fake *fake)
{
	uint32_t peer = fake_peer_open(fake), slot = FAKE_REMOTE_SLOT;

	CHECK(!fab_peer_attach(fake->engine, peer, &slot, 1, FAKE_REMOTE_COOKIE,
			       FAKE_SECOND_NS));
	fake_pass(fake);
	return peer;
}

static void hear_beat(struct fake *fake, uint32_t peer, uint64_t messages)
{
	struct fab_beat beat = {.messages = messages};

	fake_frame(fake, peer, FAB_FRAME_BEAT, &beat, sizeof(beat));
	fake_run(fake);
}

/* P5: with a heartbeat an idle peer is watched too, and says what has left. */
static void test_p5_heartbeat(void)
{
	const struct fake_post *beat;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, NULL);
	peer = attach_beating(&fake);
	fake_tick(&fake, FAKE_SECOND_NS - 1);
	fake_run(&fake);
	CHECK(fake_count_frames(&fake, FAB_FRAME_BEAT, 0) == 0);
	fake_tick(&fake, 1);
	fake_run(&fake);
	beat = fake_last_frame(&fake, FAB_FRAME_BEAT);
	CHECK(beat->bytes ==
	      sizeof(struct fab_frame_header) + sizeof(struct fab_beat));
	for (int i = 0; i < 30; i++) {
		fake_complete_all(&fake, 0);
		hear_beat(&fake, peer, 0);
		fake_tick(&fake, TIMEOUT / 2);
		fake_expect_none(&fake);
	}
	fake_tick(&fake, TIMEOUT / 2);
	fake_expect_none(&fake);
	fake_tick(&fake, 1);
	expect_timed_out(&fake, peer);
	fake_close(&fake);
}

/* P5: whoever was not there itself blames no peer. */
static void test_p5_excuse(void)
{
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, NULL);
	peer = attach_beating(&fake);
	fake.worker->now_ns += 100 * TIMEOUT;
	fab_peer_excuse(fake.worker, 100 * TIMEOUT);
	fake_tick(&fake, TIMEOUT);
	fake_expect_none(&fake);
	fake_tick(&fake, 1);
	expect_timed_out(&fake, peer);
	fake_close(&fake);
}

/* P5: a message that the peer has sent, and that never comes. */
static void test_p5_missing(void)
{
	struct fab_completion completion;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, NULL);
	peer = attach_beating(&fake);
	hear_beat(&fake, peer, 1);
	fake_tick(&fake, TIMEOUT / 2 + 1);
	fake_frame(&fake, peer, FAB_FRAME_MESSAGE, "late", 4);
	hear_beat(&fake, peer, 1);
	fake_expect(&fake, FAB_FRAME_RECEIVED, &completion);
	hear_beat(&fake, peer, 2);
	fake_tick(&fake, TIMEOUT / 2);
	hear_beat(&fake, peer, 2);
	fake_expect_none(&fake);
	fake_tick(&fake, 1);
	hear_beat(&fake, peer, 2);
	fake_expect(&fake, FAB_PEER_FAILED, &completion);
	CHECK(completion.peer == peer && completion.status == -FI_EIO);
	fake_close(&fake);
}

/* Stale, foreign and broken frames. */
static void test_received(void)
{
	struct fab_announce announce = {.immediate = 0};
	struct fab_completion completion;
	struct fab_statistics statistics;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, NULL);
	peer = fake_peer(&fake);
	fake_frame(&fake, FAB_NO_PEER, FAB_FRAME_HELLO, "hello", 5);
	fake_frame(&fake, peer, FAB_FRAME_MESSAGE, "text", 4);
	fake_frame(&fake, peer + 9, FAB_FRAME_MESSAGE, "stale", 5);
	fake_slot(&fake, peer)->cookie ^= 1;
	fake_frame(&fake, peer, FAB_FRAME_MESSAGE, "foreign", 7);
	fake_run(&fake);
	CHECK(fab_engine_reap(fake.engine, &completion, 1) == 1);
	CHECK(completion.kind == FAB_FRAME_RECEIVED);
	CHECK(completion.peer == FAB_NO_PEER && completion.bytes == 5);
	CHECK(!memcmp(completion.data, "hello", 5));
	fake_expect_none(&fake); /* the cookie was wrong by then */
	fake_slot(&fake, peer)->cookie ^= 1;
	fab_engine_statistics(fake.engine, &statistics);
	CHECK(statistics.stale_frames == 3 && !statistics.malformed_frames);
	fake_frame(&fake, peer, FAB_FRAME_ANNOUNCE, &announce, 31);
	fake_run(&fake);
	fake_expect(&fake, FAB_PEER_FAILED, &completion);
	CHECK(completion.status == -EPROTO);
	fab_engine_statistics(fake.engine, &statistics);
	CHECK(statistics.malformed_frames == 1);
	fake_close(&fake);
}

int main(void)
{
	test_p2_turn();
	test_p1_nothing_out();
	test_p3_broken_once(0);
	test_p3_broken_once(1);
	test_p3_broken_and_stuck(0);
	test_frames(0);
	test_frames(1);
	test_k2_express();
	test_timeout();
	test_p5_heartbeat();
	test_p5_excuse();
	test_p5_missing();
	test_received();
	test_p1_never_comes_back();
	test_p3_broken_and_stuck(1);
	return 0;
}
